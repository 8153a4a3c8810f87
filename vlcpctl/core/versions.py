"""Data that `vlcpctl forget` has rewritten without some pairs: the same data under a new id.

The manifest of rewritten data has `was`: its earlier content ids, oldest first. Whatever was made
from the data keeps the id that it had then, and two ids are of the same data if the first of all
their ids is the same. A manifest that refers to rewritten data by its new id records its earlier
ids, too, in `data_was`: the data itself may be gone when they are needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vlcpctl.core.errors import BadInput
from vlcpctl.core.fields import Fields
from vlcpctl.core.limits import MOST_REWRITES

WAS, DATA_WAS = "was", "data_was"


def earlier_ids(manifest: Mapping[str, Any], place: object) -> tuple[str, ...]:
    """The earlier content ids of an artifact, oldest first; () if it was never rewritten.

    `place` is the manifest's file. Raises BadInput if `was` is not a list of text, or is too long.
    """
    found = Fields(manifest, place).texts(WAS, [])
    if len(found) > MOST_REWRITES:
        raise BadInput(
            f"{place}: field {WAS!r} lists {len(found)} content ids, more than {MOST_REWRITES}"
        )
    return tuple(found)


@dataclass(frozen=True)
class Versions:
    """What is known about rewritten data; all other data has one id, and is only equal to itself.

    `firsts` maps each id of rewritten data to the oldest one. `counts` are the dotted names of
    those values of an identity that depend on how much data there is: they shrink with it.
    """

    firsts: Mapping[str, str] = field(default_factory=dict)
    counts: Collection[str] = ()

    @classmethod
    def of(cls, manifests: Iterable[Mapping[str, Any]], counts: Collection[str] = ()) -> Versions:
        """The versions of the artifacts with these manifests, and of the data they refer to.

        A manifest may be of an earlier version, or one that `read_manifest` has checked. `counts`
        are kept only if one of the artifacts was rewritten.
        """
        found: dict[str, str] = {}
        is_rewritten = False
        for manifest in manifests:
            was = manifest.get(WAS) or ()
            is_rewritten = is_rewritten or bool(was)
            for content, earlier in ((manifest.get("content"), was), *_recorded(manifest)):
                found |= dict.fromkeys((content, *earlier), earlier[0]) if earlier else {}
        return cls(found, counts if is_rewritten else ())

    def first(self, content: str) -> str:
        """The id under which the data was written first."""
        return self.firsts.get(content, content)

    def same(self, one: str, other: str) -> bool:
        """Whether two content ids are of the same data."""
        return self.first(one) == self.first(other)

    def among(self, content: str, others: Iterable[str]) -> bool:
        """Whether one of the other content ids is of the same data."""
        return self.first(content) in map(self.first, others)

    def missing(self, wanted: Iterable[str], others: Iterable[str]) -> list[str]:
        """The wanted content ids of data that the others do not have."""
        found = {self.first(other) for other in others}
        return [content for content in wanted if self.first(content) not in found]

    def __or__(self, other: Versions) -> Versions:
        """What either of the two knows."""
        return Versions({**self.firsts, **other.firsts}, (*self.counts, *other.counts))

    def agree(self, name: str, recorded: object, wanted: object) -> bool:
        """Whether the values of an identity are equal, or differ only as rewritten data does.

        `name` is the dotted name of the value.
        """
        if recorded == wanted:
            return True
        if isinstance(recorded, int) and isinstance(wanted, int):
            return name in self.counts and recorded > wanted
        return bool(self.firsts) and self._as_first(recorded) == self._as_first(wanted)

    def _as_first(self, value: object) -> object:
        if isinstance(value, list):
            return [self._as_first(one) for one in value]
        return self.first(value) if isinstance(value, str) else value


NO_VERSIONS = Versions()


def _recorded(manifest: Mapping[str, Any]) -> Iterable[tuple[str, list[str]]]:
    recorded: Mapping[str, list[str]] = manifest.get(DATA_WAS) or {}
    return recorded.items()


def recorded_versions(manifest: Mapping[str, Any], place: object) -> dict[str, list[str]]:
    """What a manifest records in `data_was`: the earlier ids of data, by its id then; {} if none.

    Raises BadInput if it is not lists of text by id, or one is too long.
    """
    found: dict[str, Any] = Fields(manifest, place)(DATA_WAS, dict, {})
    for content, was in found.items():
        earlier_ids({WAS: was}, f"{place}, {DATA_WAS} of {content!r:.80}")
    return found


def data_was(manifests: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The `data_was` of a manifest that refers to these artifacts; {} if none was rewritten."""
    found: dict[str, list[str]] = {}
    for manifest in manifests:
        found |= dict(_recorded(manifest))
        if manifest.get(WAS):
            found[str(manifest["content"])] = list(manifest[WAS])
    return found

"""Data that `vlcpctl forget` has rewritten without some pairs: the same data under a new id.

The manifest of rewritten data has `was`: its earlier content ids, oldest first. Whatever was made
from the data keeps the id that it had then, and two ids are of the same data if the first of all
their ids is the same. A manifest that refers to rewritten data by its new id records its earlier
ids, too, in `data_was`: the data itself may be gone when they are needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

from msgspec import Meta, Struct

from vlcpctl.core.limits import MOST_REWRITES
from vlcpctl.core.structs import converted

WAS, DATA_WAS = "was", "data_was"
Ids = Annotated[Sequence[str], Meta(max_length=MOST_REWRITES)]  # oldest first


class _Was(Struct):
    was: Annotated[tuple[str, ...], Meta(max_length=MOST_REWRITES)]


def earlier_ids(manifest: Mapping[str, Any], place: object) -> tuple[str, ...]:
    """The earlier content ids of an artifact, oldest first; () if it was never rewritten.

    `place` is the manifest's file. Raises BadInput if `was` is not a list of text, or is too long.
    """
    return converted({WAS: manifest.get(WAS) or ()}, _Was, place).was


class Rewritable(Protocol):
    """What a manifest says of rewritten data; the fields of a JSON object may be given instead."""

    @property
    def content(self) -> str:
        """The content id."""

    @property
    def was(self) -> Sequence[str]:
        """The earlier content ids."""

    @property
    def data_was(self) -> Mapping[str, Sequence[str]]:
        """Those of the data that it was made from, by the id then."""


AnyManifest = Rewritable | Mapping[str, Any]


@dataclass(frozen=True)
class Versions:
    """What is known about rewritten data; all other data has one id, and is only equal to itself.

    `firsts` maps each id of rewritten data to the oldest one. `counts` are the dotted names of
    those values of an identity that depend on how much data there is: they shrink with it.
    """

    firsts: Mapping[str, str] = field(default_factory=dict)
    counts: Collection[str] = ()

    @classmethod
    def of(cls, manifests: Iterable[AnyManifest], counts: Collection[str] = ()) -> Versions:
        """The versions of the artifacts with these manifests, and of the data they refer to.

        `counts` are kept only if one of the artifacts was rewritten.
        """
        found: dict[str, str] = {}
        is_rewritten = False
        for manifest in manifests:
            own, was, recorded = _ids(manifest)
            is_rewritten = is_rewritten or bool(was)
            for content, earlier in ((own, was), *recorded.items()):
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


def _ids(manifest: AnyManifest) -> tuple[str, Sequence[str], Mapping[str, Sequence[str]]]:
    """The content id, the earlier ones, and those of other data by id."""
    if isinstance(manifest, Mapping):
        return manifest.get("content", ""), manifest.get(WAS) or (), manifest.get(DATA_WAS) or {}
    return manifest.content, manifest.was, manifest.data_was


def data_was(manifests: Iterable[AnyManifest]) -> dict[str, list[str]]:
    """The `data_was` of a manifest that refers to these artifacts; {} if none was rewritten."""
    found: dict[str, list[str]] = {}
    for manifest in manifests:
        content, was, recorded = _ids(manifest)
        found |= {one: list(earlier) for one, earlier in recorded.items()}
        if was:
            found[content] = list(was)
    return found

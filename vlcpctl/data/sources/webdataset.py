"""Read pairs from WebDataset tars, those of img2dataset, CLIP_benchmark and our own included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from vlcpctl.core.errors import BadInput
from vlcpctl.data.pairs import Pair
from vlcpctl.data.sources.batches import in_batches
from vlcpctl.data.sources.columns import Wanted
from vlcpctl.data.sources.sample_parts import IMAGES, TEXTS, is_wanted, pair_of_parts
from vlcpctl.data.sources.tar_members import Member, members


@dataclass(frozen=True)
class TarFile:
    """One tar of pairs: members that share a name up to its first dot are one sample."""

    path: Path

    def rows(self) -> None:
        """A tar does not say how many samples it has."""

    def check_columns(self, wanted: Wanted) -> None:
        """A tar has no columns to check before it is read."""

    def names_files(self, wanted: Wanted) -> bool:
        """Whether images are given by path; a tar holds them."""
        return False

    def pairs(self, wanted: Wanted, *, images: bool = True) -> Iterator[list[Pair]]:
        """The samples in order, a batch at a time; without images, only what decides the task."""
        groups = groupby(members(self.path, _chooser(images=images)), key=sample_name)
        found = (self._pair(key, list(group), wanted) for key, group in groups)
        yield from in_batches(pair for pair in found if pair is not None)

    def _pair(self, key: str, group: list[Member], wanted: Wanted) -> Pair | None:
        parts: dict[str, Member] = {}
        for member in group:
            extension = extension_of(member.name)
            if extension in IMAGES + TEXTS and parts.setdefault(extension, member) is not member:
                raise BadInput(f"{self.path} has two members named {member.name!r}")
        if not parts:
            return None  # a directory, or a file that is no part of a pair
        return pair_of_parts(key, parts, wanted)


def _chooser(*, images: bool) -> Callable[[str, int], bool]:
    return lambda name, size: is_wanted(extension_of(name), size, images=images)


def sample_name(member: Member) -> str:
    """What the members of one sample share: the name up to the first dot behind its directory."""
    directory, slash, base = member.name.rpartition("/")
    return directory + slash + base.split(".", 1)[0]


def extension_of(name: str) -> str:
    """What says which part of its sample a member is, in small letters."""
    return name.rpartition("/")[2].partition(".")[2].lower()

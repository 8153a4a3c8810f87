"""Read pairs from WebDataset tars, including those of img2dataset, CLIP_benchmark and vlcpctl."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path

from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import shortened
from vlcpctl.data.sources.columns import ColumnOptions
from vlcpctl.data.sources.records import in_batches
from vlcpctl.data.sources.sample_parts import (
    IMAGES,
    OTHER_IMAGES,
    TEXTS,
    is_wanted,
    pair_of_parts,
    unusable,
)
from vlcpctl.data.sources.tar_reader import TarMember, members
from vlcpctl.data.tasks.samples import Pair


@dataclass(frozen=True)
class TarFile:
    """One tar of pairs: members that share a name up to the first dot form a sample."""

    path: Path

    def rows(self) -> None:
        """None: the number of samples is not known in advance."""

    def check_columns(self, columns: ColumnOptions) -> None:
        """Do nothing: a tar has no columns."""

    def names_files(self, columns: ColumnOptions) -> bool:
        """False: the images are in the tar itself."""
        return False

    def pairs(self, columns: ColumnOptions, *, images: bool = True) -> Iterator[list[Pair]]:
        """The samples in order, in batches; with `images=False`, images are not read.

        Raises BadInput if the tar is damaged or a sample has two members with the same extension.
        """

        def wants(name: str, size: int) -> bool:
            return is_wanted(extension_of(name), size, images=images)

        groups = groupby(members(self.path, wants), key=sample_of)
        found = (self._pairs(key, group, columns) for (_, key), group in groups)
        yield from in_batches(chain.from_iterable(found))

    def _pairs(
        self, key: str, group: Iterator[TarMember], columns: ColumnOptions
    ) -> Iterator[Pair]:
        """The pair of a sample; or, without an image in it, one for each member that looks so."""
        parts: dict[str, TarMember] = {}
        others: list[str] = []
        # One at a time: the members of a sample are bounded only because none is there twice.
        for member in group:
            extension = extension_of(member.name)
            if extension in IMAGES + TEXTS and parts.setdefault(extension, member) is not member:
                raise BadInput(f"{self.path} has two members named {shortened(member.name)!r}")
            if extension not in IMAGES and extension.rpartition(".")[2] in IMAGES + OTHER_IMAGES:
                others.append(member.name)
        if others and not parts.keys() & set(IMAGES):
            for name in others[:1] if parts else others:
                yield unusable(key if parts else name, _why_not(name))
        elif parts:  # else a directory, or a file that is not part of a pair
            yield pair_of_parts(key, parts, columns)


def _why_not(name: str) -> str:
    """Why a member that looks like an image is not that of a sample."""
    extension = extension_of(name)
    if extension in OTHER_IMAGES:
        return f"{shortened(name)} is not one of JPEG, PNG and WebP"
    return (
        f"{shortened(name)} has the extension {shortened(extension)}: the name of a sample ends at "
        "its first dot; rename it"
    )


def sample_of(member: TarMember) -> tuple[int, str]:
    """What the members of a sample share: the archive, and the path up to the last part's dot."""
    directory, slash, base = member.name.rpartition("/")
    return member.archive, directory + slash + base.split(".", 1)[0]


def extension_of(name: str) -> str:
    """The lower-case extension of a member, from the first dot of its file name."""
    return name.rpartition("/")[2].partition(".")[2].lower()

"""Read a folder in CLIP_benchmark's layout: tars of labelled images, class names, templates.

FOLDER/classnames.txt has one class per line, in the order of the labels.
FOLDER/zeroshot_classification_templates.txt has one template per line, with {c} for the class.
FOLDER/test/nshards.txt has the number of tars, 0.tar, 1.tar, ...; their members are images and,
under the same name, .cls files with the label.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.core.words import shortened
from vlcpctl.data.classification.labelled_images import Flaw, ImagesInTars
from vlcpctl.data.images.header import MAX_BYTES
from vlcpctl.data.sources.sample_parts import IMAGES
from vlcpctl.data.sources.tar_reader import TarMember, members
from vlcpctl.data.sources.webdataset import extension_of, sample_of
from vlcpctl.files.digests import cached_digest
from vlcpctl.files.inputs import read_text

CLASS_NAMES = "classnames.txt"
TEMPLATES = "zeroshot_classification_templates.txt"
SHARD_COUNT = "nshards.txt"
KIND = "dataset_type.txt"

_MAX_DIGITS = 20  # of a label
_HEADER_BYTES = 2**12  # read-ahead: enough for headers and labels, without reading the images


@dataclass(frozen=True)
class ClassFolder:
    """A folder in CLIP_benchmark's layout; `open_class_folder` makes it."""

    path: Path

    def class_names(self) -> list[str] | None:
        """The class names in the order of the labels; None if the folder does not list them.

        Raises BadInput if the file is not UTF-8 text.
        """
        return _lines(self.path / CLASS_NAMES)

    def templates(self) -> list[str] | None:
        """The folder's own prompt templates, or None.

        Raises BadInput if the file is not UTF-8 text.
        """
        return _lines(self.path / TEMPLATES)

    def splits(self) -> list[str]:
        """The names of the folder's splits, sorted."""
        return sorted(path.parent.name for path in self.path.glob(f"*/{SHARD_COUNT}"))

    def tars(self, split: str) -> list[Path]:
        """The tars of a split, in order. Raises BadInput if the split or a tar is missing."""
        directory = self.path / split
        if not (directory / SHARD_COUNT).is_file():
            known = ", ".join(self.splits()) or "none"
            raise BadInput(
                f"{self.path} has no split {split!r} (it has: {known}); a split is a folder that "
                f"contains {SHARD_COUNT} and 0.tar"
            )
        text = read_text(directory / SHARD_COUNT).strip()
        is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
        if not is_number or int(text) == 0:
            found = shortened(text)
            raise BadInput(f"{directory / SHARD_COUNT} contains {found!r}, not the number of tars")
        paths = []
        for number in range(int(text)):
            paths.append(directory / f"{number}.tar")
            if not paths[-1].is_file():  # checked at once: the number may be huge
                raise BadInput(
                    f"{paths[-1]} does not exist, but {SHARD_COUNT} says there are {text} tars"
                )
        return paths

    def digests(self, split: str) -> list[str]:
        """The xxh3_128 of each tar of a split. Raises BadInput if one cannot be read."""
        return [_digest(path) for path in self.tars(split)]

    def images(self, split: str, classes: int) -> ImagesInTars:
        """Locate the images of a split and read their labels, without reading the images.

        `classes` is the number of classes. An unusable sample becomes a flaw. Raises BadInput if a
        tar is missing or damaged, or a label is not a number below `classes`.
        """
        found = ImagesInTars()
        for path in self.tars(split):
            found.open(path)
            walk = members(path, _is_label, reads_ahead=_HEADER_BYTES)
            for (_, key), group in groupby(walk, key=sample_of):
                sample = _FolderSample(f"{path}, {shortened(key)}", group)
                sample.enter(found, key, classes)
        return found


def open_class_folder(path: Path) -> ClassFolder:
    """Open a folder in CLIP_benchmark's layout.

    Raises BadInput if it has another layout, or is not for single-label classification.
    """
    folder = ClassFolder(path)
    kind = (_lines(path / KIND) or [""])[0].lower()
    if kind in {"retrieval", "multilabel"}:
        raise BadInput(
            f"{path} is a {kind} data set ({KIND}); zero-shot accuracy needs images with exactly "
            "one class each"
        )
    if not folder.splits():
        raise BadInput(
            f"{path} is not a data set in CLIP_benchmark's layout: it has no */{SHARD_COUNT}"
        )
    return folder


def _digest(path: Path) -> str:
    try:
        return cached_digest(path)
    except OSError as error:
        raise BadInput(unreadable(path, error)) from error


def _is_label(name: str, size: int) -> bool:
    return extension_of(name) == "cls" and size <= _MAX_DIGITS


class _FolderSample:
    """The tar members of one sample: those with the same name but for the extension."""

    def __init__(self, where: str, group: Iterable[TarMember]) -> None:
        self.where = where
        named = ((extension_of(member.name), member) for member in group)
        self.parts = {name: member for name, member in named if name in (*IMAGES, "cls")}

    def enter(self, found: ImagesInTars, key: str, classes: int) -> None:
        """Add the image or a flaw to `found`. Raises BadInput if the label is not a valid class."""
        image = next((self.parts[kind] for kind in IMAGES if kind in self.parts), None)
        label = self.parts.get("cls")
        if image is None and label is None:
            return  # a directory, or a file that is not part of a sample
        if image is None or label is None:
            missing = "no member with an image" if image is None else "no .cls member"
            found.flaws.append(Flaw(self.where, missing))
        elif not image.is_regular or image.size > MAX_BYTES:
            shown = shortened(image.name)
            found.flaws.append(Flaw(self.where, f"{shown} is a link or is too large"))
        else:
            found.add(key, image.offset, image.size, self._number(label, classes))

    def _number(self, label: TarMember, classes: int) -> int:
        text = (label.data or b"").strip()
        if not text.isdigit():
            found = text[:_MAX_DIGITS].decode(errors="replace")
            raise BadInput(f"{self.where}: its label is {found!r}, not a number from 0")
        if int(text) >= classes:
            raise BadInput(
                f"{self.where}: its label is {int(text)}, but there are {classes} classes"
            )
        return int(text)


def _lines(path: Path) -> list[str] | None:
    """The lines of a text file, stripped as CLIP_benchmark does; None if it does not exist."""
    if not path.exists():
        return None
    return [line.strip() for line in read_text(path).splitlines()]

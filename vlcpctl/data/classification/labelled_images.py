"""Random access to images with one class each, in a task's split or in a folder of tars.

A label is an index into a list of class names. A folder has CLIP_benchmark's layout:
FOLDER/classnames.txt has one class per line, in the order of the labels.
FOLDER/zeroshot_classification_templates.txt has one template per line, with {c} for the class.
FOLDER/test/nshards.txt has the number of tars, 0.tar, 1.tar, ...; their members are images and,
under the same name, .cls files with the label.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.core.words import shortened
from vlcpctl.data.classification.benchmarks import (
    IMAGENET,
    imagenet_class_names,
    imagenet_templates,
)
from vlcpctl.data.classification.prompts import DEFAULT_TEMPLATES, TemplatesFile, prompts_of
from vlcpctl.data.images.header import MAX_BYTES
from vlcpctl.data.sources.source import IMAGES
from vlcpctl.data.sources.tars import Member, Tar
from vlcpctl.data.tasks.task import Split
from vlcpctl.files.digests import cached_digest
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import OpenFiles, naming_input, open_regular, read_text
from vlcpctl.files.stores import whole


@dataclass(frozen=True)
class Flaw:
    """An image that cannot be used."""

    name: str  # which image, for messages
    why: str  # the reason, to follow "{name}: "


class ImagesInTars:
    """Labelled images located in tars: add them first, then read them in any order.

    They are numbered in order; `flaws` are further images that cannot be used.
    """

    def __init__(self) -> None:
        self.flaws: list[Flaw] = []
        self._paths: list[Path] = []
        self._keys: list[str] = []
        self._places: list[tuple[int, int, int]] = []  # index of the tar, offset, size in bytes
        self._labels: list[int] = []
        self._local: list[Path] = []
        self._tars = OpenFiles(self._local)

    def open(self, path: Path) -> None:
        """Start a tar: images added from now on are in this one."""
        self._paths.append(path)
        self._local.append(whole(path))

    def add(self, key: str, offset: int, size: int, label: int) -> None:
        """Add an image of the current tar; `offset` and `size` are in bytes."""
        self._keys.append(key)
        self._places.append((len(self._paths) - 1, offset, size))
        self._labels.append(label)

    @property
    def labels(self) -> NDArray[np.int64]:
        """(N,) class index of each image."""
        return np.array(self._labels, dtype=np.int64)

    def image(self, row: int) -> bytes:
        """The encoded bytes of the image file at `row`."""
        shard, offset, size = self._places[row]
        with naming_input(self._paths[shard]):
            return os.pread(self._tars.descriptor(shard), size, offset)

    def name(self, row: int) -> str:
        """The name of the image at `row`, for messages."""
        return f"{self._paths[self._places[row][0]]}, {self._keys[row]}"

    def key(self, row: int) -> str:
        """An identifier that random draws for the image depend on; it is independent of paths."""
        return self._keys[row]


@dataclass
class ImagesOfSplit:
    """The labelled images of a task's split; images without a label are flaws.

    Raises BadInput if a label is not among `classes`.
    """

    split: Split
    classes: Sequence[str]
    flaws: list[Flaw] = field(default_factory=list)

    def __post_init__(self) -> None:
        number_of = {name: number for number, name in enumerate(self.classes)}
        names, code_N = self.split.labels()
        unknown = {names[code] for code in np.unique(code_N[code_N >= 0])} - number_of.keys()
        if unknown:
            raise BadInput(
                f"{self.split.path} has the label {min(unknown)!r}, which its manifest lacks; "
                "run 'vlcpctl check'"
            )
        self._rows = np.flatnonzero(code_N >= 0)
        numbers = np.array([number_of.get(name, -1) for name in names], dtype=np.int64)
        self.labels = numbers[code_N[self._rows]]
        lacking = np.flatnonzero(code_N < 0).tolist()
        self.flaws += [Flaw(self._name(row), "no label") for row in lacking]

    def image(self, row: int) -> bytes:
        """See `ImagesInTars`."""
        return self.split.image(int(self._rows[row]))

    def name(self, row: int) -> str:
        """See `ImagesInTars`."""
        return self._name(int(self._rows[row]))

    def key(self, row: int) -> str:
        """See `ImagesInTars`."""
        return self.split.keys[int(self._rows[row])]

    def _name(self, row: int) -> str:
        return f"{self.split.path}, key {self.split.keys[row]}"


LabelledImages = ImagesInTars | ImagesOfSplit


# -- folders

CLASS_NAMES = "classnames.txt"
TEMPLATES = "zeroshot_classification_templates.txt"
SHARD_COUNT = "nshards.txt"
KIND = "dataset_type.txt"

_MAX_DIGITS = 20  # of a label
_HEADER_BYTES = 2**12  # read-ahead: enough for headers and labels, without reading the images


@dataclass(frozen=True)
class FolderData:
    """A data set in a folder in CLIP_benchmark's layout; `open_folder` makes it."""

    name: str  # in evaluation rows
    path: Path
    classes: Sequence[str]  # in the order of the labels

    def prompts(self, given: TemplatesFile | None) -> list[list[str]]:
        """The prompts of each class, from the given templates or else the folder's own.

        Raises BadInput if the templates do not fit the data set.
        """
        if given is not None:
            return prompts_of(self.classes, given.of(self.name), given.path)
        own = _lines(self.path / TEMPLATES)
        if own is not None:
            return prompts_of(self.classes, own, self.path / TEMPLATES)
        usual = imagenet_templates() if self.name == IMAGENET else DEFAULT_TEMPLATES
        return prompts_of(self.classes, usual, self.name)

    def content(self, *splits: str) -> str:
        """An id of the classes and of these splits, by the digests of their tars.

        Raises BadInput if a file cannot be read.
        """
        found = {split: [_digest(path) for path in self.tars(split)] for split in splits}
        return content_id({"classes": list(self.classes), "splits": found})

    def check(self, split: str) -> None:
        """Raise BadInput if the data set does not have the split."""
        self.tars(split)

    def tars(self, split: str) -> list[Path]:
        """The tars of a split, in order. Raises BadInput if the split or a tar is missing."""
        directory = self.path / split
        if not (directory / SHARD_COUNT).is_file():
            known = ", ".join(_splits(self.path)) or "none"
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

    def images(self, split: str) -> ImagesInTars:
        """Locate the images of a split and read their labels, without reading the images.

        An unusable sample becomes a flaw. Raises BadInput if a tar is missing or damaged, or a
        label is not the number of a class.
        """
        found = ImagesInTars()
        for path in self.tars(split):
            found.open(path)
            with open_regular(path, buffering=_HEADER_BYTES) as file:
                tar = Tar(path, file)
                for (_, key), group in groupby(tar, key=attrgetter("archive", "sample")):
                    parts = {
                        one.extension: (one, tar.data(one) if _is_label(one) else b"")
                        for one in group
                        if one.extension in (*IMAGES, "cls")
                    }
                    _enter(found, f"{path}, {shortened(key)}", key, parts, len(self.classes))
        return found


def open_folder(path: Path, name: str) -> FolderData:
    """Open the data set of a name in a folder in CLIP_benchmark's layout.

    Raises BadInput if it has another layout, is not for single-label classification, or does not
    name its classes.
    """
    kind = (_lines(path / KIND) or [""])[0].lower()
    if kind in {"retrieval", "multilabel"}:
        raise BadInput(
            f"{path} is a {kind} data set ({KIND}); zero-shot accuracy needs images with exactly "
            "one class each"
        )
    if not _splits(path):
        raise BadInput(
            f"{path} is not a data set in CLIP_benchmark's layout: it has no */{SHARD_COUNT}"
        )
    classes = _lines(path / CLASS_NAMES)
    if classes is None and name == IMAGENET:
        classes = imagenet_class_names()
    if not classes or not all(classes):
        what = f"has no {CLASS_NAMES}" if classes is None else f"has an empty line in {CLASS_NAMES}"
        raise BadInput(f"{path} {what}; write one class per line, in the order of the labels")
    return FolderData(name, path, classes)


def _splits(path: Path) -> list[str]:
    return sorted(one.parent.name for one in path.glob(f"*/{SHARD_COUNT}"))


def _digest(path: Path) -> str:
    try:
        return cached_digest(path)
    except OSError as error:
        raise BadInput(unreadable(path, error)) from error


def _is_label(one: Member) -> bool:
    return one.extension == "cls" and one.is_regular and one.size <= _MAX_DIGITS


def _enter(
    found: ImagesInTars,
    where: str,
    key: str,
    parts: Mapping[str, tuple[Member, bytes]],
    classes: int,
) -> None:
    """Add the image of a sample or a flaw. Raises BadInput if its label is not a valid class."""
    if not parts:
        return  # a directory, or a file that is not part of a sample
    image = next((parts[kind][0] for kind in IMAGES if kind in parts), None)
    flaw = None
    if image is None:
        flaw = "no member with an image"
    elif "cls" not in parts:
        flaw = "no .cls member"
    elif not image.is_regular or image.size > MAX_BYTES:
        flaw = f"{shortened(image.name)} is a link or is too large"
    if image is None or flaw is not None:
        found.flaws.append(Flaw(where, str(flaw)))
        return
    digits = parts["cls"][1].strip()
    if not digits.isdigit() or int(digits) >= classes:
        shown = digits[:_MAX_DIGITS].decode(errors="replace")
        raise BadInput(f"{where}: its label is {shown!r}, not a number below {classes}")
    found.add(key, image.offset, image.size, int(digits))


def _lines(path: Path) -> list[str] | None:
    """The lines of a text file, stripped as CLIP_benchmark does; None if it does not exist."""
    if not path.exists():
        return None
    return [line.strip() for line in read_text(path).splitlines()]

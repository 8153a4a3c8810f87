"""Class labels that a classifier gives to images: one pass over the data, kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlcpctl.core.errors import BadInput
from vlcpctl.data.pairs import Pair
from vlcpctl.data.views import decode_image

Prepared = NDArray[np.generic]

_CODE = np.dtype("<i4")
_NONE = -1  # what cannot be decoded has no label
_AT_ONCE = 4096  # codes


class Classifier(Protocol):
    """Looks at images and says which class each belongs to."""

    @property
    def names(self) -> Sequence[str]:
        """The labels."""

    @property
    def batch_size(self) -> int:
        """How many images it looks at together."""

    def prepare(self, image: Image.Image) -> Prepared:
        """What it takes of one image; may run in any thread."""

    def classify(self, batch: Prepared) -> NDArray[np.int64]:
        """The number of the most confident class of each image."""


LoadClassifier = Callable[[], Classifier]


@dataclass(frozen=True)
class PseudoLabels:
    """The labels of pairs in the order in which they are read."""

    path: Path
    names: tuple[str, ...]

    def read(self) -> Iterator[str | None]:
        """The label of each pair, None where its image cannot be decoded."""
        with self.path.open("rb") as file:
            while data := file.read(_AT_ONCE * _CODE.itemsize):
                for code in np.frombuffer(data, _CODE).tolist():
                    yield None if code == _NONE else self.names[code]


def labelled(pairs: list[Pair], labels: Iterator[str | None]) -> list[Pair]:
    """The pairs, each with the next label."""
    found = islice(labels, len(pairs))
    return [pair._replace(label=label) for pair, label in zip(pairs, found, strict=True)]


def write_labels(
    batches: Iterator[list[Pair]],
    classifier: Classifier,
    path: Path,
    *,
    threads: int,
    advance: Callable[[int], None],
) -> PseudoLabels:
    """Classify every pair's image; `threads` decode and prepare, and change nothing else."""
    pool = ThreadPoolExecutor(threads) if threads else nullcontext()
    with path.open("wb") as file, pool as executor:
        work = _Work(classifier, file)
        each = executor.map if executor is not None else map
        for pairs in batches:
            # Few at once: what is prepared is larger than the files that it comes from.
            for start in range(0, len(pairs), classifier.batch_size):
                part = pairs[start : start + classifier.batch_size]
                for prepared in each(work.prepared, part):
                    work.add(prepared)
                advance(len(part))
        work.flush()
    return PseudoLabels(path, tuple(classifier.names))


class _Work:
    """Images wait until there are enough for a batch; their codes are written in order."""

    def __init__(self, classifier: Classifier, file: BinaryIO) -> None:
        self.classifier, self.file = classifier, file
        self._waiting: list[Prepared | None] = []
        self._whole = 0

    def prepared(self, pair: Pair) -> Prepared | None:
        """What the classifier takes of an image; None for one that cannot be decoded."""
        if pair.image is None:
            return None
        try:
            return self.classifier.prepare(decode_image(bytes(pair.image)))
        except BadInput:
            return None  # the split counts and names it

    def add(self, prepared: Prepared | None) -> None:
        """The next image."""
        self._waiting.append(prepared)
        self._whole += prepared is not None
        if self._whole == self.classifier.batch_size:
            self.flush()

    def flush(self) -> None:
        """Classify and write what waits."""
        codes = np.full(len(self._waiting), _NONE, dtype=_CODE)
        whole = [one for one in self._waiting if one is not None]
        if whole:
            codes[[one is not None for one in self._waiting]] = self.classifier.classify(
                np.stack(whole)
            )
        self.file.write(codes.tobytes())
        self._waiting, self._whole = [], 0

"""Class labels predicted by a classifier in one pass over the images, stored on disk."""

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
from vlcpctl.data.images.transforms import decode_image
from vlcpctl.data.tasks.class_names import distinct_labels
from vlcpctl.data.tasks.samples import Pair

PreparedImage = NDArray[np.generic]

_CODE = np.dtype("<i4")
_NONE = -1  # the code of an image that cannot be decoded
_AT_ONCE = 4096  # codes per read


class Classifier(Protocol):
    """Predicts the class of images."""

    @property
    def names(self) -> Sequence[str]:
        """The class names, in the order of the class numbers."""

    @property
    def batch_size(self) -> int:
        """The number of images per batch."""

    def prepare(self, image: Image.Image) -> PreparedImage:
        """Preprocess one image; may run in any thread."""

    def classify(self, batch: PreparedImage) -> NDArray[np.int64]:
        """(N,) the number of the most likely class of each of N preprocessed images."""


LoadClassifier = Callable[[], Classifier]


@dataclass(frozen=True)
class PseudoLabels:
    """The labels of pairs, in the order in which the pairs are read.

    `names` has the label of each class number; no two are equal.
    """

    path: Path
    names: tuple[str, ...]

    def read(self) -> Iterator[str | None]:
        """Yield the label of each pair; None if its image cannot be decoded."""
        with self.path.open("rb") as file:
            while data := file.read(_AT_ONCE * _CODE.itemsize):
                for code in np.frombuffer(data, _CODE).tolist():
                    yield None if code == _NONE else self.names[code]


def labelled(pairs: list[Pair], labels: Iterator[str | None]) -> list[Pair]:
    """The pairs, with their labels replaced by the next ones."""
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
    """Classify the image of every pair and store the labels at `path`.

    `threads` decode and preprocess images; the labels do not depend on their number. Classes are
    what the classifier numbers: of those with one name, the labels have the number too.
    """
    pool = ThreadPoolExecutor(threads) if threads else nullcontext()
    with path.open("wb") as file, pool as executor:
        work = _BatchClassifier(classifier, file)
        each = executor.map if executor is not None else map
        for pairs in batches:
            # One batch at a time: preprocessed images are larger than their files.
            for start in range(0, len(pairs), classifier.batch_size):
                part = pairs[start : start + classifier.batch_size]
                for prepared in each(work.prepared, part):
                    work.add(prepared)
                advance(len(part))
        work.flush()
    return PseudoLabels(path, distinct_labels(classifier.names))


class _BatchClassifier:
    """Collects preprocessed images into batches and writes their labels in order."""

    def __init__(self, classifier: Classifier, file: BinaryIO) -> None:
        self.classifier, self.file = classifier, file
        self._waiting: list[PreparedImage | None] = []
        self._whole = 0

    def prepared(self, pair: Pair) -> PreparedImage | None:
        """The preprocessed image of a pair; None if it cannot be decoded."""
        if pair.image is None:
            return None
        try:
            return self.classifier.prepare(decode_image(bytes(pair.image)))
        except BadInput:
            return None  # the split itself counts and reports it

    def add(self, prepared: PreparedImage | None) -> None:
        """Add the next image, and classify a batch when it is full."""
        self._waiting.append(prepared)
        self._whole += prepared is not None
        if self._whole == self.classifier.batch_size:
            self.flush()

    def flush(self) -> None:
        """Classify the images collected and write their labels."""
        codes = np.full(len(self._waiting), _NONE, dtype=_CODE)
        whole = [one for one in self._waiting if one is not None]
        if whole:
            codes[[one is not None for one in self._waiting]] = self.classifier.classify(
                np.stack(whole)
            )
        self.file.write(codes.tobytes())
        self._waiting, self._whole = [], 0

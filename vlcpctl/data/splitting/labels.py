"""Where the class labels of a split come from: a column, or a classifier run on the images."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlcpctl.core.errors import BadInput, UsageError, unknown_name
from vlcpctl.data.images.transforms import decode_image
from vlcpctl.data.splitting.request import CLASSIFIERS, ZEROSHOT
from vlcpctl.data.tasks.class_names import distinct_labels
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.files.digests import file_sha256
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import open_regular, read_text
from vlcpctl.files.manifest import content_of

FORMS = {
    "column": "COLUMN",
    "timm": "timm:MODEL[,WEIGHTS]",
    "checkpoint": "checkpoint:DIR",
    "open_clip": "open_clip:MODEL,WEIGHTS",
}
PreparedImage = NDArray[np.generic]
_NONE = -1  # the code of an image that cannot be decoded


@dataclass(frozen=True)
class LabelsFrom:
    """The value of --labels-from: its kind; the column, model or directory; optional weights.

    `names` and `templates` are those of a classifier; without names it comes with its own.
    """

    kind: str
    name: str
    weights: str | None = None
    names: tuple[str, ...] | None = None
    templates: Path | None = None

    @property
    def is_classifier(self) -> bool:
        """Whether a model predicts the labels."""
        return self.kind in CLASSIFIERS

    def identity(self) -> dict[str, Any]:
        """Everything that determines the labels: names and hashes, without local paths."""
        if self.kind == "checkpoint":
            of: Any = content_of(Path(self.name), "checkpoint")
        else:
            of = [_identity_of(name) for name in (self.name, self.weights) if name is not None]
        names = None if self.names is None else content_id(list(self.names))
        templates = None if self.templates is None else file_sha256(self.templates)
        return {"kind": self.kind, "of": of, "class_names": names, "templates": templates}


def labels_from(
    text: str, class_names: Path | None = None, templates: Path | None = None
) -> LabelsFrom:
    """Parse --labels-from, and read the class names of a classifier.

    Raises UsageError if it is malformed or needs class names, and BadInput if a file cannot be
    read.

    >>> labels_from("timm:resnet50,weights.safetensors").weights
    'weights.safetensors'
    """
    kind, colon, rest = text.partition(":")
    if not colon or kind == "column":
        return LabelsFrom("column", rest if colon else text)
    if kind not in FORMS:
        raise UsageError(f"--labels-from: {unknown_name('source', kind, FORMS)}")
    name, comma, weights = rest.partition(",")
    if not name or bool(comma) != bool(weights) or (kind == "checkpoint" and weights):
        raise UsageError(f"--labels-from {text!r}: write it as {FORMS[kind]}")
    if kind == "open_clip" and not weights and not Path(name).is_dir():
        raise UsageError(
            f"--labels-from {text!r} does not name weights; write it as {FORMS[kind]}, "
            "where WEIGHTS is a file or a name known to open_clip"
        )
    if class_names is None and kind in ZEROSHOT:
        raise UsageError(
            f"--labels-from {kind}:... needs --class-names, a file with one class per line"
        )
    if templates is not None:
        open_regular(templates).close()  # it is hashed before it is read
    names = None if class_names is None else _class_names(class_names)
    return LabelsFrom(kind, name, weights or None, names, templates)


def _class_names(path: Path) -> tuple[str, ...]:
    names = [line.strip() for line in read_text(path).splitlines()]
    if not names or not all(names):
        raise BadInput(f"{path} must have a class name on every line")
    return tuple(names)


def _identity_of(name: str) -> str | list[str]:
    """The name itself if it is known to a library, else the hashes of the files it refers to."""
    path = Path(name)
    if path.is_file():
        return file_sha256(path)
    if path.is_dir():
        return [file_sha256(file) for file in sorted(path.iterdir()) if file.is_file()]
    return name


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


class PredictedLabels:
    """The labels of all pairs, in the order in which they are read; four bytes each."""

    def __init__(
        self,
        batches: Iterator[list[Pair]],
        classifier: Classifier,
        threads: int,
        advance: Callable[[int], None],
    ) -> None:
        """Classify the image of every pair.

        `threads` decode and preprocess images; the labels do not depend on their number.
        """
        # Classes are what the classifier numbers: of those with one name, labels have the number.
        self._names = distinct_labels(classifier.names)
        self._codes = array("i")
        self._classifier = classifier
        self._waiting: list[PreparedImage | None] = []
        size, whole = classifier.batch_size, 0
        with ThreadPoolExecutor(threads) if threads else nullcontext() as executor:
            each = executor.map if executor is not None else map
            for pairs in batches:
                # One batch at a time: preprocessed images are larger than their files.
                for start in range(0, len(pairs), size):
                    part = pairs[start : start + size]
                    for prepared in each(self._prepared, part):
                        self._waiting.append(prepared)
                        whole += prepared is not None
                        if whole == size:
                            self._classify()
                            whole = 0
                    advance(len(part))
            self._classify()

    def of(self, first: int, pairs: list[Pair]) -> list[Pair]:
        """The pairs from the `first` on with their labels; None if an image cannot be decoded."""
        codes = self._codes[first : first + len(pairs)]
        labels = [None if code == _NONE else self._names[code] for code in codes]
        return [pair._replace(label=label) for pair, label in zip(pairs, labels, strict=True)]

    def _prepared(self, pair: Pair) -> PreparedImage | None:
        if pair.image is None:
            return None
        try:
            return self._classifier.prepare(decode_image(bytes(pair.image)))
        except BadInput:
            return None  # the split itself counts and reports it

    def _classify(self) -> None:
        codes = np.full(len(self._waiting), _NONE, dtype=np.int32)
        whole = [one for one in self._waiting if one is not None]
        if whole:
            found = self._classifier.classify(np.stack(whole))
            codes[[one is not None for one in self._waiting]] = found
        self._codes.frombytes(codes.tobytes())
        self._waiting = []

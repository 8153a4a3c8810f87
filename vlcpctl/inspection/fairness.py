"""Flaws in data that make a metric less meaningful, but are not damage.

Captions that many images share, galleries smaller than K, one class only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import counted
from vlcpctl.inspection.split_columns import (
    UNREADABLE,
    CheckedSplit,
    Finding,
    as_text,
    column_batches,
    id_hashes,
)
from vlcpctl.metrics.recall import CUTOFFS

_MOST_SHOWN = 60  # characters of a caption
_RANKED = ("val", "test", "gallery")  # splits that are a gallery


def fairness(splits: Sequence[CheckedSplit]) -> Iterator[Finding]:
    """Yield a finding for each thing of this kind, over the splits of one path of the command."""
    filled = [split for split in splits if split.images and not split.is_trained_on]
    read = list(_read_captions(filled))
    yield from _shared(read)
    yield from _small_galleries({one.split: one.gallery for one in read})
    yield from _one_class(filled)


def _read_captions(splits: Sequence[CheckedSplit]) -> Iterator[_Captions]:
    for split in splits:
        try:
            yield _Captions(split)
        except UNREADABLE:
            continue


def _by_path(splits: Sequence[CheckedSplit]) -> Iterator[list[CheckedSplit]]:
    for _, found in groupby(splits, key=lambda split: split.given):
        yield list(found)


class _Captions:
    """Counts of the captions of a split, and of those that several different images have.

    Captions are compared by 64-bit hash. Raises BadInput if the index cannot be read.
    """

    def __init__(self, split: CheckedSplit) -> None:
        self.split = split
        images = id_hashes(split.index, "sha256")
        parts = list(_hashed_captions(split))
        rows = np.concatenate([np.empty(0, np.int64), *(row for row, _ in parts)])
        texts = np.concatenate([np.empty(0, np.int64), *(text for _, text in parts)])
        order = np.lexsort((images[rows], texts))
        texts, copies = texts[order], images[rows][order]
        is_new = np.ones(len(texts), dtype=np.bool_)  # a text of an image that did not have it yet
        is_new[1:] = (texts[1:] != texts[:-1]) | (copies[1:] != copies[:-1])
        text_T, images_T = np.unique(texts[is_new], return_counts=True)
        self.count, self.shared = len(text_T), int((images_T > 1).sum())
        self.worst = int(text_T[images_T.argmax()]) if self.count else 0  # its hash
        self.images_of_worst = int(images_T.max()) if self.count else 0
        # Retrieval treats equal images, and equal captions, as one entry of the gallery.
        self.gallery = min(len(np.unique(images)), self.count)


def _shared(read: Sequence[_Captions]) -> Iterator[Finding]:
    for given, every in groupby(read, key=lambda one: one.split.given):
        found = [one for one in every if one.shared]
        if not found:
            continue
        worst = max(found, key=lambda one: one.images_of_worst)
        example = _caption_hashed(worst.split, worst.worst)
        shared = sum(one.shared for one in found)
        text = (
            f"captions shared by several images: {shared} of {sum(one.count for one in found)} in "
            f"{counted(len(found), 'split')}, the worst: {example!r:.{_MOST_SHOWN}} by "
            f"{worst.images_of_worst} images of {worst.split}; each of them counts as a correct "
            "answer, so recall is too high: write captions that distinguish the images"
        )
        yield Finding(given, "shared captions", text, shared, example)


def _hashed_captions(
    split: CheckedSplit,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The row and the hash of every caption, in batches."""
    first = 0
    for batch in column_batches(split.index, ["captions"]):
        row_C, texts = _flat(batch.column(0), split)
        # Python's hash has a new key in every process, so that collisions cannot be planned.
        hashes = np.fromiter(map(hash, texts.to_pylist()), np.int64, len(texts))
        yield row_C + first, hashes
        first += len(batch)


def _flat(captions: pa.Array, split: CheckedSplit) -> tuple[NDArray[np.int64], pa.Array]:
    """(C,) the row of each caption of a batch, and the captions."""
    kind = captions.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise BadInput(f"{split.index}: column 'captions' is {kind}, not a list of text")
    texts = as_text(pc.list_flatten(captions), split.index, "captions")
    return np.asarray(pc.list_parent_indices(captions)).astype(np.int64), texts


def _caption_hashed(split: CheckedSplit, wanted: int) -> str:
    """The caption of this hash."""
    for batch in column_batches(split.index, ["captions"]):
        for text in _flat(batch.column(0), split)[1].to_pylist():
            if hash(text) == wanted:
                return str(text)
    raise BadInput(f"{split.index}: it changed while it was being checked")


def _small_galleries(sizes: Mapping[CheckedSplit, int]) -> Iterator[Finding]:
    small = [
        split for split, size in sizes.items() if split.name in _RANKED and size <= max(CUTOFFS)
    ]
    for found in _by_path(small):
        least = min(found, key=lambda split: sizes[split])
        trivial = [f"R@{cutoff}" for cutoff in CUTOFFS if cutoff >= sizes[least]]
        text = (
            f"splits with a gallery of at most {max(CUTOFFS)} images or captions: {len(found)}, "
            f"the smallest: {least} with {sizes[least]}, where {', '.join(trivial)} "
            "cannot be below 100 %: evaluate with --gallery merged, or hold out more images"
        )
        yield Finding(found[0].given, "small gallery", text, len(found), str(least))


def _one_class(splits: Sequence[CheckedSplit]) -> Iterator[Finding]:
    classes = {split: _only_class(split) for split in splits}
    for found in _by_path([split for split in splits if classes[split] is not None]):
        text = (
            f"splits with images of one class only: {len(found)}, the first: {found[0]} "
            f"with {classes[found[0]]!r:.{_MOST_SHOWN}}; among the classes of the task, zero-shot "
            "accuracy is always 100 %: use eval-zeroshot --classes all"
        )
        yield Finding(found[0].given, "one class", text, len(found), str(found[0]))


def _only_class(split: CheckedSplit) -> str | None:
    """The class of all images of a split; None if there are several, or any without one."""
    labels: Counter[Any] = Counter()
    try:
        for batch in column_batches(split.index, ["label"]):
            labels.update(as_text(batch.column(0), split.index, "label").unique().to_pylist())
            if len(labels) > 1:
                return None
    except UNREADABLE:
        return None
    return next(iter(labels), None)

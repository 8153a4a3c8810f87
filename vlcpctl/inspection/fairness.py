"""Flaws in data that make a metric less meaningful, but are not damage.

Captions that many images share, galleries smaller than K, one class only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.core.words import counted
from vlcpctl.inspection.findings import CheckedSplit, Finding
from vlcpctl.metrics.recall import CUTOFFS

_MOST_SHOWN = 60  # characters of a caption
_RANKED = ("val", "test", "gallery")  # splits that are a gallery


class _Captions(NamedTuple):
    """Counts of the captions of a split, and of those that several different images have."""

    of: CheckedSplit
    captions: int
    shared: int
    worst: str
    images_of_worst: int
    gallery: int  # entries: retrieval treats equal images, and equal captions, as one


def fairness(splits: Sequence[CheckedSplit]) -> Iterator[Finding]:
    """Yield a finding for each thing of this kind, over the splits of one path of the command."""
    for _, some in groupby(splits, key=lambda one: one.given):
        evaluated = [one for one in some if not one.is_trained_on]
        read = list(map(_read, evaluated))
        yield from _shared([one for one in read if one.shared])
        yield from _small_galleries([one for one in read if one.of.split.name in _RANKED])
        yield from _one_class(evaluated)


def _read(one: CheckedSplit) -> _Captions:
    captions = one.split.columns(["captions"])["captions"].combine_chunks()
    images = pa.array(np.repeat(one.images, one.split.caption_counts()))
    table = pa.table({"text": pc.list_flatten(captions), "image": images})
    found = table.group_by("text", use_threads=False).aggregate([("image", "count_distinct")])
    images_T = found["image_count_distinct"].to_numpy()
    worst = int(images_T.argmax())
    return _Captions(
        of=one,
        captions=len(images_T),
        shared=int((images_T > 1).sum()),
        worst=found["text"][worst].as_py(),
        images_of_worst=int(images_T[worst]),
        gallery=min(len(np.unique(one.images)), len(images_T)),
    )


def _shared(read: Sequence[_Captions]) -> Iterator[Finding]:
    if read:
        worst = max(read, key=lambda one: one.images_of_worst)
        shared, every = (sum(getattr(one, what) for one in read) for what in ("shared", "captions"))
        text = (
            f"captions shared by several images: {shared} of {every} in "
            f"{counted(len(read), 'split')}, the worst: {worst.worst!r:.{_MOST_SHOWN}} by "
            f"{worst.images_of_worst} images of {worst.of}; each of them counts as a correct "
            "answer, so recall is too high: write captions that distinguish the images"
        )
        yield Finding(worst.of.given, "shared captions", text, shared, worst.worst)


def _small_galleries(read: Sequence[_Captions]) -> Iterator[Finding]:
    small = [one for one in read if one.gallery <= max(CUTOFFS)]
    if small:
        least = min(small, key=lambda one: one.gallery)
        trivial = [f"R@{cutoff}" for cutoff in CUTOFFS if cutoff >= least.gallery]
        text = (
            f"splits with a gallery of at most {max(CUTOFFS)} images or captions: {len(small)}, "
            f"the smallest: {least.of} with {least.gallery}, where {', '.join(trivial)} "
            "cannot be below 100 %: evaluate with --gallery merged, or hold out more images"
        )
        yield Finding(least.of.given, "small gallery", text, len(small), str(least.of))


def _one_class(splits: Sequence[CheckedSplit]) -> Iterator[Finding]:
    found = []
    for one in splits:
        names, codes = one.split.labels()
        if len(names) == 1 and (codes >= 0).all():  # -1: an image without a class
            found.append((one, names[0]))
    if found:
        first, name = found[0]
        text = (
            f"splits with images of one class only: {len(found)}, the first: {first} "
            f"with {name!r:.{_MOST_SHOWN}}; among the classes of the task, zero-shot "
            "accuracy is always 100 %: use eval-zeroshot --classes all"
        )
        yield Finding(first.given, "one class", text, len(found), str(first))

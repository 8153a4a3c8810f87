"""Distractors: images and captions of other data, which are wrong answers in a gallery.

A pair whose image, or one of whose captions, the evaluated data has is left out: its captions are
right answers to that image, and its image is one to that caption, but the evaluated data does not
say so. What it shares with further pairs is left out of those, too.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from vlcpctl.evaluation.search.galleries import Captioned, Gallery, gather
from vlcpctl.evaluation.search.vectors import Mask

COUNTS = ("n_distractor_images", "n_distractor_texts", "n_left_out")  # in rows


def with_distractors(gallery: Gallery, others: Sequence[Captioned], duplicates: str) -> Gallery:
    """The gallery, which does not grow then, with the entries of other data behind its own.

    As in galleries, identical content is one entry, or with `duplicates` "separate" several.
    """
    images, texts, left_out = _shared_with(gallery.parts, others)
    more = gather(others, duplicates)
    sample_rows, caption_rows = list(gallery.sample_rows), list(gallery.caption_rows)
    for part, samples, captions in zip(others, more.sample_rows, more.caption_rows, strict=True):
        is_image = _are_not_in(images, part.images.names)[part.images.of_N[samples]]
        is_text = _are_not_in(texts, part.texts.names)[part.texts.of_N[captions]]
        sample_rows.append(samples[is_image])
        caption_rows.append(captions[is_text])
    return replace(
        gallery,
        parts=[*gallery.parts, *others],
        sample_rows=sample_rows,
        caption_rows=caption_rows,
        part_P=0 * gallery.part_P,
        ends_M2=gallery.ends_M2[-1:],
        left_out=left_out,
    )


def counts(gallery: Gallery) -> dict[str, int]:
    """The fields of a row that say how many entries were added and pairs left out."""
    images, texts = gallery.ends_M2[-1].tolist()
    entries = (sum(map(len, rows)) for rows in (gallery.sample_rows, gallery.caption_rows))
    added = next(entries) - images, next(entries) - texts
    return dict(zip(COUNTS, (*added, gallery.left_out), strict=True))


def _shared_with(
    own: Sequence[Captioned], others: Sequence[Captioned]
) -> tuple[set[Hashable], set[Hashable], int]:
    """The images and the texts of the samples that share one with own data, and their number."""
    own_images = {one for part in own for one in part.images.names}
    own_texts = {one for part in own for one in part.texts.names}
    images, texts, count = set[Hashable](), set[Hashable](), 0
    for part in others:
        shares_N = ~_are_not_in(own_images, part.images.names)[part.images.of_N]
        is_own_C = ~_are_not_in(own_texts, part.texts.names)[part.texts.of_N]
        shares_N[part.sample_C[is_own_C]] = True
        images |= {part.images.names[row] for row in part.images.of_N[shares_N].tolist()}
        texts |= {
            part.texts.names[row] for row in part.texts.of_N[shares_N[part.sample_C]].tolist()
        }
        count += int(np.count_nonzero(shares_N))
    return images, texts, count


def _are_not_in(known: set[Hashable], names: Sequence[Hashable]) -> Mask:
    """(N,) bool: which names are not known."""
    return np.array([one not in known for one in names], dtype=np.bool_)

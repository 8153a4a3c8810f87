"""Distractors: images and captions of other data, which are wrong answers in a gallery.

A pair whose image, or one of whose captions, the evaluated data has is left out: its captions are
right answers to that image, and its image is one to that caption, but the evaluated data does not
say so. What it shares with further pairs is left out of those, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vlcpctl.evaluation.search.gallery import SOURCES, Embeddings, EntrySources, Gallery, Layout
from vlcpctl.evaluation.search.index import Gathered, Ids

COUNTS = ("n_distractor_images", "n_distractor_texts", "n_left_out")  # in rows


@dataclass(frozen=True)
class Distractors:
    """The entries that are added to a gallery, and the number of pairs that were left out.

    `sources` says where they come from; `image_rows` and `text_rows` are their rows in the
    embeddings of each part.
    """

    sources: EntrySources
    image_rows: Sequence[Ids]
    text_rows: Sequence[Ids]
    left_out: int

    @property
    def counts(self) -> dict[str, int]:
        """The fields of a row that say how many entries were added and pairs left out."""
        images, texts = len(self.sources.image_I2), len(self.sources.text_T3)
        return dict(zip(COUNTS, (images, texts, self.left_out), strict=True))

    def added_to(self, gallery: Gallery, parts: Sequence[Embeddings]) -> Gallery:
        """The gallery with these entries behind its own, given the embeddings of all parts."""
        images = [(one.image_ID, rows) for one, rows in zip(parts, self.image_rows, strict=True)]
        texts = [(one.text_TD, rows) for one, rows in zip(parts, self.text_rows, strict=True)]
        return replace(
            gallery,
            image_ID=Gathered([(gallery.image_ID, None), *images]),
            text_TD=Gathered([(gallery.text_TD, None), *texts]),
        )


def choose_distractors(
    own: Sequence[Layout], others: Sequence[Layout], duplicates: str
) -> Distractors:
    """The distractors among the samples of other data, given the parts of the evaluated data.

    As in galleries, identical content is one entry, or with `duplicates` "separate" several.
    """
    images, texts, left_out = _shared_with(own, others)
    sources = SOURCES[duplicates](others)
    is_image = np.zeros(len(sources.image_I2), dtype=np.bool_)
    is_text = np.zeros(len(sources.text_T3), dtype=np.bool_)
    image_rows, text_rows = [], []
    for number, layout in enumerate(others):
        (here,) = np.nonzero(sources.image_I2[:, 0] == number)
        rows = layout.image_of_N[sources.image_I2[here, 1]]
        is_kept = _are_not_in(images, layout.image_ids)[rows]
        is_image[here[is_kept]] = True
        image_rows.append(rows[is_kept])

        (here,) = np.nonzero(sources.text_T3[:, 0] == number)
        samples, captions = sources.text_T3[here, 1], sources.text_T3[here, 2]
        rows = layout.text_of_C[np.searchsorted(layout.sample_of_C, samples) + captions]
        is_kept = _are_not_in(texts, layout.texts)[rows]
        is_text[here[is_kept]] = True
        text_rows.append(rows[is_kept])
    kept = EntrySources(sources.image_I2[is_image], sources.text_T3[is_text])
    return Distractors(kept, image_rows, text_rows, left_out)


def _shared_with(own: Sequence[Layout], others: Sequence[Layout]) -> tuple[set[str], set[str], int]:
    """The images and the texts of the samples that share one with own data, and their number."""
    own_images = {one for layout in own for one in layout.image_ids}
    own_texts = {one for layout in own for one in layout.texts}
    images, texts, count = set[str](), set[str](), 0
    for layout in others:
        shares_N = ~_are_not_in(own_images, layout.image_ids)[layout.image_of_N]
        is_own_C = ~_are_not_in(own_texts, layout.texts)[layout.text_of_C]
        shares_N[layout.sample_of_C[is_own_C]] = True
        shares_C = shares_N[layout.sample_of_C]
        images |= {layout.image_ids[row] for row in layout.image_of_N[shares_N].tolist()}
        texts |= {layout.texts[row] for row in layout.text_of_C[shares_C].tolist()}
        count += int(np.count_nonzero(shares_N))
    return images, texts, count


def _are_not_in(known: set[str], names: Sequence[str]) -> np.ndarray:
    """(N,) bool: which names are not known."""
    return np.array([one not in known for one in names], dtype=np.bool_)

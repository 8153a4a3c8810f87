"""The samples of one split of one task under evaluation, and their embeddings for other programs.

Those are in the layout of clip-retrieval: `img_emb/img_emb_P.npy`, `text_emb/text_emb_P.npy` and
`metadata/metadata_P.parquet`, where row i of all three is one image with one of its captions. P
numbers the tasks from 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np
import pyarrow as pa

from vlcpctl.core.errors import BadInput
from vlcpctl.data.precomputed.store import Store
from vlcpctl.data.tasks.task import Split, Task
from vlcpctl.evaluation.search.galleries import Captioned, Classified, Distinct, Embeddings
from vlcpctl.evaluation.search.vectors import Gathered

_ROWS = 1 << 14  # of embeddings that are written at once


def require_split(task: Task, split: str) -> None:
    """Raise BadInput for a task without samples in a split."""
    if not task.counts.get(split):
        known = ", ".join(name for name, count in task.counts.items() if count)
        raise BadInput(f"{task.path} has no split {split!r} (it has: {known}); see --split")


@final
class Samples:
    """The samples of a split; with a limit only the first, with `lowest` those with lowest keys."""

    def __init__(self, task: Task, name: str, limit: int | None, lowest: int | None = None) -> None:
        self.task, self.name, self.limit, self.lowest = task, name, limit, lowest

    @cached_property
    def split(self) -> Split:
        """The open split."""
        return self.task.split(self.name, self.lowest)

    def __len__(self) -> int:
        return min(len(self.split), self.limit or len(self.split))

    @cached_property
    def captioned(self) -> Captioned:
        """The images and their captions."""
        captions = (self.split.captions(row) for row in range(len(self)))
        return Captioned.of(self.split.column("sha256")[: len(self)], captions)

    @cached_property
    def classified(self) -> Classified:
        """The pairs of an image with its first caption, and their classes.

        Raises BadInput if a sample has no class label.
        """
        classes = self.split.column("label")[: len(self)]
        lacking = classes.count(None)
        if lacking:
            raise BadInput(
                f"{self.split.path}: {lacking} of {len(self)} images have no class label, which "
                "multi-modal retrieval needs; leave them out, or use another --split"
            )
        firsts = (self.split.captions(row)[0] for row in range(len(self)))
        hashes = self.split.column("sha256")[: len(self)]
        return Classified(Distinct.of(zip(hashes, firsts, strict=True)), classes)


def write_part(
    directory: Path, number: int, parts: int, embedded: Embeddings, samples: Samples
) -> None:
    """Write one task's files, as part `number` (from 0) of `parts`; embeddings become float16."""
    captioned, split = samples.captioned, samples.split
    name = f"{number:0{len(str(parts))}d}"  # as in clip-retrieval: ten parts have two digits
    image_C = captioned.images.of_N[captioned.sample_C]
    images = Gathered([(embedded.image_ID, image_C)])
    texts = Gathered([(embedded.text_TD, captioned.texts.of_N)])
    keys, labels, names = split.keys, split.column("label"), captioned.texts.names
    rows = captioned.sample_C.tolist()
    columns = {
        "image_path": [keys[row] for row in rows],
        "caption": [names[text] for text in captioned.texts.of_N.tolist()],
        "task": [samples.task.slug] * len(rows),
        "label": [labels[row] for row in rows],
    }
    store = _store(directory, name)
    vectors = zip(store.files, map(_blocks, (images, texts)), strict=True)
    table = pa.table({key: pa.array(one, pa.string()) for key, one in columns.items()})
    store.write(table, dict(vectors), images.shape[1])


def _blocks(vectors: Gathered) -> Iterator[np.ndarray]:
    return (vectors[start : start + _ROWS] for start in range(0, len(vectors), _ROWS))


def stores_in(directory: Path) -> list[Store]:
    """The files of all parts, (N, D) float16 each."""
    paths = sorted((directory / "metadata").glob("metadata_*.parquet"))
    return [_store(directory, path.stem.removeprefix("metadata_")) for path in paths]


def _store(directory: Path, name: str) -> Store:
    files = {f"img_emb/img_emb_{name}.npy": 1, f"text_emb/text_emb_{name}.npy": 1}
    return Store(
        directory, f"metadata/metadata_{name}.parquet", files, np.float16, key="image_path"
    )

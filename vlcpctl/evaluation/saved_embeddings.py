"""Embeddings for other programs, in the layout of clip-retrieval.

`img_emb/img_emb_P.npy`, `text_emb/text_emb_P.npy` and `metadata/metadata_P.parquet`: row i of all
three is one image with one of its captions. P numbers the tasks from 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from vlcpctl.data.precomputed.store import Store
from vlcpctl.evaluation.samples import Samples
from vlcpctl.evaluation.search.galleries import Embeddings
from vlcpctl.evaluation.search.vectors import Gathered

_ROWS = 1 << 14  # written at once


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

"""Writes embeddings in the layout of clip-retrieval, which autofaiss and FAISS can read too.

`img_emb/img_emb_P.npy`, `text_emb/text_emb_P.npy` and `metadata/metadata_P.parquet`: row i of all
three is one image with one of its captions. P numbers the tasks from 0.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vlcpctl.core.errors import BadInput
from vlcpctl.data.precomputed.vector_files import Matrix, kept_blocks, write_vectors
from vlcpctl.evaluation.samples import Samples
from vlcpctl.evaluation.search.galleries import Embeddings
from vlcpctl.evaluation.search.vectors import Gathered
from vlcpctl.files.digests import RESTORE
from vlcpctl.files.outputs import new_part
from vlcpctl.files.parquet_files import read_columns

_ROWS = 1 << 14  # written at once


def write_part(
    directory: Path, number: int, parts: int, embedded: Embeddings, samples: Samples
) -> None:
    """Write one task's files, as part `number` (from 0) of `parts`; embeddings become float16."""
    captioned, split = samples.captioned, samples.split
    digits = len(str(parts))  # as in clip-retrieval: ten parts have two digits
    image_C = captioned.images.of_N[captioned.sample_C]
    name = f"{number:0{digits}d}"
    _save(directory / "img_emb" / f"img_emb_{name}.npy", Gathered([(embedded.image_ID, image_C)]))
    texts = Gathered([(embedded.text_TD, captioned.texts.of_N)])
    _save(directory / "text_emb" / f"text_emb_{name}.npy", texts)
    keys, labels, names = split.keys, split.column("label"), captioned.texts.names
    rows = captioned.sample_C.tolist()
    columns = {
        "image_path": [keys[row] for row in rows],
        "caption": [names[text] for text in captioned.texts.of_N.tolist()],
        "task": [samples.task.slug] * len(rows),
        "label": [labels[row] for row in rows],
    }
    path = directory / "metadata" / f"metadata_{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table({key: pa.array(one, pa.string()) for key, one in columns.items()}), path
    )


def _save(path: Path, vectors: Gathered) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    blocks = (vectors[start : start + _ROWS] for start in range(0, len(vectors), _ROWS))
    write_vectors(path, blocks, vectors.shape, np.float16)


def rows_of(directory: Path, keys: Collection[str]) -> dict[str, np.ndarray]:
    """(N,) bool for each part, by its number as text: which rows are of the samples `keys`.

    Raises BadInput if a table cannot be read.
    """
    wanted = pa.array(sorted(keys), pa.string())
    found = {}
    for path in sorted((directory / "metadata").glob("metadata_*.parquet")):
        column = read_columns(path, ["image_path"])[0].cast(pa.string())
        found[path.stem.removeprefix("metadata_")] = pc.is_in(column, value_set=wanted).to_numpy()
    return found


def keys_of(directory: Path) -> set[str]:
    """The keys of all samples. Raises BadInput if a table cannot be read."""
    paths = (directory / "metadata").glob("metadata_*.parquet")
    return {
        key
        for path in paths
        for key in read_columns(path, ["image_path"])["image_path"].to_pylist()
    }


def part_files(part: str) -> tuple[str, str, str]:
    """The files of a part: image embeddings, text embeddings and metadata."""
    return (
        f"img_emb/img_emb_{part}.npy",
        f"text_emb/text_emb_{part}.npy",
        f"metadata/metadata_{part}.parquet",
    )


def write_part_without(source: Path, target: Path, part: str, drop_N: np.ndarray) -> None:
    """Write the files of a part again, without some of its rows, (N,) bool.

    Raises BadInput if a file cannot be read, or if they do not have the same rows.
    """
    *vectors, metadata = part_files(part)
    for name in vectors:
        matrix = Matrix(source / name, np.float16)
        if len(matrix) != len(drop_N):
            raise BadInput(
                f"{source / name} has {len(matrix)} rows, but {source / metadata} has "
                f"{len(drop_N)}{RESTORE}"
            )
        shape = (int((~drop_N).sum()), matrix.width)
        write_vectors(target / name, kept_blocks(matrix, ~drop_N), shape, np.float16)
    table = read_columns(source / metadata).filter(pa.array(~drop_N))
    with new_part(target / metadata) as temporary:
        pq.write_table(table, temporary)

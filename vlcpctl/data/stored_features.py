"""Projections of a buffer's pairs as they were when it took them in: the dark knowledge of DER.

They lie in a Parquet file beside the index, in the order of the index, at half precision.
Shapes: N pairs, T captions of them, D channels of the shared space.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.core.errors import BadInput, Incompatible
from vlcpctl.data.task import Split, Task

FILE = "features.parquet"


@dataclass(frozen=True)
class Projections:
    """Raw projections of pairs: of each image, and of each of its captions."""

    image_ND: np.ndarray  # float16
    text_TD: np.ndarray  # float16, pair after pair
    captions_N: np.ndarray  # how many captions each pair has
    makers: list[str]  # N content ids of the checkpoints that they are of

    @property
    def width(self) -> int:
        """D."""
        return int(self.image_ND.shape[1])

    def take(self, rows: Sequence[int] | np.ndarray) -> Projections:
        """Those of some pairs."""
        starts = self._starts
        texts = [
            np.arange(starts[row], starts[row] + self.captions_N[row], dtype=np.int64)
            for row in rows
        ]
        places = np.concatenate([np.empty(0, dtype=np.int64), *texts])
        numbers = np.asarray(rows, dtype=np.int64)
        makers = [self.makers[row] for row in numbers.tolist()]
        return Projections(
            self.image_ND[numbers], self.text_TD[places], self.captions_N[numbers], makers
        )

    def of(self, rows: np.ndarray, captions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Image and text side, (n, D) single precision, of pairs with one caption each."""
        text = self.text_TD[self._starts[rows] + captions]
        return self.image_ND[rows].astype(np.float32), text.astype(np.float32)

    def content(self, keys: Sequence[str]) -> str:
        """The id of these values under these keys."""
        digest = hashlib.blake2b("\n".join([*keys, *self.makers]).encode(), digest_size=16)
        for values in (self.image_ND, self.text_TD, self.captions_N.astype(np.int64)):
            digest.update(values.tobytes())
        return digest.hexdigest()

    @property
    def _starts(self) -> np.ndarray:
        starts: np.ndarray = np.cumsum(self.captions_N) - self.captions_N
        return starts


# Rows of a split to their raw projections.
Project = Callable[[Split, np.ndarray], Projections]


def joined(parts: Sequence[Projections]) -> Projections:
    """One after another."""
    return Projections(
        np.concatenate([part.image_ND for part in parts]),
        np.concatenate([part.text_TD for part in parts]),
        np.concatenate([part.captions_N for part in parts]),
        [maker for part in parts for maker in part.makers],
    )


def write_features(directory: Path, keys: Sequence[str], found: Projections) -> None:
    """Write the file of a buffer whose index has these keys."""
    offsets = np.concatenate([[0], np.cumsum(found.captions_N)]).astype(np.int32)
    columns = {
        "key": pa.array(keys, pa.string()),
        "checkpoint": pa.array(found.makers, pa.string()),
        "image": _vectors(found.image_ND),
        "text": pa.ListArray.from_arrays(pa.array(offsets), _vectors(found.text_TD)),
    }
    pq.write_table(
        pa.table(columns),
        directory / FILE,
        row_group_size=2048,
        use_dictionary=["checkpoint"],
        write_statistics=False,
        write_page_checksum=True,
    )


def read_features(buffer: Task) -> Projections:
    """The projections of a buffer that has them, in the order of its index."""
    path = buffer.path / FILE
    try:
        table = pq.read_table(path, page_checksum_verification=True).combine_chunks()
        keys = table["key"].to_pylist()
        image, text = (table[name].combine_chunks() for name in ("image", "text"))
        makers = table["checkpoint"].to_pylist()
    except (OSError, KeyError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"{path} cannot be read: {reason}; run 'vlcpctl check'") from error
    if keys != buffer.split("train").keys:
        raise BadInput(f"{path} is not of the pairs that the index lists; run 'vlcpctl check'")
    counts = np.diff(text.offsets.to_numpy())
    return Projections(_matrix(image), _matrix(text.flatten()), counts, makers)


def carried_on(
    previous: Task | None, admitted: Projections, admitted_keys: Sequence[str], keys: Sequence[str]
) -> Projections:
    """Of the pairs with these keys: what the previous buffer holds of them, else the admitted."""
    if previous is None:
        places = {key: place for place, key in enumerate(admitted_keys)}
        return admitted.take([places[key] for key in keys])
    held = read_features(previous)
    if held.width != admitted.width:
        raise Incompatible(
            f"{previous.path} stores features of {held.width} channels, and the checkpoint gives "
            f"{admitted.width}; start a new buffer without --previous"
        )
    everything = [*admitted_keys, *previous.split("train").keys]
    places = {key: place for place, key in enumerate(everything)}
    return joined([admitted, held]).take([places[key] for key in keys])


def check_features(buffer: Task, listed: dict[str, Any], *, deep: bool) -> Iterator[str]:
    """Every problem of the file, a line each; `deep` computes the id of its values."""
    try:
        found = read_features(buffer)
    except BadInput as error:
        yield str(error)
        return
    path = buffer.path / FILE
    split = buffer.split("train")
    if not np.array_equal(found.captions_N, split.caption_counts()):
        yield f"{path}: has not one row for each caption of the index"
    elif found.width != listed["width"]:
        yield f"{path}: has {found.width} channels, task.json says {listed['width']}"
    elif deep and found.content(split.keys) != listed["content"]:
        yield f"{path}: its values are not those that task.json lists"


def _vectors(values_ND: np.ndarray) -> pa.FixedSizeListArray:
    flat = pa.array(np.ascontiguousarray(values_ND).reshape(-1), pa.float16())
    return pa.FixedSizeListArray.from_arrays(flat, values_ND.shape[1])


def _matrix(values: pa.FixedSizeListArray) -> np.ndarray:
    flat: np.ndarray = values.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(-1, values.type.list_size)

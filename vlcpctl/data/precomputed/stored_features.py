"""Projections of a buffer's pairs, computed when each pair was admitted, to replay with DER.

They correspond to the stored logits of Dark Experience Replay (Buzzega et al., 2020). They are in
features.parquet beside the index, in the order of the index, in half precision.
Shapes: N pairs, T captions of all of them together, D channels of the shared embedding space.
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
from vlcpctl.data.tasks.task import Split, Task

FILE = "features.parquet"


@dataclass(frozen=True)
class Projections:
    """Projections of N pairs before L2 normalisation: one per image and one per caption."""

    image_ND: np.ndarray  # float16
    text_TD: np.ndarray  # float16; the captions of the first pair, then of the second, ...
    captions_N: np.ndarray  # number of captions of each pair
    makers: list[str]  # N content ids of the checkpoints that computed them

    @property
    def width(self) -> int:
        """The number of channels, D."""
        return int(self.image_ND.shape[1])

    def take(self, rows: Sequence[int] | np.ndarray) -> Projections:
        """The projections of the pairs at `rows`, in that order."""
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
        """Image and text projections, each (n, D) float32, of n pairs with one caption each.

        `rows` and `captions`, (n,) each, select the pair and which of its captions.
        """
        text = self.text_TD[self._starts[rows] + captions]
        return self.image_ND[rows].astype(np.float32), text.astype(np.float32)

    def content(self, keys: Sequence[str]) -> str:
        """A content id of these values; `keys` are the N pairs' keys."""
        digest = hashlib.blake2b("\n".join([*keys, *self.makers]).encode(), digest_size=16)
        for values in (self.image_ND, self.text_TD, self.captions_N.astype(np.int64)):
            digest.update(values.tobytes())
        return digest.hexdigest()

    @property
    def _starts(self) -> np.ndarray:
        starts: np.ndarray = np.cumsum(self.captions_N) - self.captions_N
        return starts


# Computes the projections of some rows of a split.
Project = Callable[[Split, np.ndarray], Projections]


def joined(parts: Sequence[Projections]) -> Projections:
    """The projections of all parts, concatenated."""
    return Projections(
        np.concatenate([part.image_ND for part in parts]),
        np.concatenate([part.text_TD for part in parts]),
        np.concatenate([part.captions_N for part in parts]),
        [maker for part in parts for maker in part.makers],
    )


def write_features(directory: Path, keys: Sequence[str], found: Projections) -> None:
    """Write features.parquet into a buffer's directory; `keys` are those of its index, in order."""
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
    """Read the projections of a buffer that stores them, in the order of its index.

    Raises BadInput if the file cannot be read or does not match the index.
    """
    path = buffer.path / FILE
    try:
        table = pq.read_table(path, page_checksum_verification=True).combine_chunks()
        keys = table["key"].to_pylist()
        image, text = (table[name].combine_chunks() for name in ("image", "text"))
        makers = table["checkpoint"].to_pylist()
    except (OSError, KeyError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"cannot read {path}: {reason}; run 'vlcpctl check'") from error
    if keys != buffer.split("train").keys:
        raise BadInput(f"{path} does not match the pairs in the index; run 'vlcpctl check'")
    counts = np.diff(text.offsets.to_numpy())
    return Projections(_matrix(image), _matrix(text.flatten()), counts, makers)


def carried_on(
    previous: Task | None, admitted: Projections, admitted_keys: Sequence[str], keys: Sequence[str]
) -> Projections:
    """The projections of the pairs with these `keys`, in that order.

    A pair that the previous buffer holds keeps its stored projections; the others are taken from
    `admitted`. Raises Incompatible if the two have different numbers of channels.
    """
    if previous is None:
        places = {key: place for place, key in enumerate(admitted_keys)}
        return admitted.take([places[key] for key in keys])
    held = read_features(previous)
    if held.width != admitted.width:
        raise Incompatible(
            f"{previous.path} stores features with {held.width} channels, but the checkpoint has "
            f"{admitted.width}; start a new buffer without --previous"
        )
    everything = [*admitted_keys, *previous.split("train").keys]
    places = {key: place for place, key in enumerate(everything)}
    return joined([admitted, held]).take([places[key] for key in keys])


def check_features(buffer: Task, listed: dict[str, Any], *, deep: bool) -> Iterator[str]:
    """Yield a line for each problem of the stored features; `deep` recomputes their content id.

    `listed` is the entry of the features in the buffer's manifest.
    """
    try:
        found = read_features(buffer)
    except BadInput as error:
        yield str(error)
        return
    path = buffer.path / FILE
    split = buffer.split("train")
    if not np.array_equal(found.captions_N, split.caption_counts()):
        yield f"{path}: does not have one text feature per caption of the index"
    elif found.width != listed["width"]:
        yield f"{path}: has {found.width} channels, task.json says {listed['width']}"
    elif deep and found.content(split.keys) != listed["content"]:
        yield f"{path}: its values are not those listed in task.json (its content id differs)"


def _vectors(values_ND: np.ndarray) -> pa.FixedSizeListArray:
    flat = pa.array(np.ascontiguousarray(values_ND).reshape(-1), pa.float16())
    return pa.FixedSizeListArray.from_arrays(flat, values_ND.shape[1])


def _matrix(values: pa.FixedSizeListArray) -> np.ndarray:
    flat: np.ndarray = values.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(-1, values.type.list_size)

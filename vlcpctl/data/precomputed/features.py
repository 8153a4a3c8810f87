"""Projections of a buffer's pairs, computed when each pair was admitted, to replay with DER.

They correspond to the stored logits of Dark Experience Replay (Buzzega et al., 2020). They are
beside the index, in its order:

image_features.npy   projection of each image, (N, D) float16
text_features.npy    projections of the first image's captions, then of the second's, (T, D) float16
features.parquet     key of each pair, the checkpoint (content id) that computed its projections,
                     and its number of captions, which are that many rows of text_features.npy

Shapes: N pairs, T captions of all of them together, D channels of the shared embedding space.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from vlcpctl.core.errors import BadInput, Incompatible
from vlcpctl.data.precomputed.store import Store
from vlcpctl.data.tasks.facts import StoredFeatures
from vlcpctl.data.tasks.keys import Keys
from vlcpctl.data.tasks.task import Split, Task

FILE = "features.parquet"
IMAGES, TEXTS = "image_features.npy", "text_features.npy"
_COLUMNS = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("checkpoint", pa.string(), nullable=False),
        pa.field("captions", pa.int32(), nullable=False),
    ]
)


def _store(buffer: Path) -> Store:
    return Store(buffer, FILE, {IMAGES: 1, TEXTS: "captions"}, np.float16, _COLUMNS)


@dataclass(frozen=True)
class StoredProjections:
    """Projections of N pairs before L2 normalisation: one per image and one per caption."""

    image_ND: np.ndarray  # float16
    text_TD: np.ndarray  # float16; the captions of the first pair, then of the second, ...
    captions_N: np.ndarray  # number of captions of each pair
    makers: list[str]  # N content ids of the checkpoints that computed them

    @property
    def width(self) -> int:
        """The number of channels, D."""
        return int(self.image_ND.shape[1])

    def take(self, rows: Sequence[int] | np.ndarray) -> StoredProjections:
        """The projections of the pairs at `rows`, in that order."""
        starts = self._starts
        texts = [
            np.arange(starts[row], starts[row] + self.captions_N[row], dtype=np.int64)
            for row in rows
        ]
        places = np.concatenate([np.empty(0, dtype=np.int64), *texts])
        numbers = np.asarray(rows, dtype=np.int64)
        makers = [self.makers[row] for row in numbers.tolist()]
        return StoredProjections(
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
            digest.update(np.ascontiguousarray(values).reshape(-1).data)
        return digest.hexdigest()

    @cached_property
    def _starts(self) -> np.ndarray:
        starts: np.ndarray = np.cumsum(self.captions_N) - self.captions_N
        return starts


# Computes the projections of some rows of a split.
Project = Callable[[Split, np.ndarray], StoredProjections]


def write_features(directory: Path, keys: Sequence[str], found: StoredProjections) -> None:
    """Write the features into a buffer's directory; `keys` are those of its index, in order."""
    columns = [pa.array(keys, pa.string()), pa.array(found.makers, pa.string())]
    table = pa.table([*columns, pa.array(found.captions_N, pa.int32())], schema=_COLUMNS)
    vectors = {IMAGES: [found.image_ND], TEXTS: [found.text_TD]}
    _store(directory).write(table, vectors, found.width)


def read_features(buffer: Task, *, verified: bool = True) -> StoredProjections:
    """The projections of a buffer that stores them, in the order of its index; held in memory.

    Raises BadInput if a file cannot be read or does not match the index, or, if they are to be
    verified, has other values than were written.
    """
    store, split, listed = _store(buffer.path), buffer.split("train"), buffer.buffer.features
    table = store.rows()
    counts = table["captions"].to_numpy()
    if table["key"].to_pylist() != split.keys or not np.array_equal(counts, split.caption_counts()):
        raise BadInput(
            f"{buffer.path / FILE} does not match the pairs in the index; run 'vlcpctl check'"
        )
    image, text = (store.vectors(name, table).all() for name in (IMAGES, TEXTS))
    # A few checkpoints made all of them: one str each, not one of each row.
    coded = table["checkpoint"].combine_chunks().dictionary_encode()
    names = coded.dictionary.to_pylist()
    makers = [names[code] for code in coded.indices.tolist()]
    found = StoredProjections(image, text, counts, makers)
    is_known = not verified or (listed is not None and found.content(split.keys) == listed.content)
    if not is_known or image.shape[1] != text.shape[1]:
        raise BadInput(
            f"{buffer.path}: the values of {FILE}, {IMAGES} or {TEXTS} are not those listed in "
            "task.json (their content id differs)"
        )
    return found


def carry_over(
    previous: Task | None,
    admitted: StoredProjections,
    admitted_keys: Keys,
    keys: Keys,
) -> StoredProjections:
    """The projections of the pairs with these `keys`, in that order.

    A pair that the previous buffer holds keeps its stored projections; the others are taken from
    `admitted`. Raises Incompatible if the two have different numbers of channels.
    """
    if previous is None:
        return admitted.take(keys.places_in(admitted_keys))
    held = read_features(previous)
    if held.width != admitted.width:
        raise Incompatible(
            f"{previous.path} stores features with {held.width} channels, but the checkpoint has "
            f"{admitted.width}; start a new buffer without --previous"
        )
    candidates = Keys.joined([admitted_keys, previous.split("train").keys])
    both = StoredProjections(
        np.concatenate([admitted.image_ND, held.image_ND]),
        np.concatenate([admitted.text_TD, held.text_TD]),
        np.concatenate([admitted.captions_N, held.captions_N]),
        [*admitted.makers, *held.makers],
    )
    return both.take(keys.places_in(candidates))


def check_features(buffer: Task, listed: StoredFeatures, *, deep: bool) -> Iterator[str]:
    """Yield a line for each problem of the stored features; `deep` recomputes their content id.

    `listed` is the entry of the features in the buffer's manifest. Raises BadInput as
    `read_features` does.
    """
    found = read_features(buffer, verified=deep)
    if found.width != listed.width:
        path = buffer.path / IMAGES
        yield f"{path}: has {found.width} channels, task.json says {listed.width}"

"""Training batches: read, decoded, augmented and tokenised, in this process or in workers.

A batch depends only on its plan, so results do not depend on the number of workers, and resuming
at step k does not have to read the batches before it.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from vlcpctl.core.batch import Batch, ReplayedProjections
from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.images.transforms import (
    Decoded,
    Reduction,
    TrainView,
    decode_reduced,
    most_bytes,
    not_reduced,
)
from vlcpctl.data.loading.order import BatchPlan
from vlcpctl.data.loading.workers import read_in_order
from vlcpctl.data.tasks.task import Split

if TYPE_CHECKING:
    from vlcpctl.data.loading.masking import Masking
    from vlcpctl.data.precomputed.features import StoredProjections
    from vlcpctl.data.precomputed.targets import Targets

CACHE_BYTES = 256 * 2**20
PIECE_BYTES: Final = 32 * 2**20  # about 220 images of 224 pixels

Tokenise = Callable[[list[str]], Tensor]


class ImageCache:
    """A least-recently-used cache of decoded images, up to `limit` bytes.

    An image is kept as it was last decoded. With another reduction it is decoded again: a view must
    not depend on what was decoded before.
    """

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self.limit, self.n_bytes = limit, 0
        self._images: OrderedDict[tuple[int, int], Decoded] = OrderedDict()

    def get(
        self, splits: Sequence[Split], source: int, row: int, reduction: Reduction = not_reduced
    ) -> Decoded:
        """The decoded image of row `row` of `splits[source]`, from the cache or from disk.

        `reduction` maps an image's size to the reduction that a JPEG is decoded with. Raises
        BadInput if the image cannot be read or decoded.
        """
        key = (source, row)
        image = self._images.get(key)
        if image is not None and image.fits(reduction):
            self._images.move_to_end(key)
            return image
        data = splits[source].image(row)
        with splits[source].naming(row):
            image = decode_reduced(data, reduction)
        if self.limit:
            self._keep(key, image)
        return image

    def _keep(self, key: tuple[int, int], image: Decoded) -> None:
        replaced = self._images.pop(key, None)
        self.n_bytes += image.n_bytes - (replaced.n_bytes if replaced else 0)
        self._images[key] = image
        while self.n_bytes > self.limit and len(self._images) > 1:  # one larger than `limit` stays
            _, oldest = self._images.popitem(last=False)
            self.n_bytes -= oldest.n_bytes


def cache_limit(
    splits: Sequence[Split], rows: Sequence[np.ndarray], transform: ImageTransform, workers: int
) -> int:
    """The bytes that the cache of decoded images of each process may take; 0: without a cache.

    `rows` are the rows of each split that an epoch visits. If their images do not all fit, each
    would be evicted before its next visit. Each of several workers has a cache of its own, and in
    time decodes every image.
    """
    limit = CACHE_BYTES // max(workers, 1)
    needed = 0
    for split, visited in zip(splits, rows, strict=True):
        width, height = split.sizes()
        needed += most_bytes(width[visited], height[visited], transform)
    return limit if needed <= limit else 0


@dataclass
class PlannedBatches(Dataset[Batch]):
    """Item k is batch k of a training phase, for any k; see `vlcpctl.core.batch.Batch`."""

    splits: Sequence[Split]
    plan: Callable[[int], BatchPlan]  # the plan of the batch of each step
    transform: ImageTransform
    tokenise: Tokenise  # b texts to (b, L) token ids
    seed: int
    part: Callable[[int], slice]  # batch size to the slice that this process encodes
    buffer_source: int = -1  # index of the buffer in `splits`; -1 without one
    masking: Masking | None = None
    stored: StoredProjections | None = None  # those of the buffer's pairs, for DER
    targets: Targets | None = None  # precomputed; they determine the views' seed
    groups: Sequence[np.ndarray] | None = None  # of the rows of each split, (N,) int64 each
    cache: int = CACHE_BYTES  # the most bytes of decoded images to keep; 0: none

    def __post_init__(self) -> None:
        self._cache = ImageCache(self.cache)

    def __getitem__(self, step: int) -> Batch:
        return self.piece(step, 0, 1)

    def piece(self, step: int, number: int, count: int) -> Batch:
        """Piece `number` of `count` of this process's part of a batch; `joined` makes it whole.

        What belongs to the global batch is in the first piece alone.
        """
        plan = self.plan(step)
        positions = list(zip(plan.source.tolist(), plan.row.tolist(), strict=True))
        keys = [self.splits[source].key(row) for source, row in positions]
        part = self.part(len(keys))
        start, length = part.start, part.stop - part.start
        own = slice(start + number * length // count, start + (number + 1) * length // count)
        visits, captions = plan.visit.tolist(), plan.caption.tolist()
        for source, split in enumerate(self.splits):
            split.fetch([row for at, row in positions[own] if at == source])
        images = [self._view(positions[i], keys[i], visits[i]) for i in range(len(keys))[own]]
        texts = [
            self.splits[positions[i][0]].captions(positions[i][1])[captions[i]]
            for i in range(len(keys))[own]
        ]
        ids = self.tokenise(texts)
        masked, labels = self.masking(ids, keys[own], visits[own]) if self.masking else (None, None)
        is_first, replayed = number == 0, torch.from_numpy(plan.source == self.buffer_source)
        return Batch(
            keys=keys if is_first else [],
            replayed=replayed if is_first else replayed[:0],
            stored=self._stored_of(plan) if is_first else None,
            targets=self._targets_of(plan, own),
            images=torch.from_numpy(np.stack(images)),
            texts=ids,
            masked=masked,
            labels=labels,
            groups=self._groups_of(plan) if is_first else None,
        )

    def _view(self, place: tuple[int, int], key: str, visit: int) -> np.ndarray:
        seed = self.seed
        if self.targets is not None:  # the student must see the very view that the teacher embedded
            seed, visit = self.targets.seed, self.targets.view(visit)
        view = TrainView(self.transform, seed, key, visit)
        image, (source, row) = self._cache.get(self.splits, *place, view.reduction), place
        with self.splits[source].naming(row):
            return view.render(image)

    def _targets_of(self, plan: BatchPlan, own: slice) -> tuple[Tensor, Tensor] | None:
        if self.targets is None:
            return None
        rows = (plan.source[own], plan.row[own], plan.caption[own], plan.visit[own])
        image, text = self.targets.of(*rows)
        return torch.from_numpy(image), torch.from_numpy(text)

    def _groups_of(self, plan: BatchPlan) -> Tensor | None:
        if self.groups is None:
            return None
        pairs = zip(plan.source.tolist(), plan.row.tolist(), strict=True)
        return torch.tensor([int(self.groups[source][row]) for source, row in pairs])

    def _stored_of(self, plan: BatchPlan) -> ReplayedProjections | None:
        if self.stored is None:
            return None
        replayed = plan.source == self.buffer_source
        image, text = self.stored.of(plan.row[replayed], plan.caption[replayed])
        return ReplayedProjections(image=torch.from_numpy(image), text=torch.from_numpy(text))


@dataclass
class WithBufferBatches(Dataset[Batch]):
    """Batches of the task, each with the buffer's batch of the same step as its `buffer_batch`."""

    batches: PlannedBatches
    buffer: PlannedBatches

    def __getitem__(self, step: int) -> Batch:
        return self.piece(step, 0, 1)

    def piece(self, step: int, number: int, count: int) -> Batch:
        """The piece of the task's batch; the first has the buffer's batch, which may be small."""
        piece = self.batches.piece(step, number, count)
        return piece if number else replace(piece, buffer_batch=self.buffer[step])


@dataclass
class WithReference(Dataset[Batch]):
    """Batches of the task, each with the batch of --reference of the same step."""

    batches: PlannedBatches | WithBufferBatches
    reference: PlannedBatches
    size: int  # the pairs of a reference batch that this process encodes

    def __getitem__(self, step: int) -> Batch:
        return self.piece(step, 0, 1)

    def piece(self, step: int, number: int, count: int) -> Batch:
        """The piece of the task's batch, with that of the reference if it has so many."""
        piece, count = self.batches.piece(step, number, count), min(count, self.size)
        if number >= count:
            return piece
        return replace(piece, reference=self.reference.piece(step, number, count))


def read_batches(
    dataset: PlannedBatches | WithBufferBatches | WithReference,
    first: int,
    stop: int,
    workers: int,
    *,
    pieces: int = 1,
    pins: bool = False,
) -> Generator[list[Batch]]:
    """The pieces of each of the batches first..stop-1, in order, see `read_in_order`.

    Each batch comes in the same number of pieces, which different workers read; `joined` makes a
    batch of them.
    """
    numbers = range(first * pieces, stop * pieces)
    ahead = max(2, -(-pieces // max(workers, 1)))  # of all workers, at least a batch
    found = read_in_order(_Pieces(dataset, pieces), numbers, workers, pins=pins, ahead=ahead)
    with closing(found):  # so that closing this generator ends the workers
        while piece := list(itertools.islice(found, pieces)):
            yield piece


def piece_count(pairs: int, transform: ImageTransform) -> int:
    """In how many pieces of at most PIECE_BYTES of pixels workers read the images of a batch."""
    pixels = 3 * transform.image_size**2
    return min(pairs, -(-pairs * pixels // PIECE_BYTES))


def joined(pieces: Sequence[Batch]) -> Batch:
    """The batch whose pieces, in order, these are, on their device."""
    first, *others = pieces
    if not others:
        return first
    targets = [piece.targets for piece in pieces if piece.targets is not None]
    references = [piece.reference for piece in pieces if piece.reference is not None]
    return replace(
        first,
        images=torch.cat([piece.images for piece in pieces]),
        texts=torch.cat([piece.texts for piece in pieces]),
        masked=_together([piece.masked for piece in pieces]),
        labels=_together([piece.labels for piece in pieces]),
        targets=(
            (torch.cat([one for one, _ in targets]), torch.cat([other for _, other in targets]))
            if targets
            else None
        ),
        reference=joined(references) if references else None,
    )


def _together(parts: Sequence[Tensor | None]) -> Tensor | None:
    found = [part for part in parts if part is not None]
    return torch.cat(found) if found else None


@dataclass
class _Pieces(Dataset[Batch]):
    """Item k is piece k % count of batch k // count."""

    batches: PlannedBatches | WithBufferBatches | WithReference
    count: int

    def __getitem__(self, place: int) -> Batch:
        return self.batches.piece(*divmod(place, self.count), self.count)

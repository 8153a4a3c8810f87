"""Batches for the training loop: rows of the plan, read and transformed for the run's model."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import torch

from vlcpctl.core.batch import Batch, PseudoTexts
from vlcpctl.core.devices import copied_ahead
from vlcpctl.core.errors import Incompatible
from vlcpctl.core.machine import worker_count
from vlcpctl.core.transform import ImageTransform
from vlcpctl.data.loading.loader import (
    PlannedBatches,
    WithBufferBatches,
    WithReference,
    cache_limit,
    joined,
    piece_count,
    read_batches,
)
from vlcpctl.data.loading.sampler import BufferSampler
from vlcpctl.training.plan import TrainPlan
from vlcpctl.training.run import TrainRun
from vlcpctl.training.teachers import FileTexts

if TYPE_CHECKING:
    from vlcpctl.data.loading.masking import Masking
    from vlcpctl.data.precomputed.features import StoredProjections


def training_batches(plan: TrainPlan, run: TrainRun, first: int, stop: int) -> Generator[Batch]:
    """Batches number first..stop-1, with what the phase's methods need for pseudo texts.

    Their tensors are on the run's device, copied one batch ahead.
    Raises Incompatible if the buffer stores features of another width than the model's.
    """
    transform = training_transform(run)
    dataset: PlannedBatches | WithBufferBatches | WithReference
    dataset = batches = PlannedBatches(
        splits=plan.sampler.splits,
        plan=plan.sampler.plan,
        transform=transform,
        tokenise=run.encoder.tokenizer,
        seed=run.seed,
        part=run.world.slice_of,
        buffer_source=plan.sampler.buffer_source,
        masking=_masking(run),
        stored=_stored(plan, run),
        targets=plan.taught,
        groups=plan.groups,
        cache=_cache_limit(plan, transform, first, stop),
    )
    source = plan.pseudo_texts
    if source is not None and source.method not in run.position.plan.methods:
        source = None
    if source is not None and source.buffer is not None:
        dataset = WithBufferBatches(batches, _buffer_batches(source.buffer, run))
    if plan.reference is not None and plan.uses_reference(run.position.plan):
        own = plan.reference.size // run.world.size
        beside = _buffer_batches(plan.reference, run, plan.reference_groups)
        dataset = WithReference(dataset, beside, own)
    pairs = run.settings.batch_size // run.world.size
    found = read_pieces(dataset, range(first, stop), pairs, plan, run)
    if source is not None and source.file_texts is not None:
        found = _with_file_texts(found, source.file_texts, run, first)
    return on_device(found, run.device)


def read_pieces(
    dataset: PlannedBatches | WithBufferBatches | WithReference,
    numbers: range,
    pairs: int,
    plan: TrainPlan,
    run: TrainRun,
) -> Generator[list[Batch]]:
    """The pieces of batches, each of about `pairs` pairs of this process, in order."""
    workers = worker_count(plan.request.workers, plan.request.device)
    pieces = piece_count(pairs, run.encoder.transform) if workers else 1
    on_gpu = run.device.type == "cuda"
    return read_batches(dataset, numbers.start, numbers.stop, workers, pieces=pieces, pins=on_gpu)


def on_device(batches: Generator[list[Batch]], device: torch.device) -> Generator[Batch]:
    """Batches on the device, whose pieces are copied one batch ahead and joined there."""
    moved = copied_ahead(batches, device, lambda parts, move: [one.moved(move) for one in parts])
    with closing(moved):  # so that closing this generator ends the workers
        for parts in moved:
            yield joined(parts)


def _cache_limit(plan: TrainPlan, transform: ImageTransform, first: int, stop: int) -> int:
    """The bytes for decoded images; 0 if none comes back, or those of an epoch do not fit."""
    if not plan.sampler.may_repeat(first, stop):
        return 0  # memory that is filled and never read took 4 % of a small model's training
    rows = plan.sampler.visited_rows()
    workers = worker_count(plan.request.workers, plan.request.device)
    return cache_limit(plan.sampler.splits, rows, transform, workers)


def _stored(plan: TrainPlan, run: TrainRun) -> StoredProjections | None:
    """The projections stored in the buffer, if a method needs them."""
    stored = plan.stored
    if stored is not None and stored.width != run.width:
        raise Incompatible(
            f"{plan.request.buffer} stores features of {stored.width} channels, "
            f"but the model has {run.width}"
        )
    return stored


def _buffer_batches(
    buffer: BufferSampler, run: TrainRun, groups: Sequence[np.ndarray] | None = None
) -> PlannedBatches:
    """Mini-batches of the buffer or of --reference, with images not augmented."""
    return PlannedBatches(
        splits=[buffer.buffer],
        plan=buffer.plan,
        transform=run.encoder.transform,
        tokenise=run.encoder.tokenizer,
        seed=run.seed,
        part=run.world.slice_of,
        groups=groups,
    )


def _with_file_texts(
    batches: Generator[list[Batch]], texts_file: FileTexts, run: TrainRun, first: int
) -> Generator[list[Batch]]:
    """The pieces of batches, each first one with this process's part of the precomputed texts."""
    with closing(batches):  # so that closing this generator stops the workers of the inner one
        for number, (piece, *others) in enumerate(batches, start=first):
            rows = texts_file.rows(number)[run.world.slice_of(texts_file.count)]
            embeddings = torch.from_numpy(texts_file.file.embeddings(rows))
            ends = torch.from_numpy(texts_file.file.ends[rows])
            yield [dataclasses.replace(piece, pseudo=PseudoTexts(embeddings, ends)), *others]


def _masking(run: TrainRun) -> Masking | None:
    """How words are masked; None for a dual encoder or without masking."""
    settings = run.settings
    if run.encoder.family != "fusion" or not settings.mask_share:
        return None
    from vlcpctl.data.loading.masking import Masking

    hides_all = settings.masking == "all"
    return Masking(run.encoder.special, settings.mask_share, run.seed, hides_all=hides_all)


def training_transform(run: TrainRun) -> ImageTransform:
    """The model's image transform with the augmentation of the settings."""
    settings = run.settings
    return dataclasses.replace(
        run.encoder.transform,
        crop=settings.crop,
        crop_scale=settings.crop_scale,
        flip=settings.flip,
        randaugment=settings.randaugment,
        jpeg_decode=settings.jpeg_decode,
        resize=settings.resize,
    )

"""Validation after every epoch: the loss, and the mean recall if `--keep` selects by it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from vlcpctl.core.batch import Batch, Features
from vlcpctl.data.loading.loader import PlannedBatches
from vlcpctl.data.loading.order import BatchPlan
from vlcpctl.losses.contrastive import image_text
from vlcpctl.losses.rows import ALL
from vlcpctl.models.embed import as_features
from vlcpctl.training.batches import on_device, read_pieces
from vlcpctl.training.plan import TrainPlan
from vlcpctl.training.run import TrainRun


@torch.no_grad()
def validate(plan: TrainPlan, run: TrainRun, *, recalls: bool) -> dict[str, float]:
    """`val_loss`, the mean over batches, and with `recalls` also `val_rmean` in percent.

    The rows that do not fill a batch are left out: the loss depends on the batch size. Each process
    encodes its share of the batches. The loss is the same in all of them; the recall is computed in
    rank 0 alone, and NaN in the others.
    """
    world, pairs = run.world, sum(len(task.split("val")) for task in plan.inputs.tasks)
    size = min(run.settings.batch_size, pairs)
    count = pairs // size
    own = range(*(count * rank // world.size for rank in (world.rank, world.rank + 1)))
    pieces = read_pieces(_batches(plan, run, size), own, size, plan, run)
    run.encoder.module.eval()
    found = [
        (_features(run, batch), batch.texts, batch.groups)
        for batch in on_device(pieces, run.device)
    ]
    run.encoder.module.train()
    none = run.weights["logit_scale"].new_zeros(0)  # a process may have no batch
    each = [_loss(run, out, groups_B) for out, _, groups_B in found]
    losses = torch.stack(each) if each else none
    values = {"val_loss": _of_all(run, losses, own.start, count).mean().item()}
    if recalls:
        rows = (own.start * size, count * size)
        none = none.new_zeros(0, run.width)
        image, text = (
            _of_all(run, torch.cat([none, *side]), *rows)
            for side in ([out.image for out, *_ in found], [out.text for out, *_ in found])
        )
        texts = _of_all(run, _token_rows(run, [texts for _, texts, _ in found]), *rows)
        values["val_rmean"] = _recall(run, image, text, texts) if world.rank == 0 else math.nan
    return values


def _batches(plan: TrainPlan, run: TrainRun, size: int) -> PlannedBatches:
    """The tasks' validation splits in order: first captions, no augmentation."""
    splits = [task.split("val") for task in plan.inputs.tasks]
    source = np.repeat(np.arange(len(splits)), [len(split) for split in splits])
    row = np.concatenate([np.arange(len(split)) for split in splits])
    zeros = np.zeros(size, dtype=np.int64)

    def batch(step: int) -> BatchPlan:
        rows = slice(step * size, (step + 1) * size)
        return BatchPlan(source=source[rows], row=row[rows], caption=zeros, visit=zeros)

    return PlannedBatches(
        splits=splits,
        plan=batch,
        transform=run.encoder.transform,
        tokenise=run.encoder.tokenizer,  # not the encoder's method: workers must not have the model
        seed=run.seed,
        part=lambda count: slice(0, count),
        groups=plan.validation_groups,
    )


def _of_all(run: TrainRun, own: Tensor, first: int, count: int) -> Tensor:
    """The rows of all processes, (count, ...); `own` (n, ...) are those from `first` on."""
    if run.world.size == 1:
        return own
    whole = own.new_zeros(count, *own.shape[1:])
    whole[first : first + len(own)] = own
    run.world.sum_([whole])  # exact: the others add zeros
    return whole


def _token_rows(run: TrainRun, texts: list[Tensor]) -> Tensor:
    """This process's token ids (n, L); L is that of the other processes if n is 0."""
    own = torch.tensor([texts[0].shape[1] if texts else 0], device=run.device)
    length = int(run.world.gather(own).max())
    return torch.cat([torch.zeros(0, length, dtype=torch.int64, device=run.device), *texts])


def _features(run: TrainRun, batch: Batch) -> Features:
    chunks = run.chunks(batch)
    image, text = (
        torch.cat(side) for side in zip(*(run.encode(batch, c) for c in chunks), strict=True)
    )
    return as_features(image, text, run.scale(run.weights))


def _loss(run: TrainRun, out: Features, groups_B: Tensor | None) -> Tensor:
    """The base loss of a batch, with the negatives that training uses."""

    def of(own: slice) -> Tensor:
        sides = (out.image, out.text, out.scale, own)
        return run.joined(*image_text(*sides, groups_B=groups_B, rows=run.row_loss))

    if not run.local_loss:
        return of(ALL)
    # Rows of a process's share at a time: the (B, B) matrix is too large for one of them.
    shares = [replace(run.world, rank=rank) for rank in range(run.world.size)]
    return torch.stack([of(world.slice_of(len(out.image))) for world in shares]).sum()


def _recall(run: TrainRun, image: Tensor, text: Tensor, tokens: Tensor) -> float:
    """The mean of the six recalls in percent; equal texts are one gallery entry, as in eval."""
    from vlcpctl.evaluation.retrieval.protocols import cross_modal

    images, texts = (side.float().cpu().numpy() for side in (image, text))
    ids = tokens.cpu().numpy()
    _, first, of_image = np.unique(ids, axis=0, return_index=True, return_inverse=True)
    pairs = np.stack([np.arange(len(images)), of_image.reshape(-1)], axis=1)
    metrics: dict[str, float] = cross_modal(images, texts[first], pairs, str(run.device))["metrics"]
    return metrics["rm"]

"""Gradients summed over processes while the backward pass still runs, in buckets.

As PyTorch's DistributedDataParallel does (Li et al., 2020, "PyTorch Distributed: Experiences on
Accelerating Data Parallel Training"): a bucket is sent as soon as the gradients in it are complete,
so that the network works while the rest is computed. DistributedDataParallel itself expects one
forward and one backward pass through one module. Here a step has several of both, over pairs,
pseudo texts and micro-batches; a loss also reaches weights directly, and a weight may be used in
some processes only. Hooks on the weights, which are active during the last backward pass alone, are
right in all these cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import final

import torch
from torch import Tensor, nn

from vlcpctl.core.batch import Features, Terms
from vlcpctl.core.devices import to_device
from vlcpctl.core.method import Method
from vlcpctl.core.params import trainable
from vlcpctl.distributed.world import World
from vlcpctl.models.execution import BATCH_NORMS
from vlcpctl.training.run import TrainRun

BUCKET_BYTES = 25 * 2**20  # DistributedDataParallel's default


class GradientSum:
    """Sums the gradients of a phase's steps over processes; one process needs no sum.

    Each step calls `last_backward`, then `finish`. All processes must do so.
    """

    def __init__(self, weights: Mapping[str, Tensor], world: World) -> None:
        self.weights, self.world = trainable(weights), world
        self._buckets: list[list[str]] = []  # in the order of sending; empty until the first step
        self._bucket_of: dict[str, int] = {}
        self._arrived: list[str] = []  # the weights whose gradient of this step is complete
        self._missing: list[int] = []  # how many gradients of each bucket are not
        self._waiting: list[Callable[[], None]] = []  # one for each bucket that was sent

    @contextmanager
    def last_backward(self, *, is_last: bool = True) -> Iterator[None]:
        """Within the block, send each bucket once its gradients are complete.

        The block holds the last backward pass of a step. If it is not the last, nothing is sent:
        later passes will add to the gradients.
        """
        hooks = []
        if self.world.size > 1 and is_last:
            hooks = [
                weight.register_post_accumulate_grad_hook(partial(self._complete, name))
                for name, weight in self.weights.items()
            ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def finish(self) -> dict[str, Tensor]:
        """The gradients by name, summed over processes, of the weights that any process used.

        The gradient of a weight that only other processes used is counted as zero here; one that
        none used stays None. Raises LostProcess if another process has ended.
        """
        if self.world.size > 1:
            self._finish_sum()
        grads = {name: weight.grad for name, weight in self.weights.items()}
        return {name: grad for name, grad in grads.items() if grad is not None}

    def _finish_sum(self) -> None:
        if not self._buckets:
            self._agree_on_buckets()
        is_used = [weight.grad is not None for weight in self.weights.values()]
        while len(self._waiting) < len(self._buckets):
            self._send_next()
        first = next(iter(self.weights.values()))
        users = to_device(torch.tensor(is_used, dtype=torch.float32), first.device)
        self._waiting.append(self.world.start_sum(users))
        for wait in self._waiting:
            wait()
        # Read only where needed: on a GPU, reading waits until the backward pass has ended.
        if not all(is_used):
            for weight, count in zip(self.weights.values(), users.tolist(), strict=True):
                if not count:
                    weight.grad = None
        self._start_over()

    def _complete(self, name: str, _weight: Tensor) -> None:
        """The hook of a weight, called in the backward pass once its gradient is complete."""
        self._arrived.append(name)
        if not self._buckets:
            return
        self._missing[self._bucket_of[name]] -= 1
        # Strictly in order, as all processes must send the same buckets in the same order.
        while len(self._waiting) < len(self._buckets) and not self._missing[len(self._waiting)]:
            self._send_next()

    def _send_next(self) -> None:
        weights = [self.weights[name] for name in self._buckets[len(self._waiting)]]
        flat = weights[0].new_empty(sum(weight.numel() for weight in weights))
        parts = flat.split([weight.numel() for weight in weights])
        views = [_shaped(part, weight) for part, weight in zip(parts, weights, strict=True)]
        with torch.no_grad():
            for view, weight in zip(views, weights, strict=True):
                if weight.grad is None:
                    view.zero_()
                else:
                    view.copy_(weight.grad)
                # Gradients become views of the bucket, so that the sum needs no second copy.
                weight.grad = view
        self._waiting.append(self.world.start_sum(flat))

    def _agree_on_buckets(self) -> None:
        """Form buckets in the order in which the first step's gradients arrived in process 0."""
        # That order depends on the model alone, so a resumed run forms the same buckets: with three
        # processes or more, the last bits of a sum depend on a gradient's place in its bucket.
        names = list(self.weights)
        order = [*self._arrived, *(name for name in names if name not in set(self._arrived))]
        places = torch.tensor([names.index(name) for name in order])
        agreed = self.world.numbers_of_rank_0(places, self.weights[names[0]].device)
        self._buckets = list(_buckets([names[place] for place in agreed], self.weights))
        numbered = enumerate(self._buckets)
        self._bucket_of = {name: number for number, bucket in numbered for name in bucket}

    def _start_over(self) -> None:
        self._arrived, self._waiting = [], []
        self._missing = [len(bucket) for bucket in self._buckets]


def _buckets(order: Sequence[str], weights: Mapping[str, Tensor]) -> Iterator[list[str]]:
    """The names in order, cut where the dtype changes or a bucket is full."""
    for _, names in groupby(order, key=lambda name: weights[name].dtype):
        bucket: list[str] = []
        filled = 0
        for name in names:
            bucket.append(name)
            filled += weights[name].numel() * weights[name].element_size()
            if filled >= BUCKET_BYTES:
                yield bucket
                bucket, filled = [], 0
        if bucket:
            yield bucket


def _shaped(flat: Tensor, weight: Tensor) -> Tensor:
    """A part of a bucket with the weight's shape and, where it is dense, its order in memory."""
    # Fused optimizers want a gradient to be laid out as its weight is, such as channels last.
    order = sorted(range(weight.dim()), key=weight.stride)
    dense, wanted = True, 1
    for dim in order:
        if weight.shape[dim] != 1:
            dense, wanted = dense and weight.stride(dim) == wanted, wanted * weight.shape[dim]
    return (
        flat.as_strided(weight.shape, weight.stride(), flat.storage_offset())
        if dense
        else (flat.view(weight.shape))
    )


class LossShare:
    """Cuts features and terms to this process's share, and adds up what processes computed."""

    def __init__(self, run: TrainRun, methods: Sequence[Method]) -> None:
        self.world = run.world
        self.is_local = run.local_loss and run.world.size > 1
        self._by_rows = {"contrastive"} | {
            f"{method.name}/{term}" for method in methods for term in method.by_rows
        }

    @property
    def has_weights(self) -> bool:
        """Whether this process's gradient of weights that the loss uses directly counts.

        It is complete in every process if all of them compute the whole loss: summed over
        processes it would count once for each of them.
        """
        return self.is_local or self.world.rank == 0

    def features(self, out: Features) -> Features:
        """The features of the global batch, with the pairs whose rows are computed here."""
        return replace(out, own=self.world.slice_of(len(out.image))) if self.is_local else out

    def terms(self, terms: Terms) -> Terms:
        """This process's share of the loss terms, () each, by name; the shares add up."""
        if not self.is_local:
            return terms
        # A term that is not cut into rows is the same in all processes.
        return {
            name: value if name in self._by_rows else value / self.world.size
            for name, value in terms.items()
        }

    def whole(self, values: Tensor) -> Tensor:
        """The values of the whole loss, of this process's share (n,); without gradient."""
        values = values.detach()
        if self.is_local:
            self.world.sum_([values])
        return values

    def own_rows(self, gradient_BD: Tensor) -> Tensor:
        """The gradient (b, D) of the own features, of this process's gradient of all features."""
        if self.is_local:
            return self.world.sum_own(gradient_BD)
        return gradient_BD[self.world.slice_of(len(gradient_BD))]


@final
class RunningStatistics:
    """Those of all batch norms of a module, live."""

    def __init__(self, module: nn.Module) -> None:
        norms = [part for part in module.modules() if isinstance(part, BATCH_NORMS)]
        self._norms = [norm for norm in norms if norm.track_running_stats]
        both = [(norm.running_mean, norm.running_var) for norm in self._norms]
        self._values = [value for pair in both for value in pair if value is not None]
        counts = [norm.num_batches_tracked for norm in self._norms]
        self._counts = [count for count in counts if count is not None]

    @torch.no_grad()
    def averaged(self, parts: Sequence[slice]) -> Iterator[slice]:
        """Yield each part of a batch, to be encoded; after the last one they have counted once."""
        if not any(norm.training for norm in self._norms):
            yield from parts
            return
        live = [*self._values, *self._counts]
        before = [one.clone() for one in live]
        sums = [torch.zeros_like(one) for one in self._values]
        sizes = [part.stop - part.start for part in parts]
        shares = [size / sizes[0] for size in sizes]  # 1 if all are equal, which rounds nothing
        for part, share in zip(parts, shares, strict=True):
            torch._foreach_copy_(live, before)
            yield part
            torch._foreach_add_(sums, self._values, alpha=share)
        for value, total in zip(self._values, sums, strict=True):
            value.copy_(total.div_(sum(shares)))

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Within the block batch norms normalise as before, and count nothing."""
        for norm in self._norms:
            norm.track_running_stats = False
        try:
            yield
        finally:
            for norm in self._norms:
                norm.track_running_stats = True

    def share(self, world: World) -> None:
        """Continue with the average over all processes, so that they keep equal models."""
        if world.size > 1 and self._values:
            world.sum_(self._values)
            for value in self._values:
                value.div_(world.size)

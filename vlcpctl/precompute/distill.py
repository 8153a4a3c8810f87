"""distill: precompute a teacher's embeddings of pairs (targets), part by part.

.TARGETS.vlcpctl/partial/images-NNNNNN.DIGEST.npy  image embeddings of part N, see `files.parts`
.TARGETS.vlcpctl/partial/texts-NNNNNN.DIGEST.npy   text embeddings

Shapes: N rows, one for each view of an image or for each caption; D channels of the teacher.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from vlcpctl.core.console import progress, say
from vlcpctl.core.devices import copied_ahead, to_device, to_host
from vlcpctl.core.errors import OutputExists
from vlcpctl.data.images.transforms import TrainView
from vlcpctl.data.loading.loader import ImageCache
from vlcpctl.data.loading.workers import read_in_order
from vlcpctl.data.precomputed.store import write_vectors
from vlcpctl.data.precomputed.targets import write_targets
from vlcpctl.files.finished import already_made
from vlcpctl.files.outputs import Output
from vlcpctl.files.parts import SHARDS, Parts, drop_parts
from vlcpctl.models.embed import require_finite
from vlcpctl.models.encoders import Encoder, SavedEncoder
from vlcpctl.precompute.compute_options import ComputeOptions
from vlcpctl.precompute.distill_plan import Distillation


def distill(
    plan: Distillation, compute: ComputeOptions, shard: Parts, *, force: bool = False
) -> bool:
    """Compute the missing parts of this shard, and join them once those of all shards exist.

    A shard has every `count`-th part. Returns whether the targets are finished; False if parts of
    other shards are missing. Raises OutputExists if unfinished work of a different command exists,
    and Diverged for non-finite embeddings.
    """
    out = plan.out
    # A part does not depend on the number of shards: another number may resume the work.
    with shard.claimed(plan.identity, {**compute.numeric(), SHARDS: None}, force=force):
        if already_made(out, "targets", plan.identity, force=force):  # by another shard, meanwhile
            drop_parts(out)
            return True
        facts = _compute(plan, compute, shard)
    found = shard.listed()
    left = sum(not {*_names(number)} <= found.keys() for number in range(plan.parts))
    if left:
        say(f"{out}: {left} of {plan.parts} parts remain for other shards")
        return False
    # Two shards may finish at the same moment, and both find all parts: the lock lets one join
    # them, and the other then finds the targets finished.
    with Output(out).locked(wait_s=math.inf):
        _join(plan, shard, facts, force=force)
    return True


def _names(number: int) -> tuple[str, str]:
    """The names of what a part has: its image and its text embeddings."""
    return f"images-{number:06d}", f"texts-{number:06d}"


def _compute(plan: Distillation, compute: ComputeOptions, shard: Parts) -> dict[str, Any]:
    """Compute the missing parts of the shard; returns the facts for the manifest."""
    torch.set_num_threads(compute.threads)
    own = range(shard.index or 0, plan.parts, shard.count)
    names = [name for number in own for name in _names(number)]
    found = dict(zip(names, shard.find(names), strict=True))
    missing = [number for number in own if None in map(found.get, _names(number))]
    if len(missing) < len(own):
        say(f"resuming {plan.out} at part {len(own) - len(missing)} of {len(own)}")
    source = SavedEncoder(plan.teacher)
    with (
        compute.pool() as pool,
        progress("distill", sum(len(plan.part(number)) for number in own), "pairs") as bar,
    ):
        teacher = pool.load(source, compute.device)
        bar.resume(sum(len(plan.part(number)) for number in own if number not in missing))
        work = TargetWork(plan, compute)
        for number, *sides in pool.results(source, teacher, work, missing):
            for name, vectors in zip(_names(number), sides, strict=True):
                shard.keep(name, ".npy", partial(_write, vectors))
            bar.advance(len(plan.part(number)))
    return {
        "teacher": plan.identity["teacher"],
        "sources": [source.id for source in plan.sources],
        "width": teacher.width,
        "scale": teacher.weights()["logit_scale"].detach().exp().item(),
        "pairs": len(plan.pair_rows),
        "views": plan.view_count,
    }


def _write(vectors: np.ndarray, path: Path) -> None:
    write_vectors(path, [vectors], vectors.shape, np.float32)


def _join(plan: Distillation, shard: Parts, facts: dict[str, Any], *, force: bool) -> None:
    """Join the parts into the finished targets, unless another shard has; delete the parts."""
    out = plan.out
    if force or not already_made(out, "targets", plan.identity, force=False):
        names = [name for number in range(plan.parts) for name in _names(number)]
        files = [file for file in shard.find(names) if file is not None]
        if len(files) < len(names):
            raise OutputExists(
                f"the parts of {out} were removed by another command; run this one again"
            )
        samples = plan.keys(), plan.caption_counts
        write_targets(out, samples, (files[0::2], files[1::2]), plan.identity, facts)
    drop_parts(out)


@dataclass
class ViewBatches(Dataset[Tensor]):
    """The views of the images of some parts as (n, H, W, 3) bytes; no batch spans two parts."""

    plan: Distillation
    batches: Sequence[tuple[int, int]]  # (part, batch within the part)
    size: int

    def __post_init__(self) -> None:
        self._cache = ImageCache(limit=1)  # keeps the last image: its views follow each other

    def __getitem__(self, number: int) -> Tensor:
        part, batch = self.batches[number]
        places, views = self.plan.part(part), self.plan.view_count
        first = batch * self.size
        numbers = range(first, min(first + self.size, len(places) * views))
        known = [self._view(places[at // views], at % views) for at in numbers]
        return torch.from_numpy(np.stack(known))

    def _view(self, place: np.ndarray, visit: int) -> np.ndarray:
        source, row = place.tolist()
        splits, key = self.plan.splits, self.plan.splits[source].keys[row]
        view = TrainView(self.plan.transform, self.plan.seed, key, visit)
        image = self._cache.get(splits, source, row, view.reduction)
        with splits[source].naming(row):
            return view.render(image)


@dataclass(frozen=True)
class TargetWork:
    """Computes parts: the number, the image and the text embeddings of each."""

    plan: Distillation
    compute: ComputeOptions

    def __call__(
        self, teacher: Encoder, numbers: Sequence[int]
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Embeddings are (N, D) float32. Raises Diverged if they are not finite."""
        size, views = self.compute.batch_size, self.plan.view_count
        counts = [-(-len(self.plan.part(number)) * views // size) for number in numbers]
        batches = [
            (number, batch)
            for number, count in zip(numbers, counts, strict=True)
            for batch in range(count)
        ]
        dataset = ViewBatches(self.plan, batches, size)
        # One reader for all parts, so that workers prefetch across their borders.
        on_gpu, workers = teacher.device.type == "cuda", self.compute.worker_count
        pixels = read_in_order(dataset, range(len(batches)), workers, pins=on_gpu)
        for number, count in zip(numbers, counts, strict=True):
            images = self._joined(number, self._image_vectors(teacher, islice(pixels, count)))
            yield number, images, self._joined(number, self._text_vectors(teacher, number))

    @torch.inference_mode()
    def _image_vectors(self, teacher: Encoder, batches: Iterator[Tensor]) -> Iterator[Tensor]:
        """Embeddings of all views of a part's first image, then of its second, ..."""
        for batch in copied_ahead(batches, teacher.device, lambda pixels, move: move(pixels)):
            raw, _ = teacher.features(teacher.pixels(batch), None)
            assert raw is not None
            yield raw.float()

    @torch.inference_mode()
    def _text_vectors(self, teacher: Encoder, number: int) -> Iterator[Tensor]:
        """Embeddings of all captions of a part's first image, then of its second, ..."""
        places = self.plan.part(number).tolist()
        texts = [text for source, row in places for text in self.plan.splits[source].captions(row)]
        for start in range(0, len(texts), self.compute.batch_size):
            ids = teacher.tokenize(texts[start : start + self.compute.batch_size])
            _, raw = teacher.features(None, to_device(ids, teacher.device))
            assert raw is not None
            yield raw.float()

    def _joined(self, number: int, parts: Iterator[Tensor]) -> np.ndarray:
        vectors = np.concatenate(list(to_host(parts)))
        require_finite(vectors, f"{self.plan.teacher}, part {number}")
        return vectors

"""distill: precompute a teacher's embeddings of pairs (targets), part by part.

.TARGETS.vlcpctl/partial/images-NNNNNN.npy  image embeddings of part N
.TARGETS.vlcpctl/partial/texts-NNNNNN.npy   text embeddings
.TARGETS.vlcpctl/partial/part-NNNNNN.json   written last, see `resumable_parts`

Shapes: N rows, one for each view of an image or for each caption; D channels of the teacher.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from vlcpctl.data.precomputed.teacher_targets import Parts, write_targets
from vlcpctl.data.precomputed.vector_files import write_vectors
from vlcpctl.files.atomic import REPLACES, already_made
from vlcpctl.files.resumable_parts import (
    claim,
    drop_finished,
    is_finished,
    missing_parts,
    record_part,
    verify_part,
)
from vlcpctl.files.shards import START_OVER
from vlcpctl.files.staging import Staging
from vlcpctl.models.embed import require_finite
from vlcpctl.models.encoders import Encoder, SavedEncoder
from vlcpctl.precompute.compute_options import ComputeOptions
from vlcpctl.precompute.distill_plan import DistillPlan


@dataclass(frozen=True)
class Shard:
    """The parts that this process computes: every `count`-th, starting with `index`."""

    index: int = 0
    count: int = 1


def distill(
    plan: DistillPlan, compute: ComputeOptions, shard: Shard, *, force: bool = False
) -> bool:
    """Compute the missing parts of this shard, and join them once those of all shards exist.

    Returns whether the targets are finished; False if parts of other shards are missing. Raises
    OutputExists if unfinished work of a different command exists, Incompatible if a finished part
    was changed, and Diverged for non-finite embeddings.
    """
    out, staging = plan.request.out, Staging(plan.request.out)
    alone, part = shard.count == 1, f"{shard.index}-of-{shard.count}"
    with staging.locked() if alone else staging.locked_part(part):
        if _is_made(plan, force=force):
            drop_finished(out, plan.identity)
            return True
        facts = _compute(plan, compute, shard, force=force)
        if alone and facts is not None:
            _join(plan, facts, force=force)
    if facts is None:
        return False
    # Two shards may finish at the same moment, and both find all parts: the lock lets one join
    # them, and the other then finds the targets finished.
    if not alone:
        with staging.locked(wait_s=math.inf):
            _join(plan, facts, force=force)
    return True


def _is_made(plan: DistillPlan, *, force: bool) -> bool:
    return already_made(plan.request.out, "targets", plan.identity, force=force)


def _part_files(plan: DistillPlan) -> list[tuple[Path, Path]]:
    """The files of each part: its image and its text embeddings."""
    partial = Staging(plan.request.out).partial
    return [
        (partial / f"images-{number:06d}.npy", partial / f"texts-{number:06d}.npy")
        for number in range(plan.parts)
    ]


def _compute(
    plan: DistillPlan, compute: ComputeOptions, shard: Shard, *, force: bool
) -> dict[str, Any] | None:
    """Compute the missing parts of the shard.

    Returns the facts for the manifest if the parts of all shards exist now, else None.
    """
    out = plan.request.out
    torch.set_num_threads(compute.threads)
    advice = REPLACES if shard.count == 1 else START_OVER
    claim(out, plan.identity, compute.numeric(), force=force, advice=advice)
    files = _part_files(plan)
    own = range(shard.index, plan.parts, shard.count)
    missing = missing_parts(out, {number: files[number] for number in own})
    source = SavedEncoder(plan.request.teacher)
    with (
        compute.with_pool() as compute_,
        progress("distill", sum(len(plan.part(number)) for number in own), "pairs") as bar,
    ):
        teacher = compute_.pool.load(source, compute.device)
        bar.resume(sum(len(plan.part(number)) for number in own if number not in missing))
        work = TargetWork(plan, compute)
        for number, images, texts in compute_.pool.results(source, teacher, work, missing):
            for path, vectors in zip(files[number], (images, texts), strict=True):
                write_vectors(path, [vectors], vectors.shape, np.float32)
            record_part(number, files[number])
            bar.advance(len(plan.part(number)))
    left = [number for number, part in enumerate(files) if not is_finished(number, part)]
    if left:
        say(f"{out}: {len(left)} of {plan.parts} parts remain for other shards")
        return None
    return _facts(plan, teacher)


def _facts(plan: DistillPlan, teacher: Encoder) -> dict[str, Any]:
    identity = plan.identity
    return {
        "teacher": identity["teacher"],
        "sources": list(plan.sources),
        "width": teacher.width,
        "scale": teacher.weights()["logit_scale"].detach().exp().item(),
        "pairs": len(plan.pair_rows),
        "views": plan.views,
    }


def _join(plan: DistillPlan, facts: dict[str, Any], *, force: bool) -> None:
    """Join the parts into the finished targets, unless another shard has; delete the parts.

    Raises Incompatible if a part is not what was written.
    """
    out, files = plan.request.out, _part_files(plan)
    if force or not _is_made(plan, force=False):
        if not all(path.is_file() for pair in files for path in pair):
            raise OutputExists(
                f"the parts of {out} were removed by another command; run this one again"
            )
        for number, part in enumerate(files):
            verify_part(number, part)  # another shard may have computed it
        views = np.full(len(plan.pair_rows), plan.views)
        sides = (
            Parts(views, [images for images, _ in files]),
            Parts(plan.caption_counts, [texts for _, texts in files]),
        )
        write_targets(out, plan.keys(), sides, plan.identity, facts)
    Staging(out).drop_partial()


@dataclass
class ViewBatches(Dataset[Tensor]):
    """The views of the images of some parts as (n, H, W, 3) bytes; no batch spans two parts."""

    plan: DistillPlan
    batches: Sequence[tuple[int, int]]  # (part, batch within the part)
    size: int

    def __post_init__(self) -> None:
        self._cache = ImageCache(limit=1)  # keeps the last image: its views follow each other

    def __getitem__(self, number: int) -> Tensor:
        part, batch = self.batches[number]
        places, views = self.plan.part(part), self.plan.views
        first = batch * self.size
        numbers = range(first, min(first + self.size, len(places) * views))
        known = [self._view(places[at // views], at % views) for at in numbers]
        return torch.from_numpy(np.stack(known))

    def _view(self, place: np.ndarray, visit: int) -> np.ndarray:
        source, row = place.tolist()
        splits, key = self.plan.splits, self.plan.splits[source].keys[row]
        view = TrainView(self.plan.transform, self.plan.request.seed, key, visit)
        image = self._cache.get(splits, source, row, view.reduction)
        with splits[source].naming(row):
            return view.render(image)


@dataclass(frozen=True)
class TargetWork:
    """Work that computes parts: the number, the image and the text embeddings of each."""

    plan: DistillPlan
    compute: ComputeOptions

    def share(self, numbers: Sequence[int]) -> TargetWork:
        """See `Work`."""
        return self

    def results(
        self, teacher: Encoder, numbers: Sequence[int]
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """See `Work`; the embeddings are (N, D) float32. Raises Diverged if they are not finite."""
        size, views = self.compute.batch_size, self.plan.views
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
        require_finite(vectors, f"{self.plan.request.teacher}, part {number}")
        return vectors

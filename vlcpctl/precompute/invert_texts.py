"""invert-texts: generate a file of pseudo texts from a checkpoint and a buffer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import normalize

from vlcpctl.core.batch import Batch
from vlcpctl.core.console import progress
from vlcpctl.core.devices import copied_ahead
from vlcpctl.core.errors import Diverged
from vlcpctl.data.loading.loader import PlannedBatches
from vlcpctl.data.loading.sampler import BufferSampler
from vlcpctl.data.loading.workers import read_in_order
from vlcpctl.data.precomputed.pseudo_texts import Columns, write_pseudo_texts
from vlcpctl.models.encoders import Encoder, SavedEncoder
from vlcpctl.models.inversion import InversionResult, Inverter, ParentCaptions, draw_parents
from vlcpctl.precompute.compute_options import ComputeOptions
from vlcpctl.precompute.invert_plan import Inversion


def invert_texts(plan: Inversion, compute: ComputeOptions) -> None:
    """Generate the texts and write their file. Raises Diverged if similarities are not finite."""
    torch.set_num_threads(compute.threads)
    source = SavedEncoder(plan.checkpoint)
    with (
        compute.pool() as pool,
        progress("invert", plan.count, "texts") as bar,
    ):
        encoder = pool.load(source, compute.device)
        shape = encoder.tokenize([""]).shape[1], encoder.text_tower.width

        def columns() -> Iterator[Columns]:
            work = TextWork(plan, compute)
            for number, found in pool.results(source, encoder, work, range(plan.parts)):
                yield found
                bar.advance(plan.texts_of(number))

        write_pseudo_texts(plan.out, columns(), shape, plan.identity)


@dataclass(frozen=True)
class TextWork:
    """Generates parts: the number and the columns of each."""

    plan: Inversion
    compute: ComputeOptions

    def __call__(self, encoder: Encoder, numbers: Sequence[int]) -> Iterator[tuple[int, Columns]]:
        """Raises Diverged if similarities are not finite."""
        encoder.module.requires_grad_(False)
        dataset = PlannedBatches(
            splits=[self.plan.split],
            plan=BufferSampler(self.plan.split, self.plan.settings.pairs, self.plan.seed).plan,
            transform=encoder.transform,
            tokenise=encoder.tokenizer,
            seed=self.plan.seed,
            part=lambda count: slice(0, count),
        )
        on_gpu, workers = encoder.device.type == "cuda", self.compute.worker_count
        read = read_in_order(dataset, numbers, workers, pins=on_gpu)
        batches = copied_ahead(read, encoder.device, Batch.moved)
        for number, batch in zip(numbers, batches, strict=True):
            yield number, self._rows(encoder, number, batch)

    def _rows(self, encoder: Encoder, number: int, batch: Batch) -> Columns:
        settings, size = self.plan.settings, self.compute.batch_size
        parents = draw_parents(self.plan.seed, number, settings.texts, settings.pairs)
        images, ids = encoder.inputs(batch.images, batch.texts)
        with torch.no_grad():
            image, _ = encoder.features(images, None)
        assert image is not None
        image_BD = normalize(image, dim=-1)
        count = self.plan.texts_of(number)
        slices = [
            parents.part(slice(start, min(start + size, count))) for start in range(0, count, size)
        ]
        inverter = Inverter(encoder, settings)
        columns_of_slices = [
            _columns(inverter.invert(image_BD, ids, part), part) for part in slices
        ]
        columns = {
            name: np.concatenate([one[name] for one in columns_of_slices])
            for name in columns_of_slices[0]
        }
        if not np.isfinite(columns["loss"]).all():
            raise Diverged(f"{self.plan.checkpoint} gives non-finite similarities")
        keys = np.array(batch.keys)
        return {**columns, "first": keys[columns["first"]], "second": keys[columns["second"]]}


def _columns(inverted: InversionResult, parents: ParentCaptions) -> dict[str, np.ndarray]:
    """The columns of the texts, one row each; parents are indices into the mini-batch."""
    before, after = inverted.before, inverted.after
    columns = {
        "first": parents.first,
        "second": parents.second,
        "share": parents.share,
        "end": inverted.texts.ends,
        "embeddings": inverted.texts.embeddings,
        "loss_before": before.loss,
        "loss": after.loss,
        "similarity_before": before.similarity,
        "similarity": after.similarity,
        "within_before": before.within,
        "within": after.within,
    }
    return {name: column.cpu().numpy() for name, column in columns.items()}

"""Evaluate checkpoints on tasks: each task is embedded once per checkpoint, for all galleries."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from vlcpctl.core.artifacts import MANIFESTS, new_directory, write_manifest
from vlcpctl.core.devices import torch_device
from vlcpctl.core.hashing import content_id
from vlcpctl.data.task import Split, Task
from vlcpctl.engine.embedding import embed
from vlcpctl.engine.evaluation_plan import Job, Means, Request
from vlcpctl.eval.embedding_files import Samples, write_part
from vlcpctl.eval.gallery import GATHER, Embedded, Layout, lay_out
from vlcpctl.eval.retrieval import cross_modal
from vlcpctl.eval.search import choose
from vlcpctl.models import dual_encoder
from vlcpctl.models.dual_encoder import DualEncoder

Note = Callable[[dict[str, Any]], None]  # takes a timing


def evaluate(
    request: Request, jobs: list[Job], means: Means, note: Note
) -> Iterator[dict[str, Any]]:
    """The rows, each as soon as it is known; embeddings are saved after a checkpoint's rows."""
    open_index = choose(means.backend, means.device)
    sources = [_Source(task, request.split, request.limit) for task in request.tasks]
    gather = GATHER[request.duplicates]
    for job in jobs:
        model = _Model(job, sources, means, note)
        for cell in job.cells:
            parts = [model.embedded(number) for number in cell.tasks]
            with _timed(
                note, job, "search", gallery=cell.fields["gallery"], tasks=cell.fields["tasks"]
            ):
                result = cross_modal(gather(parts), open_index)
            yield cell.row(dataclasses.asdict(result))
        if job.embeddings is not None:
            model.save()


class _Source:
    """One split of one task, and what in it is identical."""

    def __init__(self, task: Task, split: str, limit: int | None) -> None:
        self.task, self.name, self.limit = task, split, limit

    @cached_property
    def split(self) -> Split:
        return self.task.split(self.name)

    @cached_property
    def layout(self) -> Layout:
        count = min(len(self.split), self.limit or len(self.split))
        captions = (self.split.captions(row) for row in range(count))
        return lay_out(self.split.column("sha256")[:count], captions)

    def samples(self) -> Samples:
        return Samples(self.task.slug, self.split.keys, self.split.column("label"))


class _Model:
    """A checkpoint, and the tasks as it sees them."""

    def __init__(self, job: Job, sources: list[_Source], means: Means, note: Note) -> None:
        self.job, self.sources, self.means, self.note = job, sources, means, note
        self._embedded: dict[int, Embedded] = {}

    @cached_property
    def encoder(self) -> DualEncoder:
        encoder = dual_encoder.load(self.job.checkpoint)
        encoder.module.to(torch_device(self.means.device)).eval()
        return encoder

    def embedded(self, number: int) -> Embedded:
        """A task of the request, embedded when it is first asked for."""
        if number not in self._embedded:
            source, layout = self.sources[number], self.sources[number].layout
            what = f"{self.job.checkpoint} on {source.task.slug}"
            counts = {"images": len(layout.image_ids), "texts": len(layout.texts)}
            with _timed(self.note, self.job, "embed", task=source.task.slug, **counts):
                self._embedded[number] = embed(
                    self.encoder,
                    source.split,
                    layout,
                    batch_size=self.means.batch_size,
                    workers=self.means.workers,
                    what=what,
                )
        return self._embedded[number]

    def save(self) -> None:
        """Write the embeddings of every task of the request."""
        out, identity = self.job.embeddings, self.job.embeddings_identity
        assert out is not None
        with new_directory(out, MANIFESTS["embeddings"]) as directory:
            for number, source in enumerate(self.sources):
                part = self.embedded(number)
                write_part(directory, number, len(self.sources), part, source.samples())
            names = [source.task.slug for source in self.sources]
            body = {"tasks": names, "inputs": [identity["checkpoint"], *identity["tasks"]]}
            write_manifest(directory, "embeddings", identity, content_id(identity), body)


@contextmanager
def _timed(note: Note, job: Job, what: str, **fields: Any) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds = round(time.perf_counter() - started, 4)
    about = {"run": job.manifest["run"], "step": job.manifest["step"], "what": what}
    note({**about, **fields, "seconds": seconds})

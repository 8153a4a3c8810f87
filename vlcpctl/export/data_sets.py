"""Export tasks as a data set in the layout of another program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.core.console import progress, say
from vlcpctl.core.words import counted, size
from vlcpctl.data.classification.prompts import DEFAULT_TEMPLATES
from vlcpctl.data.tasks.facts import CARD, CARD_DIGEST, EXPORT, EXPORT_MANIFEST
from vlcpctl.data.tasks.tars import DEFAULT_SHARD_BYTES
from vlcpctl.data.tasks.task import Task
from vlcpctl.export.clip_benchmark import RETRIEVAL, write_clip_benchmark
from vlcpctl.export.hugging_face import write_hugging_face
from vlcpctl.export.pairs import ExportedPair, Selection, select
from vlcpctl.files.digests import digests_of
from vlcpctl.files.finished import already_made
from vlcpctl.files.ids import content_id
from vlcpctl.files.manifest import is_artifact, write_manifest
from vlcpctl.files.outputs import new_directory

CLIP_BENCHMARK = "clip-benchmark"


@dataclass(frozen=True, kw_only=True)
class DataSetExport:
    """The tasks to export, their splits (() are all), the layout and the output directory."""

    tasks: Sequence[Task]
    splits: Sequence[str] = ()
    to: str
    out: Path
    shard_bytes: int = DEFAULT_SHARD_BYTES
    dataset_type: str = RETRIEVAL
    templates: Sequence[str] = DEFAULT_TEMPLATES
    force: bool = False

    def selection(self) -> Selection:
        """The pairs to export. Raises BadInput as `select` does."""
        return select(self.tasks, self.splits)

    def identity(self) -> dict[str, Any]:
        """The facts that decide what is written."""
        found: dict[str, Any] = {
            "to": self.to,
            "tasks": [task.content for task in self.tasks],
            "splits": list(self.selection().splits),
            "shard_bytes": self.shard_bytes,
        }
        if self.to == CLIP_BENCHMARK:
            found |= {"dataset_type": self.dataset_type, "templates": list(self.templates)}
        return found

    def plan(self) -> list[str]:
        """What the export will write, a line for each split. Raises BadInput as `select` does."""
        found = self.selection()
        lines = [f"export: {counted(len(self.tasks), 'task')} to {self.to}"]
        for split in found.splits:
            images = counted(found.count("images", split), "image")
            captions = counted(found.count("captions", split), "caption")
            lines.append(f"  {split}: {images} with {captions}")
        return lines

    def export(self) -> None:
        """Write the data set; do nothing if it is finished.

        Raises BadInput if a task is damaged or has nothing to export, and OutputExists if something
        else is at `out`.
        """
        found, identity = self.selection(), self.identity()
        if already_made(self.out, EXPORT, identity, force=self.force):
            say(f"export: {self.out} is already finished")
            return
        with new_directory(self.out, is_artifact) as directory:
            self._write(directory, found)
            _write_manifest(directory, self, found, identity)
        images, captions = (found.total(what) for what in ("images", "captions"))
        said = f"{counted(images, 'image')} with {counted(captions, 'caption')}"
        written = sum(path.stat().st_size for path in self.out.rglob("*") if path.is_file())
        say(f"export: {said} in {counted(len(found.splits), 'split')}, {size(written)}")

    def _write(self, directory: Path, found: Selection) -> None:
        with progress("export", found.total("images"), "images") as bar:

            def pairs() -> Iterator[ExportedPair]:
                for pair in found.pairs():
                    yield pair
                    bar.advance()

            if self.to == CLIP_BENCHMARK:
                write_clip_benchmark(
                    directory,
                    pairs(),
                    found.labels,
                    shard_bytes=self.shard_bytes,
                    kind=self.dataset_type,
                    templates=self.templates,
                )
            else:
                write_hugging_face(directory, pairs(), found, shard_bytes=self.shard_bytes)


def _write_manifest(
    directory: Path, request: DataSetExport, found: Selection, identity: dict[str, Any]
) -> None:
    digests = digests_of(directory)
    card = digests.pop(CARD, None)  # people fill it in
    inputs = [task.content for task in request.tasks]
    content = content_id({"identity": identity, "inputs": inputs})
    body = {
        "to": request.to,
        "inputs": inputs,
        "splits": {
            name: {what: found.count(what, name) for what in ("images", "captions")}
            for name in found.splits
        },
        **({CARD_DIGEST: card} if card else {}),
        "digests": digests,
    }
    (directory / EXPORT_MANIFEST).parent.mkdir()
    write_manifest(directory, EXPORT, identity, content, body)

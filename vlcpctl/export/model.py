"""Export a checkpoint without its state of training: for the Hugging Face hub, or as ONNX files."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.model_facts import Facts, model_facts
from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput, Incompatible, UsageError
from vlcpctl.core.words import counted, size
from vlcpctl.data.tasks.facts import CARD, EXPORT, EXPORT_MANIFEST
from vlcpctl.data.tasks.task import Task
from vlcpctl.export.model_card import Facts as CardFacts
from vlcpctl.export.model_card import model_card
from vlcpctl.files.digests import digests_of, file_digest, verify_files
from vlcpctl.files.finished import already_made
from vlcpctl.files.ids import content_id
from vlcpctl.files.manifest import is_artifact, write_manifest
from vlcpctl.files.outputs import new_directory, read_path
from vlcpctl.files.rows import Row, read_rows
from vlcpctl.models.checkpoint_files import (
    WEIGHT_SUFFIXES,
    count_weights,
    is_of_model,
    verify_model,
)

TO, ONNX = "hf-model", "onnx"
_TOWERS = ("image.onnx", "text.onnx")
_OF_ONNX = ("onnx", "onnxruntime", "onnxscript")


@dataclass(frozen=True, kw_only=True)
class ModelExport:
    """The checkpoint to export, files of rows and tasks for its card, and the output directory."""

    checkpoint: Path
    rows: Sequence[Path] = ()
    tasks: Sequence[Task] = ()
    out: Path
    to: str = TO
    force: bool = False

    def check(self) -> None:
        """Raise UsageError if the checkpoint cannot be exported in this form, or not here."""
        if self.facts["family"] != "dual":
            raise UsageError(
                f"--to {self.to} is for dual encoders, and {self.checkpoint} has a fusion model, "
                "which no other program loads"
            )
        if self.to != ONNX:
            return
        missing = [one for one in _OF_ONNX if find_spec(one) is None]
        if missing:
            raise UsageError(
                f"--to {ONNX} needs packages that are not installed: pip install "
                f"{' '.join(missing)}"
            )

    @cached_property
    def made(self) -> CheckpointManifest:
        """The manifest of the checkpoint. Raises BadInput if it is not one."""
        return CheckpointManifest.read(self.checkpoint)

    @cached_property
    def facts(self) -> Facts:
        """What the model is. Raises BadInput as `model_facts` does."""
        return model_facts(self.checkpoint, self.made)

    def files(self) -> dict[str, Any]:
        """Size and digest of the files to copy, by relative path."""
        found = {name: entry for name, entry in self.made.digests.items() if is_of_model(name)}
        if self.to == ONNX:  # its towers have the weights
            found = {n: one for n, one in found.items() if Path(n).suffix not in WEIGHT_SUFFIXES}
        return found

    def identity(self) -> dict[str, Any]:
        """The facts that decide what is written."""
        return {
            "to": self.to,
            "checkpoint": self.made.content,
            "rows": [file_digest(path) for path in self.rows],
            "trained_on": [task.content for task in self.tasks],
        }

    def own_rows(self) -> list[Row]:
        """The rows of the checkpoint. Raises BadInput if a file of rows has none of them."""
        found = read_rows(map(str, self.rows)) if self.rows else []
        own = [
            row
            for row in found
            if row.checkpoint == self.made.content and row.gallery_checkpoint is None
        ]
        if self.rows and not own:
            names = ", ".join(map(str, self.rows))
            raise BadInput(
                f"{names} has no rows of {self.checkpoint} (content {self.made.content}); "
                "evaluate this checkpoint, or leave out --rows"
            )
        return own

    def plan(self) -> list[str]:
        """What the export will write. Raises BadInput if an input cannot be read."""
        self.check()
        self.own_rows()
        made = _TOWERS if self.to == ONNX else ()
        files = [*self.files(), *made, CARD]
        return [f"export: {self.checkpoint} to {self.to}", *(f"  {name}" for name in sorted(files))]

    def export(self) -> None:
        """Write the repository; do nothing if it is finished.

        Raises BadInput or Incompatible if the checkpoint or rows are damaged or do not fit, and
        OutputExists if something else is at `out`.
        """
        self.check()
        identity, rows = self.identity(), self.own_rows()
        if already_made(self.out, EXPORT, identity, force=self.force):
            say(f"export: {self.out} is already finished")
            return
        source, files = read_path(self.checkpoint), self.files()
        verify_model(self.checkpoint)
        with new_directory(self.out, is_artifact) as directory:
            for name in files:
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, directory / name)
            verify_files(directory, files, error=Incompatible, use_cache=False)
            if self.to == ONNX:
                from vlcpctl.export.onnx_towers import write_towers

                worst = write_towers(self.checkpoint, directory)
                say(f"export: onnxruntime's embeddings differ from torch's by at most {worst:.1e}")
            weights = count_weights(self.checkpoint)
            about = (self.made, self.facts, self.tasks, rows, weights)
            card = model_card(CardFacts(*about, is_onnx=self.to == ONNX))
            digests = digests_of(directory)
            (directory / CARD).write_text(card, encoding="utf-8")
            _write_manifest(directory, self, identity, digests)
        written = sum(entry["bytes"] for entry in digests.values())
        say(f"export: {counted(len(digests), 'file')} and a model card, {size(written)}")


def _write_manifest(
    directory: Path, request: ModelExport, identity: dict[str, Any], digests: dict[str, Any]
) -> None:
    made = request.made
    (directory / EXPORT_MANIFEST).parent.mkdir()
    body = {
        "to": request.to,
        "inputs": [made.content],
        **{name: getattr(made, name) for name in ("run", "method", "step", "seed")},
        "tasks": list(made.tasks),
        "digests": digests,
    }
    write_manifest(directory, EXPORT, identity, content_id(identity), body)

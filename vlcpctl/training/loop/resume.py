"""The state of an unfinished train-step, from which it resumes exactly.

.CKPT.vlcpctl/partial/identity.json          the settings; a run with others is refused
.CKPT.vlcpctl/partial/metrics.jsonl          the log, cut back to the saved position on resume
.CKPT.vlcpctl/partial/at-PPPP-SSSSSSSSSS/    one complete state; position.json is written last

A resumed run ends with the same bytes as one that was never stopped.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from vlcpctl.core.atomic import UNFINISHED, new_part, refuse_other
from vlcpctl.core.errors import Incompatible
from vlcpctl.core.manifest import identity_differences
from vlcpctl.core.staging import Staging
from vlcpctl.core.tensors import read_tensors, write_tensors
from vlcpctl.training.loop.metrics_log import FILE_NAME
from vlcpctl.training.loop.optim import Plateau


@dataclass
class SavedProgress:
    """The position and counters of a saved state; its tensors are stored beside them."""

    phase: int = 0
    step: int = 0
    journal_bytes: int = 0
    train_seconds: float = 0.0
    inverting_seconds: float = 0.0  # of train_seconds, spent on pseudo texts
    pairs: int = 0
    plateau: Plateau = field(default_factory=Plateau)
    best: float | None = None
    scaler: dict[str, Any] = field(default_factory=dict)


class ResumeDirectory:
    """The state of an unfinished run, in the staging directory of its checkpoint."""

    def __init__(self, out: Path) -> None:
        self.out, self.staging = out, Staging(out)
        self.path = self.staging.partial
        self.journal = self.path / FILE_NAME

    def claim(
        self,
        semantic: dict[str, Any],
        numeric: dict[str, Any],
        *,
        force: bool,
        accept_inexact: bool,
    ) -> None:
        """Create the directory, or accept an existing one to resume from.

        Raises OutputExists if it belongs to a run with other settings (`semantic`), and
        Incompatible if the machine or library differs (`numeric`) without `accept_inexact`.
        """
        identity = self.path / "identity.json"
        # Without a complete state nothing would be lost: such a directory is simply reused.
        if self.newest() is not None and identity.is_file() and not force:
            found = json.loads(identity.read_text())
            refuse_other(self.path, found["semantic"], semantic, UNFINISHED)
            inexact = identity_differences(found["numeric"], numeric)
            if inexact and not accept_inexact:
                raise Incompatible(
                    f"{self.path} was started on a different setup and would not resume "
                    f"bit-exactly: {'; '.join(inexact)}; --accept-inexact resumes anyway"
                )
            return
        if force and self.path.exists():
            self.staging.keep(self.path)
        if not force:
            self.staging.refuse_old_partial()
        self.staging.open_partial()
        with new_part(identity) as temporary:  # a process killed here must not leave half a file
            temporary.write_text(json.dumps({"semantic": semantic, "numeric": numeric}, indent=1))

    def save(self, saved: SavedProgress, tensors: dict[str, dict[str, Tensor]]) -> None:
        """Write a complete state, with `tensors` by file and name, then remove older states."""
        final = self.path / f"at-{saved.phase:04d}-{saved.step:010d}"
        temporary = self.path / "writing"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        for name, values in tensors.items():
            write_tensors(temporary / f"{name}.safetensors", values)
        (temporary / "position.json").write_text(json.dumps(asdict(saved)))
        # On disk before the rename: after a power cut, the new name could otherwise hold empty
        # files while the older state is gone.
        for path in temporary.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
        for old in self._states():
            if old != final:
                shutil.rmtree(old)

    def load(self) -> tuple[SavedProgress, dict[str, dict[str, Tensor]]] | None:
        """The newest complete state and its tensors by file and name, or None."""
        newest = self.newest()
        if newest is None:
            return None
        values = json.loads((newest / "position.json").read_text())
        values["plateau"] = Plateau(**values["plateau"])
        tensors = {
            str(path.relative_to(newest).with_suffix("")): read_tensors(path)
            for path in sorted(newest.rglob("*.safetensors"))
        }
        return SavedProgress(**values), tensors

    def newest(self) -> Path | None:
        """The directory of the newest complete state, or None."""
        return next(reversed(self._states()), None)

    def remove(self) -> None:
        """Delete the state, once the run is finished."""
        self.staging.drop_partial()

    def _states(self) -> list[Path]:
        # Zero-padded numbers sort by position; a directory without position.json is not complete.
        return sorted(path.parent for path in self.path.glob("at-*/position.json"))

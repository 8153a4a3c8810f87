"""Work done in parts, so that it can be killed and resumed: options, and claiming its directory.

Torch is imported where it is used: commands that only plan stay fast.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcpctl.core.atomic import UNFINISHED, new_part, refuse_other
from vlcpctl.core.console import say
from vlcpctl.core.errors import OutputExists
from vlcpctl.core.manifest import identity_differences
from vlcpctl.core.staging import Staging


@dataclass(frozen=True, kw_only=True)
class ComputeOptions:
    """How the work is executed; it changes the last bits of results at most."""

    batch_size: int
    device: str
    workers: int
    threads: int

    def numeric(self) -> dict[str, Any]:
        """The facts that decide the last bits of the result."""
        import torch

        from vlcpctl.core.devices import torch_device

        device = torch_device(self.device)
        return {
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if device.type == "cuda" else platform.machine(),
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "threads": self.threads,
            "batch_size": self.batch_size,
        }


def claim(out: Path, identity: dict[str, Any], compute: ComputeOptions, *, force: bool) -> Path:
    """Create the directory of parts, or accept an existing one to resume from; return its path.

    Raises OutputExists if it belongs to a different command; `force` deletes it first.
    """
    staging = Staging(out)
    own = {**identity, "numeric": compute.numeric()}
    # Two shards may start at the same moment: without a lock, both would find no settings there.
    with staging.locked_part("settings", wait_s=math.inf):
        return _claimed(staging, own, force=force)


def _claimed(staging: Staging, own: dict[str, Any], *, force: bool) -> Path:
    if force:
        staging.drop_partial()
    else:
        staging.refuse_old_partial()
    partial = staging.partial
    stored = partial / "identity.json"
    if stored.is_file():
        refuse_other(partial, json.loads(stored.read_text()), own, UNFINISHED)
        return partial
    staging.open_partial()
    with new_part(stored) as temporary:
        temporary.write_text(json.dumps(own, indent=1))
    return partial


def drop_finished(out: Path, identity: dict[str, Any]) -> None:
    """Delete the parts of an output that is finished, if a kill has left them.

    Those of another command stay, and so does everything while another process is at work.
    """
    staging = Staging(out)
    stored = staging.partial / "identity.json"
    with suppress(OSError, ValueError, OutputExists):
        found = json.loads(stored.read_text()) if stored.exists() else identity
        if not identity_differences({**found, "numeric": None}, {**identity, "numeric": None}):
            staging.drop_partial()


def missing_parts(out: Path, files: Mapping[int, Path]) -> list[int]:
    """The numbers of the parts whose file is missing; prints a line if work resumes."""
    missing = [number for number, file in files.items() if not file.is_file()]
    if len(missing) < len(files):
        say(f"resuming {out} at part {len(files) - len(missing)} of {len(files)}")
    return missing

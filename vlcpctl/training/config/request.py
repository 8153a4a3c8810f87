"""The request of one train-step: its inputs and options, not yet checked. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import UsageError
from vlcpctl.core.method import Method
from vlcpctl.core.seeds import torch_seed
from vlcpctl.core.words import parse_number, parse_whole_number
from vlcpctl.files.outputs import read_path
from vlcpctl.methods.plugins.transfer import packed, unpacked
from vlcpctl.tracking.destinations import Destination
from vlcpctl.training.config.run_options import RunOptions
from vlcpctl.training.config.settings import Settings


@dataclass(frozen=True, kw_only=True)
class TrainRequest(RunOptions):
    """The inputs, methods and settings of a train-step, and how it is executed.

    `origins` names where each setting comes from: default, preset, method or flag.
    """

    tasks: tuple[Path, ...]
    out: Path
    methods: tuple[Method, ...]
    settings: Settings
    origins: Mapping[str, str] = field(default_factory=dict)
    run: str = ""
    seed: int = 0
    limit: int | None = None
    # Filled in by `training.adaptation`, once the inputs are known.
    notes: tuple[str, ...] = ()  # what was adapted, as lines of the plan
    asked: Mapping[str, Any] = field(default_factory=dict)  # settings as they were before
    inherited: Mapping[str, Any] = field(default_factory=dict)  # the facts of --previous's model
    # How it is executed: no field below decides what is computed.
    force: bool = False
    device: str = "auto"
    workers: int | None = None  # None: auto
    threads: int = 1
    log: tuple[Destination, ...] = ()

    @property
    def method_name(self) -> str:
        """The names of the methods as `--method` takes them, such as `ctp+lwf`."""
        return "+".join(method.name for method in self.methods)

    @property
    def drawn_seed(self) -> int:
        """The seed of all draws of the training: `seed`, or of a later attempt one of its own."""
        return torch_seed(self.seed, "attempt", self.attempt) if self.attempt else self.seed

    @property
    def model(self) -> str:
        """The name or path of the model that the run starts from."""
        return self.settings.model if self.previous is None else str(read_path(self.previous))

    def __getstate__(self) -> dict[str, Any]:
        """For another process: with the code of methods that it could not import by name."""
        return {**vars(self), "methods": packed(self.methods)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({**state, "methods": unpacked(state["methods"])})


@dataclass(frozen=True)
class SaveEvery:
    """How often a state is saved: every `steps` optimizer steps, or every `seconds`."""

    steps: int | None = None
    seconds: float | None = None


def save_every(text: str) -> SaveEvery:
    """Parse `--save-every`; raises UsageError for anything else.

    >>> save_every("500"), save_every("10min")
    (SaveEvery(steps=500, seconds=None), SaveEvery(steps=None, seconds=600.0))
    """
    with suppress(ValueError):
        for unit, seconds in (("min", 60.0), ("h", 3600.0), ("s", 1.0)):
            if text.endswith(unit) and (count := parse_number(text.removesuffix(unit))) > 0:
                return SaveEvery(seconds=count * seconds)
        if (steps := parse_whole_number(text)) > 0:
            return SaveEvery(steps=steps)
    raise UsageError(
        f"--save-every {text!r} is neither a number of steps nor a time such as 10min or 2h"
    )

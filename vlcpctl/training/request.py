"""The request of one train-step: its inputs and options, not yet checked. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from vlcpctl.core.method import Method
from vlcpctl.core.seeds import torch_seed
from vlcpctl.files.outputs import read_path
from vlcpctl.methods.plugins.transfer import packed, unpacked
from vlcpctl.training.settings import RunOptions, Settings


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
    log: tuple[str, ...] = ()

    @property
    def method_name(self) -> str:
        """The names of the methods as `--method` takes them, such as `ctp+lwf`."""
        return "+".join(method.name for method in self.methods)

    @property
    def drawn_seed(self) -> int:
        """The seed of all draws of the training: `seed`, or of a later attempt one of its own."""
        return torch_seed(self.seed, "attempt", self.attempt) if self.attempt else self.seed

    @property
    def is_first(self) -> bool:
        """Whether there is neither a previous model nor a teacher."""
        return self.previous is None and self.teacher is None

    @property
    def flags(self) -> set[str]:
        """The names of the settings that the user has given."""
        return {name for name, origin in self.origins.items() if origin == "flag"}

    @property
    def model(self) -> str:
        """The name or path of the model that the run starts from."""
        return self.settings.model if self.previous is None else str(read_path(self.previous))

    def __getstate__(self) -> dict[str, Any]:
        """For another process: with the code of methods that it could not import by name."""
        return {**vars(self), "methods": packed(self.methods)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({**state, "methods": unpacked(state["methods"])})

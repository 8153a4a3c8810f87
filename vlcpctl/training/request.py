"""The request of one train-step, not yet checked: its options, its opened inputs, its identity.

Every option and fact is semantic, numeric or runtime. Semantic facts decide what is computed: with
another value it is a different run. Numeric facts decide the last bits: a resume is bit-exact only
if they are equal. Runtime facts (workers, logging, paths) change neither and are left out.
Torch-free.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.step_config import METHOD_CODE
from vlcpctl.core.method import Method
from vlcpctl.core.seeds import torch_seed
from vlcpctl.core.transform import PILLOW
from vlcpctl.data.tasks.task import Task, open_task
from vlcpctl.files.digests import file_sha256
from vlcpctl.files.outputs import read_path
from vlcpctl.methods.plugins.registry import facts_of
from vlcpctl.training.lora import parse_lora
from vlcpctl.training.methods import hyper_of
from vlcpctl.training.settings import BENCHMARK, PREVIOUS, SOFTMAX, RunOptions, Settings

if TYPE_CHECKING:
    import torch

    from vlcpctl.data.precomputed.pseudo_texts import PseudoTexts
    from vlcpctl.data.precomputed.targets import Targets

# Of the training step. 2: fused optimizers; states without this fact come from the loops before.
ARITHMETIC = 2
# The options that only change the last bits, and how the plan calls them.
NUMERIC = {
    "compile": "compiled",
    "tf32": "TF32",
    "grad_checkpointing": "gradient checkpointing",
    "local_loss": "local loss",
}


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
        from vlcpctl.methods.plugins.method_file import packed

        return {**vars(self), "methods": packed(self.methods)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        from vlcpctl.methods.plugins.method_file import unpacked

        vars(self).update({**state, "methods": unpacked(state["methods"])})


@dataclass(frozen=True)
class Inputs:
    """The opened inputs of a request; None for those that are not given."""

    tasks: tuple[Task, ...]
    previous: CheckpointManifest | None
    teacher: CheckpointManifest | None
    buffer: Task | None
    reference: Task | None
    targets: Targets | None
    pseudo_texts: PseudoTexts | None

    @property
    def taught_by(self) -> CheckpointManifest | None:
        """The checkpoint of the teacher: that of --teacher, else the previous one."""
        return self.teacher or self.previous


def opened(request: TrainRequest) -> Inputs:
    """Open each input of a request.

    Raises BadInput for one that is not what its option needs, or has no pairs to train on.
    """
    previous = CheckpointManifest.read(request.previous) if request.previous else None
    tasks = tuple(open_task(path) for path in request.tasks)
    buffer = open_task(request.buffer) if request.buffer else None
    reference = open_task(request.reference) if request.reference else None
    for task in filter(None, (*tasks, buffer, reference)):
        task.require("train")  # an empty buffer has no pairs
    targets = pseudo_texts = None
    if request.targets is not None:
        from vlcpctl.data.precomputed.targets import open_targets

        targets = open_targets(request.targets)
    if request.pseudo_texts is not None:
        from vlcpctl.data.precomputed.pseudo_texts import open_pseudo_texts

        pseudo_texts = open_pseudo_texts(request.pseudo_texts)
    teacher = CheckpointManifest.read(request.teacher) if request.teacher else None
    return Inputs(tasks, previous, teacher, buffer, reference, targets, pseudo_texts)


def semantic(request: TrainRequest, inputs: Inputs) -> dict[str, Any]:
    """The facts that decide what the run computes, with contents in place of paths. Torch-free.

    Moved or copied inputs are still the same run.
    """
    settings = dataclasses.asdict(request.settings)
    if settings["resize"] == PILLOW:  # which was the only one, so that older runs lack it
        del settings["resize"]
    if settings["loss"] in (None, SOFTMAX):  # likewise
        del settings["loss"]
    if settings["lora"] is None:  # likewise
        del settings["lora"]
    else:
        settings["lora"] = str(parse_lora(settings["lora"]))
    for name in ("model", "pretrained"):
        if request.origins.get(name) != PREVIOUS:  # that may say anything, such as a path
            value = settings[name]
            if value is not None and Path(value).is_file():
                settings[name] = f"sha256:{file_sha256(value)}"
    contents = {
        name: None if one is None else one.content
        for name, one in vars(inputs).items()
        if name != "tasks" and (name != "reference" or one is not None)  # likewise
    }
    code = facts_of(request.methods)
    return {
        "run": request.run,
        "method": request.method_name,
        **({METHOD_CODE: code} if code else {}),
        "hyper": hyper_of(request.methods),
        "settings": settings,
        "seed": request.seed,
        "attempt": request.attempt,
        "tasks": [task.content for task in inputs.tasks],
        **contents,
        "from_scratch": request.from_scratch,
        "fresh_state": request.fresh_state,
        "limit": request.limit,
    }


def numeric(request: TrainRequest, device: torch.device) -> dict[str, Any]:
    """The facts that decide the last bits of the result, on this machine."""
    from vlcpctl.core.devices import arithmetic_facts

    return {
        **arithmetic_facts(device),
        "threads": request.threads,
        "processes": request.nproc,
        "arithmetic": ARITHMETIC,
        **{name: True for name in NUMERIC if getattr(request, name)},
        **({"cudnn": BENCHMARK} if request.cudnn == BENCHMARK else {}),
    }

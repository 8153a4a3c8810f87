"""The values of --log, and the runs that trackers record. Torch-free."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vlcpctl.core.errors import UsageError
from vlcpctl.core.words import printable

EVALUATION = "eval"  # the part of a run that its evaluation rows are
_FORM = re.compile(r"tensorboard:.*\S.*|wandb:([^/\s]+/)?[^/\s]+")


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """What a tracker records about the run whose values it gets.

    The training of each task is tracked apart; all evaluation rows of a run go together.
    """

    run: str
    seed: int
    part: str  # the task that is trained on, or EVALUATION
    id: str  # equal for the processes that log to the same run, such as resumed ones
    config: Mapping[str, Any] = field(default_factory=dict)
    first: int = 0  # the first step that this process logs; later ones are replaced

    @property
    def is_training(self) -> bool:
        """Whether its values are those of a training, not of evaluations."""
        return self.part != EVALUATION

    @property
    def label(self) -> str:
        """The name of the run, with a seed other than 0."""
        return f"{self.run}-seed{self.seed}" if self.seed else self.run


def destinations(words: Iterable[str]) -> tuple[str, ...]:
    """The values of --log, each once and found to be usable.

    Raises UsageError for a value of another form, a package that is not installed, and W&B online
    without an API key: it would otherwise ask for one.

    >>> destinations(["tensorboard:runs/board"])
    ('tensorboard:runs/board',)
    """
    found = tuple(dict.fromkeys(words))
    for word in found:
        kind = word.partition(":")[0]
        if not _FORM.fullmatch(word):
            raise UsageError(
                f"--log {printable(word)!r} is neither tensorboard:DIR nor wandb:PROJECT or "
                "wandb:ENTITY/PROJECT"
            )
        if importlib.util.find_spec(kind) is None:
            raise UsageError(
                f"--log {printable(word)} needs a package that is not installed: "
                f"pip install {kind}, or leave it out"
            )
        if kind == "wandb":
            _require_login()
    return found


def _require_login() -> None:
    os.environ.setdefault("WANDB_SILENT", "true")  # its notes are many; ours is one line
    import wandb

    settings = wandb.setup().settings
    is_online = settings.mode not in {"offline", "dryrun", "disabled"}
    if is_online and not (wandb.api.api_key or settings.identity_token_file):
        raise UsageError(
            "--log wandb needs an API key: run 'wandb login' or set WANDB_API_KEY, or set "
            "WANDB_MODE=offline and upload later with 'wandb sync'"
        )

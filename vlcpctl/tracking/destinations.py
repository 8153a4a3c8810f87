"""Where values are logged, by --log, and the runs that trackers record them for. Torch-free."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vlcpctl.core.errors import UsageError
from vlcpctl.core.words import printable

TENSORBOARD, WANDB = "tensorboard", "wandb"
TRAINING, EVALUATION = "train-step", "eval"
_NAMES = {TENSORBOARD: "DIR", WANDB: "PROJECT"}
_NOT_IN_PROJECTS = re.compile(r"[\\#?%:]")  # W&B's own rule
_MOST_PROJECT = 128  # characters, W&B's own limit


@dataclass(frozen=True)
class Destination:
    """One value of --log: a kind, tensorboard or wandb, and a directory or project."""

    kind: str
    place: str

    def __str__(self) -> str:
        """The value as it is given to --log."""
        return f"{self.kind}:{self.place}"

    @property
    def entity(self) -> str | None:
        """The user or team of ENTITY/PROJECT; None: W&B's default."""
        before, slash, _ = self.place.rpartition("/")
        return before if slash else None

    @property
    def project(self) -> str:
        """The W&B project, without its entity."""
        return self.place.rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """What a tracker records about the run whose values it gets.

    The training of each task is tracked apart; all evaluation rows of a run go together.
    """

    run: str
    seed: int
    kind: str  # TRAINING or EVALUATION
    part: str  # the task that is trained on, or "eval"
    id: str  # equal for the processes that log to the same run, such as resumed ones
    config: Mapping[str, Any] = field(default_factory=dict)
    first: int = 0  # TRAINING: the first step that this process logs; later ones are replaced

    @property
    def label(self) -> str:
        """The name of the run, with a seed other than 0."""
        return f"{self.run}-seed{self.seed}" if self.seed else self.run

    @property
    def directory(self) -> tuple[str, str]:
        """The names of a directory and its subdirectory: the label and the part."""
        return _file_name(self.label), _file_name(self.part)


def destinations(words: Iterable[str] | None) -> tuple[Destination, ...]:
    """The values of --log, if any, each once and found to be usable.

    Raises UsageError for a value of another form, a package that is not installed, and W&B online
    without an API key: it would otherwise ask for one.

    >>> [str(one) for one in destinations(["tensorboard:runs/board"])]
    ['tensorboard:runs/board']
    """
    found = tuple(dict.fromkeys(_parse(word) for word in words or ()))
    for one in found:
        if importlib.util.find_spec(one.kind) is None:
            raise UsageError(
                f"--log {printable(str(one))} needs a package that is not installed: "
                f"pip install {one.kind}, or leave it out"
            )
    if any(one.kind == WANDB for one in found):
        _require_login()
    return found


def _parse(word: str) -> Destination:
    kind, colon, place = word.partition(":")
    if kind not in _NAMES or not colon or not place.strip():
        raise UsageError(f"--log {printable(word)!r} is neither tensorboard:DIR nor wandb:PROJECT")
    if kind == WANDB:
        _check_project(word, place)
    return Destination(kind, place)


def _check_project(word: str, place: str) -> None:
    parts = place.split("/")
    if len(parts) > 2 or not all(parts) or _NOT_IN_PROJECTS.search(place):
        raise UsageError(
            f"--log {printable(word)!r} does not name a W&B project; write wandb:PROJECT or "
            r"wandb:ENTITY/PROJECT, without any of \ # ? % :"
        )
    if len(parts[-1]) > _MOST_PROJECT:
        raise UsageError(
            f"--log wandb: the name of the project has {len(parts[-1])} characters, "
            f"more than {_MOST_PROJECT}"
        )


def _require_login() -> None:
    """Raise UsageError if W&B would ask for an API key: it is online and has none."""
    os.environ.setdefault("WANDB_SILENT", "true")  # its notes are many; ours is one line
    import wandb

    settings = wandb.setup().settings
    if settings.mode in {"offline", "dryrun", "disabled"}:
        return
    if not (wandb.api.api_key or settings.identity_token_file):
        raise UsageError(
            "--log wandb needs an API key: run 'wandb login' or set WANDB_API_KEY, or set "
            "WANDB_MODE=offline and upload later with 'wandb sync'"
        )


def _file_name(text: str) -> str:
    """The text as the name of a directory, the same for the same text.

    >>> _file_name("ctp m=0.8"), _file_name("a/b"), _file_name("..")
    ('ctp m=0.8', 'a_b', '_.')
    """
    return re.sub(r"^\.|[/\\:\0]", "_", text)

"""The values of --log, such as tensorboard:DIR; checked before a model is loaded. Torch-free."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from dataclasses import dataclass

from vlcpctl.core.errors import UsageError
from vlcpctl.core.printable import printable

TENSORBOARD, WANDB = "tensorboard", "wandb"
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
                f"pip install 'vlcpctl[{one.kind}]', or leave it out"
            )
    if any(one.kind == WANDB for one in found):
        from vlcpctl.tracking.wandb_runs import require_login

        require_login()
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

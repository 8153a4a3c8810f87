"""Every command that evaluates checkpoints, for promises that all of them keep."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from vlcpctl.commands import COMMANDS, command_class
from vlcpctl.core.options import options_of

Words = list[object]

_BESIDES = {"save_ranks": "--save-ranks", "save_embeddings": "--save-embeddings"}
_QUICK: dict[str, Words] = {"eval-probe": ["--strength", 0.1]}  # instead of choosing it


@cache
def _options(command: str) -> frozenset[str]:
    return frozenset(options_of(command_class(command)))


EVALUATORS = tuple(name for name in COMMANDS if {"checkpoint", "embedding_cache"} <= _options(name))


def evaluation(name: str, tasks: Iterable[Path], checkpoints: Iterable[Path]) -> Words:
    """The command line of an evaluator on tasks, without an output."""
    models = [word for path in checkpoints for word in ("--checkpoint", path)]
    return [name, *tasks, *models, *_QUICK.get(name, [])]


def files_besides(name: str, folder: Path) -> Words:
    """The options for all that an evaluator can write besides rows, into a folder."""
    own = [(flag, folder / option) for option, flag in _BESIDES.items() if option in _options(name)]
    return [word for pair in own for word in pair]

"""The command lines that recipes print, and what the program makes of them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import typer.main
from support.commands import request_of

from vlcpctl.cli import application
from vlcpctl.commands.command import REQUEST
from vlcpctl.commands.train_step import TrainStep
from vlcpctl.data.classification.benchmarks import BENCHMARKS, GROUPS
from vlcpctl.data.sources.find import distinct_names
from vlcpctl.data.splitting.rules import SplitBy, numbered
from vlcpctl.data.tasks.facts import slug
from vlcpctl.jobs.script import CommandLine, parse
from vlcpctl.training.config.request import TrainRequest

RECIPES = Path(__file__).parent.parent.parent / "recipes"
DATA = "some where/data"  # a space must survive


@cache
def script(name: str) -> ModuleType:
    """A Python script of recipes/ as a module."""
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@cache
def dry_run_of(recipe: str, *options: str) -> list[CommandLine]:
    """The lines that a recipe prints with --dry-run."""
    words = ["bash", RECIPES / recipe, "--dry-run", *options]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    return parse(ended.stdout)


@cache
def options_of(line: CommandLine) -> dict[str, Any]:
    """What the program makes of a line, by the names of the options."""
    name, *words = line.words
    return vars(command(name).make_context(name, words).meta[REQUEST])


def train_request(given: dict[str, Any]) -> TrainRequest:
    """What a train-step trains that has these options."""
    step = request_of("train-step", **given)
    assert isinstance(step, TrainStep)
    return step.request()


@cache
def command(name: str) -> Any:
    group: Any = typer.main.get_command(application(name))
    return group.commands[name]


def options_of_command(lines: list[CommandLine], name: str) -> list[dict[str, Any]]:
    """The options of every line of a command."""
    return [options_of(line) for line in lines if line.words[0] == name]


def paths_read(line: CommandLine) -> list[str]:
    """What a line reads of what recipes make; data that a user brings are not among it."""
    given = options_of(line)
    found: list[Any] = [given.get(name) for name in ("previous", "buffer", "source", "task")]
    for name in ("tasks", "rows", "checkpoint", "data_sets", "sources"):
        value = given.get(name)
        found += value if isinstance(value, list | tuple) else [value]
    words = [str(one) for one in found if one is not None and not isinstance(one, int)]
    return [
        one
        for one in words
        if not one.startswith((DATA, "industry_name")) and one not in {*BENCHMARKS, *GROUPS}
    ]


def directories_of(given: dict[str, Any]) -> set[str]:
    """The task directories that a split makes whose tasks do not depend on the data."""
    by = SplitBy.parse(given["by"], given["tasks"])
    kinds = {"iid": "part", "classes": "classes"}
    if by.kind == "source":
        names = distinct_names(given["sources"])
    elif by.kind in kinds:
        names = numbered(kinds[by.kind], given["tasks"])
    else:
        return set()
    return {f"{given['out']}/{slug(step, name)}" for step, name in enumerate(names)}

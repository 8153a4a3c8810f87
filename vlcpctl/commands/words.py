"""Words of command lines: what TAB offers for a value, and what other programs call things."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vlcpctl.core.errors import nearest

# Of open_clip's trainer, transformers, timm, CLIP_benchmark and img2dataset: suggested, never
# accepted. The first that a command has is suggested; "" stands for its arguments.
_MEANT = {
    "average": ("merge",),
    "convert": ("import-checkpoint",),
    "delete": ("forget",),
    "deploy": ("update",),
    "evaluate": ("eval-retrieval",),
    "finetune": ("train-step",),
    "info": ("inspect",),
    "interpolate": ("merge --weights",),
    "linear-probe": ("eval-probe",),
    "list": ("methods",),
    "monitor": ("inspect",),
    "plot": ("forgetting-report",),
    "prepare": ("split",),
    "remove": ("forget",),
    "report": ("forgetting-report",),
    "rollback": ("update --rollback",),
    "show": ("inspect",),
    "train": ("train-step",),
    "verify": ("check",),
    "version": ("--version",),
    "--alpha": ("--weights",),
    "--accum-freq": ("--micro-batch",),
    "--amp": ("--precision",),
    "--arch": ("--model",),
    "--checkpoint": ("--previous",),
    "--dataset": ("--data", ""),
    "--fp16": ("--precision",),
    "--gpus": ("--nproc", "--device"),
    "--grad-clip-norm": ("--clip-norm",),
    "--learning-rate": ("--lr",),
    "--max-steps": ("--steps",),
    "--memory": ("--buffer", "--size"),
    "--model": ("--checkpoint",),
    "--name": ("--run",),
    "--num-workers": ("--workers",),
    "--output": ("--out",),
    "--report-to": ("--log",),
    "--resume": ("--previous",),
    "--strength": ("--set",),
    "--train-data": ("",),
    "--val-split": ("--holdout", "--split"),
    "--wandb": ("--log",),
}


def command_meant(name: str, known: Collection[str]) -> str | None:
    """The command that an unknown name may stand for.

    >>> command_meant("report", ["forgetting-report"]), command_meant("splt", ["split"])
    ('forgetting-report', 'split')
    """
    return _MEANT.get(name.lower(), (nearest(name, known),))[0]


def option_meant(option: str, known: Collection[str], arguments: str) -> str | None:
    """The option that an unknown one may stand for, or `arguments`, what comes without an option.

    >>> option_meant("--amp", ["--precision", "--warmup"], "TASK")
    '--precision'
    """
    for one in _MEANT.get(option.replace("_", "-").lower(), ()):
        if one in known:
            return one
        if not one and arguments:
            return f"{arguments} without an option"
    return nearest(option, known)


def methods(_given: Mapping[str, Any], _incomplete: str) -> Iterable[str]:
    """The names of the built-in methods."""
    from vlcpctl.methods import TABLE

    return TABLE


def joined_methods(_given: Mapping[str, Any], incomplete: str) -> Iterator[str]:
    """Names of methods, after those before the last + of `incomplete`."""
    from vlcpctl.methods import TABLE

    before = incomplete.split("+")[:-1]
    known = TABLE if TABLE.keys() >= set(before) else ()
    return ("+".join([*before, name]) for name in known if name not in before)


def joined_fields(_given: Mapping[str, Any], incomplete: str) -> Iterator[str]:
    """Fields of rows that may differ, after those before the last comma."""
    from vlcpctl.report.comparable import FIELDS

    before = incomplete.split(",")[:-1]
    return (",".join([*before, name]) for name in FIELDS if name not in before)


def presets(_given: Mapping[str, Any], _incomplete: str) -> Iterable[str]:
    """The names of the presets."""
    from vlcpctl.training.config.presets import names

    return names()


def assignments(given: Mapping[str, Any], incomplete: str) -> list[str]:
    """METHOD.PARAMETER= of the methods of --method, or of all; values once only one is left."""
    from vlcpctl.methods import TABLE

    named = [one for one in (given.get("method") or "").split("+") if one in TABLE]
    parameters = {
        f"{name}.{field.name}=": field
        for name in named or TABLE
        for field in dataclasses.fields(TABLE[name])
    }
    found = [one for one in parameters if one.startswith(incomplete) or incomplete.startswith(one)]
    if len(found) != 1:
        return found
    (only,) = found
    field = parameters[only]
    default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
    choices = ("true", "false") if isinstance(field.default, bool) else field.metadata["choices"]
    return [only + value for value in choices or (default,)]


def tables(_given: Mapping[str, Any], _incomplete: str) -> Iterable[str]:
    """The published tables that the package has."""
    from vlcpctl.report.papers import shipped_names

    return shipped_names()


def models(_given: Mapping[str, Any], _incomplete: str) -> list[str]:
    """The models of the package and of open_clip, whose import would take seconds."""
    from vlcpctl.models.configuration import PACKAGED

    library = importlib.util.find_spec("open_clip")
    places = (library and library.submodule_search_locations) or ()
    directories = [PACKAGED, *(Path(place) / "model_configs" for place in places)]
    return sorted(file.stem for directory in directories for file in directory.glob("*.json"))


def metrics(_given: Mapping[str, Any], _incomplete: str) -> list[str]:
    """The metrics that a report knows."""
    from vlcpctl.metrics.definitions import DEFINITIONS

    return [*DEFINITIONS, "rm", "acc1"]


def conditions(_given: Mapping[str, Any], incomplete: str) -> list[str]:
    """METRIC: of --fail-if, then METRIC:OP: for the metric that is written."""
    from vlcpctl.report.facts import DROPS
    from vlcpctl.report.gates import OPERATORS

    metric, colon, _ = incomplete.partition(":")
    if colon:
        return [f"{metric}:{operator}:" for operator in OPERATORS]
    return [f"{one}:" for one in [*DROPS, *metrics({}, "")]]


def data_sets(_given: Mapping[str, Any], _incomplete: str) -> list[str]:
    """The data sets that are found by name."""
    from vlcpctl.data.classification.benchmarks import BENCHMARKS, GROUPS

    return [*BENCHMARKS, *GROUPS]


def rules(_given: Mapping[str, Any], _incomplete: str) -> Iterable[str]:
    """The rules of merge."""
    from vlcpctl.checkpoints.merge_rules import TABLE

    return TABLE


# By the name that a field offers them with.
OFFERS: dict[str, Callable[[Mapping[str, Any], str], Iterable[str]]] = {
    one.__name__: one
    for one in (
        *(methods, joined_methods, joined_fields, presets, assignments, tables, models),
        *(metrics, conditions, data_sets, rules),
    )
}

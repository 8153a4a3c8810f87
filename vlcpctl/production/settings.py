"""update.toml: the settings of the next week, a section for each command that it runs.

Names and values are those of the options of the command; paths are relative to the state. The file
is written at --init, edited by hand or by the options of an update, and never runs code.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, get_origin

from vlcpctl.checkpoints.merge_rules import Average, Ema
from vlcpctl.core.errors import BadInput, UsageError, unknown_name, unreadable
from vlcpctl.core.method import Method
from vlcpctl.core.options import (
    NONE,
    Option,
    Options,
    converted,
    options_of,
    spelled,
    text_of,
    value_of,
)
from vlcpctl.core.words import printable
from vlcpctl.data.buffer.policies import NEEDS_FEATURES, check_policy
from vlcpctl.data.splitting.holdout import parse_holdout
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.methods.plugins.registry import MethodRegistry
from vlcpctl.metrics.calibration import METRICS
from vlcpctl.metrics.chance import PER_REPORT, WEEKS_A_YEAR
from vlcpctl.production.options import OnlyInFile, UpdateOptions
from vlcpctl.production.state import Sections, relative_to_root, shown_path
from vlcpctl.report.gates import Gate, parse_gate
from vlcpctl.training.methods import compose_with, parse_hyper, settings_of_methods
from vlcpctl.training.settings import MACHINE_OPTIONS, OF_MODEL, SETTINGS, RunOptions
from vlcpctl.training.settings import Settings as Training

DEFAULT: Final = "default"  # the value of --fail-if for the conditions of this version
GATES: Final = ("worst_drop:gt:2", "step_drop:gt:2", "worst_week:gt:5", "bwt_gem.rm:lt:-2")
REPLAY: Final = "least=0.25"  # unless a method decides
MATCH: Final = "week_match"  # in percent
LATEST: Final = "latest"  # as trained last
MERGED: Final = "merged"  # the mean since the start; of start-from, what is deployed
# What a new state has, so that later versions with other defaults do not change it.
NEW: Final[Mapping[str, Mapping[str, Any]]] = {
    "update": {"index-week": "0", "retries": 1, "sample": 5000},
    "split": {"holdout": "test=0.1"},
    "train-step": {"method": "ctp", "preset": "update", "replay": REPLAY},
    "buffer": {"size": "20000"},
    "forgetting-report": {"fail-if": list(GATES), "false-alarms": round(1 / WEEKS_A_YEAR, 7)},
}
_OF_UPDATE = (
    *("run", "guard", "guard_classes", "distractors", "reference", "data", "index_week"),
    *("drop_leaks", "start_from", "deploy", "retries", "sample", "keep", "seed", "device"),
    *("workers", "threads", "cache"),
)
_OF_SPLIT = (
    *("holdout", "holdout_most", "split_column", "keep_columns", "image_column"),
    *("caption_column", "image_root", "max_skip"),
)
_NOT_PATHS = frozenset({"data", "cache"})  # are kept as they are given
_SHARE = "10%"  # of a week that a counted hold-out takes at most
_CODE = {
    **dict.fromkeys(("method-file", "on-accept", "on-reject"), "it runs code"),
    "log": "it sends values elsewhere",
}
_ON_GUARDS = ("worst_drop", "step_drop")
_RETRIEVAL = (
    *("i2t_r1", "i2t_r5", "i2t_r10", "i2t_rmean", "t2i_r1", "t2i_r5", "t2i_r10", "t2i_rmean"),
    *("rm", *METRICS),
)
_KEYS = (*_RETRIEVAL, "acc1", "acc5", "mean_per_class_recall")
_EITHER = (
    ("train-step", "steps", "epochs"),
    ("train-step", "epochs", "steps"),
    ("split", "split-column", "holdout"),
    ("split", "split-column", "holdout-most"),
    ("split", "holdout", "split-column"),
)
_DECIDES = ("run", "start-from", "deploy", "seed", "drop-leaks")  # of the section update


def _rows(names: Iterable[str], *kinds: type[Options]) -> dict[str, tuple[Option, Any]]:
    """The options of these names by their spelling, each of the first class that has it."""
    every = [options_of(kind) for kind in kinds]
    found = {name: next(one[name] for one in every if name in one) for name in names}
    return {spelled(name, one[0]).removeprefix("--"): one for name, one in found.items()}


SECTIONS: Final = {
    "update": _rows(_OF_UPDATE, UpdateOptions, OnlyInFile),
    "split": _rows(_OF_SPLIT, SplitOptions),
    "train-step": _rows(("method", "preset", "set", "fresh_state"), OnlyInFile, UpdateOptions)
    | _rows([one for one in SETTINGS if one not in OF_MODEL], Training)
    | _rows(MACHINE_OPTIONS.values(), RunOptions),
    "buffer": _rows(("size", "policy"), OnlyInFile),
    "forgetting-report": _rows(("fail_if", "undefined", "false_alarms"), UpdateOptions, OnlyInFile),
}


@dataclass(frozen=True)
class Settings:
    """The settings of a week; `files` are those of --method-file, which each call gives."""

    sections: Sections
    files: tuple[Path, ...] = ()

    def own(self, name: str, default: Any = None) -> Any:
        """A value of the section `update`."""
        return self.sections["update"].get(name, default)

    def words(self, section: str, root: Path, without: Iterable[str] = ()) -> list[str]:
        """The options of a section as a command line has them."""
        words: list[str] = []
        for name, value in self.sections[section].items():
            if name in without:
                continue
            row, _ = SECTIONS[section][name]
            if isinstance(value, bool):
                words += [f"--{name}"] if value else [row.opposite] if row.opposite else []
                continue
            for one in value if isinstance(value, list) else [value]:
                words += [
                    f"--{name}",
                    str(shown_path(root, one)) if row.takes_path else text_of(one),
                ]
        return words

    def paths(self, root: Path, name: str) -> list[Path]:
        """The tasks of `guard` or `distractors`, or the one of `reference`."""
        value = self.own(name, [])
        return [shown_path(root, one) for one in ([value] if isinstance(value, str) else value)]

    def classes(self, root: Path) -> list[Path | str]:
        """The data sets of `guard-classes`: paths, and names of what has no path."""
        found = [(one, shown_path(root, one)) for one in self.own("guard-classes", [])]
        return [path if path.exists() else word for word, path in found]

    @cached_property
    def methods(self) -> tuple[Method, ...]:
        """The methods with their hyper-parameters. Raises UsageError and BadInput as `compose`."""
        how, registry = self.sections["train-step"], MethodRegistry.of(self.files)
        return compose_with(how["preset"], how["method"], how.get("set", ()), registry)[0]

    @property
    def methods_decide_replay(self) -> bool:
        """Whether the methods decide what is replayed, which the state only has by default."""
        is_usual = self.sections["train-step"].get("replay") == REPLAY
        return is_usual and "replay" in settings_of_methods(self.methods)

    @property
    def deploy(self) -> str:
        """What is deployed: latest, ema, ema:DECAY or merged."""
        return str(self.own("deploy", LATEST))

    @property
    def start_from(self) -> str:
        """What a week is trained from: latest, merged or base."""
        return str(self.own("start-from", LATEST))

    @property
    def policy(self) -> str:
        """The policy of the buffer: as given, as a method needs or its paper has it, or reservoir.

        What one method needs comes before what the paper of another has.
        """
        needed = [method.needs(first=False).policy for method in self.methods]
        usual = [method.usual_policy for method in self.methods]
        given = self.sections["buffer"].get("policy")
        return next((one for one in (given, *needed, *usual) if one), "reservoir")

    @property
    def stores_features(self) -> bool:
        """Whether the method needs features in the buffer."""
        return any(method.needs(first=False).stored_features for method in self.methods)

    @property
    def buffer_needs_checkpoint(self) -> bool:
        """Whether a model chooses the pairs of the buffer, or its features are stored."""
        return self.stores_features or self.policy in NEEDS_FEATURES

    @property
    def holdout_share(self) -> str | None:
        """The most that a counted hold-out takes of a week; None for hold-outs by share."""
        how = self.sections["split"]
        if "holdout" not in how:
            return None
        is_counted = parse_holdout(how["holdout"]).counted
        return how.get("holdout-most", _SHARE if is_counted else None)

    def _conditions(self, *, on_match: bool) -> list[str]:
        every: list[str] = self.sections["forgetting-report"].get("fail-if", [])
        return [one for one in every if one.startswith(f"{MATCH}:") == on_match]

    @property
    def match_gates(self) -> list[Gate]:
        """The conditions on `week_match`, which no report has."""
        return [parse_gate(text, [MATCH]) for text in self._conditions(on_match=True)]

    @property
    def gates(self) -> list[str]:
        """The conditions of the report; of the default ones, those that data are there for."""
        found = self._conditions(on_match=False)
        is_usual = found == list(GATES) and not (self.own("guard") or self.own("guard-classes"))
        return [one for one in found if not (is_usual and one.startswith(_ON_GUARDS))]

    @property
    def parsed_gates(self) -> list[Gate]:
        """The conditions, as a report has them: only with sets of classes on classification."""
        keys = _KEYS if self.own("guard-classes") else _RETRIEVAL
        return [parse_gate(text, keys) for text in self.gates]

    @property
    def undefined(self) -> str:
        """What a condition on forgetting does in the first week, where there is none yet."""
        usual = "pass" if self._conditions(on_match=False) == list(GATES) else "error"
        return str(self.sections["forgetting-report"].get("undefined", usual))

    @property
    def false_alarms(self) -> float:
        """How many weeks may be rejected because of chance alone, on average."""
        return float(self.sections["forgetting-report"].get("false-alarms", PER_REPORT))

    @property
    def index_week(self) -> int | None:
        """The week whose model built the index of users; None without one."""
        week = str(self.own("index-week", "0"))
        return None if week == NONE else int(week)

    def decisive(self) -> dict[str, Any]:
        """What makes another training if it differs, but for data, code and the tasks beside it."""
        machine = {one.removeprefix("--") for one in MACHINE_OPTIONS}
        how = {n: v for n, v in self.sections["train-step"].items() if n not in machine}
        own = {n: v for n, v in self.sections["update"].items() if n in _DECIDES}
        names = ("split", "buffer")
        return {"train-step": how, "update": own} | {one: self.sections[one] for one in names}

    def check(self) -> None:
        """Raise UsageError for what a command would refuse only after hours of training."""
        check_policy(
            self.policy,
            adds=False,
            has_checkpoint=self.buffer_needs_checkpoint,
            stores_features=self.stores_features,
        )
        _ = self.parsed_gates, self.match_gates  # they can be parsed
        check_deployment(self.start_from, self.deploy)


def check_deployment(start_from: str, deploy: str) -> None:
    """Raise UsageError for a value of deploy that does not exist, or start-from that does not fit.

    They are two of the axes of TIME (Dziadzio et al., 2025): what is trained and what is deployed
    are both kept, and what is deployed is merged from that of the week before and the trained one.
    """
    kind, colon, decay = deploy.partition(":")
    if kind not in (LATEST, Ema.name, MERGED) or (colon and kind != Ema.name):
        raise UsageError(unknown_name("deploy", deploy, (LATEST, Ema.name, MERGED)))
    if colon:
        parse_hyper(Ema, Ema.name, "decay", decay, f"deploy {deploy}")
    if start_from != LATEST and deploy == LATEST:
        raise UsageError(
            f"start-from {start_from} goes with another deploy than latest, which merges nothing "
            "(base would deploy a model of one week): --set update.deploy=ema or merged"
        )


def merge_words(deploy: str, weeks: int) -> list[str]:
    """The options of the `merge` that makes what is deployed of the last deployed and the trained.

    `weeks` are those before this one that the mean of `merged` has, without what it began with.
    """
    kind, colon, decay = deploy.partition(":")
    if kind == MERGED:
        return ["--rule", Average.name, "--weights", f"{weeks + 1},1"]
    return ["--rule", Ema.name, *(["--set", f"decay={decay}"] if colon else [])]


def given_by(request: UpdateOptions) -> Sections:
    """The settings that a call gives, by section; None takes one back to its default.

    Paths are recorded relative to the state. Raises UsageError for an unknown one, or a value that
    is not allowed.
    """
    found: Sections = {}
    for name, (row, _) in options_of(UpdateOptions).items():
        word, value = spelled(name, row).removeprefix("--"), value_of(request, name)
        section = next((one for one, rows in SECTIONS.items() if word in rows), None)
        if value is not None and section is not None and name not in {"set", "sources"}:
            found.setdefault(section, {})[word] = _recorded(request.state, section, word, value)
    hypers = []
    for text in request.set:
        path, equals, value = text.partition("=")
        section, dot, name = path.partition(".")
        if section not in SECTIONS:
            hypers.append(text)  # of a method, or a mistake that `compose` names
            continue
        if not (equals and dot):
            raise UsageError(f"--set {text!r} is not of the form SECTION.NAME=VALUE")
        _, kind = SECTIONS[section].get(name, (None, str))
        given = value.split(",") if get_origin(kind) is list else value
        found.setdefault(section, {})[name] = _recorded(request.state, section, name, given)
    if hypers:
        found.setdefault("train-step", {})["set"] = None if hypers == [NONE] else hypers
    return found


def _recorded(root: Path, section: str, name: str, value: Any) -> Any:
    """A value that a command line gives, as update.toml has it."""
    values = value if isinstance(value, list) else [value]
    if [str(one) for one in values] == [NONE] and name != "index-week":
        return None
    if name == "keep" and value == "all":
        return None
    if name == "fail-if":
        values = [one for word in values for one in (GATES if word == DEFAULT else (word,))]
    value = _checked(section, name, values if isinstance(value, list) else value)
    if name in _NOT_PATHS or not SECTIONS[section][name][0].takes_path:
        return value

    def recorded(one: str) -> str:
        is_name = name == "guard-classes" and not Path(one).exists()
        return one if is_name else relative_to_root(root, one)

    if isinstance(value, list):
        return list(dict.fromkeys(map(recorded, value)))
    return recorded(value)


def _checked(section: str, name: str, value: Any) -> Any:
    """A value as update.toml has it. Raises UsageError for an unknown name, or another value."""
    where = f"update.toml, {section}.{name}"
    if name in _CODE:
        raise UsageError(f"{where}: {_CODE[name]}; give --{name} with each call")
    if name not in SECTIONS[section]:
        raise UsageError(unknown_name(f"setting of {section}:", name, SECTIONS[section]))
    row, kind = SECTIONS[section][name]
    try:
        value = converted(row, kind, value)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{where}: {error}") from error
    if isinstance(value, list):
        return [text_of(one) for one in value]
    return value if isinstance(value, bool | int | float) else text_of(value)


def with_given(sections: Mapping[str, Mapping[str, Any]], given: Sections) -> Sections:
    """The settings with the given ones in their place. Raises UsageError for two of a kind."""
    found = {name: dict(sections.get(name, {})) for name in SECTIONS}
    for section, one, other in _EITHER:
        values = given.get(section, {})
        if values.get(one) is not None and values.get(other) is not None:
            raise UsageError(f"--{one} and --{other} exclude each other: give one of them")
        if values.get(one) is not None:
            found[section].pop(other, None)
    for section, values in given.items():
        usual = NEW.get(section, {})
        new = {name: usual.get(name) if one is None else one for name, one in values.items()}
        kept = {name: one for name, one in found[section].items() if name not in new}
        found[section] = kept | {name: one for name, one in new.items() if one not in (None, [])}
    if not {"holdout", "split-column"} & found["split"].keys():
        found["split"]["holdout"] = NEW["split"]["holdout"]
    # In one order, however they came: the page of a week lists them.
    return {
        section: {name: found[section][name] for name in rows if name in found[section]}
        for section, rows in SECTIONS.items()
    }


def read_settings(root: Path) -> Sections:
    """The sections of update.toml. Raises BadInput for no TOML, and UsageError for a mistake."""
    path = root / "update.toml"
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(unreadable(path, error)) from error
    for section, values in found.items():
        if section not in SECTIONS or not isinstance(values, dict):
            raise UsageError(f"{path}: {unknown_name('section', section, SECTIONS)}")
    values = {
        section: {name: _checked(section, name, one) for name, one in rows.items()}
        for section, rows in found.items()
    }
    # What a method, preset, size or hold-out is without a line is as in a new state.
    needed = {"train-step": ("method", "preset"), "buffer": ("size",)}
    usual = {one: {n: NEW[one][n] for n in names} for one, names in needed.items()}
    return with_given({one: {**usual.get(one, {}), **values.get(one, {})} for one in SECTIONS}, {})


def changes_between(before: Mapping[str, Mapping[str, Any]], after: Sections) -> Sections:
    """What update.toml gets: the values that differ, None for those that go."""
    found: Sections = {}
    for section, values in after.items():
        was = before.get(section, {})
        for name in dict.fromkeys([*values, *was]):
            if was.get(name) != values.get(name):
                found.setdefault(section, {})[name] = values.get(name)
    return found


def shown_settings(sections: Sections) -> dict[str, str]:
    """Every setting as text, by name."""
    return {
        (name if section == "update" else f"{section}.{name}"): printable(text_of(value))
        for section, values in sections.items()
        for name, value in values.items()
    }

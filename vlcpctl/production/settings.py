"""The settings of weekly updates: kept in the state, replaced by options that are given again."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Self

from vlcpctl.core.errors import UsageError
from vlcpctl.core.method import Method
from vlcpctl.data.buffer.policies import NEEDS_FEATURES, check_policy
from vlcpctl.data.splitting.holdout import parse_holdout, parse_most
from vlcpctl.files.stores import protocol_of
from vlcpctl.methods.plugins.method_file import load_method_file, loaded_file
from vlcpctl.methods.plugins.registry import MethodRegistry
from vlcpctl.metrics.calibration import METRICS
from vlcpctl.production.deploying import LATEST, check_deployment
from vlcpctl.production.layout import relative_to_root
from vlcpctl.production.left_out import TRAIN
from vlcpctl.production.records import LATER
from vlcpctl.report.gates import POLICIES, Gate, parse_gate
from vlcpctl.training.execution import check_processes
from vlcpctl.training.methods import compose_with, settings_of_methods
from vlcpctl.training.presets import resolve
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.settings import SETTINGS, parse_machine_options
from vlcpctl.training.settings import Settings as TrainSettings

NONE: Final = "none"  # the value of an option that empties a list
DEFAULT: Final = "default"  # the value of --fail-if for the conditions of this version
GATES: Final = ("worst_drop:gt:2", "step_drop:gt:2", "worst_week:gt:5", "bwt_gem.rm:lt:-2")
# What a state records when it is made, so that later versions with others do not change it.
NEW: Final[Mapping[str, Any]] = {
    "fail_if": GATES,
    "false_alarms": 1.0,
    "retries": 1,
    "evaluated": 5000,
    "default_replay": "least=0.25",
}
_BEFORE: Final = ("worst_drop:gt:2", "bwt_gem.rm:lt:-2")  # of states that have recorded none
_ON_GUARDS: Final = ("worst_drop", "step_drop")
# Settings that do not decide what a week's training is asked for: with others, an unfinished week
# goes on and a rejected one is judged again. If guards differ, its evaluations are made again; with
# another device, other threads or train options, train-step resumes only with --accept-inexact.
_OF_GATES: Final = frozenset({"fail_if", "undefined", "false_alarms", "retries"})
_OF_EVALUATION: Final = frozenset(
    {"guards", "classes", "data", "distractors", "index_week", "evaluated"}
)
_OF_MACHINE: Final = frozenset(
    {"device", "workers", "threads", "train_options", "kept_weeks", "cache"}
)
_LISTS: Final = (
    *("guards", "classes", "distractors", "assignments", "fail_if", "image_root"),
    "train_options",
)
_SIZE = re.compile(r"0*[1-9][0-9]*|[0-9]+(\.[0-9]+)?%")
# Metrics that conditions may name.
_RETRIEVAL = (
    *("i2t_r1", "i2t_r5", "i2t_r10", "i2t_rmean", "t2i_r1", "t2i_r5", "t2i_r10", "t2i_rmean"),
    *("rm", *METRICS),
)
_KEYS = (*_RETRIEVAL, "acc1", "acc5", "mean_per_class_recall")
_COUNTED_SHARE = "10%"  # of a week that a counted hold-out takes at most


@dataclass(frozen=True)
class Guard:
    """A task outside the stream: its path from the state directory, content id and name."""

    path: str
    content: str
    name: str

    @property
    def in_words(self) -> str:
        """Such as "00-golden (1a2b3c4d5e6f)", wherever it is."""
        return f"{self.name} ({self.content[:12]})"


@dataclass(frozen=True)
class MethodCode:
    """A file of --method-file: its path from the state directory, digest, and methods' names.

    Two are equal if their code is, wherever the file is. It says what a week was trained with:
    code is loaded from files that are given with the call, never because a state names them.
    """

    path: str = field(compare=False)
    digest: str
    methods: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The resolved options of an update. None: the default of the command that takes it.

    The attributes have the names of the options, but for `assignments`, the values of --set, and
    `classes`, the data sets of --guard-classes.
    """

    run: str
    method: str = "ctp"
    preset: str = "update"
    assignments: tuple[str, ...] = ()
    method_files: tuple[MethodCode, ...] = ()
    epochs: int | None = None
    steps: int | None = None
    lr: float | None = None
    batch_size: int | None = None
    micro_batch: int | None = None
    precision: str | None = None
    replay: str | None = None
    default_replay: str | None = None  # without --replay, if no method decides; None: union
    start_from: str = field(default=LATEST, metadata=LATER)
    deploy: str = field(default=LATEST, metadata=LATER)
    buffer_size: str = "20000"
    policy: str | None = None
    reference: Guard | None = None  # on whose pairs the model of last week is distilled
    holdout: str = "test=0.1"
    holdout_most: str | None = None
    split_column: str | None = None
    keep_columns: str | None = None
    image_column: str | None = None
    caption_column: str | None = None
    image_root: tuple[str, ...] = ()
    max_skip: str | None = None
    known: str | None = None  # "train", or None to skip known pairs
    drop_leaks: bool = False
    guards: tuple[Guard, ...] = ()
    classes: tuple[str, ...] = ()
    data: str | None = None
    distractors: tuple[Guard, ...] = ()  # tasks that make the galleries of guards larger
    index_week: int | None = 0  # whose model built the deployed index; 0: the start; None: no index
    fail_if: tuple[str, ...] | None = None
    undefined: str | None = None
    false_alarms: float | None = None  # a year of weekly updates; None: as the report has it
    kept_weeks: int | None = None  # weeks with weights, buffer and pairs; None: all
    evaluated: int | None = None  # images of the test split of a week, with the lowest keys
    retries: int = 0  # trainings with other draws, after a rejection that is not clear
    seed: int = 0
    device: str = "auto"
    workers: int | None = None  # None: auto
    threads: int = 1
    train_options: tuple[str, ...] = ()  # the words of --train-option
    cache: str | None = field(default=None, metadata=LATER)  # of object stores, if one was read

    def with_given(self, given: Mapping[str, Any]) -> Self:
        """These settings, with the given ones in their place.

        Raises UsageError if they contradict each other or name something unknown.
        """
        changes = dict(given)
        if "steps" in given and "epochs" not in given:
            changes["epochs"] = None
        if "epochs" in given and "steps" not in given:
            changes["steps"] = None
        changes.setdefault("method_files", ())
        held_out = {n for n in ("holdout", "holdout_most") if given.get(n) is not None}
        if held_out and given.get("split_column") is not None:
            raise UsageError(
                "--split-column decides the split of every pair: leave out --holdout and "
                "--holdout-most"
            )
        if held_out:
            changes["split_column"] = None
        for name in _LISTS:
            if name in changes:
                changes[name] = () if changes[name] == (NONE,) else tuple(changes[name])
        found = replace(self, **changes)
        found.check()
        return found

    def left_out_of(self, later: Settings) -> list[str]:
        """What these settings judge a week by and later ones do not: conditions and guards.

        Another condition on the same metric leaves nothing out, and neither does `none` for all.
        """
        gates = {gate.partition(":")[0]: gate for gate in self.gates}
        kept = {gate.partition(":")[0] for gate in later.gates}
        lost = [gate for name, gate in gates.items() if kept and name not in kept]
        if later.guards:
            kept = {guard.name for guard in later.guards}
            lost += [f"guard {one.name}" for one in self.guards if one.name not in kept]
        if later.classes:
            lost += [f"guard {one}" for one in self.classes if one not in later.classes]
        return lost

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods with their hyper-parameters; their files were given with this call.

        Raises UsageError and BadInput as `compose` does.
        """
        return compose_with(self.preset, self.method, self.assignments, self._registry)[0]

    @property
    def _registry(self) -> MethodRegistry:
        found = (loaded_file(file.digest) for file in self.method_files)
        return MethodRegistry([file for file in found if file is not None])

    def check(self) -> None:
        """Raise UsageError for what a command would refuse only after hours of training."""
        methods = self.methods
        self._registry.refuse_idle_files(self.method)
        self._check_reference(methods)
        settings, _ = resolve(self.preset, self.of_training(), settings_of_methods(methods))
        self._check_train_options(methods, settings)
        if parse_holdout(self.holdout).leaves_no_train:
            raise UsageError(
                f"--holdout {self.holdout!r} holds out every image of a week and leaves none to "
                "train on; give shares that sum to less than 1"
            )
        if self.holdout_share is not None:
            parse_most(self.holdout_share, parse_holdout(self.holdout))
        check_policy(
            self.buffer_policy,
            adds=False,
            has_checkpoint=self.buffer_needs_checkpoint,
            stores_features=self.stores_features,
        )
        self._check_gates()
        check_deployment(self.start_from, self.deploy)
        if self.known not in {None, TRAIN}:
            raise UsageError(f"--known takes skip or train, not {self.known!r}")
        if not _SIZE.fullmatch(self.buffer_size):
            raise UsageError(
                f"--buffer-size is {self.buffer_size!r}; write a number of images or a share, such "
                "as 20000 or 5%"
            )

    def _check_reference(self, methods: tuple[Method, ...]) -> None:
        users = [one.name for one in methods if one.needs(first=False).reference]
        if users and self.reference is None:
            raise UsageError(
                f"method {users[0]} needs --reference: a task with pairs of what the model must "
                "not forget; for a method without it, use ctp"
            )
        if self.reference is not None and not users:
            raise UsageError(
                f"--reference has no effect with --method {self.method}; leave it out, or give "
                "--reference none if it is that of an earlier week"
            )

    def _check_train_options(self, methods: tuple[Method, ...], settings: TrainSettings) -> None:
        if not self.train_options:
            return
        try:
            how = parse_machine_options(self.train_options)
            out = Path("checkpoint")
            check_processes(
                TrainRequest(tasks=(), out=out, methods=methods, settings=settings, **how)
            )
        except UsageError as error:
            raise UsageError(f"--train-option: {error}") from error

    def _check_gates(self) -> None:
        for gate in self.gates:  # only with sets of classes are there metrics of classification
            parse_gate(gate, _KEYS if self.classes else _RETRIEVAL)
        if self.undefined not in {None, *POLICIES}:
            known = " or ".join(POLICIES)
            raise UsageError(f"--undefined takes {known}, not {self.undefined!r}")
        if self.false_alarms is not None and not 0 < self.false_alarms < math.inf:
            raise UsageError(f"--false-alarms must be a number above 0, not {self.false_alarms}")

    def of_training(self, *, has_buffer: bool = True) -> dict[str, Any]:
        """The settings that `train-step` takes by the same name, without those that are None.

        Without a buffer, none of them is about replay.
        """
        names = [one.name for one in fields(self) if one.name in SETTINGS]
        found = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if not has_buffer:
            found.pop("replay", None)
        elif self.default_replay and "replay" not in settings_of_methods(self.methods):
            found.setdefault("replay", self.default_replay)
        return found

    @property
    def gates(self) -> tuple[str, ...]:
        """The conditions that reject a week; of the default ones, those that data are there for."""
        recorded = _BEFORE if self.fail_if is None else self.fail_if
        if self.has_guards or recorded not in {GATES, _BEFORE}:
            return recorded
        return tuple(one for one in recorded if not one.startswith(_ON_GUARDS))

    @property
    def is_from_before(self) -> bool:
        """Whether the conditions are those of a state that has recorded none."""
        return self.fail_if is None

    @property
    def bound_on_guards(self) -> float | None:
        """The smallest loss on a guard, in points, that is above the bound of a condition."""
        losses = self.gates_on_guards
        return min((one.bound for one in losses if one.comparison in {"gt", "ge"}), default=None)

    @property
    def gates_on_guards(self) -> list[Gate]:
        """The conditions that judge each guard against chance; `drop_low` and others are values."""
        return [one for one in self.parsed_gates if one.metric.name in {"drop", *_ON_GUARDS}]

    @property
    def parsed_gates(self) -> list[Gate]:
        """The conditions, as a report has them."""
        return [parse_gate(text, _KEYS) for text in self.gates]

    @property
    def undefined_gates(self) -> str:
        """What a gate on forgetting does in the first week, where there is none yet."""
        return self.undefined or ("pass" if self.fail_if in {None, GATES} else "error")

    def urls(self) -> list[tuple[str, str]]:
        """What of these settings is in an object store: the option, and the URL."""
        named = [("guard", one.path) for one in self.guards]
        named += [("guard-classes", one.removeprefix("path:")) for one in self.classes]
        named += [("distractors", one.path) for one in self.distractors]
        named += [("reference", self.reference.path)] if self.reference else []
        named += [("data", self.data)] if self.data else []
        named += [("image-root", one) for one in self.image_root]
        return [(option, text) for option, text in named if protocol_of(text) is not None]

    @property
    def has_guards(self) -> bool:
        """Whether data outside the stream are evaluated."""
        return bool(self.guards or self.classes)

    @property
    def buffer_policy(self) -> str:
        """The policy of the buffer: as given, as a method needs or its paper has it, or reservoir.

        What one method needs comes before what the paper of another has.
        """
        methods = self.methods
        needed = [method.needs(first=False).policy for method in methods]
        usual = [method.usual_policy for method in methods]
        return self.policy or next((one for one in needed + usual if one), "reservoir")

    @property
    def merges(self) -> bool:
        """Whether what is deployed is merged from what was trained, which is kept beside it."""
        return self.deploy != LATEST

    @property
    def stores_features(self) -> bool:
        """Whether the method needs features in the buffer."""
        return any(method.needs(first=False).stored_features for method in self.methods)

    @property
    def buffer_needs_checkpoint(self) -> bool:
        """Whether a model chooses the pairs of the buffer, or its features are stored."""
        return self.stores_features or self.buffer_policy in NEEDS_FEATURES

    @property
    def holdout_rule(self) -> str | None:
        """The held-out splits; None if a column has the split of every pair."""
        return self.holdout if self.split_column is None else None

    @property
    def holdout_share(self) -> str | None:
        """The most that a counted hold-out takes of a week; None for hold-outs by share."""
        if self.split_column is not None:
            return None
        if self.holdout_most is not None:
            return self.holdout_most
        return _COUNTED_SHARE if parse_holdout(self.holdout).counted else None

    def different_training(self, other: Settings) -> dict[str, tuple[Any, Any]]:
        """Settings that make another training: by name, the values here and there."""
        others = _OF_GATES | _OF_EVALUATION | _OF_MACHINE
        names = [one.name for one in fields(self) if one.name not in others]
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in names}
        pairs["reference"] = self._reference_words, other._reference_words
        if self.drop_leaks and other.drop_leaks:  # guards decide which pairs are left out
            pairs["guards"] = self._guard_words, other._guard_words
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    @property
    def _guard_words(self) -> list[str]:
        return sorted(one.in_words for one in self.guards)

    @property
    def _reference_words(self) -> str | None:
        return None if self.reference is None else self.reference.in_words

    def same_evaluation(self, other: Settings) -> bool:
        """Whether the same data outside the stream are evaluated."""
        return all(getattr(self, name) == getattr(other, name) for name in _OF_EVALUATION)


def default_of(name: str) -> Any:
    """The value that a setting has in a new state without its option."""
    return NEW.get(name, getattr(Settings, name))


def conditions(words: Sequence[str]) -> tuple[str, ...]:
    """The values of --fail-if, with the conditions of this version for `default`."""
    return tuple(one for word in words for one in (GATES if word == DEFAULT else (word,)))


def record_method_files(root: Path, paths: Sequence[Path]) -> tuple[MethodCode, ...]:
    """The files at these paths, which are loaded, as the state records them.

    Raises BadInput as `load_method_file` does.
    """
    files = [load_method_file(path) for path in paths]
    return tuple(
        MethodCode(relative_to_root(root, path), file.digest, tuple(file.methods))
        for path, file in zip(paths, files, strict=True)
    )

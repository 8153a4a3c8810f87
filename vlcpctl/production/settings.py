"""The settings of weekly updates: kept in the state, replaced by options that are given again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from types import UnionType
from typing import Any, Final, Self

from vlcpctl.core.errors import UsageError
from vlcpctl.core.fields import Fields
from vlcpctl.core.method import Method
from vlcpctl.data.buffer.policies import NEEDS_FEATURES, check_policy
from vlcpctl.data.splitting.holdout import parse_holdout, parse_most
from vlcpctl.methods.plugins.method_file import loaded_file
from vlcpctl.methods.plugins.registry import MethodRegistry
from vlcpctl.production.gate_texts import check_gates
from vlcpctl.production.left_out import TRAIN
from vlcpctl.production.records import objects, refuse_later
from vlcpctl.training.config.composition import compose, settings_of_methods
from vlcpctl.training.config.resolution import resolve
from vlcpctl.training.config.settings import SETTINGS

NONE: Final = "none"  # the value of an option that empties a list
UNDEFINED: Final = ("error", "pass")
# Settings that do not decide what a week's training is asked for: with others, an unfinished week
# goes on and a rejected one is judged again. If guards differ, its evaluations are made again; with
# another device or other threads, train-step resumes only with --accept-inexact.
_OF_GATES: Final = frozenset({"fail_if", "undefined"})
_OF_EVALUATION: Final = frozenset({"guards", "classes", "data"})
_CODE: Final = "method_files"
_OF_MACHINE: Final = frozenset({"device", "workers", "threads"})
_SIZE = re.compile(r"0*[1-9][0-9]*|[0-9]+(\.[0-9]+)?%")
_COUNTED_SHARE = "10%"  # of a week that a counted hold-out takes at most


@dataclass(frozen=True)
class Guard:
    """A retrieval task outside the stream: its path from the state directory, id and name."""

    path: str
    content: str
    name: str

    @classmethod
    def read(cls, take: Fields) -> Self:
        """The entry of a record. Raises BadInput if a field is missing or has another type."""
        names = [one.name for one in fields(cls)]
        refuse_later(take, names)
        return cls(*(take(name, str) for name in names))


@dataclass(frozen=True)
class MethodCode:
    """A file of --method-file: its path from the state directory, digest, and methods' names.

    Two are equal if their code is, wherever the file is.
    """

    path: str = field(compare=False)
    digest: str
    methods: tuple[str, ...]

    @classmethod
    def read(cls, take: Fields) -> Self:
        """The entry of a record. Raises BadInput if a field is missing or has another type."""
        refuse_later(take, (one.name for one in fields(cls)))
        return cls(take("path", str), take("digest", str), tuple(take.texts("methods")))


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
    buffer_size: str = "20000"
    policy: str | None = None
    holdout: str = "test=0.1"
    holdout_most: str | None = None
    split_column: str | None = None
    keep_columns: str | None = None
    image_column: str | None = None
    caption_column: str | None = None
    image_root: tuple[str, ...] = ()
    max_skip: str | None = None
    known: str | None = None  # "train", or None to skip known pairs
    guards: tuple[Guard, ...] = ()
    classes: tuple[str, ...] = ()
    data: str | None = None
    fail_if: tuple[str, ...] | None = None
    undefined: str | None = None
    seed: int = 0
    device: str = "auto"
    workers: int | None = None  # None: auto
    threads: int = 1

    @classmethod
    def read(cls, take: Fields) -> Self:
        """The settings in a record. Raises BadInput if a field is missing or has another type."""
        refuse_later(take, (one.name for one in fields(cls)))
        found: dict[str, Any] = {}
        for one in fields(cls):
            if one.name == "guards":
                found["guards"] = tuple(map(Guard.read, objects(take, "guards")))
            elif one.name == _CODE:  # recorded only if there is any
                files = objects(take, _CODE) if _CODE in take.value else []
                found[_CODE] = tuple(map(MethodCode.read, files))
            elif "tuple" in str(one.type):
                is_missing = "None" in str(one.type) and take.value.get(one.name) is None
                found[one.name] = None if is_missing else tuple(take.texts(one.name))
            else:
                optional = (None,) if "None" in str(one.type) else ()
                found[one.name] = take(one.name, _TYPES[str(one.type).split(" |")[0]], *optional)
        return cls(**found)

    def with_given(self, given: Mapping[str, Any]) -> Self:
        """These settings, with the given ones in their place.

        Raises UsageError if they contradict each other or name something unknown.
        """
        changes = dict(given)
        if "steps" in given and "epochs" not in given:
            changes["epochs"] = None
        if "epochs" in given and "steps" not in given:
            changes["steps"] = None
        changes.setdefault(_CODE, self.files_kept(given))
        held_out = given.keys() & {"holdout", "holdout_most"}
        if held_out and "split_column" in given:
            raise UsageError(
                "--split-column decides the split of every pair: leave out --holdout and "
                "--holdout-most"
            )
        if held_out:
            changes["split_column"] = None
        for name in ("guards", "classes", "assignments", "fail_if", "image_root"):
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

    def files_kept(self, given: Mapping[str, Any]) -> tuple[MethodCode, ...]:
        """The recorded method files that are still used with these options."""
        names = set(given.get("method", self.method).split("+"))
        kept = tuple(file for file in self.method_files if names & set(file.methods))
        return () if _CODE in given else kept

    @property
    def is_loaded(self) -> bool:
        """Whether this process has loaded all method files, so that `methods` can be composed."""
        return all(loaded_file(file.digest) is not None for file in self.method_files)

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods with their hyper-parameters; their files must be loaded.

        Raises UsageError and BadInput as `compose` does.
        """
        return compose(self.method, self.assignments, self._registry)

    @property
    def _registry(self) -> MethodRegistry:
        found = (loaded_file(file.digest) for file in self.method_files)
        return MethodRegistry([file for file in found if file is not None])

    def check(self) -> None:
        """Raise UsageError for what a command would refuse only after hours of training."""
        methods = self.methods
        self._registry.refuse_idle_files(self.method)
        resolve(self.preset, self.of_training(), settings_of_methods(methods))
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
        check_gates(self.gates, has_classes=bool(self.classes))
        if self.undefined not in {None, *UNDEFINED}:
            raise UsageError(f"--undefined takes error or pass, not {self.undefined!r}")
        if self.known not in {None, TRAIN}:
            raise UsageError(f"--known takes skip or train, not {self.known!r}")
        if not _SIZE.fullmatch(self.buffer_size):
            raise UsageError(
                f"--buffer-size is {self.buffer_size!r}; write a number of images or a share, such "
                "as 20000 or 5%"
            )

    def of_training(self) -> dict[str, Any]:
        """The settings that `train-step` takes by the same name, without those that are None."""
        names = [one.name for one in fields(self) if one.name in SETTINGS]
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def gates(self) -> tuple[str, ...]:
        """The conditions that reject a week; without --fail-if, those named in the help."""
        if self.fail_if is not None:
            return self.fail_if
        return (*(("worst_drop:gt:2",) if self.has_guards else ()), "bwt_gem.rm:lt:-2")

    @property
    def undefined_gates(self) -> str:
        """What a gate on forgetting does in the first week, where there is none yet."""
        return self.undefined or ("pass" if self.fail_if is None else "error")

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

    def as_json(self) -> dict[str, Any]:
        """The settings as a JSON object."""
        found = asdict(self)
        for name in (_CODE, "known"):  # as earlier versions recorded it
            if not found[name]:
                del found[name]
        return found

    def different_training(self, other: Settings) -> dict[str, tuple[Any, Any]]:
        """Settings that make another training: by name, the values here and there."""
        others = _OF_GATES | _OF_EVALUATION | _OF_MACHINE
        names = [one.name for one in fields(self) if one.name not in others]
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def same_evaluation(self, other: Settings) -> bool:
        """Whether the same data outside the stream are evaluated."""
        return all(getattr(self, name) == getattr(other, name) for name in _OF_EVALUATION)


_TYPES: dict[str, type | UnionType] = {"str": str, "int": int, "float": int | float}

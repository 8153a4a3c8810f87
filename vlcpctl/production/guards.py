"""The guards of an update, and its reference: found when given, unchanged whenever used."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.core.words import counted
from vlcpctl.data.classification.benchmarks import expand_groups, usual_name
from vlcpctl.data.tasks.facts import read_task
from vlcpctl.data.tasks.task import open_task
from vlcpctl.files.manifest import MANIFESTS
from vlcpctl.metrics.chance import (
    WEEKS_A_YEAR,
    critical_value,
    smallest_seen,
)
from vlcpctl.production.layout import relative_to_root, shown_path
from vlcpctl.production.settings import NONE, Guard, Settings
from vlcpctl.report.scores import FEWEST_IMAGES

# What has tasks of the stream: the state directory, which is ".", and directories in it.
_OF_STREAM = frozenset({".", "weeks", "pending", "rejected", "rolled-back", "redo"})
_DEVIATION = 15.0  # points, of a sample's change in a week that lost 3, as measured
_SPECIAL = re.compile(r"[*?\[]")  # in patterns of `fnmatch`


@dataclass(frozen=True)
class Sight:
    """What a guard of so many images can show: `sees` and `bound` are points lost."""

    name: str
    images: int
    sees: float
    bound: float

    def sentence(self) -> str:
        """Such as "golden, 50 images: a true loss of 6.8 points is rejected in 80 of 100 weeks"."""
        images = counted(self.images, "image")
        return (
            f"{self.name}, {images}: a true loss of {self.sees:.1f} points is rejected in 80 of "
            "100 weeks"
        )


def sights(root: Path, settings: Settings, errors: Mapping[str, float]) -> list[Sight]:
    """What each guard can show of a loss, if a condition bounds it; of classes, those in tasks.

    `errors` are standard errors measured so far, by guard; of others, it is that of changes of
    single samples with a standard deviation of 15 points. Raises BadInput if a task cannot be read.
    """
    bound = settings.bound_on_guards
    if bound is None:
        return []
    guards = len(settings.guards) + len(settings.classes)
    comparisons = guards * len(settings.gates_on_guards)
    z = critical_value(comparisons, (settings.false_alarms or 1.0) / WEEKS_A_YEAR)
    found = []
    tasks = {guard.name: shown_path(root, guard.path) for guard in settings.guards}
    for name, path in {**tasks, **class_tasks(root, settings)}.items():
        images = _images(path)
        error = errors.get(name, _DEVIATION / math.sqrt(max(images, 1)))
        found.append(Sight(name, images, smallest_seen(bound, error, z), bound))
    return found


def class_tasks(root: Path, settings: Settings) -> dict[str, Path]:
    """The tasks with a test split among the data sets of --guard-classes, by name."""
    words = [word.partition(":") for word in settings.classes]
    paths = [shown_path(root, word) for kind, _, word in words if kind == "path"]
    tasks = {path: read_task(path) for path in paths if (path / MANIFESTS["task"]).is_file()}
    return {task.slug: path for path, task in tasks.items() if "test" in task.splits}


def refuse_small(root: Path, guards: Sequence[Guard]) -> None:
    """Raise UsageError for a guard of fewer than 50 test images."""
    for guard in guards:
        images = _images(shown_path(root, guard.path))
        if images < FEWEST_IMAGES:
            raise UsageError(
                f"--guard {shown_path(root, guard.path)} has {counted(images, 'test image')}, on "
                f"which chance hides any loss that matters; give {FEWEST_IMAGES} or more, or "
                "accept it with --small-guard"
            )


def _images(task: Path) -> int:
    return read_task(task).splits["test"].images


def find_guards(
    root: Path, paths: Sequence[str], option: str = "--guard"
) -> tuple[Guard, ...] | tuple[str, ...]:
    """The guards, or distractors, at these paths, in order, or the word that stands for none.

    Raises BadInput if a path is not a task with a test split, and UsageError if one belongs to
    the state, or two of them have the same name, by which reports and gates know them.
    """
    if list(paths) == [NONE]:
        return (NONE,)
    found: dict[str, Guard] = {}
    for path in map(Path, paths):
        task = open_task(path)
        if "test" not in task.manifest.splits:
            raise BadInput(f"{option} {path} has no test split; give a task that has one")
        recorded = _recorded(root, path, option)
        found[recorded] = Guard(recorded, task.id, task.slug)
    name, count = Counter(guard.name for guard in found.values()).most_common(1)[0]
    if count > 1:
        raise UsageError(
            f"{option}: {count} tasks have the name {name}, and reports could not tell them apart; "
            "split them again with --by all:NAME"
        )
    return tuple(found.values())


def find_reference(root: Path, text: str) -> Guard:
    """The task of --reference, as it is recorded.

    Raises BadInput if it is not a task with pairs to train on, and UsageError if it belongs to
    the state.
    """
    path = Path(text)
    task = open_task(path)
    task.require("train")
    return Guard(_recorded(root, path, "--reference"), task.id, task.slug)


def _recorded(root: Path, path: Path, option: str) -> str:
    """The path of a task as it is recorded. Raises UsageError for one of the state's stream."""
    recorded = relative_to_root(root, path)
    if recorded.split("/")[0] in _OF_STREAM:
        raise UsageError(
            f"{option} {path} belongs to {root}, whose weeks can be trimmed, and taken back; "
            "give a task outside the state directory"
        )
    return recorded


def record_classes(root: Path, words: Sequence[str]) -> tuple[str, ...]:
    """The data sets of --guard-classes as they are recorded: `path:` and a path, or `name:`."""
    if list(words) == [NONE]:
        return (NONE,)
    return tuple(
        f"path:{relative_to_root(root, Path(word))}" if Path(word).exists() else f"name:{word}"
        for word in dict.fromkeys(words)
    )


def guard_patterns(root: Path, settings: Settings) -> list[str]:
    """Patterns of --guard of a report that match the guards of these settings, and no others."""
    found = [guard.name for guard in settings.guards]
    classes = [name for word in settings.classes for name in _class_names(root, word)]
    average = [f"average of {len(classes)}*"] if len(classes) > 1 else []
    return [*(_SPECIAL.sub(r"[\g<0>]", name) for name in [*found, *classes]), *average]


def _class_names(root: Path, recorded: str) -> list[str]:
    """The names that rows give to a data set of --guard-classes, of which a group has several."""
    kind, _, word = recorded.partition(":")
    if kind != "path":
        return [usual_name(name) for name in expand_groups([word])]
    path = shown_path(root, word)
    is_task = (path / MANIFESTS["task"]).is_file()
    return [read_task(path).slug if is_task else usual_name(path.name)]


def require_unchanged(root: Path, settings: Settings) -> None:
    """Raise BadInput if a guard, distractors or the reference are missing or not what they were.

    Data that `vlcpctl forget` rewrote count as the same.
    """
    named = [("guard", "all guards", one) for one in settings.guards]
    named += [("distractors", "all distractors", one) for one in settings.distractors]
    named += [("reference", "it", settings.reference)] if settings.reference else []
    for option, which, guard in named:
        path = shown_path(root, guard.path)
        if not path.exists():
            raise BadInput(f"the {option} {path} does not exist; --{option} gives its new place")
        manifest = read_task(path)
        if guard.content not in {manifest.id, manifest.content}:
            raise BadInput(
                f"the {option} {path} has changed: its content id was {guard.content} and is now "
                f"{manifest.content}; restore it, or give {which} again with --{option}"
            )

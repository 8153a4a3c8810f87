"""The guards of an update, and its reference: unchanged whenever used, and what they can show."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Mapping
from pathlib import Path

from vlcpctl.core.console import say, warn
from vlcpctl.core.errors import BadInput, UsageError, missing
from vlcpctl.core.words import counted
from vlcpctl.data.classification.benchmarks import expand_groups, usual_name
from vlcpctl.data.tasks.facts import read_task
from vlcpctl.data.tasks.task import open_task
from vlcpctl.files.manifest import MANIFESTS
from vlcpctl.metrics.chance import critical_value, smallest_seen
from vlcpctl.production.settings import Settings
from vlcpctl.production.state import Attempt, shown_path

DEVIATIONS = (11.4, 15.3)  # points, of a change of a sample in a week: of ctp, and of er
FEWEST_IMAGES = 50  # of a guard, on fewer of which chance hides any loss that matters
_TASKS = {"guard": "test", "distractors": "test", "reference": "train"}  # the split that is used
_LOSSES = ("drop", "worst_drop", "step_drop")
_SPECIAL = re.compile(r"[*?\[]")  # in patterns of `fnmatch`


def find_guards(root: Path, settings: Settings) -> dict[str, str]:
    """The content ids of the guards, distractors and reference, by their recorded paths.

    Raises BadInput if one is not a task with the split that is used, and UsageError if it belongs
    to the state, or two guards have the same name, by which reports and conditions know them.
    """
    found, names = {}, Counter[str]()
    for option, split in _TASKS.items():
        for recorded in _recorded(settings.own(option, [])):
            path = shown_path(root, recorded)
            if not path.exists():
                raise BadInput(f"the {option} {missing(path)}; --{option} gives its new place")
            if recorded.split("/")[0] in {".", "attempts"}:
                raise UsageError(f"--{option} {path} belongs to {root}: give a task outside of it")
            task = open_task(path)
            task.require(split)
            found[recorded] = task.id
            names[task.slug] += option == "guard"
    if twice := next((name for name, count in names.items() if count > 1), None):
        raise UsageError(
            f"--guard: several tasks have the name {twice}, and reports could not tell them apart; "
            "split them again with --by all:NAME"
        )
    return found


def require_unchanged(found: Mapping[str, str], last: Attempt, given: Container[str]) -> None:
    """Raise BadInput if a task has not the id that it had in the last week.

    Those whose option is among the `given` ones may have. Tasks that `vlcpctl forget` rewrote keep
    their id.
    """
    for option in (one for one in _TASKS if one not in given):
        for recorded in _recorded(last.settings["update"].get(option, [])):
            was = last.guards.get(recorded)
            if was is not None and found.get(recorded, was) != was:
                raise BadInput(
                    f"the {option} {recorded} has changed: its content id was {was} and is now "
                    f"{found[recorded]}; restore it, or give it again with --{option}"
                )


def _recorded(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def guard_ids(root: Path, settings: Settings) -> list[str]:
    """An id for each guard: of a task its content id with those of what its gallery has besides.

    Of a set of classes, it is the path or name.
    """
    more = sorted(read_task(one).id for one in settings.paths(root, "distractors"))
    tasks = ["+".join([read_task(one).id, *more]) for one in settings.paths(root, "guard")]
    return [*tasks, *(f"classes:{word}" for word in settings.own("guard-classes", []))]


def galleries_of(attempt: Attempt) -> list[str]:
    """The ids of what the galleries of guards have besides: scores on others are not compared."""
    names = attempt.settings["update"].get("distractors", [])
    return sorted(attempt.guards.get(one, "") for one in names)


def class_tasks(root: Path, settings: Settings) -> dict[str, Path]:
    """The tasks with a test split among the data sets of guard-classes, by name."""
    paths = [one for one in settings.classes(root) if isinstance(one, Path)]
    tasks = {path: read_task(path) for path in paths if (path / MANIFESTS["task"]).is_file()}
    return {task.slug: path for path, task in tasks.items() if "test" in task.splits}


def guard_patterns(root: Path, settings: Settings) -> list[str]:
    """Patterns of --guard of a report that match the guards of these settings, and no others."""
    found = [read_task(one).slug for one in settings.paths(root, "guard")]
    classes = [name for one in settings.classes(root) for name in _class_names(one)]
    average = [f"average of {len(classes)}*"] if len(classes) > 1 else []
    return [*(_SPECIAL.sub(r"[\g<0>]", name) for name in [*found, *classes]), *average]


def _class_names(one: Path | str) -> list[str]:
    """The names that rows give to a data set of guard-classes, of which a group has several."""
    if isinstance(one, str):
        return [usual_name(name) for name in expand_groups([one])]
    is_task = (one / MANIFESTS["task"]).is_file()
    return [read_task(one).slug if is_task else usual_name(one.name)]


def say_sights(root: Path, settings: Settings, last: Attempt | None) -> None:
    """Say what loss each guard finds in 80 of 100 weeks, if that is new.

    With the standard error of the last week, or else with the least and the largest change of a
    sample that was measured.
    """
    judging = ("guard", "guard-classes")
    before = {} if last is None else last.settings
    same = [before.get("update", {}).get(one) == settings.own(one) for one in judging]
    if all(same) and before.get("forgetting-report") == settings.sections["forgetting-report"]:
        return
    losses = [one for one in settings.parsed_gates if one.metric.name in _LOSSES]
    bound = min((one.bound for one in losses if one.comparison in {"gt", "ge"}), default=None)
    if bound is None:
        return
    count = len(settings.own("guard", [])) + len(settings.own("guard-classes", []))
    z = critical_value(count * len(losses), settings.false_alarms)
    paths = {read_task(one).slug: one for one in settings.paths(root, "guard")}
    errors = errors_of(last)
    for name, path in (paths | class_tasks(root, settings)).items():
        images = read_task(path).splits["test"].images
        root_of = math.sqrt(max(images, 1))
        known = [errors[name]] if name in errors else [one / root_of for one in DEVIATIONS]
        sees = [smallest_seen(bound, error, z) for error in known]
        points = " to ".join(f"{one:.1f}" for one in dict.fromkeys(sees))
        few = "; fewer than 50 images hide losses" if images < FEWEST_IMAGES else ""
        speak = warn if sees[0] > 2 * bound or few else say
        speak(
            f"guard {name}, {counted(images, 'image')}: a true loss of {points} points is rejected "
            f"in 80 of 100 weeks{few}"
        )


def errors_of(attempt: Attempt | None) -> dict[str, float]:
    """The largest standard error that verdicts of an attempt have of a loss, by data set."""
    found: dict[str, float] = {}
    for one in attempt.verdicts if attempt is not None else ():
        error, data = one.get("se"), one.get("data")
        if isinstance(error, int | float) and isinstance(data, str):
            found[data] = max(found.get(data, 0.0), float(error))
    return found

"""Test images among the pairs to train on: looked for after a split, before anything is trained.

Images are the same if the bytes of their files are. Shapes: N pairs for training.
"""

from __future__ import annotations

import shlex

import numpy as np

from vlcpctl.core.console import warn
from vlcpctl.core.errors import BadInput, some_names
from vlcpctl.data.splitting.leaving_out import images_of
from vlcpctl.data.tasks.task import Task, open_task
from vlcpctl.files.stores import is_stored
from vlcpctl.production.lines import Lines

_SHOWN = 3  # keys
_ITSELF = "its own test split"


def refuse_leaks(lines: Lines) -> None:
    """Raise BadInput if a pair to train on has an image of a guard or of the test of a week.

    Looked at are the pairs of the attempt, and those of --reference. Warns of new guards of
    which earlier weeks have the images.
    """
    task = open_task(lines.state.task(lines.made))
    if not lines.head:
        _refuse(lines, task, "--buffer-from", "--drop-leaks leaves such pairs out")
        return
    week = f"week {lines.made.week}"
    _refuse(lines, task, week, "--drop-leaks leaves such pairs out, or correct the data")
    root = lines.state.root
    for path in lines.settings.paths(root, "reference"):
        reference = open_task(path)
        words = ["vlcpctl", "split", str(path), "-o", "NEW", "--by", f"all:{reference.name}"]
        words += ["--split-column", "split"]
        tests = {**lines.tests(), week: task.path}.values()
        words += [word for one in tests for word in ("--not-test-images", str(one))]
        how = f"'{shlex.join(words)}' leaves them out: give the task in NEW with --reference"
        _refuse(lines, reference, "--reference", how, {week: task})
    _warn_of_late_guards(lines)


def _refuse(
    lines: Lines, task: Task, what: str, advice: str, more: dict[str, Task] | None = None
) -> None:
    """Raise BadInput if training pairs of a task have test images of guards, weeks, or its own."""
    images = images_of(task, "train")
    paths = lines.tests()
    tests = {name: open_task(path) for name, path in paths.items()} | (more or {_ITSELF: task})
    found = {name: images.among(images_of(one, "test")) for name, one in tests.items()}
    counts = {name: int(leaked_N.sum()) for name, leaked_N in found.items() if leaked_N.any()}
    if not counts:
        return
    leaked_N = np.any(list(found.values()), axis=0)
    where = some_names([f"{count} of {name}" for name, count in counts.items()])
    keys = some_names(list(task.split("train").keys.take(leaked_N)), _SHOWN)
    compared = dict.fromkeys(str(one.path) for one in (*(tests[n] for n in counts), task))
    is_local = not any(map(is_stored, compared))
    check = f"; '{shlex.join(['vlcpctl', 'check', *compared])}' shows them" if is_local else ""
    raise BadInput(
        f"{int(leaked_N.sum())} of {len(leaked_N)} training pairs of {what} have a test image "
        f"({where}), and nothing is trained: keys {keys}; {advice}{check}"
    )


def _warn_of_late_guards(lines: Lines) -> None:
    """Warn of guards new in this week of which earlier training data have images."""
    if not lines.unmeasured:
        return
    state, tests = lines.state, lines.tests()
    trained = {f"week {one.week}": state.task(one) for one in lines.head[1:]}
    earlier = state.task(lines.head[0])
    trained |= {"--buffer-from": earlier} if earlier.exists() else {}
    for name in (one for one in tests if one.startswith("guard ")):
        task = open_task(tests[name])
        if not any(one.startswith(task.id) for one in lines.unmeasured):
            continue
        guard = images_of(task, "test")
        known = {
            what: guard.among(images_of(open_task(path), "train")) for what, path in trained.items()
        }
        if where := [what for what, known_N in known.items() if known_N.any()]:
            count = int(np.any(list(known.values()), axis=0).sum())
            warn(
                f"{count} of {len(guard)} test images of {name} are in data that {state.root} has "
                f"trained on already ({some_names(where)}): the model may know them by heart; a "
                "guard of other images says more"
            )

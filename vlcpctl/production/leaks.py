"""Test images among the pairs to train on: looked for after a split, before anything is trained.

Images are the same if the bytes of their files are. Shapes: N pairs for training, T captions.
"""

from __future__ import annotations

import shlex

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.core.console import say, warn
from vlcpctl.core.errors import BadInput, some_names
from vlcpctl.data.splitting.leaving_out import images_of
from vlcpctl.data.tasks.task import Split, Task, open_task
from vlcpctl.files.stores import is_stored
from vlcpctl.production.lines import Lines

_SHOWN = 3  # keys
_ITSELF = "its own test split"


def refuse_leaks(lines: Lines) -> None:
    """Raise BadInput if a pair to train on has an image of a guard or of the test of a week.

    Looked at are the pairs of the attempt, and those of --reference. Says what is no leak, but
    worth a look: captions of guards, and guards of which earlier weeks have the images.
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
    if "train" in task.manifest.splits:
        _say_shared_captions(lines, task.split("train"))
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


def _say_shared_captions(lines: Lines, train: Split) -> None:
    """Say how many training pairs have a caption of a guard, with another image."""
    for name, path in lines.tests().items():
        if not name.startswith("guard "):
            continue
        guard_T = _captions(open_task(path).split("test"))
        found_T = pc.is_in(_captions(train), value_set=guard_T).to_numpy(zero_copy_only=False)
        row_T = np.repeat(np.arange(len(train)), train.caption_counts())
        pairs = len(np.unique(row_T[found_T]))
        if pairs:
            say(
                f"{lines.state.root}: week {lines.made.week}: {pairs} of {len(train)} training "
                f"pairs have a caption that {name} has, with another image; they are trained on"
            )


def _captions(split: Split) -> pa.Array:
    """(T,) all captions of a split, which share its memory."""
    ends, text = split.texts()
    buffers = [None, pa.py_buffer(np.ascontiguousarray(ends)), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.large_string(), len(ends) - 1, buffers)


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

"""The new data of a week: an id of its content, what is left out, and leaks of test images.

Images are the same if the bytes of their files are. Shapes: N pairs for training.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from vlcpctl.core.errors import BadInput, some_names
from vlcpctl.data.sources.identity import identify
from vlcpctl.data.sources.pairs import check
from vlcpctl.data.splitting import writing
from vlcpctl.data.splitting.leaving_out import Counts, images_of
from vlcpctl.data.splitting.plan import Plan, plan_of
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.tasks.task import Task, open_task
from vlcpctl.files.ids import canonical_json, content_id
from vlcpctl.files.stores import is_stored, protocol_of, stored
from vlcpctl.production.lines import Lines
from vlcpctl.production.settings import Settings
from vlcpctl.production.state import Sections, State, shown_path

_SHOWN = 3  # keys of leaks
_ITSELF = "its own test split"


def content_of(data: Sequence[str], settings: Settings, state: State) -> str:
    """An id of the bytes of the sources: neither their names nor paths count.

    Raises UsageError or BadInput as `split` does.
    """
    plan = _plan(data, settings, state.root, ())
    found = identify(plan.inputs, plan.columns, None)
    return content_id(sorted(canonical_json(one) for one in found.values()))


def list_urls(sections: Sections) -> None:
    """List what is at the URLs that settings have, so that it can be read.

    Raises BadInput if nothing is there any more, and else as `stored` does.
    """
    every = [pair for values in sections.values() for pair in values.items()]
    for option, value in every:
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str) and protocol_of(one):
                try:
                    stored(one)
                except BadInput as error:
                    raise BadInput(f"{error}; --{option} gives its new place") from error


def all_left_out(
    data: Sequence[str], settings: Settings, root: Path, left_out: Sequence[Path]
) -> Counts | None:
    """The pairs of a week by reason and list, if all of them are left out; None if one is not.

    None, too, if the data cannot be read: the split says what is wrong with them.
    """
    if not left_out:
        return None
    with suppress(BadInput):
        return writing.all_left_out(_plan(data, settings, root, left_out))
    return None


def _plan(data: Sequence[str], settings: Settings, root: Path, left_out: Sequence[Path]) -> Plan:
    """What the split of a week reads. Raises UsageError or BadInput as `split` does."""
    how = {name.replace("-", "_"): one for name, one in settings.sections["split"].items()}
    how.pop("holdout_most", None)
    how["image_root"] = [str(shown_path(root, one)) for one in how.get("image_root", ())]
    plan = plan_of(SplitOptions(sources=list(data), by="all:week", not_=list(left_out), **how))
    for file in plan.files:
        check(file, plan.columns)
    return plan


def refuse_leaks(lines: Lines) -> None:
    """Raise BadInput if a pair to train on has an image of a guard or of the test of a week.

    Looked at are the pairs of the attempt, and those of --reference.
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

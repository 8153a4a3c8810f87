"""The rules that scan the data once before they can assign pairs: by class and by time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.core.seeds import generator
from vlcpctl.data.pairs import Pair
from vlcpctl.data.rules import ByClass, ByTime, Value, numbered
from vlcpctl.data.seen import scratch_table

MAX_TASKS = 1000
MAX_CLASSES = 100_000
NO_CLASSES = "(too many for classes; choose another column with --label-column)"
_ADD = """
INSERT INTO scratch VALUES (?, ?)
ON CONFLICT (value) DO UPDATE SET pairs = pairs + excluded.pairs
"""


def by_class(batches: Iterable[list[Pair]], tasks: int, seed: int) -> ByClass:
    """Divide the classes among the tasks in random order; their numbers differ by at most one.

    Raises BadInput if there are fewer classes than tasks, or more than MAX_CLASSES.
    """
    labels: set[str] = set()
    for batch in batches:
        labels.update(pair.label for pair in batch if pair.label is not None)
        if len(labels) > MAX_CLASSES:
            raise BadInput(f"more than {MAX_CLASSES} labels {NO_CLASSES}")
    if len(labels) < tasks:
        found = f"{len(labels)} classes" if labels else "no class label"
        raise BadInput(f"--by classes --tasks {tasks}: the data has {found} (see --label-column)")
    order = generator(seed, "classes").permutation(len(labels)).tolist()
    task_of_label = {
        label: place * tasks // len(labels)
        for place, label in zip(order, sorted(labels), strict=True)
    }
    return ByClass(numbered("classes", tasks), task_of_label)


def by_time(batches: Iterable[list[Pair]], column: str, tasks: int | None, scratch: Path) -> ByTime:
    """Divide the values of a column into consecutive intervals, one per task.

    If `tasks` is None, every value is a task. Otherwise the tasks are as equal in pairs as
    possible; pairs with the same value always stay together. The values are counted in a file at
    `scratch`. Raises BadInput if the values cannot be ordered or do not fill the tasks, and
    UsageError if `tasks` is None and there are more than MAX_TASKS values.
    """
    with scratch_table(scratch, "value PRIMARY KEY, pairs INTEGER") as database:
        kinds: set[bool] = set()
        for batch in batches:
            counts = Counter(
                pair.value for pair in batch if pair.value is not None and pair.value == pair.value
            )
            kinds.update(isinstance(value, str) for value in counts)
            if len(kinds) > 1:
                raise BadInput(
                    f"column {column!r} has both text and numbers, which cannot be ordered"
                )
            database.executemany(_ADD, counts.items())
        values, total = database.execute("SELECT count(*), sum(pairs) FROM scratch").fetchone()
        if not values:
            raise BadInput(f"no pair has a value in column {column!r}")
        if tasks is None and values > MAX_TASKS:
            raise UsageError(
                f"column {column!r} has {values} values, too many for one task each; give --tasks"
            )
        rows = database.execute("SELECT value, pairs FROM scratch ORDER BY value")
        return _cut(rows, column, tasks, total)


def _cut(rows: Iterable[tuple[Value, int]], column: str, tasks: int | None, total: int) -> ByTime:
    firsts: list[Value] = []
    lasts: list[Value] = []
    task, before = -1, 0
    for value, pairs in rows:
        # The interval that contains the midpoint of this value's pairs.
        wanted = (
            task + 1 if tasks is None else min(int((before + pairs / 2) * tasks / total), tasks - 1)
        )
        before += pairs
        if wanted > task + 1:
            found = f"value {value!r} of column {column!r} alone fills more than one task"
            raise BadInput(f"{found}; give fewer than {tasks} --tasks")
        if wanted > task:
            firsts.append(value)
            lasts.append(value)
        lasts[-1] = value
        task = wanted
    if tasks is not None and len(firsts) < tasks:
        found = f"the values of column {column!r} fill only {len(firsts)} tasks"
        raise BadInput(f"{found}; give fewer than {tasks} --tasks")
    names = [
        str(first) if first == last else f"{first} to {last}"
        for first, last in zip(firsts, lasts, strict=True)
    ]
    return ByTime(names, firsts, column)

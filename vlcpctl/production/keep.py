"""What a state keeps: weights that no later call can need go, and with --keep those of old weeks.

With --keep N, the last N weeks have weights, buffer and pairs. Older ones keep their rows, ranks,
verdicts and reports, the images that later models are evaluated on, and the keys and kept columns
of their other pairs in `trimmed.parquet`, which is written first: the next call completes what a
kill left.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vlcpctl.core.console import say
from vlcpctl.core.errors import some_names
from vlcpctl.data.splitting.leaving_out import KnownKeys
from vlcpctl.data.tasks.task import Task, open_stream
from vlcpctl.deletion.tars import Tars
from vlcpctl.deletion.tasks import Drop, mirror, rewrite_stream
from vlcpctl.evaluation.embedding_cache import prune
from vlcpctl.files.outputs import new_part, output_at, rewriting
from vlcpctl.production.state import MAKING, TRAINED, Attempt, State

_WEIGHTS = ("buffer", TRAINED, "checkpoint")  # in this order


def keep(state: State) -> None:
    """Remove what is not to be kept once the head is what it is now."""
    head = state.head()
    own = head[-1].settings["update"]
    index, wanted = str(own.get("index-week", "0")), own.get("keep")
    in_use = [head[0], head[-1], *(one for one in head if str(one.week) == index)]
    prune(state.embeddings, {one.checkpoint for one in in_use})
    old = [] if wanted is None else head[1 : max(len(head) - int(wanted), 1)]
    for one in state.attempts.values():
        if one.id in state.counting:
            _discard_weights(state, one, but=state.made(one, ""))  # those of a lost training
        else:
            _trim_other(state, one, len(old))
    todo = [x for x in old if x not in in_use and state.made(x, "checkpoint").exists()]
    for one in todo:
        _trim(state, one)
    if todo:
        weeks = some_names([f"week {one.week}" for one in todo])
        say(f"{state.root}: {weeks}: no weights, buffer and pairs any more (--keep {wanted})")


def _trim_other(state: State, one: Attempt, old: int) -> None:
    """Remove what no later call needs of an attempt that does not count; `old` weeks are trimmed.

    One that was rolled back stays whole until its week is trimmed, and has its pairs for as long as
    no accepted week has the same data.
    """
    last = state.head()[-1]
    if one.counted and one.week <= old:
        _discard_weights(state, one)
        if one.data in {other.data for other in state.head()}:
            state.discard(state.place(one) / "stream")
    elif not one.counted and one.parent != last.id:
        _discard_weights(state, one)
        if one.status == MAKING:
            state.discard(state.place(one))


def _discard_weights(state: State, one: Attempt, *, but: Path | None = None) -> None:
    for draw in sorted(state.place(one).glob("draw-*")):
        for path in sorted(draw.iterdir()) if draw != but else ():
            if path.name in _WEIGHTS or output_at(path) is not None:
                state.discard(path)


def _trim(state: State, one: Attempt) -> None:
    stream = state.place(one) / "stream"
    (task,) = open_stream(stream)
    if not state.trimmed(one).exists():
        with new_part(state.trimmed(one)) as temporary:
            KnownKeys.of(task).write(temporary)
        state.observe(f"marked {one.week}")
    drop = Drop(frozenset(_not_evaluated(task, one.settings["update"].get("sample"))))
    if drop.keys:
        with rewriting(stream) as target:
            target.mkdir()
            mirror(stream, target)
            rewrite_stream(stream, target, Tars(), drop)
        state.observe(f"rewritten {one.week}")
    for name in _WEIGHTS:
        state.discard(state.made(one, name))
        state.observe(f"without {name} {one.week}")


def _not_evaluated(task: Task, count: int | None) -> Iterator[str]:
    """The keys of the pairs on which no later model is evaluated."""
    for name in task.manifest.splits:
        keys = task.split(name).keys
        kept = set(task.split(name, count).keys) if name == "test" else set()
        yield from (key for key in keys if key not in kept)

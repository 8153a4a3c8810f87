"""What a state keeps of old weeks: with --keep N, only the last N have weights, buffer and pairs.

Older ones keep their rows, ranks, verdicts and reports, the images that they are evaluated on, and
the keys and kept columns of their other pairs. `trimmed.parquet` has these and marks such a week;
its checkpoint goes last, so that what a kill leaves is completed by the next call. Weeks that were
rolled back lose their weights, and these and rejected ones their pairs, too, once an accepted week
has the same data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput, UsageError, some_names
from vlcpctl.data.splitting.leaving_out import KnownKeys
from vlcpctl.data.tasks.task import Task, open_stream
from vlcpctl.deletion.tars import Tars
from vlcpctl.deletion.tasks import Drop, mirror, rewrite_stream
from vlcpctl.evaluation.embedding_cache import prune
from vlcpctl.files.digests import verify_files
from vlcpctl.files.outputs import new_part, rewriting
from vlcpctl.production.attempt import Attempt, trained_in
from vlcpctl.production.layout import TRAINED, Layout
from vlcpctl.production.state import State

_RESTORE = "; restore it from a backup"
_WEIGHTS = ("buffer", TRAINED, "checkpoint")  # in this order


def bound(place: Layout, state: State, observe: Callable[[str], None] = lambda _: None) -> None:
    """Remove what the state is not to keep once a week is accepted; for the holder of the lock."""
    used = {state.start.checkpoint, state.checkpoint}
    used |= {one.checkpoint for one in state.weeks if one.number == state.settings.index_week}
    prune(place.embeddings, used)
    trim_weeks(place, state, observe)


def trim_weeks(
    place: Layout, state: State, observe: Callable[[str], None] = lambda _: None
) -> None:
    """Remove weights, buffers and pairs of old weeks; only for the holder of the lock."""
    trimmed = []
    for number in _too_old(state):
        if (place.week(number) / "checkpoint").exists():
            _trim(place, state, number, observe)
            trimmed.append(str(number))
    for week in (*place.rejected(), *place.rolled_back()):
        if int(week.name.partition("-")[0]) in _too_old(state):
            for name in (*_WEIGHTS, *(["stream"] if _is_made_again(state, week) else [])):
                place.discard(week / name)
    if trimmed:
        which = (
            f"week {trimmed[0]} has" if len(trimmed) == 1 else f"weeks {some_names(trimmed)} have"
        )
        say(
            f"{place.root}: {which} no weights, buffer and pairs for training any more "
            f"(--keep {state.settings.kept_weeks})"
        )


def _is_made_again(state: State, week: Path) -> bool:
    """Whether an accepted week has the data of this one, which is not accepted."""
    with suppress(BadInput):  # damaged
        return Attempt.read(week).data in {one.data for one in state.weeks}
    return False


def _too_old(state: State) -> list[int]:
    """The weeks that are not kept whole; that of the deployed index is."""
    keep = state.settings.kept_weeks
    if keep is None:
        return []
    weeks = range(1, state.last - keep + 1)
    return [one for one in weeks if one != state.settings.index_week]


def _trim(place: Layout, state: State, number: int, observe: Callable[[str], None]) -> None:
    week = place.week(number)
    (task,) = open_stream(week / "stream")
    if not place.is_trimmed(number):
        with new_part(place.trimmed(number)) as temporary:
            KnownKeys.of(task).write(temporary)
        observe(f"marked {number}")
    drop = Drop(frozenset(_not_evaluated(task, state.settings.evaluated)))
    if drop.keys:
        with rewriting(week / "stream") as target:
            target.mkdir()
            mirror(week / "stream", target)
            rewrite_stream(week / "stream", target, Tars(), drop)
        observe(f"rewritten {number}")
    for name in _WEIGHTS:
        place.discard(week / name)
        observe(f"without {name} {number}")


def _not_evaluated(task: Task, count: int | None) -> Iterator[str]:
    """The keys of the pairs on which no later model is evaluated."""
    for name in task.manifest.splits:
        keys = task.split(name).keys
        kept = set(task.split(name, count).keys) if name == "test" else set()
        yield from (key for key in keys if key not in kept)


def require_intact(place: Layout, state: State, week: int) -> None:
    """Raise BadInput unless the checkpoint of a week, or of the start (0), is what it was."""
    wanted = state.weeks[week - 1].checkpoint if week else state.start.checkpoint
    checkpoint, trained = place.week(week) / "checkpoint", trained_in(place.week(week))
    for path in dict.fromkeys([checkpoint, trained]):
        require_unchanged_weights(path, wanted if path == checkpoint else None)


def require_unchanged_weights(checkpoint: Path, content: str | None = None) -> None:
    """Raise BadInput if a file of a checkpoint has changed, or it has not this content id."""
    found = CheckpointManifest.read(checkpoint)
    if content is not None and found.content != content:
        raise BadInput(
            f"{checkpoint} is checkpoint {found.content[:12]}, and state.json lists {content[:12]}"
            f"{_RESTORE}"
        )
    verify_files(checkpoint, found.digests, advice=_RESTORE, use_cache=False)


def require_whole(place: Layout, state: State, week: int, what: str) -> None:
    """Raise UsageError if --keep has removed the weights of a week that `what` needs."""
    if week == 0 or not place.is_trimmed(week):
        return
    whole = [str(one.number) for one in state.weeks if not place.is_trimmed(one.number)]
    raise UsageError(
        f"{what}: --keep has removed the weights and pairs of week {week}; there are those of "
        f"{some_names(['the start', *(f'week {one}' for one in whole)])}"
    )

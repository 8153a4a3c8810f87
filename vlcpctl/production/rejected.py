"""The rejected weeks, which stay in `rejected/` with everything but their weights and buffer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput, some_names
from vlcpctl.core.words import counted
from vlcpctl.data.tasks.facts import read_stream
from vlcpctl.files.outputs import output_at
from vlcpctl.production.attempt import Attempt, Judgement, judged_at
from vlcpctl.production.layout import TRAINED, Layout
from vlcpctl.production.ledger import judged_as, record
from vlcpctl.production.state import State

_WITHOUT = frozenset({"checkpoint", "buffer", TRAINED})


def set_aside(place: Layout, state: State, attempt: Attempt, judged: Judgement) -> None:
    """Move the rejected week in `pending/` to `rejected/`; only for the holder of the lock."""
    if place.history.exists():  # else it was rejected before there was a ledger
        with suppress(BadInput):  # its weights are damaged
            checkpoint = CheckpointManifest.read(place.pending / "checkpoint").content
            record(place, [judged_as(state, attempt, judged, checkpoint)])  # after a kill
    target = place.next_rejected(attempt.number)
    place.move(place.pending, target)
    say(f"{place.pending}, the rejected week {attempt.number}, is kept without weights in {target}")


def trim(place: Layout) -> None:
    """Remove the weights and the buffers of rejected weeks; only for the holder of the lock."""
    for week in place.rejected():
        for path in sorted(week.iterdir()):
            if path.name in _WITHOUT or output_at(path) is not None:
                place.discard(path)


def said_of_rejected(place: Layout, state: State, data: str) -> str | None:
    """A sentence on the rejected weeks whose data are in no accepted week; None if all are.

    Not on the week that is being made, from the data with this id.
    """
    found = list(_lost(place, {data, *(week.data for week in state.weeks)}))
    if not found:
        return None
    were, are = ("was", "is") if len(found) == 1 else ("were", "are")
    names, words = zip(*found, strict=True)
    again = some_names([f"--redo {word}" for word in words])
    return (
        f"{some_names(list(names))} {were} rejected and {are} in no later week; {again} trains "
        f"{'it' if len(found) == 1 else 'each'} again"
    )


def _lost(place: Layout, known: set[str]) -> Iterator[tuple[str, str]]:
    """The weeks in words, and as --redo names them."""
    weeks = {}
    for directory in place.rejected():
        with suppress(BadInput):  # damaged
            attempt = Attempt.read(directory)
            weeks[attempt.data] = directory, attempt  # the last time that it was rejected
    for directory, attempt in weeks.values():
        if attempt.data in known:
            continue
        with suppress(BadInput, ValueError):  # ValueError: who wrote a verdict is not sealed
            totals = read_stream(directory / "stream").totals
            pairs = sum(split.images for split in totals.values())
            if pairs:  # else all were forgotten
                time = datetime.fromisoformat(judged_at(directory))
                about = f"{', '.join(attempt.sources)}, {counted(pairs, 'pair')}"
                name = f"week {attempt.number} of {time.day} {time:%b} ({about})"
                yield name, str(directory.relative_to(place.root))

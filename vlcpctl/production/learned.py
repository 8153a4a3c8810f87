"""The models of a state that have learned deleted pairs, for `vlcpctl forget`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from vlcpctl.core.words import Shown
from vlcpctl.deletion.receipt import Receipt
from vlcpctl.production.layout import Layout
from vlcpctl.production.state import read_state


def said_of_learned(receipt: Receipt, shown: Shown) -> Iterator[str]:
    """For each state of which accepted weeks have learned deleted pairs, the line to redo them.

    Raises BadInput if a state cannot be read.
    """
    learned = {(Path(one["path"]), one["content"]) for one in receipt.checkpoints}
    for stop_list in map(Path, receipt.stop_lists):
        place = Layout(stop_list.parent.parent)
        state = read_state(place)
        # A receipt of an earlier call may name models that a redo has replaced since.
        models = {
            one.number: (place.week(one.number) / "checkpoint", one.checkpoint)
            for one in state.weeks
        }
        first = next((number for number, model in models.items() if model in learned), None)
        if first is None:
            continue
        said = f"{shown(place.root)}: the models from week {first} on have learned deleted pairs"
        if place.is_trimmed(first - 1):
            yield f"{said}, also earlier ones, whose weights --keep has removed"
            continue
        words = ["vlcpctl", "update", "--state", shown(place.root), "--redo", str(first)]
        yield f"{said}; '{shlex.join(words)}' trains them again without these"

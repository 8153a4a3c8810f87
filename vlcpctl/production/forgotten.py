"""What a deletion means for the states that it has searched, for `vlcpctl forget`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from vlcpctl.core.words import Shown
from vlcpctl.deletion.receipt import Receipt
from vlcpctl.production.settings import Settings, read_settings
from vlcpctl.production.state import State, has_pairs, opened, shown_path


def record_deletion(receipt: Receipt) -> None:
    """Add a deletion to the events of each state that it searched, once for each receipt.

    Raises BadInput if one cannot be read, and OutputExists if another process uses it.
    """
    for root in _roots(receipt):
        path = os.path.relpath(receipt.path, root)
        with opened(root) as state:
            known = {one.get("receipt") for one in state.events()}
            if path not in known:
                state.change(
                    "forgotten",
                    deletion=receipt.request,
                    pairs=len(receipt.keys),
                    receipt=path,
                    reason=receipt.ticket,
                )


def said_of_learned(receipt: Receipt, shown: Shown) -> Iterator[str]:
    """For each state of which accepted weeks have learned deleted pairs, the line to redo them.

    Raises BadInput if a state cannot be read.
    """
    learned = {(one["path"], one["content"]) for one in receipt.checkpoints}
    for root in _roots(receipt):
        state = State.read(root)
        # A receipt of an earlier call may name models that a redo has replaced since.
        models = [(str(state.made(one, "checkpoint")), one.checkpoint) for one in state.head()]
        first = next((week for week, one in enumerate(models) if week and one in learned), None)
        if first is None:
            continue
        said = f"{shown(root)}: the models from week {first} on have learned deleted pairs"
        if any(state.trimmed(one).exists() for one in state.head()[first - 1 :]):
            yield f"{said}, also earlier ones, whose weights --keep has removed"
            continue
        words = ["vlcpctl", "update", "--state", shown(root), *_redo(state, first)]
        yield f"{said}; '{shlex.join(words)}' leaves them behind"


def _redo(state: State, first: int) -> list[str]:
    """The options that train the weeks from the first one on again, or roll back what has no pairs.

    The model of the index that users have, and files of methods, must be other or given.
    """
    head, settings = state.head(), Settings(read_settings(state.root))
    if not any(has_pairs(state, one) for one in head[first:]):
        return ["--rollback", str(first - 1)]
    words = ["--redo", str(first)]
    if (settings.index_week or 0) >= first:
        words += ["--set", "update.index-week=0"]
    for name in head[-1].files:
        words += ["--method-file", str(shown_path(state.root, name))]
    return words


def _roots(receipt: Receipt) -> list[Path]:
    return [Path(one).parent.parent for one in receipt.stop_lists]

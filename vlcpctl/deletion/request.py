"""A deletion request from its conditions to its receipt, continued if it was interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vlcpctl.core.console import say, warn
from vlcpctl.core.errors import BadInput, OutputExists, some_names
from vlcpctl.core.shown_paths import as_given
from vlcpctl.core.staging import Staging
from vlcpctl.deletion.places import places_under, tops_of, whole
from vlcpctl.deletion.plan import Plan, make_plan
from vlcpctl.deletion.receipt import (
    Receipt,
    earlier_receipts,
    new_receipt,
    next_path,
    was_searched,
)
from vlcpctl.deletion.records import count_matches, matches, record, warnings
from vlcpctl.deletion.remove import Observe, empty_caches, remove, tidy
from vlcpctl.deletion.selectors import Selectors


@dataclass(frozen=True, kw_only=True)
class DeletionRequest:
    """A deletion request: its conditions, where to search, and the file of the receipt if given.

    With `missing_ok`, conditions may select nothing. `ticket` is what the receipt is about.
    """

    selectors: Selectors
    paths: Sequence[Path]
    receipt: Path | None = None
    missing_ok: bool = False
    ticket: str | None = None

    def was_searched(self, path: Path) -> bool:
        """Whether a deletion in this path is known; it may have deleted all of it."""
        return was_searched(path, self.receipt)

    def shown(self, path: str | Path) -> str:
        """A path that was found, as messages have it: as the paths to search were given."""
        return as_given(path, self.paths)


def forget(request: DeletionRequest, observe: Observe = lambda _: None) -> Receipt:
    """Remove the pairs everywhere under the paths; returns the receipt.

    A deletion that the same conditions began is completed. If nothing is left to remove, it is the
    receipt of the last such deletion. Raises BadInput if nothing was found, ever; and as
    `make_plan` and `remove` do, then without a change.
    """
    tops = tops_of(request.paths, request.was_searched)
    receipt, earlier = _receipts(request, tops)
    with Staging(receipt.path).locked():
        tidy(tops)
        plan = _plan(request, tops, receipt, earlier)
        if isinstance(plan, Receipt):
            empty_caches(places_under(tops).caches, request.shown)  # its source may be there again
            return plan
        count_matches(plan, receipt)
        for line in matches(receipt, request.selectors):
            say(line)
        remove(plan, receipt, observe, request.shown)
    for line in warnings(receipt, plan, request.shown):
        warn(line)
    return receipt


def look(request: DeletionRequest) -> Receipt:
    """The receipt that `forget` would begin with; changes nothing. Raises as `forget` does."""
    tops = tops_of(request.paths, request.was_searched)
    receipt, earlier = _receipts(request, tops)
    plan = _plan(request, tops, receipt, earlier)
    if isinstance(plan, Receipt):
        return plan
    record(plan, receipt)
    for line in warnings(receipt, plan, request.shown):
        warn(line)
    return receipt


def _plan(
    request: DeletionRequest, tops: Sequence[Path], receipt: Receipt, earlier: Sequence[Receipt]
) -> Plan | Receipt:
    """The plan; the receipt of the last deletion if nothing is left to remove.

    Raises as `forget` does, and OutputExists rather than replace a finished receipt by one of pairs
    that came later.
    """
    plan = make_plan(request.selectors, tops, receipt, request.shown)
    last = next((one for one in reversed(earlier) if _is_about(request, one)), None)
    if last is not None and not plan.hits and not receipt.is_begun:
        say(f"nothing is left to remove; {request.shown(last.path)} is the receipt of the deletion")
        return last
    if last is not None and request.receipt is not None:
        raise OutputExists(
            f"{last.path} is the receipt of a finished deletion, and there are more pairs now; "
            "choose another --receipt"
        )
    _require_matches(request, plan, receipt, earlier)
    return plan


def _receipts(request: DeletionRequest, tops: Sequence[Path]) -> tuple[Receipt, list[Receipt]]:
    """The receipt to write: a pending one of the same conditions, or a new one; the finished ones.

    Raises OutputExists if the file given for it is something else, or the pending one has another
    ticket.
    """
    wanted = request.selectors.request()
    first = whole(request.paths[0], request.was_searched)
    found = earlier_receipts(request.receipt, first)
    own = [one for one in found if one.request == wanted]
    if request.receipt is not None and found and not own:
        raise OutputExists(
            f"{request.receipt} is the receipt of another deletion; choose another --receipt"
        )
    for one in found:
        if one.is_pending and one not in own:
            warn(
                f"{request.shown(one.path)} is of a deletion that was interrupted; "
                "run its command again"
            )
    pending = [one for one in own if one.is_pending]
    finished = [one for one in own if not one.is_pending]
    if pending:
        if not _is_about(request, pending[-1]):
            raise OutputExists(
                f"{request.shown(pending[-1].path)} is of a deletion of these pairs that was "
                f"interrupted, with --ticket {pending[-1].ticket!r}; finish it first"
            )
        say(f"resuming the deletion of {request.shown(pending[-1].path)}")
        return pending[-1], finished
    path = next_path(request.receipt, first)
    return new_receipt(path, request.selectors, tops, request.ticket), finished


def _is_about(request: DeletionRequest, receipt: Receipt) -> bool:
    """Whether a receipt has the ticket of the request, or that has none."""
    return request.ticket in {None, receipt.ticket}


def _require_matches(
    request: DeletionRequest, plan: Plan, receipt: Receipt, earlier: Sequence[Receipt]
) -> None:
    """Refuse conditions that select nothing, and never have: they may be mistyped.

    An interrupted deletion was not refused when it began. Raises BadInput, naming them.
    """
    if request.missing_ok or receipt.is_begun:
        return
    known = np.array(plan.pairs.counts(request.selectors))
    for one in earlier:
        known += [entry.get("pairs", 1) for entry in one.selectors]
    if not known.any():
        places = ", ".join(map(str, request.paths))
        raise BadInput(
            f"no pair under {places} matches; nothing was changed and no receipt written; "
            "--missing-ok accepts this"
        )
    words = request.selectors.words()
    missing = [one for one, count in zip(words, known.tolist(), strict=True) if not count]
    if missing:
        raise BadInput(
            f"no pair matches {some_names(missing)}; nothing was changed; correct or leave them "
            "out, or --missing-ok removes what the others select"
        )

"""A deletion request from its conditions to its receipt, continued if it was interrupted.

Everything is searched and recorded in the receipt, which is written; the pairs are removed, until
another search finds none; and the receipt is finished.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.core.console import say, warn
from vlcpctl.core.errors import BadInput, OutputExists, missing, some_names
from vlcpctl.core.words import as_given, counted
from vlcpctl.data.splitting.leaving_out import (
    add_to_stop_list,
    read_stop_list,
    stop_list_path,
)
from vlcpctl.deletion import receipt as receipts
from vlcpctl.deletion.places import (
    TRIMMED,
    UNFINISHED,
    Artifact,
    Places,
    places_under,
    tops_of,
    whole,
)
from vlcpctl.deletion.receipt import PENDING, Receipt, now
from vlcpctl.deletion.remove import empty_caches, find_pairs, refuse_reachable, remove
from vlcpctl.deletion.selectors import Condition, select
from vlcpctl.deletion.tars import Tars
from vlcpctl.deletion.tasks import Drop
from vlcpctl.files.ids import content_id
from vlcpctl.files.outputs import Output

_ROUNDS = 3  # another process may write more while pairs are removed
_COMPUTED = ("targets", "pseudo-texts")
_MAY_HAVE_THEM = ("checkpoint", "export", UNFINISHED)  # named if their data is not there
_TRAINED = frozenset({"train", "val"})  # splits that a model depends on; others are only evaluated


@dataclass(frozen=True, kw_only=True)
class DeletionRequest:
    """A deletion request: its conditions, where to search, and the file of the receipt if given.

    With `missing_ok`, conditions may select nothing. `ticket` is what the receipt is about.
    """

    conditions: Sequence[Condition]
    paths: Sequence[Path]
    receipt: Path | None = None
    missing_ok: bool = False
    ticket: str | None = None

    def shown(self, path: str | Path) -> str:
        """A path that was found, as messages have it: as the paths to search were given."""
        return as_given(path, self.paths)


def forget(request: DeletionRequest) -> Receipt:
    """Remove the pairs everywhere under the paths; returns the receipt.

    A deletion that the same conditions began is completed. If nothing is left to remove, it is the
    receipt of the last such deletion. Raises BadInput or OutputExists before anything is changed;
    OutputExists also if another process writes such data, and OSError if the disk is full: the same
    call then removes the rest.
    """
    receipt, finished = _receipts(request)
    with Output(receipt.path).locked():
        tidy(map(Path, receipt.paths))
        places, drop = _search(request, receipt)
        if last := _last(request, places, receipt, finished):
            empty_caches(places.caches, request.shown)  # its source may be there again
            return last
        for _ in range(_ROUNDS):
            _remove(request, places, drop, receipt)
            places, drop = _search(request, receipt)
            if not places.hits:
                break
        else:
            raise OutputExists(
                f"{request.shown(places.hits[0].path)} contains the pairs again: another process "
                "writes them; run the same command again when it has ended"
            )
        stored = {str(one.path): one for one in places.stored}
        for entry in receipt.artifacts:
            if entry["action"] == "rewritten" and (one := stored.get(entry["path"])):
                entry["after"] = {"content": one.content}
        say(f"a second search of {counted(len(stored), 'artifact')} finds 0 pairs")
        receipt.second_search = {"time": now(), "artifacts": len(stored), "pairs": 0}
        receipt.state = "not removed from foreign tars" if receipt.foreign else "finished"
        receipt.finished = now()
        receipt.write()
    _warn(request, receipt)
    return receipt


def look(request: DeletionRequest) -> Receipt:
    """The receipt that `forget` would begin with; changes nothing. Raises as `forget` does."""
    receipt, finished = _receipts(request)
    places, _ = _search(request, receipt)
    if last := _last(request, places, receipt, finished):
        return last
    _warn(request, receipt)
    return receipt


def _warn(request: DeletionRequest, receipt: Receipt) -> None:
    text = "\n".join(receipt.notes or ())
    for path in request.paths:
        text = text.replace(os.path.realpath(path), str(path))
    for line in text.splitlines():
        warn(line)


def tidy(tops: Iterable[Path]) -> None:
    """Delete what dead writers left under the paths, and complete their swaps.

    Raises OutputExists if another process is writing there: what it writes may contain the pairs.
    """
    for staging in places_under(tops).hidden:
        with staging.locked():
            pass


def _receipts(request: DeletionRequest) -> tuple[Receipt, list[Receipt] | None]:
    """The receipt to write, and the finished ones of the same conditions; None if it was begun.

    Raises OutputExists if the file given for it is something else, or that which was begun has
    another ticket, and BadInput for a path that does not exist, unless a deletion has deleted it.
    """
    first, paths = whole(request.paths[0]), [str(top) for top in tops_of(request.paths)]
    described = [one.described() for one in request.conditions]
    wanted = content_id(described)
    found = receipts.receipts_about(first, request.receipt)
    own = [one for one in found if one.request == wanted]
    own = [one for one in own if one.state != PENDING or {*one.paths} <= {*paths}]
    if request.receipt is not None and found and not own:
        raise OutputExists(
            f"{request.receipt} is the receipt of another deletion; choose another --receipt"
        )
    for one in (one for one in found if one.state == PENDING and one not in own):
        path = request.shown(one.path)
        warn(f"{path} is of a deletion that was interrupted; run its command again")
    deleted = {path for one in own for path in one.paths}
    for given in request.paths:
        around_it = {str(at) for at in (whole(given), *whole(given).parents)}
        if not os.path.lexists(whole(given)) and around_it.isdisjoint(deleted):
            raise BadInput(missing(given))
    for begun in (one for one in reversed(own) if one.state == PENDING):
        path = request.shown(begun.path)
        if request.ticket not in {None, begun.ticket}:
            raise OutputExists(
                f"{path} is of a deletion of these pairs that was interrupted, with --ticket "
                f"{begun.ticket!r}; finish it first"
            )
        say(f"resuming the deletion of {path}")
        begun.paths = paths
        return begun, None
    new = Receipt(
        path=request.receipt or receipts.next_path(first),
        ticket=request.ticket,
        request=wanted,
        started=now(),
        paths=paths,
        selectors=described,
    )
    return new, own


def _last(
    request: DeletionRequest, places: Places, receipt: Receipt, finished: Sequence[Receipt] | None
) -> Receipt | None:
    """The receipt of the last deletion if nothing is left to remove.

    Raises BadInput for conditions that select nothing, and never have: they may be mistyped. And
    OutputExists rather than replace a finished receipt by one of pairs that came later.
    """
    if finished is None:  # was not refused when it began
        return None
    of_ticket = [one for one in finished if request.ticket in {None, one.ticket}]
    if of_ticket and not places.hits:
        path = request.shown(of_ticket[-1].path)
        say(f"nothing is left to remove; {path} is the receipt of the deletion")
        return of_ticket[-1]
    if finished and request.receipt is not None:
        raise OutputExists(
            f"{request.receipt} is the receipt of a finished deletion; choose another --receipt"
        )
    every = zip(*(one.selectors for one in (*finished, receipt)), strict=True)
    counts = [sum(entry.get("pairs", 1) for entry in entries) for entries in every]
    lacking = [str(one) for one, count in zip(request.conditions, counts, strict=True) if not count]
    if lacking and not request.missing_ok:
        raise BadInput(
            f"no pair under {', '.join(map(str, request.paths))} matches {some_names(lacking)}; "
            "nothing was changed; --missing-ok removes what the other conditions select"
        )
    return None


def _search(request: DeletionRequest, receipt: Receipt) -> tuple[Places, Drop]:
    """Find the pairs that the conditions select, and those that the receipt has already.

    What is found is added to the receipt; what it has from before an interruption stays. Nothing is
    changed. Raises BadInput if an artifact is damaged or its data is reachable from elsewhere, and
    OutputExists if an unfinished run needs it.
    """
    places, tars = places_under(map(Path, receipt.paths)), Tars()
    selected = select(places.stored, request.conditions, tars, receipt.keys)
    places.hits = find_pairs(places.stored, selected.drop, tars)
    refuse_reachable(places, request.shown)
    keys = {key for one in places.hits for key in one.keys} - selected.evicted
    for one, entry in zip(request.conditions, receipt.selectors, strict=True):
        count = int(one.value in keys) if one.by == "key" else len(selected.matched.get(one, ()))
        entry["pairs"] = max(entry.get("pairs", 0), count)
    receipt.keys = sorted(keys.union(receipt.keys))
    receipt.images = sorted(selected.images.union(receipt.images))
    receipt.foreign |= sum((one.foreign for one in places.hits), Counter[str]())
    receipt.caches = sorted(map(str, places.caches))
    states = sorted(places.states)
    receipt.stop_lists = [str(stop_list_path(state, receipt.request)) for state in states]
    known = {entry["path"] for entry in receipt.artifacts}
    receipt.artifacts += [one.entry() for one in places.hits if str(one.path) not in known]
    _add_dependents(places, receipt)
    if receipt.notes is None:  # once the pairs are gone, not all is known any more
        receipt.notes = list(receipts.notes(receipt, places, selected))
    return places, selected.drop


def _add_dependents(places: Places, receipt: Receipt) -> None:
    """Add the models that depend on the pairs, also by way of others, and what is not known."""
    trained = [one for one in places.hits if one.kind in _COMPUTED or _TRAINED & {*one.removed}]
    affected = {content for one in trained for content in one.ids}
    made = (*_MAY_HAVE_THEM, *_COMPUTED, "embeddings")
    left = {one: one.data | one.models for one in places.stored if one.kind in made}
    chosen: list[Artifact] = []
    while more := [one for one, ids in left.items() if not affected.isdisjoint(ids)]:
        chosen += more
        affected.update(content for one in more for content in one.ids)
        left = {one: ids for one, ids in left.items() if one not in more}
    of_data = [one for one in places.stored if one.kind in {"task", *_COMPUTED, TRIMMED}]
    data = {content for one in of_data for content in one.ids}
    unknown = [one for one in left if one.kind in _MAY_HAVE_THEM and not one.data <= data]
    for listed, found in (
        (receipt.checkpoints, [one for one in chosen if one.is_model]),
        (receipt.unknown, unknown),
    ):
        known = {entry["path"] for entry in (*receipt.checkpoints, *listed)}  # by an earlier search
        listed += [one.named() for one in found if str(one.path) not in known]
        listed.sort(key=lambda entry: entry["path"])


def _remove(request: DeletionRequest, places: Places, drop: Drop, receipt: Receipt) -> None:
    """Write the pending receipt and the stop lists, and remove the pairs."""
    with ExitStack() as locks:
        for one in places.units():
            locks.enter_context(Output(one.path).locked())
        stop_lists = [Path(path) for path in receipt.stop_lists]
        for path in filter(Path.exists, stop_lists):
            read_stop_list(path)  # damaged, it is refused before anything is changed
        receipt.write()
        described = [one.described() for one in request.conditions]
        for path in stop_lists:
            add_to_stop_list(path, receipt.request, described, receipt.keys)
        remove(places, drop, request.shown)
    empty_caches(places.caches, request.shown)
    tidy(map(Path, receipt.paths))

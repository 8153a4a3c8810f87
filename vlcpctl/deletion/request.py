"""A deletion request from its conditions to its receipt, continued if it was interrupted.

Everything is searched and recorded in the receipt, which is written; the pairs are removed, until
another search finds none; and the receipt is finished.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import vlcpctl
from vlcpctl.core.console import say, warn
from vlcpctl.core.errors import BadInput, OutputExists, some_names
from vlcpctl.core.words import Shown, as_given, counted
from vlcpctl.data.splitting.known_keys import FILES_0_3
from vlcpctl.data.splitting.stop_lists import add_to_stop_list, read_stop_list, stop_list_path
from vlcpctl.deletion.kinds import KINDS, Hit, Search, all_files, hits_in
from vlcpctl.deletion.lineage import Dependent, affected, dependents, ids_of, outdated_parts
from vlcpctl.deletion.pairs import Pairs, find
from vlcpctl.deletion.places import (
    TEXTS,
    TRIMMED,
    Places,
    Stored,
    is_left_over,
    places_under,
    tops_of,
    whole,
)
from vlcpctl.deletion.receipt import (
    Entry,
    Receipt,
    earlier_receipts,
    matches,
    mentions,
    next_path,
    now,
    warnings,
    was_searched,
)
from vlcpctl.deletion.selectors import Condition
from vlcpctl.deletion.tars import Tars, inode_of
from vlcpctl.deletion.tasks import Drop, mirror
from vlcpctl.files.digests import digests_of
from vlcpctl.files.ids import content_id
from vlcpctl.files.manifest import MANIFESTS
from vlcpctl.files.outputs import Output, link_or_copy, output_at, remove, rewriting, sync
from vlcpctl.files.stores import empty_cache

Observe = Callable[[str], None]  # called with the name of each point at which a kill is tested
_ROUNDS = 3  # another process may write more while pairs are removed
_DATA = ("task", "targets", TEXTS, TRIMMED)
_WITHOUT_DATA = frozenset(MANIFESTS.values())  # with labels at most, and content ids


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

    def is_about(self, receipt: Receipt) -> bool:
        """Whether a receipt has the ticket of the request, or that has none."""
        return self.ticket in {None, receipt.ticket}


@dataclass
class Plan:
    """What a search found: the pairs, what contains them, and unfinished work to delete."""

    tops: Sequence[Path]
    places: Places
    drop: Drop
    hits: list[Hit]
    parts: list[Path]

    def units(self) -> list[Hit]:
        """One hit of each output to rewrite or delete, outputs inside of others first."""
        found = {hit.stored.unit: hit for hit in self.hits if hit.stored.kept is None}
        return [found[path] for path in sorted(found, key=lambda one: (-len(one.parts), one))]


def forget(request: DeletionRequest, observe: Observe = lambda _: None) -> Receipt:
    """Remove the pairs everywhere under the paths; returns the receipt.

    A deletion that the same conditions began is completed. If nothing is left to remove, it is the
    receipt of the last such deletion. Raises BadInput or OutputExists before anything is changed;
    OutputExists also if another process writes such data, and OSError if the disk is full: the same
    call then removes the rest.
    """
    tops, receipt, finished = _receipts(request)
    with Output(receipt.path).locked():
        tidy(tops)
        plan = _search(request, tops, receipt)
        if last := _last(request, plan, receipt, finished):
            _empty(places_under(tops).caches, request.shown)  # its source may be there again
            return last
        for line in matches(receipt, request.conditions):
            say(line)
        plan = _remove(request, plan, receipt, observe)
    for line in warnings(receipt, plan.places, request.shown):
        warn(line)
    return receipt


def look(request: DeletionRequest) -> Receipt:
    """The receipt that `forget` would begin with; changes nothing. Raises as `forget` does."""
    tops, receipt, finished = _receipts(request)
    plan = _search(request, tops, receipt)
    if last := _last(request, plan, receipt, finished):
        return last
    for line in warnings(receipt, plan.places, request.shown):
        warn(line)
    return receipt


def tidy(tops: Iterable[Path]) -> None:
    """Delete what dead writers left under the paths, and complete their swaps.

    Raises OutputExists if another process is writing there: what it writes may contain the pairs.
    """
    for output in places_under(tops).hidden:
        with output.locked():
            pass


def _receipts(request: DeletionRequest) -> tuple[list[Path], Receipt, list[Receipt]]:
    """The paths to search, the receipt to write, and the finished ones of the same conditions.

    It is a pending one, or a new one. Raises OutputExists if the file given for it is something
    else, or the pending one has another ticket.
    """

    def was(path: Path) -> bool:
        return was_searched(path, request.receipt)

    tops = tops_of(request.paths, was)
    first = whole(request.paths[0], was)
    described = [one.described() for one in request.conditions]
    wanted = content_id(described)
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
    finished = [one for one in own if not one.is_pending]
    for pending in (one for one in reversed(own) if one.is_pending):
        if not request.is_about(pending):
            raise OutputExists(
                f"{request.shown(pending.path)} is of a deletion of these pairs that was "
                f"interrupted, with --ticket {pending.ticket!r}; finish it first"
            )
        say(f"resuming the deletion of {request.shown(pending.path)}")
        return tops, pending, finished
    new = Receipt(
        path=next_path(request.receipt, first),
        ticket=request.ticket,
        request=wanted,
        started=now(),
        paths=[str(top) for top in tops],
        selectors=described,
        versions={"vlcpctl": vlcpctl.__version__, "python": platform.python_version()},
    )
    return tops, new, finished


def _last(
    request: DeletionRequest, plan: Plan, receipt: Receipt, finished: Sequence[Receipt]
) -> Receipt | None:
    """The receipt of the last deletion if nothing is left to remove.

    Raises BadInput for conditions that select nothing, and never have: they may be mistyped. And
    OutputExists rather than replace a finished receipt by one of pairs that came later.
    """
    if receipt.is_begun:  # was not refused when it began
        return None
    last = next((one for one in reversed(finished) if request.is_about(one)), None)
    if last is not None and not plan.hits:
        say(f"nothing is left to remove; {request.shown(last.path)} is the receipt of the deletion")
        return last
    if finished and request.receipt is not None:
        raise OutputExists(
            f"{finished[-1].path} is the receipt of a finished deletion; choose another --receipt"
        )
    known = np.array([entry["pairs"] for entry in receipt.selectors])
    for one in finished:
        known += [entry.get("pairs", 1) for entry in one.selectors]
    missing = [str(one) for one, count in zip(request.conditions, known, strict=True) if not count]
    if missing and not request.missing_ok:
        raise BadInput(
            f"no pair under {', '.join(map(str, request.paths))} matches {some_names(missing)}; "
            "nothing was changed; --missing-ok removes what the other conditions select"
        )
    return None


def _search(request: DeletionRequest, tops: Sequence[Path], receipt: Receipt) -> Plan:
    """Find the pairs that the conditions select, and those that the receipt has already.

    What is found is added to the receipt; what it has from before an interruption stays. Nothing is
    changed. Raises BadInput if an artifact is damaged or its data is reachable from outside of
    `tops`, and OutputExists if unfinished work needs it.
    """
    places, tars = places_under(tops), Tars()
    pairs = find(places, request.conditions, tars, receipt.keys)
    made = dependents(places.stored)
    hits = hits_in(places, Search(pairs.drop, tars), made)
    _refuse_other_links(places, hits, request.shown)
    ids = {one: ids_of(one) for one in places.stored if one.kind in _DATA}
    known = {content for found in ids.values() for content in found}
    touched = {one for hit in hits if hit.kind != TRIMMED for one in ids.get(hit.stored, ())}
    trained = {one for hit in hits if hit.trains for one in ids.get(hit.stored, ())}
    parts = outdated_parts(places.unfinished, touched, known, request.shown)
    plan = Plan(tops, places, pairs.drop, hits, parts)
    _record(request, plan, pairs, receipt)
    chosen, exports = affected(made, trained), places.of("export")
    _add(receipt.checkpoints, (one for one in chosen if one.about))
    # One that was chosen before an interruption is known.
    listed = {*(one.path for one in chosen), *(Path(one["path"]) for one in receipt.checkpoints)}
    others = [one for one in made if one.path not in listed and not one.data <= known]
    _add(receipt.unknown, (one for one in others if one.about or one.path in exports))
    return plan


def _record(request: DeletionRequest, plan: Plan, pairs: Pairs, receipt: Receipt) -> None:
    places, hits = plan.places, plan.hits
    keys = {key for hit in hits for key in hit.keys}
    receipt.keys = sorted(keys.union(receipt.keys))
    wanted = {one.value for one in request.conditions if one.by == "key"}
    receipt.not_found = sorted(wanted.difference(receipt.keys))
    for one, entry in zip(request.conditions, receipt.selectors, strict=True):
        in_any = int(one.by == "key" and one.value in keys)  # in targets alone, too
        entry["pairs"] = max(entry.get("pairs", 0), len(pairs.matched.get(one, ())), in_any)
    receipt.stop_lists = [
        str(stop_list_path(state, receipt.request)) for state in sorted(places.states)
    ]
    receipt.images = sorted(pairs.images.union(receipt.images))
    receipt.evicted = max(receipt.evicted, len(plan.drop.evicted))
    receipt.foreign |= dict(sorted(sum((hit.foreign for hit in hits), Counter[str]()).items()))
    receipt.caches = sorted(map(str, places.caches))
    receipt.without_column = len(pairs.unlabelled)
    # Once the pairs are gone, their images are not known any more.
    receipt.same_image = max(receipt.same_image, len(pairs.same_image))
    receipt.not_searched = {"files": len(places.others), "links": len(places.skipped)}
    known = {one.path for one in receipt.artifacts}
    receipt.artifacts += [one for one in _entries(plan) if one.path not in known]


def _entries(plan: Plan) -> Iterator[Entry]:
    """What will be done; the digests of files are not computed yet."""
    streams = {hit.stored.unit for hit in plan.units()}.difference(hit.path for hit in plan.hits)
    changed = [Hit(Stored(one, "stream", one), "stream", files=["stream.json"]) for one in streams]
    for hit in (*plan.hits, *sorted(changed, key=lambda one: one.path)):
        before = {"content": _content(hit.stored), "files": dict.fromkeys(hit.files)}
        yield Entry(
            str(hit.path), hit.kind, hit.action, hit.removed, before, again=hit.again or None
        )
    for path in plan.parts:
        before = {"content": None, "files": {}}
        yield Entry(str(path), "unfinished work", "deleted", {}, before)


def _add(listed: list[dict[str, Any]], models: Iterable[Dependent]) -> None:
    """Add models to those that a receipt lists, in order of their paths."""
    every = {one["path"]: one for one in listed}
    for one in models:
        path = str(one.path)
        every[path] = {"path": path, "content": one.content, **(one.about or {})}
    listed[:] = [every[path] for path in sorted(every)]


def _content(stored: Stored) -> str | None:
    return next(reversed(ids_of(stored)), None)


def _digests(path: Path, names: Iterable[str]) -> dict[str, Any]:
    if path.is_file():
        return {"": digests_of(path.parent, [path.name])[path.name]}
    return dict(digests_of(path, names))


def _refuse_other_links(places: Places, hits: Sequence[Hit], shown: Shown) -> None:
    """Refuse files whose data would stay under other names after they are rewritten."""
    names = [(hit.path / name) for hit in hits for name in hit.files if name not in _WITHOUT_DATA]
    for path in names:
        if path.is_symlink():
            raise BadInput(
                f"{shown(path)} is a symbolic link to {shown(os.path.realpath(path))}, whose bytes "
                "would stay; put the file itself in its place"
            )
    planned = {path for path in names if path.stat().st_nlink > 1}
    for path in sorted(planned):
        links, count = places.links[inode_of(path)], path.stat().st_nlink
        if count > len(links):
            raise BadInput(
                f"{shown(path)} has {count} hard links, {len(links)} of them under the given "
                "paths; give the directories of the others, too"
            )
        strange = [one for one in links if one not in planned and not is_left_over(one)]
        if strange:
            raise BadInput(
                f"{shown(strange[0])} is a hard link to {shown(path)} and not part of an artifact; "
                "remove it"
            )


def _remove(request: DeletionRequest, plan: Plan, receipt: Receipt, observe: Observe) -> Plan:
    """Remove the pairs, and write the receipt before and after; returns the second search."""
    shown = request.shown
    for _ in range(_ROUNDS):
        with ExitStack() as locks:
            for unit in plan.units():
                locks.enter_context(Output(unit.stored.unit).locked())
            _begin(request, receipt, observe)
            _carry_out(plan, observe, shown)
        _empty(plan.places.caches, shown)
        observe("removed")
        tidy(plan.tops)
        plan = _search(request, plan.tops, receipt)
        if not plan.hits and not plan.parts:
            say(f"a second search of {counted(len(plan.places.stored), 'artifact')} finds 0 pairs")
            _finish(plan, receipt)
            observe("finished")
            return plan
    raise OutputExists(
        f"{shown(plan.hits[0].path)} contains the pairs again: another process writes them; run "
        "the same command again when it has ended"
    )


def _begin(request: DeletionRequest, receipt: Receipt, observe: Observe) -> None:
    """Write the pending receipt, with the digests of the files, and the stop lists."""
    for entry in receipt.artifacts:
        if None in entry.before["files"].values():
            entry.before["files"] = _digests(Path(entry.path), entry.before["files"])
    stop_lists = [Path(path) for path in receipt.stop_lists]
    for path in filter(Path.exists, stop_lists):
        read_stop_list(path)  # damaged, it is refused before anything is changed
    receipt.write()
    observe("pending")
    described = [one.described() for one in request.conditions]
    for path in stop_lists:
        observe("stop list")
        add_to_stop_list(path, receipt.request, described, receipt.keys)


def _finish(plan: Plan, receipt: Receipt) -> None:
    """Write the receipt with what the artifacts are now; `plan` is that of the second search."""
    entries = {one.path: one for one in receipt.artifacts if one.action == "rewritten"}
    for one in plan.places.stored:
        if (entry := entries.get(str(one.path))) is not None:
            names = [name for name in entry.before["files"] if (one.path / name).is_file()]
            entry.after = {"content": _content(one), "files": _digests(one.path, names)}
    receipt.second_search = {"time": now(), "artifacts": len(plan.places.stored), "pairs": 0}
    receipt.mentions = mentions(plan.tops, [*receipt.keys, *receipt.images])
    receipt.state = "not removed from foreign tars" if receipt.foreign else "finished"
    receipt.finished = now()
    receipt.write()


def _empty(caches: Collection[Path], shown: Shown) -> None:
    """Empty caches of object stores: their files may have the pairs, and are fetched again."""
    for cache in sorted(caches):
        empty_cache(cache)
        say(f"emptied the cache {shown(cache)}")


def _carry_out(plan: Plan, observe: Observe, shown: Shown) -> None:
    kept = {hit.stored.kept for hit in plan.hits if hit.stored.kept is not None}
    for path in (*sorted(kept), *plan.parts):
        observe(f"deleting {path.name}")
        # It is in the hidden directory of an output, which goes, too, if it is empty.
        with next(filter(None, map(output_at, path.parents))).locked():
            remove(path)
        say(f"deleted {shown(path)}")
    tars = Tars()
    for hit in plan.units():
        unit = hit.stored.unit
        if hit.action == "deleted":
            observe(f"deleting {unit.name}")
            left = _delete(hit)
            observe(f"deleted {unit.name}")
            said = f"; '{hit.again}' makes it again" if hit.again else ""
            stay = f"; left files that were added or changed: {', '.join(left)}" if left else ""
            say(f"deleted {shown(unit)}{said}{stay}")
        else:
            observe(f"rewriting {unit.name}")
            _rewrite(hit, tars, plan.drop, observe)
            say(f"rewrote {shown(unit)}")


def _delete(hit: Hit) -> list[str]:
    """Delete an artifact but for files that somebody added; returns these."""
    path = hit.path
    added = [] if path.is_file() else sorted({*all_files(path)}.difference(hit.files))
    if not added:
        output = Output(path)
        output.place.rename(output.writing)  # killed from here on, the next writer deletes it
        sync(output.place.parent)
        remove(output.writing)
        return []
    with rewriting(path) as target:
        target.mkdir()
        for name in added:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(path / name, target / name)
    return added


def _rewrite(hit: Hit, tars: Tars, drop: Drop, observe: Observe) -> None:
    unit = hit.stored.unit
    write = KINDS["stream" if unit != hit.path else hit.stored.kind].write
    assert write is not None, "it would be deleted"
    if unit.is_dir():
        with rewriting(unit) as target:
            target.mkdir()
            mirror(unit, target)
            write(unit, target, tars, drop)
            observe(f"written {unit.name}")
        return
    earlier = [unit.with_name(name) for name in FILES_0_3 if unit.name in FILES_0_3]
    with rewriting(unit.with_suffix(".parquet") if earlier else unit) as temporary:
        write(unit, temporary, tars, drop)
        observe(f"written {unit.name}")
    for path in earlier:
        observe(f"deleting {path.name}")
        path.unlink()

"""The pairs of a week that are not trained on: those that were deleted, and those known already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.core.errors import UsageError, some_names
from vlcpctl.data.splitting.leaving_out import (
    DELETED,
    KNOWN,
    LEAKED,
    SELF,
    Counts,
    read_lists,
    read_stop_list,
    stop_lists_in,
)
from vlcpctl.data.tasks.facts import read_stream
from vlcpctl.data.tasks.keys import Keys
from vlcpctl.data.tasks.task import open_task
from vlcpctl.production.layout import TASK, Layout

SKIP, TRAIN = "skip", "train"  # the values of --known


@dataclass(frozen=True)
class StopLists:
    """The stop lists of a state that hold for a week, and the requests that --readmit excepts."""

    paths: tuple[Path, ...]
    contents: tuple[str, ...]  # their content ids
    readmitted: tuple[str, ...]

    @classmethod
    def of(cls, place: Layout, readmit: Sequence[Path]) -> StopLists:
        """Those of a state directory.

        Raises UsageError if --readmit names no deletion of this state, and BadInput if a list
        cannot be read.
        """
        lists = {path: read_stop_list(path) for path in stop_lists_in(place.root)}
        known = {one.request for one in lists.values()}
        excepted = {path: read_stop_list(path).request for path in readmit}
        for path, request in excepted.items():
            if request not in known:
                raise UsageError(
                    f"--readmit {path} is of a deletion that {place.root} does not know, so that "
                    "nothing is left out because of it; leave it out"
                )
        left = {path: one for path, one in lists.items() if one.request not in excepted.values()}
        return cls(
            tuple(left),
            tuple(one.content for one in left.values()),
            tuple(sorted(set(excepted.values()))),
        )


def left_out_of(week: Path) -> tuple[Counts, int]:
    """The pairs left out of the stream of a week by reason and list, and the number that was read.

    Raises BadInput if the stream cannot be read.
    """
    found = read_stream(week / "stream")
    return found.left_out, found.read


def known_pairs(place: Layout, week: Path, number: int) -> Counts:
    """The pairs of a week that earlier weeks have, which --known train takes in."""
    task = open_task(week / "stream" / TASK.format(number))
    counts = {}
    mine = Keys.joined([task.split(name).keys for name in task.manifest.splits])
    for earlier in range(1, number):
        for one in read_lists([place.known(earlier)]):
            counts[one.name] = int(mine.among(one.keys).sum())
    return {KNOWN: {name: count for name, count in counts.items() if count}}


def described(counts: Counts, read: int, *, trains_known: bool = False) -> str:
    """What of a week is left out or known, for people; "" if nothing is.

    >>> described({"known": {"week-0001": 106}, "deleted": {"ab": 2}}, 130)
    'of 130 pairs, 106 are known from week 1 and left out, and 2 were deleted and are left out'
    >>> described({"known": {"week-0001": 106}}, 106, trains_known=True)
    'of 106 pairs, 106 are known from week 1 and trained on again'
    >>> described({"leaked": {"golden": 20, "week-0001": 3}}, 106)
    'of 106 pairs, 23 have test images (golden, week-0001) and are left out of training'
    """
    known = {name: count for name, count in counts.get(KNOWN, {}).items() if count}
    deleted = sum(counts.get(DELETED, {}).values())
    parts = []
    if known:
        weeks = some_names([str(int(name.rpartition("-")[2])) for name in known])
        noun = "week" if len(known) == 1 else "weeks"
        what = "trained on again" if trains_known else "left out"
        parts.append(f"{sum(known.values())} are known from {noun} {weeks} and {what}")
    if deleted:
        parts.append(f"{deleted} were deleted and are left out")
    if leaked := counts.get(LEAKED):
        tests = some_names(["their own test split" if name == SELF else name for name in leaked])
        total = sum(leaked.values())
        parts.append(f"{total} have test images ({tests}) and are left out of training")
    return f"of {read} pairs, {', and '.join(parts)}" if parts else ""

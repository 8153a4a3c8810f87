"""The new data of a week: an id of its content, whether any of it is new, and what is left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vlcpctl.core.errors import BadInput, some_names
from vlcpctl.data.sources.identity import identify
from vlcpctl.data.sources.pairs import UnknownColumn, check
from vlcpctl.data.splitting import writing
from vlcpctl.data.splitting.leaving_out import (
    DELETED,
    KNOWN,
    LEAKED,
    SELF,
    Counts,
    read_lists,
)
from vlcpctl.data.splitting.plan import plan_of
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.tasks.keys import Keys
from vlcpctl.data.tasks.task import open_task
from vlcpctl.files.ids import canonical_json, content_id
from vlcpctl.files.stores import stored
from vlcpctl.production.settings import Settings
from vlcpctl.production.state import Attempt, State, shown_path


def content_of(data: Sequence[str], settings: Settings, state: State) -> str:
    """An id of the bytes of the sources: neither their names nor paths count.

    Raises UsageError or BadInput as `split` does.
    """
    plan = plan_of(_options(data, settings, state.root))
    try:
        for file in plan.files:
            check(file, plan.columns)
        found = identify(plan.inputs, plan.columns, None)
    except UnknownColumn as error:
        how = settings.sections["split"].items()
        names = [name for name, one in how if error.name in str(one).split(",")]
        reset = "".join(f"; DIR/update.toml has it: --{name} none takes it back" for name in names)
        raise BadInput(f"{error}{reset}") from error
    return content_id(sorted(canonical_json(one) for one in found.values()))


def list_urls(recorded: Iterable[tuple[str, str]]) -> None:
    """List what is at the URLs that settings have, so that it can be read.

    Raises BadInput if nothing is there any more, and else as `stored` does.
    """
    for option, url in recorded:
        try:
            stored(url)
        except BadInput as error:
            raise BadInput(f"{error}; --{option} gives its new place") from error


def all_left_out(
    data: Sequence[str], settings: Settings, root: Path, left_out: Sequence[Path]
) -> Counts | None:
    """The pairs of a week by reason and list, if all of them are left out; None if one is not.

    None, too, if the data cannot be read: the split says what is wrong with them.
    """
    if not left_out:
        return None
    options = replace(_options(data, settings, root), not_=list(left_out))
    with suppress(BadInput):
        plan = plan_of(options)
        for file in plan.files:
            check(file, plan.columns)
        return writing.all_left_out(plan)
    return None


def _options(data: Sequence[str], settings: Settings, root: Path) -> SplitOptions:
    """The options of the split of a week that decide what is read."""
    how = {name.replace("-", "_"): one for name, one in settings.sections["split"].items()}
    how.pop("holdout_most", None)
    how["image_root"] = [str(shown_path(root, one)) for one in how.get("image_root", ())]
    return SplitOptions(sources=list(data), by="all:week", **how)


def known_pairs(state: State, head: Sequence[Attempt], made: Attempt) -> Counts:
    """The pairs of a week that earlier weeks have, which are trained on again."""
    task = open_task(state.task(made))
    mine = Keys.joined([task.split(name).keys for name in task.manifest.splits])
    lists = read_lists([state.known(one) for one in head[1:]])
    counts = {one.name: int(mine.among(one.keys).sum()) for one in lists}
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

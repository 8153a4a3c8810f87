"""The new data of a week before it is split: an id of its content, and whether any of it is new."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import printable
from vlcpctl.data.sources.identity import identify
from vlcpctl.data.sources.pairs import UnknownColumn, check
from vlcpctl.data.splitting import selection
from vlcpctl.data.splitting.leaving_out import Counts
from vlcpctl.data.splitting.plan import plan_of
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.files.ids import canonical_json, content_id
from vlcpctl.files.stores import stored
from vlcpctl.production.layout import Layout, shown_path
from vlcpctl.production.ledger import ACCEPTED, REDONE, UNRESOLVED, read_ledger
from vlcpctl.production.settings import Settings
from vlcpctl.production.state import read_state

_COLUMNS, _KEPT = ("image_column", "caption_column", "split_column"), "keep_columns"
_ACCEPTED = frozenset({ACCEPTED, UNRESOLVED, REDONE})


@dataclass(frozen=True)
class NewData:
    """The sources of a week by the last two parts of their paths, and an id of their content."""

    names: tuple[str, ...]
    content: str


def identify_data(data: Sequence[str], settings: Settings, root: Path) -> NewData:
    """What the sources are, by the digests of their files: neither their names nor paths count.

    Raises UsageError or BadInput as `split` does; for a column that is only recorded, with the
    option that takes it back.
    """
    plan = plan_of(split_options(data, settings, root))
    try:
        for file in plan.files:
            check(file, plan.columns)
        found = identify(plan.inputs, plan.columns, None)
    except UnknownColumn as error:
        raise BadInput(f"{error}{_recorded(Layout(root), settings, error)}") from error
    content = content_id(sorted(canonical_json(one) for one in found.values()))
    names = ("/".join(Path(one).absolute().parts[-2:]) for one in data)
    return NewData(tuple(map(printable, names)), content)


def _recorded(place: Layout, now: Settings, error: UnknownColumn) -> str:
    """Which columns that the data lack are not given but recorded, and what takes them back."""
    if not place.state.is_file():
        return ""
    before = read_state(place).settings
    columns = {
        name: [one.strip() for one in value.split(",")] if name == _KEPT else [value]
        for name in (*_COLUMNS, _KEPT)
        if (value := getattr(now, name)) and value == getattr(before, name)
    }
    lost = [name for name, found in columns.items() if not {*found} <= {*error.known}]
    if not any(error.name in columns[name] for name in lost):
        return ""
    options = {name: f"--{name.replace('_', '-')}" for name in lost}
    said = (f"{options[one]} {getattr(now, one)}{_since(place, now, one)}" for one in lost)
    reset = " ".join(f"{option} none" for option in options.values())
    return f"; {place.root} remembers {' and '.join(said)}; add {reset} to take this back"


def _since(place: Layout, settings: Settings, name: str) -> str:
    """Since which week a setting is what it is; empty if since the start."""
    value = getattr(settings, name)
    for action in reversed(read_ledger(place).actions):
        if action and action.action in _ACCEPTED and name in (action.settings or {}):
            changed = (action.settings or {})[name]
            return f" since week {action.week}" if changed.get("is") == value else ""
    return ""


def list_urls(recorded: Sequence[tuple[str, str]]) -> None:
    """List what is at the URLs that options have recorded, so that it can be read.

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
    options = replace(split_options(data, settings, root), not_=list(left_out))
    with suppress(BadInput):
        plan = plan_of(options)
        for file in plan.files:
            check(file, plan.columns)
        return selection.all_left_out(plan)
    return None


def split_options(data: Sequence[str], settings: Settings, root: Path) -> SplitOptions:
    """The options of the split of a week that decide what is read."""
    return SplitOptions(
        sources=list(data),
        by="all:week",
        holdout=settings.holdout_rule,
        split_column=settings.split_column,
        image_column=settings.image_column,
        caption_column=settings.caption_column,
        keep_columns=settings.keep_columns,
        image_root=[str(shown_path(root, one)) for one in settings.image_root],
        max_skip=settings.max_skip or SplitOptions.max_skip,
    )

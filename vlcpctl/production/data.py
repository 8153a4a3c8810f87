"""The new data of a week: an id of its content, whether any of it is new, and what is left out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vlcpctl.core.errors import BadInput
from vlcpctl.data.sources.identity import identify
from vlcpctl.data.sources.pairs import UnknownColumn, check
from vlcpctl.data.splitting import writing
from vlcpctl.data.splitting.leaving_out import Counts
from vlcpctl.data.splitting.plan import plan_of
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.files.ids import canonical_json, content_id
from vlcpctl.files.stores import protocol_of, stored
from vlcpctl.production.settings import Settings
from vlcpctl.production.state import Sections, State, shown_path


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


def list_urls(sections: Sections) -> None:
    """List what is at the URLs that settings have, so that it can be read.

    Raises BadInput if nothing is there any more, and else as `stored` does.
    """
    every = [pair for values in sections.values() for pair in values.items()]
    for option, value in every:
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str) and protocol_of(one):
                try:
                    stored(one)
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

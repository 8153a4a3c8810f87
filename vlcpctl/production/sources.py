"""The new data of a week before it is split: whether it can be read, and an id of its content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.core.hashing import canonical_json, content_id
from vlcpctl.data.sources.fingerprints import identify
from vlcpctl.data.splitting.options import SplitOptions
from vlcpctl.production.layout import shown_path
from vlcpctl.production.settings import Settings


@dataclass(frozen=True)
class NewData:
    """The names of the sources of a week, and an id that copies of them elsewhere share."""

    names: tuple[str, ...]
    content: str


def identify_data(data: Sequence[str], settings: Settings, root: Path) -> NewData:
    """What the sources are, by the digests of their files: neither their names nor paths count.

    Raises UsageError or BadInput as `split` does.
    """
    options = SplitOptions(
        sources=list(data),
        by="all:week",
        holdout=settings.holdout_rule,
        split_column=settings.split_column,
        image_column=settings.image_column,
        caption_column=settings.caption_column,
        image_root=tuple(str(shown_path(root, one)) for one in settings.image_root),
        max_skip=settings.max_skip or SplitOptions.max_skip,
    )
    reader = options.plan().reader
    found = identify(reader.inputs, reader.columns, None)
    content = content_id(sorted(canonical_json(one) for one in found.values()))
    return NewData(tuple(one.name for one in reader.inputs), content)

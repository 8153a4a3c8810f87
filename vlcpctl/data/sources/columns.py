"""Which column plays which part: the names that data sets use, and those that the user gives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.core.errors import BadInput, unknown_name

# The first of these that is there is taken, letters in either case.
IMAGE = (
    "image",
    "jpg",
    "jpeg",
    "png",
    "webp",
    "img",
    "image_path",
    "filepath",
    "file_path",
    "path",
    "file_name",
    "filename",
)
CAPTION = ("caption", "captions", "text", "texts", "title", "txt", "sentence", "sentences")
LABEL = ("label", "class", "cls", "category", "cate_name")
KEY = ("key", "__key__", "id", "image_id", "item_id", "uid")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The columns that the user named; where there is None, the usual names are tried."""

    image: str | None = None
    caption: str | None = None
    label: str | None = None
    value: str | None = None  # decides the task
    split: str | None = None  # decides the split


def need(path: Path, names: list[str], given: str | None, usual: Iterable[str], part: str) -> str:
    """The column that plays a part; an error that lists what there is."""
    found = pick(path, names, given, usual)
    if found is None:
        flag = f"--{part}-column"
        raise BadInput(
            f"{path} has no {part} column; it has {_listed(names)}; name one with {flag}"
        )
    return found


def pick(path: Path, names: list[str], given: str | None, usual: Iterable[str]) -> str | None:
    """The column of that name, or the first with a usual name, or None."""
    if given is not None:
        if given not in names:
            raise BadInput(f"{path}: {unknown_name('column', given, names)}")
        return given
    lowered = {name.lower(): name for name in reversed(names)}
    return next((lowered[name] for name in usual if name in lowered), None)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:20])
    return f"{shown}, ... ({len(names)} columns)" if len(names) > 20 else shown or "no columns"

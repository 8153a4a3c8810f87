"""The role of each column: names that are usual in public data sets, and names the user gives."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from vlcpctl.core.errors import BadInput, unknown_name
from vlcpctl.core.words import shortened
from vlcpctl.data.sources.file_log import FileLog
from vlcpctl.data.sources.limits import Caps, over

IMAGE_SUFFIXES = (".webp", ".png", ".jpg", ".jpeg")
# The first of these names that exists is used, ignoring case.
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
class ColumnOptions:
    """The columns that the user named, or None to try the usual names; and the caps on input."""

    image: str | None = None
    caption: str | None = None
    label: str | None = None
    value: str | None = None  # decides the task
    split: str | None = None  # decides the split
    keep: tuple[str, ...] = ()  # whose values the index keeps
    image_roots: tuple[Path, ...] = ()  # that image paths are relative to; none: beside the list
    caps: Caps = field(default_factory=Caps)
    is_contained: bool = False  # whether image paths must stay in the directory
    log: FileLog | None = None  # of the files that are read besides the source's own


@dataclass(frozen=True)
class Roles:
    """The columns of one file by role; None for a role without a column."""

    image: str | None
    caption: str | None
    label: str | None
    value: str | None
    split: str | None
    key: str | None
    keep: tuple[str, ...] = ()
    lists: bool = False  # whether the captions are lists that are spelled as text

    def names(self) -> list[str]:
        """Every column that has a role, once."""
        every = (self.image, self.caption, self.label, self.value, self.split, self.key, *self.keep)
        return list(dict.fromkeys(name for name in every if name is not None))


def roles_of(path: Path, names: list[str], columns: ColumnOptions, *, images: bool) -> Roles:
    """The column for each role in a file that has the columns `names`.

    With `images=False`, only the roles that decide the task, split and label are filled. Raises
    BadInput if a required column is missing, a name is not unique or there are too many columns.
    """
    if len(names) > columns.caps.columns:
        raise BadInput(f"{path} has {over('columns', len(names), columns.caps.columns)}")
    roles = Roles(
        image=need(path, names, columns.image, IMAGE, "image") if images else None,
        caption=need(path, names, columns.caption, CAPTION, "caption") if images else None,
        label=pick(path, names, columns.label, LABEL),
        value=pick(path, names, columns.value, ()),
        split=pick(path, names, columns.split, ()),
        key=pick(path, names, None, KEY) if images else None,
        keep=tuple(_existing(path, names, name) for name in columns.keep) if images else (),
    )
    repeated = [name for name in roles.names() if names.count(name) > 1]
    if repeated:
        raise BadInput(f"{path} has two columns named {repeated[0]!r}")
    return roles


def need(path: Path, names: list[str], given: str | None, usual: Iterable[str], part: str) -> str:
    """The column for a role. Raises BadInput, listing the columns, if there is none."""
    found = pick(path, names, given, usual)
    if found is None:
        is_data = any("://" in name or name.lower().endswith(IMAGE_SUFFIXES) for name in names)
        todo = "the first line looks like data: is the header missing?" if is_data else ""
        raise BadInput(
            f"{path} has no {part} column (found: {_listed(names)}); "
            f"{todo or f'choose one with --{part}-column'}"
        )
    return found


def pick(path: Path, names: list[str], given: str | None, usual: Iterable[str]) -> str | None:
    """The column named `given`; if that is None, the first with a usual name, or None.

    Raises BadInput if the column `given` does not exist.
    """
    if given is not None:
        return _existing(path, names, given)
    lowered = {name.lower(): name for name in reversed(names)}
    return next((lowered[name] for name in usual if name in lowered), None)


class UnknownColumn(BadInput):
    """A file has no column of this name; `known` are those that it has."""

    def __init__(self, path: Path, name: str, known: list[str]) -> None:
        super().__init__(f"{path}: {unknown_name('column', name, known)}")
        self.name, self.known = name, known


def _existing(path: Path, names: list[str], given: str) -> str:
    if given not in names:
        raise UnknownColumn(path, given, names)
    return given


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(shortened, names[:20]))
    return f"{shown}, ... ({len(names)} columns)" if len(names) > 20 else shown or "no columns"


def not_utf8(error: UnicodeDecodeError) -> str:
    """What a file is that is not UTF-8, with the command that converts it, for messages."""
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    encoding = "utf-16" if error.object.startswith(marks) else "latin1"
    return (
        f"not UTF-8: {error}; if it is {encoding}, convert it with: "
        f"iconv -f {encoding} -t utf-8 FILE > NEW"
    )

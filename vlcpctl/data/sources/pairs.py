"""Make pairs from the records of any source: which column has which role, and what it means."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput, unknown_name
from vlcpctl.core.words import shortened
from vlcpctl.data.images.header import MAX_BYTES
from vlcpctl.data.sources.folders import NOT_LISTED, image_column, not_listed
from vlcpctl.data.sources.source import (
    CAPTIONS,
    CLS,
    FIRST_ROWS,
    FLAW,
    IMAGE,
    IMAGE_SUFFIXES,
    KEY,
    LABEL,
    TABLES,
    TXT,
    USUAL,
    WHERE,
    WHY,
    FileLog,
    Record,
    Source,
    Wants,
    read_file,
)
from vlcpctl.data.sources.values import (
    captions_in,
    is_unicode,
    kept_values,
    listed_in,
    number_in,
    text_of,
    value_of,
)
from vlcpctl.data.tasks.samples import NO_IMAGE, NO_TEXT, KeptValues, Pair, united
from vlcpctl.files.inputs import reading

_SPLIT = "split"
# Limits of one image: of its captions, of the characters in them, of those of a key, label, task,
# split or kept value, and of the distinct values of a kept column, whose rows may be many.
MOST_CAPTIONS, MOST_LENGTH, MOST_NAME, MOST_KEPT = 10_000, 1_000_000, 4096, 10_000
_BATCH_BYTES = 8 * 2**20
_BATCH_PAIRS = 1000
# P9D's directories of images, beside its lists or beside their directory.
_FOLDERS = ("train_images", "gallery_images")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns that the user named, or None to try the usual names; and where images are."""

    image: str | None = None
    caption: str | None = None
    label: str | None = None
    value: str | None = None  # decides the task
    split: str | None = None  # decides the split
    keep: tuple[str, ...] = ()  # whose values the index keeps
    image_roots: tuple[Path, ...] = ()  # that image paths are relative to; none: beside the list
    log: FileLog | None = None  # of the files that are read besides the source's own


@dataclass(frozen=True)
class _Roles:
    """The columns of one source by role; "" for a role without a column."""

    image: str = ""
    caption: str = ""
    label: str = ""
    value: str = ""
    split: str = ""
    key: str = ""
    keep: tuple[str, ...] = ()
    of_all: str | None = None  # the split of every pair, without a column for it
    lists: bool = False  # whether the captions are lists that are spelled as text

    def names(self) -> list[str]:
        """Every column that has a role, once."""
        every = (self.image, self.caption, self.label, self.value, self.split, self.key, *self.keep)
        return [name for name in dict.fromkeys(every) if name not in {"", IMAGE}]


def pairs(source: Source, columns: Columns, *, images: bool = True) -> Iterator[list[Pair]]:
    """The pairs of a source in batches of at most 1,000, or of 8 MiB of images and the last one.

    They come in the same order every time; one that cannot be used has no image, and a flaw. With
    `images=False` they only serve to assign tasks, and have no images and captions. Raises BadInput
    if the source is damaged or lacks a column.
    """
    batch: list[Pair] = []
    size = 0
    for pair in _pairs(source, columns, images=images):
        batch.append(pair)
        size += len(pair.image or b"")
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_PAIRS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def check(source: Source, columns: Columns) -> None:
    """Raise BadInput if a column is missing or of another kind; print how the source is read."""
    if _roles(source, columns).lists:
        said = "its captions are lists that are spelled as text; they are read as lists"
        say(f"{source.path}: {said}")


def columns_of(source: Source, columns: Columns) -> dict[str, str]:
    """The names of the columns that are used, by role; of samples, which are files, none.

    Raises BadInput as `pairs` does.
    """
    roles, names = _roles(source, columns), source.start.names
    used = {"image": roles.image, "captions": roles.caption, "label": roles.label, "key": roles.key}
    return {role: name for role, name in used.items() if name in names}


def names_files(source: Source, columns: Columns) -> bool:
    """Whether some images are given by path, so that --image-root has an effect."""
    if source.kind != "table":
        return source.kind == "list"
    image = _roles(source, columns).image
    rows = islice(source.read(source.path, Wants((image,))), FIRST_ROWS)
    images = [record.get(image) for _, record in rows]
    return any(isinstance(one, str) or (isinstance(one, dict) and "path" in one) for one in images)


def too_large(pair: Pair) -> str | None:
    """The limit that a pair exceeds, as a phrase for messages, or None."""
    if len(pair.captions) > MOST_CAPTIONS:
        return f"{len(pair.captions)} captions, the limit is {MOST_CAPTIONS}"
    if (length := sum(map(len, pair.captions))) > MOST_LENGTH:
        return f"{length} characters in its captions, the limit is {MOST_LENGTH}"
    for name in (pair.source_key, pair.label, pair.value, pair.split):
        if isinstance(name, str) and len(name) > MOST_NAME:
            found = f"{len(name)} characters in its key, label, task or split"
            return f"{found}, the limit is {MOST_NAME}"
    return too_many(pair.kept) if pair.kept else None


def too_many(kept: KeptValues) -> str | None:
    """The limit that the values of an image's kept columns exceed, as `too_large`."""
    for values in kept:
        if len(values) > MOST_KEPT:
            return f"{len(values)} values in a kept column, the limit is {MOST_KEPT}"
        longest = max(map(len, values), default=0)
        if longest > MOST_NAME:
            return f"{longest} characters in a kept column, the limit is {MOST_NAME}"
    return None


# -- roles


def _roles(source: Source, columns: Columns, *, images: bool = True) -> _Roles:
    """The column for each role; without `images`, only of those that assign tasks and splits.

    Raises BadInput if a required column is missing, is there twice or has lists of values.
    """
    if source.kind == "samples":
        caption = TXT if columns.caption == "txt" else columns.caption or CAPTIONS
        label = CLS if columns.label == "cls" else columns.label or LABEL
        named = (columns.value or "", columns.split or "")
        return _Roles(IMAGE, caption, label, *named, KEY, columns.keep)
    names, image = source.start.names, columns.image
    if source.kind == "task":
        image = IMAGE
        names = [*names, IMAGE]
        columns = replace(
            columns, caption=columns.caption or "captions", label=columns.label or "label"
        )
    elif source.is_folder:
        image = image_column(source.path, names, image)
    is_of_all = columns.split == _SPLIT and source.split is not None
    is_of_all &= source.kind == "task" or _SPLIT not in names

    def column(part: str, given: str | None) -> str:
        return pick(source.path, names, part, given)

    roles = _Roles(
        label=column("label", columns.label),
        value=column("value", columns.value),
        split="" if is_of_all else column("split", columns.split),
        of_all=source.split if is_of_all else None,
    )
    if images:
        roles = replace(
            roles,
            image=column("image", image) or _lacking(source.path, names, "image"),
            caption=column("caption", columns.caption) or _lacking(source.path, names, "caption"),
            key="source_key" if source.kind == "task" else column("key", None),
            keep=tuple(column("keep", name) for name in columns.keep),
        )
    repeated = [name for name in roles.names() if names.count(name) > 1]
    if repeated:
        raise BadInput(f"{source.path} has two columns named {repeated[0]!r}")
    return _checked(source, columns, roles)


def _checked(source: Source, columns: Columns, roles: _Roles) -> _Roles:
    """The roles, by what the first rows hold. Raises BadInput for a column that cannot have its."""
    first = source.start.first
    if not first:
        rows = source.read(source.path, Wants(tuple(roles.names()), images=False))
        first = [record for _, record in islice(rows, FIRST_ROWS)]
    if source.kind == "table":
        asked = ((part, getattr(columns, part) or "") for part in ("label", "value", "split"))
        kept = (("value to keep", name) for name in roles.keep)
        for part, name in (("image", roles.image), ("caption", roles.caption), *asked, *kept):
            _check_values(source.path, part, name, [one.get(name) for one in first])
    captions = chain.from_iterable(captions_in(one.get(roles.caption))[0] for one in first)
    found = [text for text in captions if text.strip()]
    return replace(roles, lists=bool(found) and all(listed_in(text) is not None for text in found))


def pick(path: Path, names: list[str], part: str, given: str | None = None) -> str:
    """The column named `given`; if that is None, the first with a usual name, or "".

    Raises BadInput if the column `given` does not exist.
    """
    if given is not None:
        if given not in names:
            raise BadInput(f"{path}: {unknown_name('column', given, names)}")
        return given
    lowered = {name.lower(): name for name in reversed(names)}
    return next((lowered[name] for name in USUAL.get(part, ()) if name in lowered), "")


def _lacking(path: Path, names: list[str], part: str) -> str:
    shown = ", ".join(map(shortened, names[:20])) or "no columns"
    shown += f", ... ({len(names)} columns)" if len(names) > 20 else ""
    todo = f"choose one with --{part}-column"
    if any("://" in name or name.lower().endswith(IMAGE_SUFFIXES) for name in names):
        todo = "the first line looks like data: is the header missing?"
    raise BadInput(f"{path} has no {part} column (found: {shown}); {todo}")


def _check_values(path: Path, part: str, name: str, values: list[Any]) -> None:
    """Raise BadInput for a column none of whose first values can be that of its role."""
    values = [value for value in values if value is not None]

    def fits(value: Any) -> bool:
        if part == "image":
            is_struct = isinstance(value, dict) and not {"bytes", "path"}.isdisjoint(value)
            return is_struct or isinstance(value, str | bytes | memoryview)
        if part == "caption":
            return not captions_in(value)[1]
        inner = value if part == "value to keep" and isinstance(value, list) else [value]
        return not any(isinstance(one, list | dict) for one in inner)

    if values and not any(map(fits, values)):
        raise BadInput(
            f"{path}: column {shortened(name)!r} has no {part}: its values are as "
            f"{shortened(repr(values[0]))}; name another column"
        )


# -- from records to pairs


def _pairs(source: Source, columns: Columns, *, images: bool) -> Iterator[Pair]:
    roles = _roles(source, columns, images=images)
    wants = Wants(tuple(roles.names()), images=images, log=columns.log)
    with reading(source.path):  # text in a column of bytes may not be UTF-8
        rows = source.read(source.path, wants)
        found: Iterator[Pair] = (_of_record(place, record, roles) for place, record in rows)
        if source.kind == "list":
            is_text = source.path.suffix in TABLES
            found = _joined(_of_list(pair, is_text=is_text) for pair in found)
        if images and source.kind != "samples":
            read = _image_reader(source, columns)
            found = (pair if pair.flaw else read(pair) for pair in found)
        yield from found
    if images and source.is_folder:
        yield from _unlisted(source, roles.image)


def _of_record(place: int | str, record: Record, roles: _Roles) -> Pair:
    """The pair of a record; its image is what the column has of it."""
    found = record.get(FLAW)
    if isinstance(found, tuple):  # a reader's own: JSON has no tuples
        return _flawed(place, *found)
    captions, no_text = captions_in(record.get(roles.caption))
    if no_text:
        return _flawed(place, NO_TEXT, no_text)
    if roles.lists:
        lists = [listed_in(text) for text in captions]
        both = zip(captions, lists, strict=True)
        captions = [one for text, inner in both for one in ([text] if inner is None else inner)]
    kept, flaw = kept_values(record, roles.keep) if roles.keep else ((), None)
    flaw = record.get(WHY) or flaw
    return Pair(
        place,
        text_of(record.get(roles.key)),
        None if flaw else record.get(roles.image),
        captions,
        text_of(record.get(roles.label)),
        value_of(record.get(roles.value)),
        text_of(record.get(roles.split)) if roles.split else roles.of_all,
        flaw,
        kept,
        where=record.get(WHERE),
    )


def _of_list(pair: Pair, *, is_text: bool) -> Pair:
    """The pair of a list's record, whose image is a path, and whose texts may not be Unicode."""
    texts = (*pair.captions, pair.source_key, pair.label, pair.split, pair.value)
    if not all(map(is_unicode, chain(texts, *pair.kept))):
        flaw = "text with a lone surrogate, which UTF-8 cannot encode"
        return _flawed(pair.place, NO_IMAGE, flaw)
    path: Any = text_of(pair.image)
    return pair._replace(image=path, value=number_in(pair.value) if is_text else pair.value)


def _flawed(place: int | str, reason: str, detail: str) -> Pair:
    return Pair(place, None, None, [], None, None, None, detail, reason=reason)


def _joined(pairs: Iterator[Pair]) -> Iterator[Pair]:
    """Each image of a list with the captions of the consecutive rows that name it.

    They agree on its key, label, task and split.
    """
    first: Pair | None = None
    length = 0  # characters in its captions
    for pair in pairs:
        is_same = first is not None and not (first.flaw or pair.flaw or first.image is None)
        if first is not None and is_same and _about(first) == _about(pair):
            # Beyond a limit the image is skipped: its other captions need not be kept.
            if first.kept != pair.kept and too_many(first.kept) is None:
                first = first._replace(kept=united(first.kept, pair.kept))
            if len(first.captions) <= MOST_CAPTIONS and length <= MOST_LENGTH:
                first.captions.extend(pair.captions)
                length += sum(map(len, pair.captions))
            continue
        if first is not None:
            yield first
        first, length = pair, sum(map(len, pair.captions))
    if first is not None:
        yield first


def _about(pair: Pair) -> tuple[object, ...]:
    return pair.image, pair.source_key, pair.label, pair.value, pair.split


def _unlisted(source: Source, image: str) -> Iterator[Pair]:
    """A pair with a flaw for each image that no column of file names has."""
    wanted = [one for one in source.start.names if one == image or one.endswith("file_name")]
    rows = source.read(source.path, Wants(tuple(wanted)))
    texts = (text_of(record.get(name)) for _, record in rows for name in wanted)
    for place, why in not_listed(source.path, texts):
        yield _flawed(place, NOT_LISTED, why)


def _image_reader(source: Source, columns: Columns) -> Callable[[Pair], Pair]:
    """The function that gives a pair the bytes of its image, or a flaw that says why not."""
    roots = columns.image_roots or (source.path.parent,)
    if source.kind == "list" and not columns.image_roots:
        folders = _FOLDERS if source.split == "train" else _FOLDERS[::-1]
        bases = (source.path.parent, source.path.parent.parent)
        roots += tuple(base / one for one in folders for base in bases if (base / one).is_dir())

    def read(pair: Pair) -> Pair:
        value: Any = pair.image
        if isinstance(value, dict):
            stored = value.get("bytes")
            value = value.get("path") if stored is None else stored
        if isinstance(value, bytes | memoryview):
            return pair if value is pair.image else pair._replace(image=value)
        name = value if isinstance(value, str) else ""
        if flaw := _no_path(name, is_contained=source.is_folder):
            return pair._replace(image=None, flaw=flaw)
        root = roots[-1]
        if len(roots) > 1:  # else there is nothing to look for
            root = next((one for one in roots if os.path.lexists(one / name)), root)
        found = read_file(root / name, name, MAX_BYTES, columns.log)
        if isinstance(found, str):
            return pair._replace(image=None, flaw=found)
        return pair._replace(image=found)

    return read


def _no_path(name: str, *, is_contained: bool) -> str | None:
    """Why a name is none of a file that may be read, or None."""
    if not name:
        return "neither image bytes nor a path"
    if "://" in name or "\0" in name or name.startswith("pipe:") or not is_unicode(name):
        return f"{shortened(name)!r} is not a file path"
    if is_contained and Path(os.path.normpath(name)).parts[0] in {"..", "/", "//"}:
        # Links are followed: the Hugging Face cache consists of links.
        return f"{shortened(name)} is outside the directory of its metadata"
    return None

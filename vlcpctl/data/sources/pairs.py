"""Make pairs from the records of any source: which column has which role, and what it means."""

from __future__ import annotations

import ast
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput, unknown_name
from vlcpctl.core.words import shortened
from vlcpctl.data.images.header import MAX_BYTES
from vlcpctl.data.sources.folders import image_column, not_listed
from vlcpctl.data.sources.lists import IMAGE_SUFFIXES, is_table, number_in
from vlcpctl.data.sources.source import (
    CLS,
    FIRST_ROWS,
    FLAW,
    IMAGE,
    OFFSET,
    TXT,
    FileLog,
    Record,
    Source,
    Typed,
    Wants,
    read_file,
)
from vlcpctl.data.tasks.samples import NO_IMAGE, NO_TEXT, KeptValues, Pair, distinct, united
from vlcpctl.files.inputs import reading

# The first of these names that exists is used, ignoring case.
USUAL_IMAGE = (
    *("image", "jpg", "jpeg", "png", "webp", "img", "image_path", "filepath", "file_path", "path"),
    *("file_name", "filename"),
)
_CAPTION = ("caption", "captions", "text", "texts", "title", "txt", "sentence", "sentences")
_LABEL = ("label", "class", "cls", "category", "cate_name")
_KEY = ("key", "__key__", "id", "image_id", "item_id", "uid")
_SPLIT = "split"
# Limits of one image: of its captions, of the characters in them, of those of a key, label, task,
# split or kept value, and of the distinct values of a kept column, whose rows may be many.
MOST_CAPTIONS, MOST_LENGTH, MOST_NAME, MOST_KEPT = 10_000, 1_000_000, 4096, 10_000
_BATCH_BYTES = 8 * 2**20
_BATCH_PAIRS = 1000
_WHOLE = 2**53  # up to here, a float stands for exactly one whole number
# P9D's directories of images, beside its lists or beside their directory.
_FOLDERS = ("train_images", "gallery_images")
# A text as Python and NumPy print it in a list, with the escapes that they write.
_ESCAPE = r"\\(?:[\\'\"abfnrtv]|x[\da-f]{2}|u[\da-f]{4}|U00(?:0[\da-f]|10)[\da-f]{4})"
_TEXT = rf"""u?'(?:[^'\\\n]|{_ESCAPE})*'|u?"(?:[^"\\\n]|{_ESCAPE})*\""""
_LIST = re.compile(rf"\[\s*(?:(?:{_TEXT})(?:\s*,)?\s*)*\]")

ReadImage = Callable[[Any], tuple[Any, str | None]]


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
    """The columns of one source by role; None for a role without a column."""

    image: str | None
    caption: str | None
    label: str | None
    value: str | None
    split: str | None
    key: str | None
    keep: tuple[str, ...] = ()
    of_all: str | None = None  # the split of every pair, without a column for it
    lists: bool = False  # whether the captions are lists that are spelled as text

    def names(self) -> tuple[str, ...]:
        """Every column that has a role, once."""
        every = (self.image, self.caption, self.label, self.value, self.split, self.key, *self.keep)
        return tuple(dict.fromkeys(name for name in every if name is not None and name != IMAGE))


class UnknownColumn(BadInput):
    """A file has no column of this name; `known` are those that it has."""

    def __init__(self, path: Path, name: str, known: list[str]) -> None:
        super().__init__(f"{path}: {unknown_name('column', name, known)}")
        self.name, self.known = name, known


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
    if source.kind == "samples":
        return
    if _roles(source, columns).lists:
        said = "its captions are lists that are spelled as text; they are read as lists"
        say(f"{source.path}: {said}")


def columns_of(source: Source, columns: Columns) -> dict[str, str]:
    """The names of the columns that are used, by role; of samples, which are files, none.

    Raises BadInput as `pairs` does.
    """
    if source.kind == "samples":
        return {}
    roles = _roles(source, columns)
    used = {"image": roles.image, "captions": roles.caption, "label": roles.label, "key": roles.key}
    return {role: name for role, name in used.items() if name not in {None, IMAGE}}


def names_files(source: Source, columns: Columns) -> bool:
    """Whether some images are given by path, so that --image-root has an effect."""
    if source.kind != "table":
        return source.kind == "list"
    image = str(_roles(source, columns).image)
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
    path, names = source.path, source.start.names
    caption, label, key, image = columns.caption, columns.label, None, columns.image
    if source.kind == "task":
        caption, label, key, image = caption or "captions", label or "label", "source_key", IMAGE
        names = [*names, IMAGE]
    elif source.is_folder:
        image = image_column(path, names, image)
    is_of_all = columns.split == _SPLIT and source.split is not None
    is_of_all &= source.kind == "task" or _SPLIT not in names
    roles = _Roles(
        image=_need(path, names, image, USUAL_IMAGE, "image") if images else None,
        caption=_need(path, names, caption, _CAPTION, "caption") if images else None,
        label=_pick(path, names, label, _LABEL),
        value=_pick(path, names, columns.value, ()),
        split=None if is_of_all else _pick(path, names, columns.split, ()),
        key=_pick(path, names, key, _KEY) if images else None,
        keep=tuple(_existing(path, names, name) for name in columns.keep) if images else (),
        of_all=source.split if is_of_all else None,
    )
    repeated = [name for name in roles.names() if names.count(name) > 1]
    if repeated:
        raise BadInput(f"{path} has two columns named {repeated[0]!r}")
    return _checked(source, columns, roles)


def _checked(source: Source, columns: Columns, roles: _Roles) -> _Roles:
    """The roles, by what the first rows hold. Raises BadInput for a column that cannot have its."""
    first = source.start.first
    if not first:
        rows = source.read(source.path, Wants(roles.names(), images=False))
        first = [record for _, record in islice(rows, FIRST_ROWS)]
    wanted = [("image", roles.image), ("caption", roles.caption)]
    wanted += [
        (part, getattr(roles, part))
        for part in ("label", "value", "split")
        if getattr(columns, part) is not None
    ]
    wanted += [("value to keep", name) for name in roles.keep]
    for part, name in wanted if source.kind == "table" else ():
        values = [one[name] for one in first if one[name] is not None] if name else []
        if values and not any(_fits(part, value) for value in values):
            raise BadInput(
                f"{source.path}: column {shortened(name)!r} has no {part}: its values are as "
                f"{shortened(repr(values[0]))}; name another column"
            )
    captions = chain.from_iterable(captions_in(one.get(roles.caption or ""))[0] for one in first)
    found = [text for text in captions if text.strip()]
    is_lists = bool(found) and all(listed_in(text) is not None for text in found)
    return replace(roles, lists=is_lists)


def _fits(part: str, value: Any) -> bool:
    """Whether a value can be that of a role."""
    if part == "image":
        is_struct = isinstance(value, dict) and not {"bytes", "path"}.isdisjoint(value)
        return is_struct or isinstance(value, str | bytes | memoryview)
    if part == "caption":
        return not captions_in(value)[1]
    return _can_be_kept(value) if part == "value to keep" else not _is_compound(value)


def _need(path: Path, names: list[str], given: str | None, usual: Sequence[str], part: str) -> str:
    """The column for a role. Raises BadInput, listing the columns, if there is none."""
    found = _pick(path, names, given, usual)
    if found is None:
        shown = ", ".join(map(shortened, names[:20])) or "no columns"
        shown += f", ... ({len(names)} columns)" if len(names) > 20 else ""
        is_data = any("://" in name or name.lower().endswith(IMAGE_SUFFIXES) for name in names)
        todo = "the first line looks like data: is the header missing?" if is_data else ""
        raise BadInput(
            f"{path} has no {part} column (found: {shown}); "
            f"{todo or f'choose one with --{part}-column'}"
        )
    return found


def _pick(path: Path, names: list[str], given: str | None, usual: Sequence[str]) -> str | None:
    """The column named `given`; if that is None, the first with a usual name, or None.

    Raises UnknownColumn if the column `given` does not exist.
    """
    if given is not None:
        return _existing(path, names, given)
    lowered = {name.lower(): name for name in reversed(names)}
    return next((lowered[name] for name in usual if name in lowered), None)


def has_image_column(source: Source) -> bool:
    """Whether a source has a column of images by a usual name. Raises BadInput if damaged."""
    return _pick(source.path, source.start.names, None, USUAL_IMAGE) is not None


def _existing(path: Path, names: list[str], given: str) -> str:
    if given not in names:
        raise UnknownColumn(path, given, names)
    return given


# -- from records to pairs


def _pairs(source: Source, columns: Columns, *, images: bool) -> Iterator[Pair]:
    if source.kind == "samples":
        rows = source.read(source.path, Wants(images=images, log=columns.log))
        path = Path(os.path.abspath(source.path))
        yield from (_of_sample(path, place, record, columns) for place, record in rows)
        return
    roles = _roles(source, columns, images=images)
    rows = source.read(source.path, Wants(roles.names(), images=images))
    found: Iterator[Pair] = (_of_record(place, record, roles) for place, record in rows)
    if source.kind == "list":
        found = _joined(_of_list(pair, is_text=is_table(source.path)) for pair in found)
    if images:
        found = map(partial(_with_image, _image_reader(source, columns)), found)
    with reading(source.path):  # text in a column of bytes may not be UTF-8
        yield from found
    if source.is_folder:
        yield from _unlisted(source, str(_roles(source, columns).image))


def _of_record(place: int | str, record: Record, roles: _Roles) -> Pair:
    """The pair of a record with columns; its image is what the column has of it."""
    if FLAW in record:
        return _flawed(place, *record[FLAW])
    captions, no_text = captions_in(record.get(roles.caption or ""))
    if no_text:
        return _flawed(place, NO_TEXT, no_text)
    kept, flaw = _kept(record, roles.keep) if roles.keep else ((), None)
    return Pair(
        place,
        text_of(record.get(roles.key or "")),
        record.get(roles.image or ""),
        _spread(captions) if roles.lists else captions,
        text_of(record.get(roles.label or "")),
        value_of(record.get(roles.value or "")),
        text_of(record.get(roles.split)) if roles.split else roles.of_all,
        flaw,
        kept,
    )


def _of_list(pair: Pair, *, is_text: bool) -> Pair:
    """The pair of a list's record, whose image is a path, and whose texts may not be Unicode."""
    texts = (*pair.captions, pair.source_key, pair.label, pair.split, pair.value)
    if not all(map(is_unicode, chain(texts, *pair.kept))):
        flaw = "text with a lone surrogate, which UTF-8 cannot encode"
        return _flawed(pair.place, NO_IMAGE, flaw)
    path: Any = text_of(pair.image)
    return pair._replace(image=path, value=number_in(pair.value) if is_text else pair.value)


def _of_sample(path: Path, place: int | str, record: Record, columns: Columns) -> Pair:
    """The pair of a sample of files: what its .txt and .cls say, else fields of its .json."""
    if FLAW in record:
        return _flawed(place, *record[FLAW])
    captions, no_text = _captions_of_sample(record, columns.caption)
    if no_text:
        return _flawed(place, NO_TEXT, no_text)
    name, label = columns.label, record[CLS]
    if name is not None:
        label = label if name == "cls" and label is not None else text_of(record.get(name))
    elif label is not None:
        label = label.strip()
    else:
        label = next((text_of(record[usual]) for usual in _LABEL if usual in record), None)
    kept, unfit = _kept(record, columns.keep)
    image = record[IMAGE]
    return Pair(
        place,
        text_of(record.get("source_key")) or str(place),
        None if unfit or isinstance(image, str) else image,
        captions,
        label,
        value_of(record.get(columns.value or "")),
        text_of(record.get(columns.split or "")),
        image if isinstance(image, str) else unfit,
        kept,
        where=(path, record[OFFSET]) if OFFSET in record else None,
    )


def _captions_of_sample(record: Record, name: str | None) -> tuple[list[str], str | None]:
    text = record[TXT]
    if name is not None and name != "txt":
        return captions_in(record.get(name))
    if name is None and isinstance(record.get("captions"), list):
        return captions_in(record["captions"])
    if text is not None:
        # CLIP_benchmark writes one caption per line. img2dataset writes a single caption, line
        # breaks included, and repeats it in the .json.
        return ([text] if isinstance(record.get("caption"), str) else text.split("\n")), None
    return captions_in(next((record[usual] for usual in _CAPTION if usual in record), None))


def _flawed(place: int | str, reason: str, detail: str) -> Pair:
    return Pair(place, None, None, [], None, None, None, detail, reason=reason)


def _joined(pairs: Iterator[Pair]) -> Iterator[Pair]:
    """Each image of a list with the captions of the consecutive rows that name it."""
    first: Pair | None = None
    length = 0  # characters in its captions
    for pair in pairs:
        if first is not None and _is_same(first, pair):
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


def _is_same(one: Pair, other: Pair) -> bool:
    """Whether two rows are about the same image and agree on its label, task and split."""
    if one.flaw or other.flaw or one.image is None:
        return False
    alike = ("image", "source_key", "label", "value", "split")
    return all(getattr(one, name) == getattr(other, name) for name in alike)


def _unlisted(source: Source, image: str) -> Iterator[Pair]:
    """A pair with a flaw for each image that no column of file names has."""
    wanted = [one for one in source.start.names if one == image or one.endswith("file_name")]
    rows = source.read(source.path, Wants(tuple(wanted)))
    texts = (text_of(record.get(name)) for _, record in rows for name in wanted)
    for place, record in not_listed(source.path, texts):
        yield _flawed(place, *record[FLAW])


# -- images


def _image_reader(source: Source, columns: Columns) -> ReadImage:
    """The function that gives (bytes, None) of an image, or (None, why it cannot be read)."""
    roots = columns.image_roots or (source.path.parent,)
    if source.kind == "list" and not columns.image_roots:
        folders = _FOLDERS if source.split == "train" else _FOLDERS[::-1]
        bases = (source.path.parent, source.path.parent.parent)
        places = [base / folder for folder in folders for base in bases]
        roots = (*roots, *filter(Path.is_dir, places))
    return partial(_read_image, roots, columns.log, source.is_folder)


def _read_image(
    roots: Sequence[Path], log: FileLog | None, is_contained: bool, value: Any
) -> tuple[Any, str | None]:
    if isinstance(value, dict):
        stored = value.get("bytes")
        value = value.get("path") if stored is None else stored
    if isinstance(value, bytes | memoryview):
        return value, None
    name = value if isinstance(value, str) else ""
    if not name:
        return None, "neither image bytes nor a path"
    if "://" in name or "\0" in name or name.startswith("pipe:") or not is_unicode(name):
        return None, f"{shortened(name)!r} is not a file path"
    if is_contained and Path(os.path.normpath(name)).parts[0] in {"..", "/", "//"}:
        # Links are followed: the Hugging Face cache consists of links.
        return None, f"{shortened(name)} is outside the directory of its metadata"
    root = roots[-1]
    if len(roots) > 1:  # else there is nothing to look for
        root = next((one for one in roots if os.path.lexists(one / name)), root)
    return read_file(root / name, name, MAX_BYTES, log)


def _with_image(read: ReadImage, pair: Pair) -> Pair:
    image, flaw = (None, pair.flaw) if pair.flaw else read(pair.image)
    return pair._replace(image=image, flaw=flaw)


# -- values


def captions_in(value: object) -> tuple[list[str], str | None]:
    """The texts of a field that is a text or a list, and what is wrong if one is not text.

    >>> captions_in(["a cat", None]), captions_in(["a cat", 5])
    ((['a cat'], None), ([], 'a caption is 5, not text'))
    """
    found: list[str] = []
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, str):
            found.append(one)
        elif not is_missing(one):
            shown = one.text if isinstance(one, Typed) else repr(one)
            if isinstance(one, memoryview):
                shown = repr(bytes(one))
            return [], f"a caption is {shortened(shown)}, not text"
    return found, None


def _spread(captions: list[str]) -> list[str]:
    """The captions, with its texts in place of each that spells a list."""
    lists = [listed_in(text) for text in captions]
    return [
        one
        for text, found in zip(captions, lists, strict=True)
        for one in ([text] if found is None else found)
    ]


def listed_in(text: str) -> list[str] | None:
    """The texts of a list that is spelled as JSON, Python or NumPy print it; None for other text.

    >>> listed_in('["a", null]'), listed_in("['a', 'b']"), listed_in("['a' 'b']"), listed_in("[a]")
    (['a'], ['a', 'b'], ['a', 'b'], None)
    """
    text = text.strip()
    if text[:1] != "[" or text[-1:] != "]":
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        if not _LIST.fullmatch(text):
            return None
        # One by one: to Python, 'a' 'b' is a single text.
        found = [ast.literal_eval(one) for one in re.findall(_TEXT, text)]
    texts, no_text = captions_in(found)
    return None if no_text or not all(map(is_unicode, texts)) else texts


def _kept(record: Record, names: Iterable[str]) -> tuple[KeptValues, str | None]:
    """The distinct values of the kept columns of a record, as text, and None.

    If one is an object or a list of lists, which has no plain text: (), and the reason.
    """
    kept = []
    for name in names:
        value = record.get(name)
        if not _can_be_kept(value):
            return (), f"its {name!r:.80} is an object or a nested list, which cannot be kept"
        values = value if isinstance(value, list) else [value]
        kept.append(distinct(map(kept_text, values)))
    return tuple(kept), None


def _can_be_kept(value: object) -> bool:
    return not any(map(_is_compound, value if isinstance(value, list) else [value]))


def is_missing(value: object) -> bool:
    """Whether a value is None or NaN, which pandas writes for a missing one."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def kept_text(value: object) -> str | None:
    """A scalar as text, the same for every kind of source; None if it is missing or empty.

    >>> kept_text(42), kept_text(42.0), kept_text(0.5), kept_text(True), kept_text("")
    ('42', '42', '0.5', 'true', None)
    """
    if isinstance(value, Typed):
        return value.kept or None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isnan(value):
        return str(int(value)) if value.is_integer() and abs(value) < _WHOLE else repr(value)
    return None if is_missing(value) else str(value) or None


def text_of(value: object) -> str | None:
    """A scalar field as text; None if it is missing, a list or an object."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Typed):
        return value.text
    if isinstance(value, bytes | memoryview):
        return str(value, "utf-8")
    return None if is_missing(value) or _is_compound(value) else str(value)


def value_of(value: object) -> str | int | float | None:
    """A field that decides the task: a number stays one, so that it sorts by value; else text."""
    if isinstance(value, Typed):
        return value.value
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63:
        return value
    return text_of(value)


def _is_compound(value: object) -> bool:
    return isinstance(value, list | dict)


def is_unicode(value: object) -> bool:
    """Whether a value can be encoded as UTF-8; True for values that are not text."""
    try:
        if isinstance(value, str):
            value.encode()
    except UnicodeEncodeError:
        return False
    return True

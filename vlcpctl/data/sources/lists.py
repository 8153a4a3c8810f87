"""Read lists of images and captions: CSV and TSV, JSON Lines, and the JSON lists of papers.

JSON lists (ALBEF's, Karpathy's, COCO's, P9D's) are decoded whole. Of text between tabs, quotation
marks are part of the values, as in the files of CC3M, whose captions may begin with one.
"""

from __future__ import annotations

import csv
import json
import os
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import msgspec

from vlcpctl.core.errors import BadInput
from vlcpctl.core.machine import memory_limit
from vlcpctl.core.words import shortened
from vlcpctl.core.words import size as in_words
from vlcpctl.data.sources.source import (
    FIRST_ROWS,
    FLAW,
    IMAGE_SUFFIXES,
    MOST_COLUMNS,
    RECORD_LENGTH,
    TABLES,
    Record,
    Row,
    Start,
    Wants,
)
from vlcpctl.files.inputs import open_regular, open_text

JSON, JSON_LINES = frozenset({".json"}), frozenset({".jsonl", ".ndjson"})
_SEPARATORS = "\t,;|"
_MALFORMED = "malformed line"
_FURTHER_ROWS = (
    "a value in quotation marks has line breaks and separators, and may hold further rows"
)
_NO_RECORD = "expected a record in braces"
_PARTS_OF_COCO = frozenset(
    {"images", "annotations", "info", "licenses", "type", "dataset", "categories"}
)
_START = 2**20
_LINE_END = re.compile(r"[\r\n]")
_QUOTED = re.compile(r'"(?:[^"]|"")*"')


def listed(path: Path, wants: Wants) -> Iterator[Row]:
    """The records of a list, one for each row, line or listed image; `wants` is not needed.

    A row or line that is malformed has a flaw: those after it can still be read. Raises BadInput if
    the list is.
    """
    del wants
    found: Iterator[Row]
    if path.suffix in TABLES:
        found = enumerate(_table(path))
    elif _is_lines(path):
        found = enumerate(_lines(path))
    else:
        found = _whole(path)
    for place, record in found:
        yield place, _described(record)


def begin_list(path: Path) -> Start:
    """The columns of the first record, in JSON Lines of the first 100; and the first 100 records.

    Raises BadInput if there are none, if none is readable, or beyond `MOST_COLUMNS`.
    """
    records = [record for _, record in islice(listed(path, Wants()), FIRST_ROWS)]
    if not records:
        raise BadInput(f"{path} lists no images")
    # Writers of JSON Lines leave out fields without a value.
    naming = records if path.suffix not in TABLES and _is_lines(path) else records[:1]
    names = list(dict.fromkeys(name for record in naming for name in record if name != FLAW))
    if len(names) > MOST_COLUMNS:
        raise BadInput(f"{path} has {len(names)} columns, the limit is {MOST_COLUMNS}")
    found = records[0].get(FLAW)
    if not names and isinstance(found, tuple):
        raise BadInput(f"{path}, {found[1]}")
    return Start(names, records)


def _not_utf8(error: UnicodeDecodeError) -> str:
    """What a file is that is not UTF-8, with the command that converts it, for messages."""
    marks = (BOM_UTF16_LE, BOM_UTF16_BE)
    encoding = "utf-16" if error.object.startswith(marks) else "latin1"
    return (
        f"not UTF-8: {error}; if it is {encoding}, convert it with: "
        f"iconv -f {encoding} -t utf-8 FILE > NEW"
    )


# -- CSV and TSV


def _table(path: Path) -> Iterator[Record]:
    """One record per row; empty values are None."""
    last = 0  # the line with the end of the last row
    try:
        with open_text(path, newline="") as file:
            header = file.readline(2**16)
        separator = max(_SEPARATORS, key=header.count)
        # A program that quotes values between tabs may quote all of them, those of the header too.
        is_quoted = separator != "\t" or header.startswith('"')
        csv.field_size_limit(RECORD_LENGTH)  # the default, 131072, is less than some captions have
        with open_text(path, newline="") as file:
            lines = _RowLines(file)
            rows = csv.reader(
                lines,
                delimiter=separator,
                strict=True,
                quoting=csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE,
            )
            names = next(rows, [])
            twice = [name for name, count in Counter(names).items() if name and count > 1]
            if twice:
                raise BadInput(f"{path} has two columns named {shortened(twice[0])!r}")
            last = rows.line_num
            for row in rows:
                first, last, lines.of_row = last + 1, rows.line_num, 0
                values = row if is_quoted else list(map(_without_marks, row))
                if last > first and _may_hold_rows(values, separator):
                    found = f"lines {first} to {last}: {_FURTHER_ROWS}"
                    yield {**dict.fromkeys(names), FLAW: (_MALFORMED, found)}
                elif values:
                    yield _row(names, values, separator)
    except csv.Error as error:
        why = f"{error}; a quotation mark of its row may lack its partner"
        raise BadInput(f"{path}, line {last + 1}: {why}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is {_not_utf8(error)}") from error


def _row(names: list[str], values: list[str], separator: str) -> Record:
    if len(values) > len(names) == 2:
        # Flickr30k's lists of 'image,caption' do not quote captions that contain commas.
        values = [values[0], separator.join(values[1:])]
    if len(values) != len(names):
        found = f"{len(values)} values where the first line names {len(names)} columns"
        return {**dict.fromkeys(names), FLAW: (_MALFORMED, found)}
    # A column without a name, such as the index that pandas writes, has no role.
    return {name: value or None for name, value in zip(names, values, strict=True) if name}


def _without_marks(value: str) -> str:
    """A value between tabs; without marks if these are doubled within, so that it was quoted."""
    inner = value[1:-1]
    return inner.replace('""', '"') if '""' in inner and _QUOTED.fullmatch(value) else value


def _may_hold_rows(values: list[str], separator: str) -> bool:
    """Whether a row of several lines may hold further rows in a value.

    A quotation mark that lacks its partner pairs with that of a later row. What is between them
    has the names of images, unless no value of the table looks like one.
    """
    wide = [value for value in values if separator in value and _LINE_END.search(value)]
    inner = [cell for value in wide for cell in re.split(rf"[{separator}\r\n]", value)]
    return bool(wide) and not (_names_image(values) and not _names_image(inner))


def _names_image(values: list[str]) -> bool:
    return any(value.strip().lower().endswith(IMAGE_SUFFIXES) for value in values)


class _RowLines:
    """The lines of a file, as long as those of one row are within `RECORD_LENGTH` characters.

    A quotation mark without its partner would otherwise make the rest of the file one row.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.of_row = 0  # characters read since the last row

    def __iter__(self) -> Iterator[str]:
        while line := self._file.readline(RECORD_LENGTH + 1):
            self.of_row += len(line)
            if self.of_row > RECORD_LENGTH:
                raise csv.Error(f"a row that does not end within {RECORD_LENGTH} characters")
            yield line


# -- JSON Lines


def _is_lines(path: Path) -> bool:
    """Whether a file has JSON Lines. Its start says so; only if that is malformed, its suffix.

    Programs write lists and lines under either suffix, such as `Dataset.to_json("train.json")`.
    """
    with open_regular(path) as file:
        start = file.read(_START).removeprefix(BOM_UTF8).lstrip()
    line, _, more = (part.strip() for part in start.partition(b"\n"))
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError):  # a line of a longer value, or damaged
        opens = line[:1] == b"[" or (line == b"{" and more[:1] == b'"')
        return path.suffix in JSON_LINES and not opens
    if not isinstance(record, dict):
        return path.suffix in JSON_LINES and not isinstance(record, list)
    # A line may be a whole list: of objects by their ids (P9D), or one of COCO or Karpathy.
    holds_objects = any(isinstance(value, dict) for value in record.values())
    return bool(more) or not (holds_objects or _PARTS_OF_COCO & record.keys())


def _lines(path: Path) -> Iterator[Record]:
    """One record per line that is not blank. Raises BadInput for one beyond `RECORD_LENGTH`."""
    with open_regular(path) as file:
        number = 0
        while line := file.readline(RECORD_LENGTH + 1):
            number += 1
            if len(line) > RECORD_LENGTH:
                raise BadInput(
                    f"{path}, line {number}: a line that does not end within {RECORD_LENGTH} bytes"
                )
            if number == 1:
                line = line.removeprefix(BOM_UTF8)
            if line := line.strip():
                try:
                    value, why = _decoded(line), _NO_RECORD
                except (ValueError, RecursionError) as error:
                    value, why = None, _malformed(error)
                is_record = isinstance(value, dict)
                yield value if is_record else {FLAW: (_MALFORMED, f"line {number}: {why}")}


def _decoded(data: bytes) -> Any:
    """A value of JSON, ten times as fast as by `json`, which takes NaN and lone surrogates, too.

    Raises ValueError or RecursionError if it is malformed or not UTF-8.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError):
        return json.loads(data.decode())  # of bytes, it would accept UTF-16 and UTF-32 as well


def _malformed(error: ValueError | RecursionError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"it is {_not_utf8(error)}"
    if isinstance(error, json.JSONDecodeError):
        return f"character {error.pos}: {error.msg}"
    return str(error)  # digits by the thousand, brackets


# -- JSON lists


def _whole(path: Path) -> Iterator[Row]:
    """The listed images, each with its number or its id.

    Raises BadInput if the file is too large, not well-formed JSON or not a known kind of list.
    """
    with open_regular(path) as file:
        size, limit = os.fstat(file.fileno()).st_size, memory_limit() // 10
        if size > limit:
            raise BadInput(
                f"{path} is a JSON list of {in_words(size)}, which is decoded whole; more than a "
                f"tenth of the memory, {in_words(limit)}, is refused: write it as JSON Lines"
            )
        data = file.read()
    try:
        found = _decoded(data.removeprefix(BOM_UTF8))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}, {_malformed(error)}") from error
    del data
    if isinstance(found, list):
        yield from ((number, _record(path, number, one)) for number, one in enumerate(found))
    elif not isinstance(found, dict):
        raise BadInput(f"{path} is not a JSON list of pairs: it is {shortened(repr(found))}")
    elif next(iter(found), None) in _PARTS_OF_COCO:
        yield from _images(path, found)
    else:
        for name, inner in found.items():
            yield from _products(path, name, inner)


def _products(path: Path, name: str, inner: Any) -> Iterator[Row]:
    """One P9D product under its id, or the products of one industry under theirs.

    Its image is named after its id.
    """
    if not isinstance(inner, dict):
        raise BadInput(f"{path}: {shortened(name)!r} is neither a pair nor a task with pairs by id")
    if isinstance(next(iter(inner.values()), None), dict):
        for key, record in inner.items():
            own = {"item_id": key, "image": f"{key}.jpg", "industry_name": name}
            yield key, {**own, **_record(path, key, record)}
    elif inner:
        yield name, {"item_id": name, "image": f"{name}.jpg", **inner}


def _images(path: Path, found: dict[str, Any]) -> Iterator[Row]:
    """The images of a Karpathy list with their sentences, or of COCO with their annotations."""
    captions: dict[str, list[object]] | None = None
    images = found.get("images")
    for number, one in enumerate(images if isinstance(images, list) else [images]):
        image = _record(path, number, one)
        if "sentences" in image:
            yield number, image
            continue
        if captions is None:
            captions = _annotations(path, found.get("annotations"))
        of_image = captions.get(str(image.get("id")), [])
        yield number, {"image": image.get("file_name"), "captions": of_image, **image}


def _annotations(path: Path, annotations: Any) -> dict[str, list[object]]:
    """COCO's captions by image id, which come in no particular order."""
    captions: dict[str, list[object]] = defaultdict(list)
    for number, one in enumerate(annotations if isinstance(annotations, list) else ()):
        caption = _record(path, number, one).get("caption")
        if caption is not None:
            captions[str(one.get("image_id"))].append(caption)
    if not captions:
        lacking = "its annotations have no 'caption'; captions_*.json of the same data set has"
        expected = lacking if annotations else "expected 'sentences' or 'annotations'"
        raise BadInput(f"{path} lists images without captions ({expected})")
    return captions


def _record(path: Path, where: object, value: Any) -> Record:
    if not isinstance(value, dict):
        raise BadInput(f"{path}, {where}: {_NO_RECORD}")
    return value


def _described(record: Record) -> Record:
    """The record; one of Karpathy's with its path in one field, and its captions as texts."""
    sentences = record.get("sentences")
    parts = [record.get(name) for name in ("filepath", "filename")]
    texts = [part for part in parts if isinstance(part, str)]
    if not isinstance(sentences, list) and len(texts) < 2:
        return record
    if len(texts) == 2 and texts[0].endswith(texts[1]):  # the first is the whole path
        texts.pop()
    found: Record = {"image": "/".join(texts)}
    if isinstance(sentences, list):
        found["captions"] = [one.get("raw") if isinstance(one, dict) else one for one in sentences]
    if keys := [record[name] for name in ("cocoid", "imgid") if name in record]:
        found["image_id"] = keys[0]
    return {**found, **record}

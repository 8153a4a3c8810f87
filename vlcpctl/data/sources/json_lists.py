"""Read records from the JSON lists of ALBEF, Karpathy, COCO captions and P9D.

A list is read one value at a time, so that memory does not grow with the file. Values are decoded
whole by `json`, in C. ijson's `items` is as fast, but reads one list per pass; building values from
its events takes twice as long. It also turns lone surrogates into question marks, and refuses NaN.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import shortened
from vlcpctl.data.sources.columns import not_utf8
from vlcpctl.data.sources.limits import CAPTIONS_HELD, RECORD_LENGTH
from vlcpctl.data.sources.records import Record
from vlcpctl.files.inputs import open_regular, open_text

NumberedRecord = tuple[str | int, Record]
NO_RECORD = "expected a record in braces"

_PARTS_OF_COCO = frozenset(
    {"images", "annotations", "info", "licenses", "type", "dataset", "categories"}
)
JSON, JSON_LINES = frozenset({".json"}), frozenset({".jsonl", ".ndjson"})
_PIECE = 2**20
_SPACE = re.compile(r"[ \t\r\n]*")


def is_lines(path: Path) -> bool:
    """Whether a file has JSON Lines. Its start says so; only if that is malformed, its suffix.

    Programs write lists and lines under either suffix, such as `Dataset.to_json("train.json")`.
    """
    with open_regular(path) as file:
        start = file.read(_PIECE).removeprefix(BOM_UTF8).lstrip()
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


def json_records(path: Path) -> Iterator[NumberedRecord]:
    """One record per listed image, with its number or its id.

    Raises BadInput if the file is not well-formed JSON or not one of the known kinds of list.
    """
    with open_json(path) as reader:
        start = reader.peek()
        if start == "[":
            yield from _listed(reader)
        elif start == "{":
            yield from _keyed(reader)
        else:
            raise BadInput(f"{path} is not a JSON list of pairs: it starts with {start!r}")
        reader.end()


def _listed(reader: JsonReader) -> Iterator[NumberedRecord]:
    """The records of an ALBEF list, which is an array."""
    for number in reader.elements():
        yield number, described(_record(reader))


def _keyed(reader: JsonReader) -> Iterator[NumberedRecord]:
    """The records of COCO and Karpathy lists, known by their first key, or of P9D lists."""
    is_coco = False
    for number, name in enumerate(reader.members()):
        if number == 0:
            is_coco = name in _PARTS_OF_COCO
        if is_coco and name == "images":
            yield from _images(reader)
        elif is_coco:
            reader.skip()
        elif reader.peek() != "{":
            raise reader.error(f"{shortened(name)!r} is neither a pair nor a task with pairs by id")
        else:
            yield from _products(reader, name)


def _products(reader: JsonReader, name: str) -> Iterator[NumberedRecord]:
    """One P9D product under its id, or the products of one industry under theirs."""
    record: Record = {}
    holds_records = False
    for number, inner in enumerate(reader.members()):
        if number == 0:
            holds_records = reader.peek() == "{"
        if holds_records:
            yield inner, _product(inner, {"industry_name": name, **_record(reader)})
        else:
            record[inner] = reader.value()
    if record:
        yield name, _product(name, record)


def _product(name: str, record: Record) -> Record:
    """A P9D record; its image is named after its id."""
    return {"item_id": name, "image": f"{name}.jpg", **record}


def _images(reader: JsonReader) -> Iterator[NumberedRecord]:
    """The images of a Karpathy list with their sentences, or of COCO with their annotations."""
    captions: dict[str, list[object]] | None = None
    for number in reader.elements():
        image = _record(reader)
        if "sentences" in image:
            yield number, described(image)
            continue
        if captions is None:
            captions = _annotations(reader.path)
        of_image = captions.get(str(image.get("id")), [])
        yield number, {"image": image.get("file_name"), "captions": of_image, **image}


def described(record: Record) -> Record:
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


def _annotations(path: Path) -> dict[str, list[object]]:
    """COCO's captions by image id; they come in no particular order, so all are kept in memory."""
    captions: dict[str, list[object]] = defaultdict(list)
    length = 0
    has_annotations = False
    with open_json(path) as reader:
        for name in reader.members():
            if name != "annotations":
                reader.skip()
                continue
            for _ in reader.elements():
                has_annotations = True
                annotation = _record(reader)
                caption = annotation.get("caption")
                if caption is not None:
                    captions[str(annotation.get("image_id"))].append(caption)
                    length += len(caption if isinstance(caption, str) else repr(caption))
                if length > CAPTIONS_HELD:
                    raise reader.error(
                        f"captions of more than {CAPTIONS_HELD} characters, which are all held in "
                        "memory; write a list with the captions beside each image"
                    )
    if not captions:
        lacking = "its annotations have no 'caption'; captions_*.json of the same data set has"
        expected = lacking if has_annotations else "expected 'sentences' or 'annotations'"
        raise BadInput(f"{path} lists images without captions ({expected})")
    return captions


def _record(reader: JsonReader) -> Record:
    if reader.peek() != "{":
        raise reader.error(NO_RECORD)
    found: Record = reader.value()
    return found


@contextmanager
def open_json(path: Path) -> Iterator[JsonReader]:
    """A reader at the start of a UTF-8 file, with or without a byte order mark."""
    with open_text(path) as file:
        yield JsonReader(path, file)


class JsonReader:
    """Walks lists and objects of any length, and decodes the values in them one at a time.

    Every method raises BadInput, with the position in the file, if the JSON is malformed.
    """

    def __init__(self, path: Path, file: TextIO) -> None:
        self.path = path
        self._file = file
        self._decoder = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self._dropped = 0  # characters before the text in memory
        self._more()

    def peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def value(self) -> Any:
        """The next value, decoded. Raises BadInput if it is not valid JSON."""
        self.peek()
        while True:
            try:
                found, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._more():
                    raise self.error(error.msg) from error
                continue
            except (ValueError, RecursionError) as error:  # digits by the thousand, brackets
                raise self.error(str(error)) from error
            # A number may continue after what has been read: 1.5, then e+16.
            if end + len("e+1") <= len(self._text) or not self._more():
                self._at = end
                return found

    def skip(self) -> None:
        """Skip the next value; a list is skipped one element at a time."""
        if self.peek() == "[":
            for _ in self.elements():
                self.value()
        else:
            self.value()

    def elements(self) -> Iterator[int]:
        """Yield the number of each element of a list; the caller must then read the element."""
        self._take("[")
        number = 0
        while self.peek() != "]":
            if number:
                self._take(",")
            yield number
            number += 1
        self._take("]")

    def members(self) -> Iterator[str]:
        """Yield the name of each value of an object; the caller must then read the value."""
        self._take("{")
        is_first = True
        while self.peek() != "}":
            if not is_first:
                self._take(",")
            is_first = False
            if self.peek() != '"':
                raise self.error("expected a name in quotes")
            name = str(self.value())
            self._take(":")
            yield name
        self._take("}")

    def end(self) -> None:
        """Raise BadInput if more text follows."""
        if self.peek():
            raise self.error("unexpected text after the end")

    def error(self, what: str) -> BadInput:
        """The error for a problem at the current position."""
        return BadInput(f"{self.path}, character {self._dropped + self._at}: {what}")

    def _take(self, character: str) -> None:
        found = self.peek()
        if found != character:
            raise self.error(f"expected {character!r}, found {found or 'the end of the file'!r}")
        self._at += 1

    def _more(self) -> bool:
        """Read more text; False, with nothing changed, at the end of the file."""
        left = len(self._text) - self._at
        if left > RECORD_LENGTH:
            raise self.error(f"a value that does not end within {RECORD_LENGTH} characters")
        try:
            # At least as much again as is left: a long value, which is decoded again from its start
            # every time, then takes linear time.
            piece = self._file.read(max(_PIECE, left))
        except UnicodeDecodeError as error:
            raise BadInput(f"{self.path} is {not_utf8(error)}") from error
        if not piece:
            return False
        self._dropped += self._at
        self._text = self._text[self._at :] + piece
        self._at = 0
        return True

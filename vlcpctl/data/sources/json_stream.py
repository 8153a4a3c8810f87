"""Read a JSON text one value at a time, so that memory does not grow with the file.

Values are decoded whole by `json`, in C. ijson's `items` is as fast, but reads one list per pass;
building values from its events takes twice as long. It also turns lone surrogates into question
marks, and refuses NaN.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from vlcpctl.core.errors import BadInput
from vlcpctl.core.input_files import open_text
from vlcpctl.data.sources.limits import JSON_DEPTH, RECORD_LENGTH, is_too_deep

_PIECE = 2**20
_SPACE = re.compile(r"[ \t\r\n]*")
_TOO_DEEP = f"a value nested more than {JSON_DEPTH} levels deep"


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
            except RecursionError as error:
                raise self.error(_TOO_DEEP) from error
            except ValueError as error:  # Python refuses integers of thousands of digits
                raise self.error("an integer with too many digits") from error
            # A number may continue after what has been read: 1.5, then e+16.
            if end + len("e+1") <= len(self._text) or not self._more():
                self._check_depth(found, end)
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

    def _check_depth(self, value: Any, end: int) -> None:
        brackets = self._text.count("[", self._at, end) + self._text.count("{", self._at, end)
        if brackets > JSON_DEPTH and is_too_deep(value):
            raise self.error(_TOO_DEEP)

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
            raise BadInput(f"{self.path} is not UTF-8: {error}") from error
        if not piece:
            return False
        self._dropped += self._at
        self._text = self._text[self._at :] + piece
        self._at = 0
        return True

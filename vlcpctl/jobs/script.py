"""Command lines of a batch file, split into words as a shell would, without running one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os.path import normpath

from vlcpctl.core.errors import UsageError

# Escaped or quoted text, which a shell takes literally; not $ or ` inside double quotes.
_LITERAL = re.compile(r"""\\.|'[^']*'|"(?:[^"$`\\]|\\.)*\"""")
_COMMENT = re.compile(r"(?:^|\s)#")
_WITHIN = re.compile("[=:,]")  # a word may contain paths after these: --option=PATH, kind:PATH
_SHELL = re.compile(r"[|&;<>()$`*?\[\]{}]|(?<!\S)~")


@dataclass(frozen=True)
class CommandLine:
    """The words of one line without the program's name, and the number of the line, from 1."""

    number: int
    words: tuple[str, ...]

    @property
    def is_barrier(self) -> bool:
        """Whether this is `wait`: later lines start only when all earlier lines have ended."""
        return self.words == ("wait",)

    @property
    def makes(self) -> str | None:
        """The path the line writes: the normalised value of its --out, or None.

        >>> CommandLine(1, ("buffer", "stream/00", "-o", "./b/00")).makes
        'b/00'
        >>> CommandLine(1, ("buffer", "stream/00", "-ob/00")).makes
        'b/00'
        """
        for word, following in zip(self.words, (*self.words[1:], ""), strict=True):
            if word in {"-o", "--out"}:
                return normpath(following)
            if word.startswith("--out="):
                return normpath(word.removeprefix("--out="))
            if word.startswith("-o"):
                return normpath(word.removeprefix("-o"))
        return None

    def reads(self, made: Iterable[str | None]) -> bool:
        """Whether a word of the line names one of these outputs or a path inside one.

        >>> CommandLine(1, ("check", "runs/a/00")).reads({"runs/a"})
        True
        >>> CommandLine(1, ("split", "--labels-from=checkpoint:runs/a/00")).reads({"runs/a"})
        True
        """
        parts = [part for word in self.words for part in (word, *_WITHIN.split(word))]
        words = {normpath(part) for part in parts if part}
        return any(
            path is not None and any(f"{word}/".startswith(f"{path}/") for word in words)
            for path in made
        )

    def __str__(self) -> str:
        return "wait" if self.is_barrier else shlex.join(["vlcpctl", *self.words])


def parse(text: str) -> list[CommandLine]:
    r"""The command lines of a text, without comments and blank lines, continued lines joined.

    Raises UsageError, with the line's number, for shell syntax and unclosed quotes.

    >>> [str(line) for line in parse("# first\nvlcpctl check 'a b' \\\n  c\n\nwait\nmethods")]
    ["vlcpctl check 'a b' c", 'wait', 'vlcpctl methods']
    """
    lines = []
    for number, line in _joined(text):
        words = _words(number, line)
        if words[:1] == ["vlcpctl"]:
            del words[0]
        if words:
            lines.append(CommandLine(number, tuple(words)))
    return lines


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; a backslash at the end of a line joins it with the next."""
    begun, start = "", 1
    for number, line in enumerate(text.splitlines(), start=1):
        if not begun:
            start = number
        if line.endswith("\\"):
            begun += line[:-1]
        else:
            yield start, begun + line
            begun = ""
    if begun:
        yield start, begun


def _words(number: int, line: str) -> list[str]:
    bare = _LITERAL.sub(lambda match: "x" * len(match[0]), line)
    comment = _COMMENT.search(bare)
    end = comment.start() if comment else len(line)
    special = _SHELL.search(bare[:end])
    if special:
        raise UsageError(
            f"line {number}: {special[0]!r} is shell syntax, and batch does not use a shell; "
            "quote it, write the word out, or use --out instead of a redirection"
        )
    try:
        return shlex.split(line[:end])
    except ValueError as error:
        raise UsageError(f"line {number}: {str(error).lower()}") from error

"""Command lines of a batch file, split into words as a shell would, without running one."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from vlcpctl.core.errors import UsageError
from vlcpctl.files.inputs import matching
from vlcpctl.jobs.resources import MARK, NOTHING, Resources, parse_resources

# Escaped or quoted text, which a shell takes literally; not $ or ` inside double quotes.
_LITERAL = re.compile(r"""\\.|'[^']*'|"(?:[^"$`\\]|\\.)*\"""")
_COMMENT = re.compile(r"(?:^|\s)#")
_ENDS_WITH_O = re.compile("-[a-zA-Z]*o")  # alone, or after short options without a value: -qo
_WITHIN = re.compile("[=:,]")  # a word may contain paths after these: --option=PATH, kind:PATH
_SHELL = re.compile(r"[|&;<>()$`\[\]{}]|(?<!\S)~")
_WILDCARD = re.compile(r"(\[.\]|[*?])")  # of a Glob: literal in brackets, or not
# What stands for * and ? that are not quoted while a line is split: no character of any text.
_MARKS = {"*": "\U0010fffe", "?": "\U0010ffff"}


class Glob(str):
    """A word with * or ? that stand for any text: the names that it matches when its line starts.

    Those that are quoted are in brackets, as `glob` takes them.
    """

    __slots__ = ()


def expanded(words: Iterable[str]) -> Iterator[str]:
    """The words with the paths that globs match now, sorted; one that matches none stays."""
    for word in words:
        yield from (matching(word) if isinstance(word, Glob) else ()) or (word,)


def shell_text(words: Iterable[str]) -> str:
    """The words as a shell takes them."""
    return " ".join(
        _quoted(word) if isinstance(word, Glob) else shlex.quote(word) for word in words
    )


def _quoted(word: Glob) -> str:
    parts = (part[1] if part.startswith("[") else part for part in _WILDCARD.split(word))
    return "".join(
        part if part in _MARKS and len(given) == 1 else shlex.quote(part)
        for part, given in zip(parts, _WILDCARD.split(word), strict=True)
        if part
    )


@dataclass(frozen=True)
class CommandLine:
    """The words of one line without the program's name, and the number of the line, from 1."""

    number: int
    words: tuple[str, ...]
    resources: Resources = NOTHING  # from comments, for other engines

    @property
    def is_barrier(self) -> bool:
        """Whether this is `wait`: later lines start only when all earlier lines have ended."""
        return self.words == ("wait",)

    @cached_property
    def makes(self) -> str | None:
        """The real path that the line writes: the value of its --out or --state, or None.

        >>> made = [CommandLine(1, ("buffer", "stream/00", out)) for out in ("-ob/0", "--out=b/0")]
        >>> [line.makes == os.path.realpath("b/0") for line in made]
        [True, True]
        """
        written = self.value_of("--state") if self._out is None else self._out[0]
        return None if written is None else _place(written)

    def reads(self, made: Iterable[str | None]) -> bool:
        """Whether a word of the line names one of these outputs or a path inside one.

        Its own output counts, since two writers would collide, but not that of a shard: the shards
        of an output are made side by side.

        >>> made = {CommandLine(1, ("buffer", "stream/00", "-o", "runs/a")).makes}
        >>> CommandLine(2, ("check", "runs/a/00")).reads(made)
        True
        >>> CommandLine(2, ("split", "--labels-from=checkpoint:runs/a/00")).reads(made)
        True
        >>> CommandLine(2, ("distill", "--num-shards", "2", "-o", "runs/a")).reads(made)
        False
        """
        return any(
            path is not None
            and (
                any(f"{word}/".startswith(f"{path}/") for word in self._places)
                or path.startswith(self._starts)
            )
            for path in made
        )

    @property
    def is_shard(self) -> bool:
        """Whether the line makes a part of its output.

        >>> line = ("eval-retrieval", "a", "-o", "rows", "--num-shards=2")
        >>> CommandLine(1, (*line, "--shard-index", "0")).is_shard, CommandLine(2, line).is_shard
        (True, False)
        """
        # The last shard of distill joins all; that of an evaluation needs a line of its own.
        option = "--num-shards" if self.words[:1] == ("distill",) else "--shard-index"
        return self.value_of(option) is not None

    def value_of(self, option: str) -> str | None:
        """The text after a long option; None if the line does not have it.

        >>> CommandLine(1, ("train-step", "a", "--nproc=2")).value_of("--nproc")
        '2'
        """
        for word, following in zip(self.words, (*self.words[1:], ""), strict=True):
            name, equals, value = word.partition("=")
            if name == option:
                return value if equals else following
        return None

    def follows(self, earlier: CommandLine) -> bool:
        """Whether the line reads what an earlier one writes, or writes what that one reads."""
        return self.reads([earlier.makes]) or earlier.reads([self.makes])

    @cached_property
    def _out(self) -> tuple[str, tuple[str, ...]] | None:
        """The value of --out, and the words without it; None if it is not given."""
        for number, word in enumerate(self.words):
            before, after = self.words[:number], self.words[number + 1 :]
            if word == "--out" or _ENDS_WITH_O.fullmatch(word):
                return (after or ("",))[0], before + after[1:]
            if word.startswith(("-o", "--out=")):
                return word.removeprefix("--out=").removeprefix("-o"), before + after
        return None

    @cached_property
    def _places(self) -> set[str]:
        """The real paths that the words, and what they contain, may name."""
        words = self._out[1] if self._out and self.is_shard else self.words
        parts = {part for word in words for part in (word, *_WITHIN.split(word))}
        return {_place(part) for part in parts if part}

    @cached_property
    def _starts(self) -> tuple[str, ...]:
        """What the real paths that globs may match start with."""
        starts = (_WILDCARD.split(word)[0] for word in self.words if isinstance(word, Glob))
        return tuple(_place(f"{start}x").removesuffix("x") for start in starts)

    def __str__(self) -> str:
        return "wait" if self.is_barrier else shell_text(["vlcpctl", *self.words])


def _place(path: str) -> str:
    """The real path, so that two spellings are equal; text that cannot be a path as it is."""
    return path if "\0" in path else os.path.realpath(path)


def parse(text: str, *, has_resources: bool = False) -> list[CommandLine]:
    r"""The command lines of a text, without comments and blank lines, continued lines joined.

    With `has_resources`, a comment `#: gpus=8` is for its line, or, on a line of its own, for all
    later ones.
    Raises UsageError, with the line's number, for shell syntax and unclosed quotes.

    >>> [str(line) for line in parse("# first\nvlcpctl check 'a b' \\\n  c\n\nwait\nmethods")]
    ["vlcpctl check 'a b' c", 'wait', 'vlcpctl methods']
    """
    lines, usual = [], NOTHING
    for number, line in _joined(text):
        words, comment = _words(number, line)
        asked = comment.removeprefix(MARK) if has_resources and comment.startswith(MARK) else ""
        try:
            resources = parse_resources(asked, usual)
        except UsageError as error:
            raise UsageError(f"line {number}: {error}") from error
        if words[:1] == ["vlcpctl"]:
            del words[0]
        if words:
            lines.append(CommandLine(number, tuple(words), resources))
        else:
            usual = resources
    return lines


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; a backslash at the end of a line joins it with the next."""
    begun, start = "", 1
    for number, line in enumerate(text.split("\n"), start=1):
        if not begun:
            start = number
        if line.endswith("\\") and (begun or not line.lstrip().startswith("#")):
            begun += line[:-1]
        else:
            yield start, begun + line
            begun = ""
    if begun:
        yield start, begun


def _words(number: int, line: str) -> tuple[list[str], str]:
    """The words of a line, and its comment."""
    bare = _LITERAL.sub(lambda match: "x" * len(match[0]), line)
    comment = _COMMENT.search(bare)
    end = comment.start() if comment else len(line)
    special = _SHELL.search(bare[:end])
    if special:
        raise UsageError(
            f"line {number}: {special[0]!r} is shell syntax, and batch does not use a shell; "
            "quote it, write the word out, or use --out instead of a redirection"
        )
    given = "".join(_MARKS.get(plain, char) for char, plain in zip(line[:end], bare, strict=False))
    try:
        words = shlex.split(given)
    except ValueError as error:
        raise UsageError(f"line {number}: {str(error).lower()}") from error
    return [_unmarked(word) for word in words], line[end:].strip()


def _unmarked(word: str) -> str:
    if not any(mark in word for mark in _MARKS.values()):
        return word
    pattern = glob.escape(word)
    for char, mark in _MARKS.items():
        pattern = pattern.replace(mark, char)
    return Glob(pattern)

"""What every layout of a data set has: pairs are added one by one, then it is closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.export.pairs import ExportedPair, Selection

DEFAULT_SHARD_BYTES = 256_000_000


@dataclass(frozen=True)
class Target:
    """Where an export is written, what it will contain, and the most bytes of one shard."""

    directory: Path
    selection: Selection
    shard_bytes: int = DEFAULT_SHARD_BYTES


class Layout(ABC):
    """Writes pairs in the layout of another program, with little more than a shard in memory."""

    @abstractmethod
    def add(self, pair: ExportedPair) -> None:
        """Append a pair. Raises BadInput if the layout cannot represent it."""

    @abstractmethod
    def close(self) -> None:
        """Finish the files; called once, after the last pair."""

    @abstractmethod
    def abandon(self) -> None:
        """Close open files after an error; what they contain does not matter. Raises nothing."""


def one_line(text: str) -> str:
    r"""A caption with a space for each line break, of any kind that `str.splitlines` knows.

    Tokenizers make a space of white space anyway, and CLIP_benchmark splits lines in this way.

    >>> one_line("a\r\nb\u2028c")
    'a b c'
    """
    return " ".join(text.splitlines())

"""A case of the table: a fault or hostile input, the command that is run, and how it may end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Case:
    """One row of the table; `prepare` makes the fault in a fresh copy of the world."""

    group: str
    fault: str
    command: str  # the words after `vlcpctl`, relative to the world; "" if `bash` is given
    codes: tuple[int, ...]  # exit codes that are right
    prepare: Callable[[Path], object] | None = None
    says: str = ""  # must be part of what is printed to stderr
    out: str = "out"  # the path that the command may write
    environment: dict[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    bash: str = ""  # a bash line that starts the real program as $vlcpctl, instead of `command`
    writes: bool | None = None  # whether `out` must exist afterwards; None: exactly with exit 0

    @property
    def name(self) -> str:
        """The key of the case in the table."""
        return f"{self.group}: {self.fault}: {self.command or self.bash}"


class Table:
    """Collects the cases of one group."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.cases: list[Case] = []

    def add(self, fault: str, command: str, codes: int | Iterable[int], **more: Any) -> None:
        """Add a case; see `Case` for the fields."""
        wanted = (codes,) if isinstance(codes, int) else tuple(codes)
        self.cases.append(Case(self.group, fault, command, wanted, **more))


def edit_json(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A fault that changes the object in a JSON file of the world."""

    def prepare(world: Path) -> None:
        path = world / name
        value = json.loads(path.read_text())
        change(value)
        path.write_text(json.dumps(value))

    return prepare


def setting(**fields: Any) -> Callable[[dict[str, Any]], None]:
    """A change that sets fields of an object; `a__b` is the field b of the object a."""

    def change(value: dict[str, Any]) -> None:
        for name, new in fields.items():
            *above, last = name.split("__")
            inner = value
            for part in above:
                inner = inner[part]
            inner[last] = new

    return change


def written(name: str, data: bytes | str) -> Callable[[Path], None]:
    """A fault that writes a file of the world."""

    def prepare(world: Path) -> None:
        path = world / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)

    return prepare


def removed(name: str) -> Callable[[Path], None]:
    """A fault that removes the files of the world that match a pattern."""

    def prepare(world: Path) -> None:
        for path in found(world, name):
            path.unlink()

    return prepare


def flipped(name: str, at: float = 0.7) -> Callable[[Path], None]:
    """A fault that flips one bit of a file, at a share of its length."""

    def prepare(world: Path) -> None:
        for path in found(world, name):
            data = bytearray(path.read_bytes())
            data[int(len(data) * at)] ^= 1
            path.write_bytes(data)

    return prepare


def cut(name: str, share: float = 0.5) -> Callable[[Path], None]:
    """A fault that cuts a file short."""

    def prepare(world: Path) -> None:
        for path in found(world, name):
            data = path.read_bytes()
            path.write_bytes(data[: int(len(data) * share)])

    return prepare


def found(world: Path, pattern: str) -> list[Path]:
    """The files of the world that match a pattern; at least one."""
    paths = sorted(world.glob(pattern))
    assert paths, f"no file matches {pattern}"
    return paths


def both(*faults: Callable[[Path], object]) -> Callable[[Path], None]:
    """Several faults at once."""

    def prepare(world: Path) -> None:
        for fault in faults:
            fault(world)

    return prepare

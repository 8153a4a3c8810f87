"""Where evaluation rows go: to stdout, or to a file that appears when all of them are there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from vlcpctl.core import console
from vlcpctl.core.errors import OutputExists

if TYPE_CHECKING:
    from vlcpctl.eval.cells import Cell

STDOUT = Path("-")


@contextmanager
def rows_to(out: Path, *, force: bool) -> Iterator[TextIO]:
    """The stream to write rows to; a file there moves aside when the new one is complete."""
    if out == STDOUT:
        yield console.results()
        return
    from vlcpctl.core.artifacts import move_aside, new_file

    with new_file(out) as temporary:
        with temporary.open("w", encoding="utf-8") as stream:
            yield stream
        if force and out.exists():
            move_aside(out)


def has_rows(out: Path, cells: Sequence[Cell], *, force: bool) -> bool:
    """Whether the file holds these very rows already; other rows there are an error."""
    if out == STDOUT or force or not out.exists():
        return False
    from vlcpctl.eval.cells import holds

    if not holds(out, cells):
        raise OutputExists(
            f"{out} exists and holds other rows; choose another --out, or --force to move it aside"
        )
    return True

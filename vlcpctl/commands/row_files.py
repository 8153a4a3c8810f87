"""Output of evaluation rows: to stdout, or to a file that appears when it is complete."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from vlcpctl.core import console
from vlcpctl.core.errors import OutputExists, UsageError

if TYPE_CHECKING:
    from vlcpctl.evaluation.planned_rows import Cell

STDOUT = Path("-")


def refuse_json_of_rows(out: Path | None, *, as_json: bool) -> None:
    """Raise UsageError for --json with rows on stdout, which are JSON already."""
    if as_json and out == STDOUT:
        raise UsageError(
            "--json has no effect with -o -: rows are JSON; write them to a file with -o FILE"
        )


@contextmanager
def rows_to(out: Path) -> Iterator[TextIO]:
    """A stream for rows; a file of rows at `out` is replaced when the new one is complete.

    Raises OutputExists for any other file. A pipe or a device is written to directly.
    """
    if out == STDOUT:
        yield console.results()
        return
    from vlcpctl.core.atomic import new_file
    from vlcpctl.core.rows import is_row_file

    with new_file(out, is_row_file) as temporary, temporary.open("w", encoding="utf-8") as stream:
        yield stream


def tell_file(out: Path, rows: int, *, as_json: bool) -> None:
    """Print the path of the rows, unless they went to stdout."""
    if out != STDOUT:
        console.emit(json.dumps({"path": str(out), "rows": rows}) if as_json else out)


def has_rows(out: Path, cells: Sequence[Cell], *, force: bool) -> bool:
    """Whether the file already holds the rows of `cells`.

    Raises OutputExists if it holds other rows, or anything but rows (that with `force`, too).
    """
    from vlcpctl.core.atomic import is_pipe_or_device, refuse_foreign_file
    from vlcpctl.core.rows import is_row_file

    if out == STDOUT or is_pipe_or_device(out):
        return False
    refuse_foreign_file(out, is_row_file)
    if force or not out.exists():
        return False
    from vlcpctl.evaluation.planned_rows import holds

    if not holds(out, cells):
        raise OutputExists(
            f"{out} already exists and holds other rows; "
            "choose another --out, or --force to replace it"
        )
    return True

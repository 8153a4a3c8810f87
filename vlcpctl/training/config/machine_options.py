"""The options of a train-step that decide how it is executed on one machine. Torch-free.

They do not decide what is computed, though some of them its last bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_type_hints

from vlcpctl.core.errors import UsageError
from vlcpctl.core.option_rules import EXECUTION, option_rows
from vlcpctl.core.words import parse_whole_number
from vlcpctl.training.config.request import save_every
from vlcpctl.training.config.resolution import check_row
from vlcpctl.training.config.run_options import RunOptions

# Not one of them: several machines run the same command, and a resume is accepted once.
_OTHERS = frozenset({"nodes", "rendezvous", "accept_inexact"})
_ROWS = {
    name: row
    for name, row in option_rows(RunOptions).items()
    if row.section == EXECUTION and name not in _OTHERS
}
_KINDS = get_type_hints(RunOptions)
MACHINE_OPTIONS = {f"--{name.replace('_', '-')}": name for name in _ROWS}


def parse_machine_options(words: Sequence[str]) -> dict[str, Any]:
    """The values of these options by name, from the words of a command line.

    Raises UsageError for another option, one that is given twice, and a value that is missing or
    does not fit.

    >>> parse_machine_options(["--nproc", "2", "--compile"])
    {'nproc': 2, 'compile': True}
    """
    found: dict[str, Any] = {}
    left = list(words)
    while left:
        option, has_value, text = left.pop(0).partition("=")
        if option not in MACHINE_OPTIONS:
            raise UsageError(f"{option!r} is not one of {', '.join(MACHINE_OPTIONS)}")
        name = MACHINE_OPTIONS[option]
        if name in found:
            raise UsageError(f"{option} is given twice")
        if _KINDS[name] is bool:
            if has_value:
                raise UsageError(f"{option} does not take a value")
            found[name] = True
            continue
        if not has_value and left and not left[0].startswith("--"):
            text = left.pop(0)
        if not text:
            raise UsageError(f"{option} needs a value")
        found[name] = _value(option, name, text)
    return found


def _value(option: str, name: str, text: str) -> Any:
    if _KINDS[name] is not int:
        save_every(text)  # the only one that is text
        return text
    try:
        value = parse_whole_number(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
    check_row(name, _ROWS[name], value)
    return value

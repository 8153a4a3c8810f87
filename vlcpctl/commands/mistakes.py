"""typer's errors for a command line that cannot be parsed, worded like all other errors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import typer

from vlcpctl.core.errors import nearest
from vlcpctl.core.printable import printable

# typer shows only this class of its errors for command lines; the others have a common base.
TYPER_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


def usage_words(error: Any, words: Sequence[str]) -> str:
    """One line for an error that typer raised while it parsed `words`."""
    option = getattr(error, "option_name", None)
    if option is None:
        text = error.format_message().rstrip(".")
        return printable(text[:1].lower() + text[1:])
    if type(error).__name__ != "NoSuchOption":
        text = "needs a value" if "requires" in error.message else "does not take a value"
        return f"{printable(option)} {text}"
    files = [word for word in words if word.startswith("-") and os.path.lexists(word)]
    if files:
        name = printable(files[0])
        return f"unknown option {name}; write ./{name} for the file of this name"
    known = [one for parameter in error.ctx.command.params for one in parameter.opts]
    near = nearest(option, known)
    guess = f"did you mean {near}?" if near else f"see '{error.ctx.command_path} --help'"
    return f"unknown option {printable(option)}; {guess}"

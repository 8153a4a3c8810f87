"""Shell completion: the answers to the shells that ask what a TAB offers.

typer's scripts run the program with the words so far in environment variables. Where nothing is
offered, the shell completes paths. Only light modules are imported: a TAB should not wait.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from vlcpctl.commands import COMMANDS
from vlcpctl.commands.command import variable_of, with_values
from vlcpctl.commands.words import OFFERS
from vlcpctl.core.options import Option, options_of


def answer(shell: str, program: Any) -> tuple[str | None, int]:
    """What to print for a shell that runs typer's script for it, if anything, and the exit code.

    `program` is typer's group of commands, with the one in the words loaded. A mistake in the words
    so far offers nothing: it is reported when the command is run.
    """
    words, incomplete = _words_of(shell)
    option, equals, value = "", "", incomplete
    if incomplete.startswith("-") and "=" in incomplete:
        option, equals, value = incomplete.partition("=")
    items = _offered(program, [*words, option] if option else words, value)
    if len(incomplete) > 1 and "--debug".startswith(incomplete):
        items.append(("--debug", "Print the traceback of an error."))
    if len(items) == 1 and items[0][0].endswith((":", "=")):
        # Shells add a space to a single item: `--by column:` would be `--by column: `.
        items.append((f"{items[0][0]}...", ""))
    if shell == "bash":  # it completes only what follows the last = or :
        cut = max(value.rfind("="), value.rfind(":")) + 1
        return "\n".join(item[cut:] for item, _ in items), 0
    if shell == "fish" and os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return None, 0 if items else 1  # 1: complete files
    lines = [_line(shell, option + equals + item, text) for item, text in items]
    if shell == "zsh":
        return "_arguments '*: :((" + "\n".join(lines) + "))'" if items else "_files", 0
    return "\n".join(lines), 0


def _line(shell: str, item: str, text: str) -> str:
    """One line for zsh or fish, with what is offered and the text about it."""
    if shell == "zsh":
        return ":".join(f'"{_escaped_for_zsh(one)}"' for one in (item, text) if one)
    return "\t".join(re.sub(r"\s", " ", one) for one in (item, text) if one)


def _words_of(shell: str) -> tuple[list[str], str]:
    """The words before the cursor, without the program, and the one at it."""
    if shell == "bash":
        words, incomplete = glued(_split(os.environ["COMP_WORDS"]), int(os.environ["COMP_CWORD"]))
    else:
        line = os.environ.get("_TYPER_COMPLETE_ARGS", "")
        words = _split(line)[1:]
        incomplete = words.pop() if words and not line.endswith(" ") else ""
    # --debug is allowed anywhere and no option of a command.
    return [word for word in words if word != "--debug"], incomplete


def _split(line: str) -> list[str]:
    """The words of a line that may end within quotes."""
    found = shlex.shlex(line, posix=True)
    found.whitespace_split, found.commenters = True, ""
    words: list[str] = []
    try:
        words.extend(found)
    except ValueError:
        words.append(found.token)
    return words


def glued(words: Sequence[str], current: int) -> tuple[list[str], str]:
    """The words before the one at `current`, and that one, as they were before bash cut them.

    >>> glued(["vlcpctl", "split", "--by", "column", ":", "gr"], 5)
    (['split', '--by'], 'column:gr')
    >>> glued(["vlcpctl", "train-step", "--replay", "=", "union", "--me"], 5)
    (['train-step', '--replay=union'], '--me')
    """
    whole: list[str] = []
    was_cut = False
    for word in words[1 : current + 1]:
        is_cut = bool(word) and set(word) <= {"=", ":"}
        if whole and (is_cut or (was_cut and not word.startswith("-"))):
            whole[-1] += word
        else:
            whole.append(word)
        was_cut = is_cut
    return (whole, "") if current >= len(words) else (whole[:-1], whole[-1] if whole else "")


def _escaped_for_zsh(text: str) -> str:
    """Text for typer's script, which evaluates it between double quotes."""
    escapes: dict[str, str | int | None] = {
        '"': '""',
        "'": "''",
        "$": "\\$",
        "`": "\\`",
        ":": "\\\\:",
    }
    return text.translate(str.maketrans(escapes))


def _offered(program: Any, words: Sequence[str], incomplete: str) -> list[tuple[str, str]]:
    """What may stand for `incomplete` after these words, with texts: commands, options, values."""
    words = words[1:] if words[:1] == ["help"] else words
    at = next((place for place, word in enumerate(words) if not word.startswith("-")), None)
    name = None if at is None else words[at]
    if name is None and not incomplete.startswith("-"):
        named = [(one, about.summary) for one, about in COMMANDS.items()]
        return [(one, text) for one, text in named if one.startswith(incomplete)]
    command = program if name is None else program.commands.get(name)
    if command is None:
        return []
    context = typer.Context(
        command,
        info_name=name,
        resilient_parsing=True,
        help_option_names=program.context_settings["help_option_names"],
    )
    own = with_values(words if at is None else words[at + 1 :])
    given, _, order = command.make_parser(context).parse_args(args=list(own))
    parameters = command.get_params(context)
    if incomplete.startswith("-") and "--" not in own:
        unused = [one for one in parameters if one.multiple or one not in order]
        named = [(opt, one.help) for one in unused for opt in (*one.opts, *one.secondary_opts)]
        return [(opt, text) for opt, text in named if opt.startswith(incomplete)]
    parameter = _incomplete(parameters, own, given)
    if name is None or parameter is None:
        return []
    found = options_of(command.kind)
    for field, (row, _) in found.items():
        given.setdefault(field, os.environ.get(variable_of(name, field, row)))
    return [(one, "") for one in _values(found[parameter.name][0], given, incomplete)]


def _incomplete(parameters: Sequence[Any], words: Sequence[str], given: Mapping[str, Any]) -> Any:
    """The option whose value follows these words, or the argument that does; else None."""
    last = words[-1] if words else ""
    for one in parameters:
        if one.param_type_name == "option" and not one.is_flag and last in one.opts:
            return one
    for one in parameters:
        if one.param_type_name == "argument" and (one.nargs < 0 or given.get(one.name) is None):
            return one
    return None


def _values(row: Option, given: Mapping[str, Any], incomplete: str) -> list[str]:
    """The values of an option or argument that start with `incomplete`.

    `given` has the words of the command line by the fields' names. Empty if any value is allowed,
    or if a path is more likely than a name.
    """
    if _is_rather_a_path(row, incomplete):
        return []
    offers: Iterable[str] = row.choices or row.offers
    if isinstance(row.offers, str):
        offers = OFFERS[row.offers](given, incomplete)
    return [one for one in offers if one.startswith(incomplete)]


def _is_rather_a_path(row: Option, incomplete: str) -> bool:
    """Whether to leave an argument or option that takes paths and names to the shell."""
    starts = row.offers if isinstance(row.offers, tuple) else ()
    # --log tensorboard:DIR|wandb:PROJECT: nothing else may stand there.
    is_closed = bool(starts) and all(one.startswith(starts) for one in str(row.metavar).split("|"))
    if not row.takes_path or is_closed or row.offers in {"models", "tables"}:
        return False
    return not incomplete or (row.is_argument and _starts_an_entry(incomplete))


def _starts_an_entry(path: str) -> bool:
    directory, name = os.path.split(path)
    try:
        return any(one.name.startswith(name) for one in Path(directory).iterdir())
    except OSError:
        return False

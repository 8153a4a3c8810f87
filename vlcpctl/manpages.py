r"""Manual pages: `python -m vlcpctl.manpages [DIR]` writes vlcpctl(1) and one page per command.

The pages are made from what --help prints, in the macros of man(7), which groff and mandoc read.
They are not in the wheel, since a wheel's builder would have to import every command.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
import typer.main

import vlcpctl
from vlcpctl.cli import EPILOG, application
from vlcpctl.commands import COMMANDS, environment, options
from vlcpctl.commands.values import variable_of
from vlcpctl.core import console, errors
from vlcpctl.core.printable import printable

# Escapes that print the ASCII character: bare ones may become typographic quotes and hyphens.
_ESCAPES = str.maketrans(
    {
        "\\": r"\e",
        "-": r"\-",
        "'": r"\(aq",
        '"': r"\(dq",
        "`": r"\(ga",
        "^": r"\(ha",
        "~": r"\(ti",
    }
)


def main() -> None:
    """Write the pages into the directory of the command line, and print its path."""
    parser = argparse.ArgumentParser(
        prog="python -m vlcpctl.manpages",
        description="Write the manual pages of vlcpctl and of its commands into DIR/man1.",
    )
    parser.add_argument(
        "dir",
        metavar="DIR",
        nargs="?",
        type=Path,
        default=default_directory(),
        help="directory of manual pages (default: %(default)s)",
    )
    directory = parser.parse_args().dir
    try:
        paths = write(directory)
    except OSError as error:
        reason = f"{error.filename or directory}: {error.strerror or error}"
        sys.exit(f"vlcpctl.manpages: cannot write {printable(reason)}")
    console.say(f"vlcpctl.manpages: {len(paths)} pages")
    console.emit(directory / "man1")


def default_directory() -> Path:
    """The directory in which `man` looks for pages of this Python's programs.

    `man` derives it from PATH: for DIR/bin it is DIR/share/man.
    """
    is_virtual = sys.prefix != sys.base_prefix
    return (Path(sys.prefix) if is_virtual else Path.home() / ".local") / "share" / "man"


def write(directory: Path) -> list[Path]:
    """Write all pages below `directory`, replacing older ones; returns their paths.

    Raises OSError if a file cannot be written.
    """
    place = directory / "man1"
    place.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in pages():
        path = place / name
        path.write_text(text, encoding="ascii")
        paths.append(path)
    return paths


def pages() -> Iterator[tuple[str, str]]:
    """The file name and the roff source of every page."""
    yield "vlcpctl.1", program_page()
    for name in COMMANDS:
        yield f"vlcpctl-{name}.1", command_page(name)


def program_page() -> str:
    """The page of the program: its commands, environment variables and exit codes, as roff."""
    program: Any = typer.main.get_command(application(None))
    commands = [
        (f"{_bold(f'vlcpctl {name}')}", escaped(f"{command.summary} See vlcpctl-{name}(1)."))
        for name, command in COMMANDS.items()
    ]
    debug = (_bold("--debug"), escaped("Print the traceback of an error, with any command."))
    return _page(
        "vlcpctl",
        _section("NAME", [escaped(f"vlcpctl - {_lowered(program.help.split(':')[0])}")]),
        _section(
            "SYNOPSIS", [f"{_bold('vlcpctl')} {_italic('COMMAND')} [{_italic('OPTION')} ...]"]
        ),
        _section("DESCRIPTION", [escaped(program.help)]),
        _section("COMMANDS", _entries(commands)),
        _section("OPTIONS", _entries([*_option_entries(program), debug])),
        _section("ENVIRONMENT", [escaped(EPILOG)]),
        _exit_status(),
        _see_also([f"vlcpctl-{name}" for name in COMMANDS]),
    )


def command_page(name: str) -> str:
    """The page of one command, as roff."""
    program: Any = typer.main.get_command(application(name))
    command = program.commands[name]
    text, _, examples = inspect.cleandoc(command.help).partition("Examples:\n")
    return _page(
        f"vlcpctl-{name}",
        _section("NAME", [escaped(f"vlcpctl-{name} - {_lowered(COMMANDS[name].summary)}")]),
        _section("SYNOPSIS", [_synopsis(name, command)]),
        _section("DESCRIPTION", _prose(text)),
        _section("OPTIONS", _grouped_options(command)),
        _section("ENVIRONMENT", [escaped(_variables(name, command))]),
        _section("EXIT STATUS", [escaped("See vlcpctl(1).")]),
        _section("EXAMPLES", _verbatim(inspect.cleandoc(examples).split("\n"))),
        _see_also(["vlcpctl", *(f"vlcpctl-{one}" for one in COMMANDS if one != name)]),
    )


def escaped(text: str) -> str:
    r"""Text as roff that prints exactly it.

    >>> print(escaped("--lr 'x' \\"))
    \-\-lr \(aqx\(aq \e
    >>> print(escaped(".NAME.vlcpctl/"))
    \&.NAME.vlcpctl/
    """
    found = text.translate(_ESCAPES)
    return rf"\&{found}" if found.startswith(".") else found


def _page(name: str, *sections: str) -> str:
    made = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    date = time.strftime("%Y-%m-%d", made)
    head = (
        r".\" Made by python -m vlcpctl.manpages.",
        f'.TH {name.upper()} 1 {date} "vlcpctl {vlcpctl.__version__}" "vlcpctl manual"',
        ".nh",  # no word is cut
        ".ad l",  # and text is not stretched between the margins
    )
    return "\n".join([*head, *sections, ""])


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f".SH {title}", *lines])


def _bold(text: str) -> str:
    return rf"\fB{escaped(text)}\fR"


def _italic(text: str) -> str:
    return rf"\fI{escaped(text)}\fR"


def _lowered(sentence: str) -> str:
    """A sentence as the description of a name: without its full stop, lower-case."""
    return (sentence[:1].lower() + sentence[1:]).rstrip(".")


def _synopsis(name: str, command: Any) -> str:
    """The required options, then the others, then the arguments."""
    parameters = list(command.params)
    needed = [
        f"{_bold(max(one.opts, key=len))} {_italic(one.metavar)}"
        for one in parameters
        if one.required and one.param_type_name == "option"
    ]
    arguments = [
        _names(one) if one.required else f"[{_names(one)}]"
        for one in parameters
        if one.param_type_name == "argument"
    ]
    words = [_bold(f"vlcpctl {name}"), *needed, f"[{_italic('OPTION')} ...]", *arguments]
    return " ".join(words)


def _prose(text: str) -> list[str]:
    """The paragraphs of a docstring: indented lines are kept as they are, others are filled."""
    lines: list[str] = []
    for paragraph in text.strip().split("\n\n"):
        lines += [".PP"] if lines else []
        flowing = [line for line in paragraph.split("\n") if not line.startswith(" ")]
        kept = [line for line in paragraph.split("\n") if line.startswith(" ")]
        # On one line: after a full stop at the end of a line, roff prints two spaces.
        lines += [escaped(" ".join(flowing))] if flowing else []
        lines += _verbatim([line.removeprefix("  ") for line in kept]) if kept else []
    return lines


def _verbatim(lines: Sequence[str]) -> list[str]:
    """Lines as they are, three columns to the left of text: an 80-column terminal shows 76."""
    return [".RS -3", ".nf", *map(escaped, lines), ".fi", ".RE"]


def _grouped_options(command: Any) -> list[str]:
    """The arguments, and the options in the sections of --help."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for parameter, entry in zip(_shown(command), _option_entries(command), strict=True):
        is_argument = parameter.param_type_name == "argument"
        panel = "Arguments" if is_argument else parameter.rich_help_panel or options.OUTPUT
        groups.setdefault(panel, []).append(entry)
    if set(groups) <= {"Arguments", options.OUTPUT}:  # no need of headings
        return _entries([entry for entries in groups.values() for entry in entries])
    lines = []
    for panel in ("Arguments", *options.PANELS):
        if panel in groups:
            lines += [f".SS {panel}", *_entries(groups[panel])]
    return lines


def _shown(command: Any) -> list[Any]:
    """The parameters that --help shows; --help itself is the last."""
    shown = [
        one for one in command.get_params(_context(command)) if not getattr(one, "hidden", False)
    ]
    return sorted(shown, key=lambda one: one.param_type_name != "argument")


def _context(command: Any) -> typer.Context:
    return typer.Context(command, help_option_names=["-h", "--help"])


def _option_entries(command: Any) -> list[tuple[str, str]]:
    """(names, description) of every parameter that --help shows."""
    context = _context(command)
    entries = []
    for one in _shown(command):
        one.show_envvar = False
        _, text = one.get_help_record(context)
        entries.append((_names(one), escaped(text)))
    return entries


def _names(parameter: Any) -> str:
    """The names of an option with its value, or the name of an argument."""
    value = _italic(parameter.metavar) if parameter.metavar else ""
    if parameter.param_type_name == "argument":
        return value + (" ..." if parameter.nargs == -1 else "")
    short_first = sorted(parameter.opts, key=lambda name: name.startswith("--"))
    names = ", ".join(_bold(name) for name in [*short_first, *parameter.secondary_opts])
    return names if parameter.is_flag else f"{names} {value}"


def _entries(entries: Sequence[tuple[str, str]]) -> list[str]:
    return [line for names, text in entries for line in (".TP", names, text)]


def _variables(name: str, command: Any) -> str:
    """How to set the options of a command with environment variables."""
    prefix = environment.prefix_of(name)
    offered = [one for one in command.params if one.param_type_name == "option"]
    example = max(offered, key=lambda one: (one.required, not one.is_flag))
    return (
        f"Every option can be set with an environment variable: {variable_of(example, prefix)} "
        f"sets {max(example.opts, key=len)}. Options on the command line take precedence."
    )


def _exit_status() -> str:
    entries = [(_bold(str(code)), escaped(text)) for code, text in errors.exit_codes().items()]
    return _section("EXIT STATUS", _entries(entries))


def _see_also(names: Sequence[str]) -> str:
    return _section("SEE ALSO", [",\n".join(f"{_bold(name)}(1)" for name in names)])


if __name__ == "__main__":
    main()

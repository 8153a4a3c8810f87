"""The program: imports and runs one command; errors become one line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer
import typer.core
import typer.main

import vlcpctl
from vlcpctl.commands import COMMANDS, GROUPS, command_class
from vlcpctl.commands.command import (
    PIPE_CLOSED,
    REQUEST,
    TYPER_ERROR,
    TyperCommand,
    exiting_at_closed_pipe,
    print_error,
    signature_of,
    usage_exit,
    usage_words,
)
from vlcpctl.commands.paths import checked_paths
from vlcpctl.commands.running import run
from vlcpctl.commands.words import command_meant
from vlcpctl.core import console
from vlcpctl.core.ending import ending_at_signals
from vlcpctl.core.errors import VlcpError
from vlcpctl.core.machine import is_about_limits, limit_text, require_threads

EPILOG = (
    "'vlcpctl COMMAND -h' shows the usual options of a command in few words, --help more of them, "
    "--help-all the rare ones, too. Every option can be set with an environment variable, such as "
    "VLCPCTL_TRAIN_STEP_LR for --lr of train-step; an option that can be repeated takes several "
    "values with spaces between them, or colons between paths. --debug, anywhere on the command "
    "line, or VLCPCTL_DEBUG=1 prints the traceback of an error."
)
COMPLETION = "_VLCPCTL_COMPLETE"  # the variable in which a shell asks for completion
SHELLS = ("bash", "zsh", "fish")


def main() -> None:
    """Run the command line of this process and exit."""
    words = _without_debug(sys.argv[1:])
    if len(words) < len(sys.argv) - 1:
        os.environ["VLCPCTL_DEBUG"] = "1"
    shell = os.environ.get(COMPLETION, "").removeprefix("complete_")
    if shell in SHELLS:
        _complete(shell)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    try:
        application(_command_named(words))(words, prog_name="vlcpctl")
    except OSError as error:  # help, the version or a usage error could not be printed
        console.drop_stdout()
        if not isinstance(error, BrokenPipeError):
            console.log(f"vlcpctl: {_error_text(error)}")
        sys.exit(PIPE_CLOSED if isinstance(error, BrokenPipeError) else 1)


def _complete(shell: str) -> NoReturn:
    """Answer a shell that asks for completion, and exit."""
    from vlcpctl.commands.completion import answer

    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    program = typer.main.get_command(application(_command_named(_without_debug(line.split()[1:]))))
    text, code = answer(shell, program)
    if text is not None:
        print(text)
    sys.exit(code)


class _Group(typer.core.TyperGroup):
    """The program itself."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        words = list(args)
        try:
            with exiting_at_closed_pipe():
                return super().make_context(info_name, args, parent=parent, **extra)
        except TYPER_ERROR as error:
            if not words:  # typer shows the help by raising an error
                raise
            raise usage_exit("", usage_words(error, words)) from error

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands and not args[0].startswith("-"):
            meant = command_meant(args[0], self.commands)
            guess = f"did you mean {meant}? " if meant is not None else ""
            said = f"unknown command {args[0]!r}; {guess}'vlcpctl --help' lists all"
            raise usage_exit("", said)
        return super().resolve_command(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)
        for parameter in parameters:
            parameter.show_envvar = False
            # typer imports pydantic (0.2 s) to convert a None, even for a flag that is not given.
            parameter.default = parameter.default or False
        return parameters

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, COMMANDS))
        for group in GROUPS:
            rows = [(name, one.summary) for name, one in COMMANDS.items() if one.group == group]
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in rows])


def application(chosen: str | None) -> typer.Typer:
    """The program with the chosen command alone, or with the names of all if none is chosen."""
    app = typer.Typer(
        cls=_Group,
        epilog=EPILOG,
        no_args_is_help=True,
        context_settings={
            "help_option_names": ["-h", "--help"],
            "auto_envvar_prefix": "VLCPCTL",
            "max_content_width": 120,
        },
        rich_markup_mode=None,  # rich takes 60 ms to import
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    if chosen in COMMANDS:  # typer takes half a millisecond for each of the others
        app.command(chosen, cls=TyperCommand)(_command(chosen))
        return app
    for name, command in COMMANDS.items():
        app.command(name, help=command.summary)(_not_loaded)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"vlcpctl {vlcpctl.__version__}", flush=True)
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version and exit.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Continual vision-language pretraining: learn a stream of tasks without forgetting."""


def _not_loaded() -> None:
    raise AssertionError("a command is run by its own program")


def _without_debug(words: Sequence[str]) -> list[str]:
    return [word for word in words if word != "--debug"]


def _command_named(words: Sequence[str]) -> str | None:
    return words[0] if words else None  # the program's own options, before it, end the program


def _command(name: str) -> Callable[..., None]:
    """What typer calls for a command, with the signature and the help of its class."""
    kind = command_class(name)

    def command(context: typer.Context, **_words: Any) -> None:
        with _error_lines(name):
            run(checked_paths(context.meta[REQUEST]))

    command.__doc__ = kind.__doc__
    signature = signature_of(kind)
    command.__dict__["__signature__"] = signature
    command.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
    return command


@contextmanager
def _error_lines(name: str) -> Iterator[None]:
    """Make errors within the block one line on stderr and an exit code."""
    console.claim_stdout()
    try:
        with ending_at_signals():
            require_threads()
            yield
    except VlcpError as error:
        print_error(name, str(error))
        raise typer.Exit(error.exit_code) from error
    except BrokenPipeError:
        console.drop_stdout()
        raise typer.Exit(PIPE_CLOSED) from None
    except OSError as error:
        console.drop_stdout()  # on a full disk, closing the stream would raise the error again
        print_error(name, _error_text(error))
        raise typer.Exit(1) from error
    except Exception as error:
        if not is_about_limits(error):
            raise
        print_error(name, limit_text(error))
        raise typer.Exit(1) from error
    finally:
        console.release_stdout()


def _error_text(error: OSError) -> str:
    """A message for an error of the operating system, such as a full disk.

    >>> _error_text(OSError(28, "No space left on device", "run/0.tar"))
    'run/0.tar: No space left on device'
    """
    if error.errno == errno.ENOMEM:
        return limit_text(error)
    named = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return ": ".join([" -> ".join(named), error.strerror or str(error)]).removeprefix(": ")

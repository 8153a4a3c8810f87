"""The program: imports and runs one command; errors become one line and an exit code."""

from __future__ import annotations

import errno
import functools
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer
import typer.core
import typer.main

import vlcpctl
from vlcpctl.commands import COMMANDS, module_name, options
from vlcpctl.commands.paths import checked_paths
from vlcpctl.commands.processes import with_cache, with_locks, with_ranks
from vlcpctl.commands.synonyms import command_meant, option_meant
from vlcpctl.commands.values import arguments, variable_of, warn_of_unknown
from vlcpctl.core import console
from vlcpctl.core.ending import ending_at_signals
from vlcpctl.core.errors import UsageError, VlcpError, debugging
from vlcpctl.core.machine import is_about_limits, limit_text, require_threads
from vlcpctl.core.words import printable, printable_lines

EPILOG = (
    "'vlcpctl COMMAND -h' shows the usual options of a command in few words, --help all of them. "
    "Every option can be set with an environment variable, such as VLCPCTL_TRAIN_STEP_LR for --lr "
    "of train-step; an option that can be repeated takes several values with spaces between them, "
    "or colons between paths. --debug, anywhere on the command line, or VLCPCTL_DEBUG=1 prints the "
    "traceback of an error."
)
COMPLETION = "_VLCPCTL_COMPLETE"  # the variable in which a shell asks for completion
SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
# typer shows only this class of its errors for command lines; the others have a common base.
TYPER_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
PIPE_CLOSED = 141  # 128 + the number of SIGPIPE
MANY = 12  # the help of a command with more options lists them in sections
COLUMN = 30  # widest column of option names; the text of a longer one starts on the next line
_IS_SHORT = "vlcpctl.is_short_help"  # in the notes of typer's context
_DETAIL = re.compile(r"(; |\. | \(default|  \[).*")  # of a help text, what -h leaves out
_FIRST_EXAMPLE = re.compile(r"\A(?:.*[\\|]\n)*.*")  # lines ending in \ or | continue
HYPHEN = "\x01"  # in place of "-" while text is wrapped, so that no line ends inside an option


def main() -> None:
    """Run the command line of this process and exit."""
    words = [word for word in sys.argv[1:] if word != "--debug"]
    if len(words) < len(sys.argv) - 1:
        os.environ["VLCPCTL_DEBUG"] = "1"
    shell = os.environ.get(COMPLETION, "").removeprefix("complete_")
    if shell in SHELLS:
        _complete(shell)
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
    program = typer.main.get_command(application(_command_named(line.split()[1:])))
    text, code = answer(shell, program)
    if text is not None:
        print(text)
    sys.exit(code)


class _Group(typer.core.TyperGroup):
    """The program itself."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        words = list(args)
        try:
            with _exiting_at_closed_pipe():
                return super().make_context(info_name, args, parent=parent, **extra)
        except TYPER_ERROR as error:
            if not words:  # typer shows the help by raising an error
                raise
            raise _usage_exit("", _usage_words(error, words)) from error

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands and not args[0].startswith("-"):
            meant = command_meant(args[0], self.commands)
            guess = f"did you mean {meant}? " if meant is not None else ""
            said = f"unknown command {args[0]!r}; {guess}'vlcpctl --help' lists all"
            raise _usage_exit("", said)
        return super().resolve_command(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)
        for parameter in parameters:
            parameter.show_envvar = False
            # typer imports pydantic (0.2 s) to convert a None, even for a flag that is not given.
            parameter.default = parameter.default or False
        return parameters


class _Command(typer.core.TyperCommand):
    """A command whose words become arguments in `commands.values`, with help in plain text.

    The help has options in sections, and examples as they would be typed.
    """

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        words = list(args)
        try:
            with _exiting_at_closed_pipe():
                return super().make_context(info_name, args, parent=parent, **extra)
        except UsageError as error:
            raise _usage_exit(info_name, str(error)) from error
        except TYPER_ERROR as error:
            raise _usage_exit(info_name, _usage_words(error, words)) from error

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given, rest, order = self.make_parser(ctx).parse_args(args=options.with_wait_values(args))
        *parameters, help_option = self.get_params(ctx)
        if given.get(help_option.name):
            ctx.meta[_IS_SHORT] = "-h" in args and "--help" not in args
            help_option.handle_parse_result(ctx, given, rest)
        # Of several mistakes, the first one on the command line is reported.
        places = [*order, *parameters]
        parameters.sort(key=lambda one: (not one.is_eager, places.index(one)))
        name, run = str(ctx.info_name), self.callback or _not_loaded
        for one, value in arguments(name, run, parameters, given):
            ctx.params[one.name] = one.callback(ctx, one, value) if one.callback else value
        if rest:
            raise UsageError(f"got unexpected extra argument(s) ({' '.join(rest)})")
        with_variable = [one for one in parameters if one.param_type_name == "option"]
        warn_of_unknown(name, [variable_of(one, name) for one in with_variable])
        return rest

    def get_help_option(self, ctx: Any) -> Any:
        found: Any = super().get_help_option(ctx)
        if found and COMMANDS[str(self.name)].usual:
            found.help = "Show all options, or with -h the usual ones in few words, and exit."
        return found

    def get_help(self, ctx: Any) -> str:
        return super().get_help(ctx).replace(HYPHEN, "-")

    def format_help(self, ctx: Any, formatter: Any) -> None:
        usual = COMMANDS[str(self.name)].usual.split()
        if usual and ctx.meta.get(_IS_SHORT):
            self._format_short_help(ctx, formatter, usual)
            return
        super().format_help(ctx, formatter)
        if usual:
            formatter.write("\n-h shows the usual options alone, in few words.\n")

    def _format_short_help(self, ctx: Any, formatter: Any, usual: Sequence[str]) -> None:
        """The first sentence, the required and the usual options in few words, and an example."""
        summary, _, lines = inspect.cleandoc(self.help or "").partition("Examples:\n")
        every: list[Any] = self.get_params(ctx)
        names = {max(one.opts, key=len): one for one in every}
        shown = [*(one for one in every if one.required), *(names[name] for name in usual)]
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(summary.partition("\n")[0].replace("-", HYPHEN))
            formatter.write_paragraph()
            formatter.write_dl([_short_row(ctx, one) for one in dict.fromkeys(shown)])
        with formatter.section("Example"):
            for line in _FIRST_EXAMPLE.findall(lines)[0].splitlines():
                formatter.write(f"  {line}\n")
        options_ = sum(one.param_type_name == "option" for one in every)
        formatter.write(f"\n--help shows all {options_} options.\n")

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        # After a \b, typer keeps the lines of a paragraph; here of those with an indented line.
        paragraphs = re.sub(r"\n\n(?=(\S.*\n)? )", "\n\n\b\n", inspect.cleandoc(self.help or ""))
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(paragraphs.replace("-", HYPHEN))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        parameters: list[Any] = self.get_params(ctx)
        grouped = sum(one.param_type_name == "option" for one in parameters) > MANY
        for parameter in parameters:
            section = "Options"
            if grouped and parameter.required:
                section = "Required"
            elif parameter.param_type_name == "argument":
                section = "Arguments"
            elif grouped:
                section = parameter.rich_help_panel or options.OUTPUT  # --help itself has none
            sections.setdefault(section, []).append(_help_row(ctx, parameter))
        width = min(COLUMN, max(len(name) for rows in sections.values() for name, _ in rows))
        for section in ("Required", "Arguments", *options.PANELS, "Options"):
            if section in sections:
                with formatter.section(section):
                    formatter.write_dl([(name.ljust(width), t) for name, t in sections[section]])


def _help_row(ctx: Any, parameter: Any) -> tuple[str, str]:
    """The names of a parameter, without its Python type, and its help."""
    parameter.show_envvar = False  # the epilog of the program explains them once
    name, text = parameter.get_help_record(ctx)
    return name.split(" <")[0], text.replace("-", HYPHEN)


def _short_row(ctx: Any, parameter: Any) -> tuple[str, str]:
    """The same with the first words of its help; a bracket that was cut open goes, too."""
    name, text = _help_row(ctx, parameter)
    words = _DETAIL.sub("", text).rstrip(".")
    words = words[: words.rindex(" (")] if words.count("(") > words.count(")") else words
    return name, words + ("  [required]" if parameter.required else "")


@contextmanager
def _exiting_at_closed_pipe() -> Iterator[None]:
    """End as commands do when the reader of stdout has closed it; typer would exit with 1."""
    try:
        yield
    except BrokenPipeError:
        console.drop_stdout()
        raise typer.Exit(PIPE_CLOSED) from None


def _usage_words(error: Any, words: Sequence[str]) -> str:
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
    arguments = [one for one in error.ctx.command.params if one.param_type_name == "argument"]
    near = option_meant(option, known, arguments[0].metavar or "" if arguments else "")
    guess = f"did you mean {near}?" if near else f"see '{error.ctx.command_path} --help'"
    return f"unknown option {printable(option)}; {guess}"


def _usage_exit(name: str, message: str) -> typer.Exit:
    """Print a mistake in the command line, and return the exception that exits with 2."""
    _print_error(name, message)
    return typer.Exit(UsageError.exit_code)


def application(chosen: str | None) -> typer.Typer:
    """The program with the names of all commands; only the chosen one is imported."""
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
    for name, command in COMMANDS.items():
        if name == chosen:
            run = with_ranks(with_locks(importlib.import_module(module_name(name)).run))
            run = with_cache(name, run)
            app.command(name, cls=_Command)(_with_error_lines(name, run))
        else:
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
    raise AssertionError("only the chosen command is run")


def _command_named(words: Sequence[str]) -> str | None:
    return next((word for word in words if not word.startswith("-")), None)


def _with_error_lines(name: str, run: Callable[..., None]) -> Callable[..., None]:
    """A command whose errors become one line on stderr and an exit code."""

    @functools.wraps(run)
    def command(**kwargs: Any) -> None:
        console.claim_stdout()
        try:
            with ending_at_signals():
                require_threads()
                run(**checked_paths(kwargs))
        except VlcpError as error:
            _print_error(name, str(error))
            raise typer.Exit(error.exit_code) from error
        except BrokenPipeError:
            console.drop_stdout()
            raise typer.Exit(PIPE_CLOSED) from None
        except OSError as error:
            console.drop_stdout()  # on a full disk, closing the stream would raise the error again
            _print_error(name, _error_text(error))
            raise typer.Exit(1) from error
        except Exception as error:
            if not is_about_limits(error):
                raise
            _print_error(name, limit_text(error))
            raise typer.Exit(1) from error
        finally:
            console.release_stdout()

    return command


def _print_error(name: str, message: str) -> None:
    if debugging():
        import traceback

        console.log(printable_lines(traceback.format_exc()).rstrip())
    program = f"vlcpctl {name}".rstrip()
    console.log(printable(f"{program}: {message}"))


def _error_text(error: OSError) -> str:
    """A message for an error of the operating system, such as a full disk.

    >>> _error_text(OSError(28, "No space left on device", "run/0.tar"))
    'run/0.tar: No space left on device'
    """
    if error.errno == errno.ENOMEM:
        return limit_text(error)
    named = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return ": ".join([" -> ".join(named), error.strerror or str(error)]).removeprefix(": ")

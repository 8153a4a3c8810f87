"""A command of typer for each class of `commands`, made of its fields.

Words are converted here: typer would do so with pydantic, whose import takes 0.1 s in every
command, and would report mistakes in pydantic's words.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING
from typing import Annotated, Any, get_origin

import typer
import typer.core

from vlcpctl.commands import COMMANDS, command_class
from vlcpctl.commands.paths import refuse_url
from vlcpctl.commands.words import option_meant
from vlcpctl.core import console
from vlcpctl.core.errors import UsageError, debugging, nearest
from vlcpctl.core.options import (
    OUTPUT,
    SECTIONS,
    Command,
    Option,
    converted,
    options_of,
    spelled,
)
from vlcpctl.core.words import parse_number, printable, printable_lines

PIPE_CLOSED = 141  # 128 + the number of SIGPIPE
# typer shows only this class of its errors for command lines; the others have a common base.
TYPER_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
MANY = 12  # a command with more options lists them in sections, and has a short help
REQUEST = "vlcpctl.request"  # in the notes of typer's context
_HELP = "vlcpctl.help"  # likewise: which help was asked for
_ALL = "--help-all"
_COLUMN = 30  # widest column of option names; the text of a longer one starts on the next line
_HYPHEN = "\x01"  # in place of "-" while text is wrapped, so that no line ends inside an option
_PROGRAM = "VLCPCTL_"
_OTHERS = ("VLCPCTL_DEBUG",)  # variables that belong to no option
_OF_PATHS = frozenset({"DIR", "FILE", "PATH"})  # metavars whose variables have : between values
# Options whose value can be left out, and the one that it then is.
_WITHOUT_VALUE = {"--wait": "inf", "--pairs": "10000"}
_DETAIL = re.compile(r"(; |\. | \(default|  \[).*")  # of a help text, what -h leaves out
_FIRST_EXAMPLE = re.compile(r"\A(?:.*[\\|]\n)*.*")  # lines ending in \ or | continue
_warned: set[str] = set()  # lines of `batch` are forked, and inherit it


def signature_of(kind: type[Command]) -> inspect.Signature:
    """What typer reads the options of a class from."""
    found = [_parameter(kind, name, *one) for name, one in options_of(kind).items()]
    if _has_rare(kind):
        information = typer.Option(_ALL, help="Show the rare options, too, and exit.")
        found.append(_keyword("help_all", bool, information, default=False))
    context = inspect.Parameter.POSITIONAL_OR_KEYWORD
    first = inspect.Parameter("context", context, annotation=typer.Context)
    return inspect.Signature([first, *found])


def _parameter(kind: type[Command], name: str, row: Option, of: Any) -> inspect.Parameter:
    hint: Any = str | None
    if get_origin(of) is list:
        hint = list[str] | None
    elif of is bool:
        hint = bool | None
    default = inspect.Parameter.empty if is_required(kind, name) else None
    if row.is_argument:
        return _keyword(name, hint, typer.Argument(metavar=row.metavar, help=row.text), default)
    names = spelled(name, row) + (f"/{row.opposite}" if row.opposite else "")
    words = [names, *([row.short] if row.short else [])]
    return _keyword(name, hint, typer.Option(*words, metavar=row.metavar, help=row.help), default)


def _keyword(name: str, hint: Any, information: Any, default: Any) -> inspect.Parameter:
    one, kind = Annotated[hint, information], inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=one)


def is_required(kind: type[Command], name: str) -> bool:
    """Whether an option or argument has no default."""
    return kind.__dataclass_fields__[name].default is MISSING


def _has_rare(kind: type[Command]) -> bool:
    return any(row.rare for row, _ in options_of(kind).values())


class TyperCommand(typer.core.TyperCommand):
    """A command whose words become a request, with help in plain text.

    The help has options in sections, and examples as they would be typed.
    """

    @property
    def kind(self) -> type[Command]:
        """The class of the request."""
        return command_class(str(self.name))

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        words = list(args)
        try:
            with exiting_at_closed_pipe():
                return super().make_context(info_name, args, parent=parent, **extra)
        except UsageError as error:
            raise usage_exit(info_name, str(error)) from error
        except TYPER_ERROR as error:
            raise usage_exit(info_name, usage_words(error, words)) from error

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given, rest, order = self.make_parser(ctx).parse_args(args=with_values(args))
        help_option = self.get_help_option(ctx)
        if given.get(help_option.name) or given.get("help_all"):
            is_short = "-h" in args and not {"--help", _ALL} & set(args)
            ctx.meta[_HELP] = _ALL if given.get("help_all") else "-h" if is_short else "--help"
            help_option.handle_parse_result(ctx, {help_option.name: True}, rest)
        # Of several mistakes, the first one on the command line is reported.
        names = [one.name for one in [*order, *self.params]]
        values = {}
        for name in sorted(options_of(self.kind), key=names.index):
            value = _value(str(ctx.info_name), self.kind, name, given.get(name))
            if value is not None:
                values[name] = value
        if rest:
            raise UsageError(f"got unexpected extra argument(s) ({' '.join(rest)})")
        warn_of_unknown(str(ctx.info_name), self.kind)
        ctx.meta[REQUEST] = self.kind.made_of(values)
        return rest

    def get_help_option(self, ctx: Any) -> Any:
        found: Any = super().get_help_option(ctx)
        if found and self.is_long:
            found.help = "Show the options, or with -h the usual ones in few words, and exit."
        return found

    @property
    def is_long(self) -> bool:
        """Whether its options are in sections, and -h shows the usual ones alone."""
        found = options_of(self.kind).values()
        return sum(not row.is_argument for row, _ in found) >= MANY

    def get_help(self, ctx: Any) -> str:
        return super().get_help(ctx).replace(_HYPHEN, "-")

    def format_help(self, ctx: Any, formatter: Any) -> None:
        if self.is_long and ctx.meta.get(_HELP) == "-h":
            self._format_short_help(ctx, formatter)
            return
        super().format_help(ctx, formatter)
        if self.is_long:
            formatter.write("\n-h shows the usual options alone, in few words.\n")

    def _format_short_help(self, ctx: Any, formatter: Any) -> None:
        """The first sentence, the required and the usual options in few words, and an example."""
        summary, _, lines = inspect.cleandoc(self.help or "").partition("Examples:\n")
        found = options_of(self.kind)
        shown = [name for name in found if is_required(self.kind, name) or found[name][0].usual]
        shown.sort(key=lambda name: not is_required(self.kind, name))
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(summary.partition("\n")[0].replace("-", _HYPHEN))
            formatter.write_paragraph()
            formatter.write_dl([_short_row(self.kind, name) for name in shown])
        with formatter.section("Example"):
            for line in _FIRST_EXAMPLE.findall(lines)[0].splitlines():
                formatter.write(f"  {line}\n")
        which = _ALL if _has_rare(self.kind) else "--help"
        count = sum(not row.is_argument for row, _ in found.values())
        formatter.write(f"\n{which} shows all {count} options.\n")

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        # After a \b, typer keeps the lines of a paragraph; here of those with an indented line.
        paragraphs = re.sub(r"\n\n(?=(\S.*\n)? )", "\n\n\b\n", inspect.cleandoc(self.help or ""))
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(paragraphs.replace("-", _HYPHEN))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        rows = help_rows(self.kind, with_rare=ctx.meta.get(_HELP) == _ALL)
        last = "Options" if "Options" in rows or not self.is_long else OUTPUT
        others: list[Any] = self.get_params(ctx)[len(options_of(self.kind)) :]
        for one in others:
            rows.setdefault(last, []).append((", ".join(sorted(one.opts, key=len)), one.help))
        width = min(_COLUMN, max(len(name) for found in rows.values() for name, _ in found))
        for section, found in rows.items():
            with formatter.section(section):
                formatter.write_dl(
                    [(name.ljust(width), text.replace("-", _HYPHEN)) for name, text in found]
                )


def help_rows(kind: type[Command], *, with_rare: bool) -> dict[str, list[tuple[str, str]]]:
    """By section of the help, how each option is written, and its text."""
    found = options_of(kind)
    is_long = sum(not row.is_argument for row, _ in found.values()) >= MANY
    order = ("Required", "Arguments", *(SECTIONS if is_long else ("Options",)))
    rows: dict[str, list[tuple[str, str]]] = {section: [] for section in order}
    for name, (row, _) in found.items():
        section = "Arguments" if row.is_argument else row.section if is_long else "Options"
        section = "Required" if is_long and is_required(kind, name) else section
        if with_rare or not row.rare:
            rows[section].append(_help_row(kind, name))
    return {section: several for section, several in rows.items() if several}


def _help_row(kind: type[Command], name: str) -> tuple[str, str]:
    """How an option is written with its metavar, and its text with default and bounds."""
    row, of = options_of(kind)[name]
    default = kind.__dataclass_fields__[name].default
    words = spelled(name, row) + (f" / {row.opposite}" if row.opposite else "")
    words = f"{row.short}, {words}" if row.short else words
    metavar = row.metavar if not row.is_argument and of is not bool else None
    is_shown = default is not MISSING and not isinstance(default, bool | tuple)
    notes = [f"default: {default}"] if is_shown and default not in (None, "") else []
    if of is int and row.within:
        low, high = row.within[1:-1].split(", ")
        notes.append(f"x>={low}" if high == "inf" else f"{low}<=x<={high}")
    notes += ["required"] if default is MISSING else []
    shown = f"  [{'; '.join(notes)}]" if notes else ""
    text = row.help
    if default in (None, ()) and not re.search(r"\(default|required", text) and of is not bool:
        text = f"{text.removesuffix('.')} (default: none)."
    return f"{words} {metavar}" if metavar else words, text + shown


def _short_row(kind: type[Command], name: str) -> tuple[str, str]:
    """The same with the first words of its text; a bracket that was cut open goes, too."""
    words, text = _help_row(kind, name)
    text = _DETAIL.sub("", text).rstrip(".")
    text = text[: text.rindex(" (")] if text.count("(") > text.count(")") else text
    text += "  [required]" if is_required(kind, name) else ""
    return words, text.replace("-", _HYPHEN)


def _value(command: str, kind: type[Command], name: str, words: Any) -> Any:
    """The value of an option from its words, or from its variable; None without any.

    Raises UsageError for one that is missing or does not fit.
    """
    row, of = options_of(kind)[name]
    shown = spelled(name, row)
    if words in (None, ()) and not row.is_argument:
        shown = variable_of(command, name, row)
        words = _from_environment(shown, row, is_list=get_origin(of) is list)
        shown = shown if words is not None else spelled(name, row)
    if words in (None, ()):
        if is_required(kind, name):
            raise UsageError(f"{shown} is missing; see 'vlcpctl {command} --help'")
        return None
    try:
        for one in [words] if isinstance(words, str) else words if of is not bool else []:
            if not one:
                raise ValueError("the value is empty (an unset shell variable gives none)")
            if row.takes_path:
                refuse_url(one, is_stored=row.stored)
        return converted(row, of, words)
    except ValueError as error:
        raise UsageError(f"{shown}: {error}") from error


def variable_of(command: str, name: str, row: Option) -> str:
    """The environment variable of an option.

    >>> variable_of("train-step", "set", Option("Set a hyper-parameter"))
    'VLCPCTL_TRAIN_STEP_SET'
    """
    return f"{_prefix_of(command)}_{spelled(name, row).lstrip('-').replace('-', '_').upper()}"


def _prefix_of(command: str) -> str:
    return _PROGRAM + command.replace("-", "_").upper()


def _from_environment(variable: str, row: Option, *, is_list: bool) -> Any:
    """The value of an option's variable; an empty variable counts as not set.

    The values of an option that can be repeated are separated by spaces, paths as those in PATH.
    """
    text = os.environ.get(variable, "")
    if not text.strip():
        return None
    if not is_list:
        return text
    if row.metavar in _OF_PATHS:
        # A URL is refused in whole: s3 and //bucket/run would be two paths that do not exist.
        return [one for one in re.split(f"{re.escape(os.pathsep)}(?!//)", text) if one]
    return text.split()


def warn_of_unknown(command: str, kind: type[Command]) -> None:
    """Warn of every VLCPCTL_ variable that sets nothing, naming the nearest one that exists.

    Variables of other commands are checked when those run.
    """
    rows = options_of(kind).items()
    known = [variable_of(command, name, row) for name, (row, _) in rows if not row.is_argument]
    prefixes = [_prefix_of(one) for one in COMMANDS]
    names = [name for name in os.environ if name.startswith(_PROGRAM) and os.environ[name]]
    if not names:
        return
    from vlcpctl.production.hook_variables import OF_HOOKS

    for name in sorted(names):
        if name in {*known, *_OTHERS, *OF_HOOKS} or name in _warned:
            continue
        # VLCPCTL_CHECK_X could belong to `check` or to a longer name: the longest one counts.
        owner = max((one for one in prefixes if name.startswith(f"{one}_")), key=len, default=None)
        if owner not in {None, _prefix_of(command)}:
            continue
        _warned.add(name)
        near = nearest(name, [*known, *_OTHERS], cutoff=0.75)
        guess = f"; did you mean {near}?" if near else ""
        console.warn(f"the environment variable {printable(name)} has no effect{guess}")


def with_values(words: Sequence[str]) -> list[str]:
    """The words of a command line, in which a `--wait` without a number becomes `--wait=inf`.

    Likewise `--pairs`. The parser's own optional values would take any next word, such as the name
    of a source.

    >>> with_values(["--wait", "pairs.parquet", "--wait", "5", "--", "--wait"])
    ['--wait=inf', 'pairs.parquet', '--wait', '5', '--', '--wait']
    """
    own = words[: words.index("--")] if "--" in words else words
    found = [
        f"{word}={_WITHOUT_VALUE[word]}"
        if word in _WITHOUT_VALUE and not _is_number(following)
        else word
        for word, following in zip(own, [*own, ""][1:], strict=True)
    ]
    return [*found, *words[len(own) :]]


def _is_number(word: str) -> bool:
    try:
        parse_number(word)
    except ValueError:
        return word == "inf"
    return True


@contextmanager
def exiting_at_closed_pipe() -> Iterator[None]:
    """End as commands do when the reader of stdout has closed it; typer would exit with 1."""
    try:
        yield
    except BrokenPipeError:
        console.drop_stdout()
        raise typer.Exit(PIPE_CLOSED) from None


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
    near = _option_near(option, error.ctx.command.params)
    guess = f"did you mean {near}?" if near else f"see '{error.ctx.command_path} --help'"
    return f"unknown option {printable(option)}; {guess}"


def _option_near(option: str, parameters: Collection[Any]) -> str | None:
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    known = [one for parameter in parameters for one in parameter.opts]
    return option_meant(option, known, arguments[0].metavar or "" if arguments else "")


def print_error(name: str, message: str) -> None:
    """Print the one line of an error, after its traceback with --debug."""
    if debugging():
        import traceback

        console.log(printable_lines(traceback.format_exc()).rstrip())
    console.log(printable(f"{f'vlcpctl {name}'.rstrip()}: {message}"))


def usage_exit(name: str, message: str) -> typer.Exit:
    """Print a mistake in the command line, and return the exception that exits with 2."""
    print_error(name, message)
    return typer.Exit(UsageError.exit_code)

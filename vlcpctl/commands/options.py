"""The options that commands share, so that each has one name and one meaning."""

from __future__ import annotations

import inspect
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

from vlcpctl.commands.values import kind_of, run_name
from vlcpctl.core import console
from vlcpctl.core.errors import UsageError
from vlcpctl.core.option_rules import SECTIONS, OptionRow, option_rows
from vlcpctl.core.words import parse_number, parse_whole_number, printable

PANELS = INPUT, METHOD, MODEL, OPTIMIZATION, DATA, EXECUTION, TABLES, OUTPUT = SECTIONS
Command = TypeVar("Command", bound=Callable[..., None])

Out = Annotated[
    Path,
    typer.Option("--out", "-o", metavar="PATH", help="Path of the result.", rich_help_panel=OUTPUT),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Replace --out; the old output is kept beside it, in .NAME.vlcpctl/replaced/.",
        rich_help_panel=OUTPUT,
    ),
]


_FOREVER = "inf"  # of --wait


def wait_seconds(text: str) -> float:
    """The seconds of --wait, which may be infinite. Raises ValueError for anything else."""
    seconds = math.inf if text == _FOREVER else parse_number(text)
    if seconds < 0:
        raise ValueError(f"{text} is too small; it must be at least 0")
    return seconds


Wait = Annotated[
    float | None,
    typer.Option(
        "--wait",
        parser=wait_seconds,
        metavar="[SECONDS]",
        help="If another process is writing the output, wait until it ends, or for at most SECONDS "
        "(default: exit with code 4 at once).",
        rich_help_panel=EXECUTION,
    ),
]
Cache = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        metavar="DIR",
        help="Directory to keep data that is read from an object store, such as s3://bucket/x; "
        "several processes can share it (default: vlcpctl/objects in the user's cache directory).",
        rich_help_panel=EXECUTION,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        min=0,  # the most is 2^63 - 1, as for every whole number
        metavar="N",
        help="Seed of all random choices.",
        rich_help_panel=EXECUTION,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME",
        help="Device to compute on: auto, cpu, cuda or cuda:N.",
        rich_help_panel=EXECUTION,
    ),
]


def workers(text: str) -> int | None:
    """The number of --workers; None for `auto`. Raises ValueError for anything else.

    >>> workers("4"), workers("auto")
    (4, None)
    """
    if text == "auto":
        return None
    try:
        count = parse_whole_number(text)
    except ValueError:
        raise ValueError(f"'{printable(text)}' is neither auto nor a whole number") from None
    if count < 0:
        raise ValueError(f"{text:.30} is too small; it must be at least 0")
    if count > MOST_WORKERS:
        raise ValueError(f"{text:.30} is too large; it must be at most {MOST_WORKERS}")
    return count


MOST_WORKERS = 1024
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        parser=workers,
        metavar="auto|N",
        help="Processes that decode images; 0 decodes in the main process (default: auto: on a GPU "
        "the cores of this process but one, at most 64; on a CPU 0).",
        rich_help_panel=EXECUTION,
    ),
]
Nproc = Annotated[
    int | None,
    typer.Option(
        "--nproc",
        min=1,
        metavar="N",
        help="Number of processes that run the model, one per GPU; the result is the same for any "
        "number (default: 1, or as started by torchrun).",
        rich_help_panel=EXECUTION,
    ),
]
NumShards = Annotated[
    int | None,
    typer.Option(
        "--num-shards",
        min=1,
        metavar="N",
        help="Number of commands that share the work, each with a --shard-index; the same line "
        "without --shard-index joins their shards (default: none).",
        rich_help_panel=EXECUTION,
    ),
]
ShardIndex = Annotated[
    int | None,
    typer.Option(
        "--shard-index",
        min=0,
        metavar="I",
        help="Index of this command, from 0 to --num-shards - 1, which computes one share of that "
        "work (default: none).",
        rich_help_panel=EXECUTION,
    ),
]
Threads = Annotated[
    int,
    typer.Option(
        "--threads",
        min=1,
        max=1024,
        metavar="N",
        help="CPU threads for arithmetic.",
        rich_help_panel=EXECUTION,
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Print only the result, no progress or notes.", rich_help_panel=OUTPUT
    ),
]
JsonRows = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print JSON lines on a terminal, too; with -o FILE, its path and the number of rows "
        "as one JSON object.",
        rich_help_panel=OUTPUT,
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print the result as one JSON object.", rich_help_panel=OUTPUT),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Check the inputs, print the plan and write nothing.",
        rich_help_panel=OUTPUT,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        min=1,
        metavar="N",
        help="Use only the first N samples, for a quick trial (default: all).",
        rich_help_panel=DATA,
    ),
]
MaxSkip = Annotated[
    str,
    typer.Option(
        "--max-skip",
        metavar="N|SHARE",
        help="Bad samples to tolerate: a number, or a share such as 0.1%.",
        rich_help_panel=DATA,
    ),
]

# Options of the commands that evaluate checkpoints.
Tasks = Annotated[list[Path], typer.Argument(metavar="TASK", help="Task directories.")]
Checkpoints = Annotated[
    list[Path],
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="Checkpoint to evaluate; repeat for more.",
        rich_help_panel=INPUT,
    ),
]
MethodFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--method-file",
        metavar="FILE.py",
        help="Python file that defines methods of your own, which --method can name; repeat for "
        "more. Its code is run (default: built-in methods and installed plug-ins).",
        rich_help_panel=METHOD,
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Directory with the data sets that are given by name (default: none).",
        rich_help_panel=INPUT,
    ),
]
Split = Annotated[
    str,
    typer.Option("--split", metavar="SPLIT", help="Split to evaluate on.", rich_help_panel=INPUT),
]
Run = Annotated[
    str | None,
    typer.Option(
        "--run",
        parser=run_name,
        metavar="NAME",
        help="Name of the run in the rows (default: the checkpoint's).",
        rich_help_panel=OUTPUT,
    ),
]
BatchSize = Annotated[
    int,
    typer.Option(
        "--batch-size",
        min=1,
        metavar="N",
        help="Images or texts to encode at once.",
        rich_help_panel=EXECUTION,
    ),
]
Rows = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="File to write rows to; - is stdout, where a terminal shows a table.",
        rich_help_panel=OUTPUT,
    ),
]

DEFAULT_THREADS = 1  # two OpenMP threads on a busy machine can be ten times slower than one

SaveRanks = Annotated[
    Path | None,
    typer.Option(
        "--save-ranks",
        metavar="FILE",
        help="Parquet file for the rank of each query's best correct answer, and its best wrong "
        "answer (default: none).",
        rich_help_panel=OUTPUT,
    ),
]

Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="tensorboard:DIR|wandb:PROJECT",
        help="Also log to TensorBoard or Weights & Biases; repeat for more (default: none).",
        rich_help_panel=OUTPUT,
    ),
]

EmbeddingCache = Annotated[
    Path | None,
    typer.Option(
        "--embedding-cache",
        metavar="DIR",
        help="Directory to read embeddings from, and to store those that it lacks, for evaluations "
        "of the same checkpoint, data and --batch-size on the same kind of machine (default: "
        "none).",
        rich_help_panel=EXECUTION,
    ),
]


def with_fields(
    *kinds: type,
    only: Sequence[str] = (),
    words: Mapping[str, str] | None = None,
    otherwise: Mapping[str, str] | None = None,
) -> Callable[[Command], Command]:
    """A decorator for a command: the fields of these dataclasses that have a row become options.

    They come before the keyword-only parameters of the command, which gets their values in its
    `**` parameter: None for an option whose row says what holds without it, else the default.
    `only` names the fields to take; `words` replaces the help of some, and `otherwise` what holds
    without the option.
    """

    def decorate(run: Command) -> Command:
        own = inspect.signature(run, eval_str=True).parameters.values()
        rows = {name: row for kind in kinds for name, row in option_rows(kind).items()}
        defaults = {name: getattr(kind, name) for kind in kinds for name in option_rows(kind)}
        hints = {name: one for kind in kinds for name, one in get_type_hints(kind).items()}
        parameters = [one for one in own if one.kind is one.POSITIONAL_OR_KEYWORD]
        for name in only or rows:
            row = rows[name]._replace(
                help=(words or {}).get(name, rows[name].help),
                otherwise=(otherwise or {}).get(name, rows[name].otherwise),
            )
            parameters.append(_parameter(name, hints[name], defaults[name], row))
        parameters += [one for one in own if one.kind is one.KEYWORD_ONLY]
        run.__dict__["__signature__"] = inspect.Signature(parameters)
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _parameter(name: str, annotation: Any, default: Any, row: OptionRow) -> inspect.Parameter:
    """The parameter of a command for an option, with typer's information about it."""
    option, (kind, _) = f"--{name.replace('_', '-')}", kind_of(annotation)
    least, most = _whole_bounds(row.within) if kind is int else (None, None)
    is_pair = get_origin(kind) is tuple
    information = typer.Option(
        f"{option}/--no-{option[2:]}" if row.has_opposite else option,
        metavar=row.metavar,
        help=f"{row.help} (default: {row.otherwise})." if row.otherwise else f"{row.help}.",
        rich_help_panel=row.section,
        min=least,
        max=most,
        parser=pair_parser(option, get_args(kind)[0]) if is_pair else None,
        autocompletion=_completer(row.choices) if row.choices else None,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if row.otherwise else default,
        annotation=Annotated[(str if is_pair else kind) | None, information],
    )


def _whole_bounds(interval: str) -> tuple[int, int | None]:
    """The least and the most of an interval of whole numbers such as "[4, 4096]" or "[1, inf)"."""
    low, high = interval[1:-1].split(", ")
    return int(low), None if high == "inf" else int(high)


def pair_parser(option: str, kind: type) -> Callable[[str], tuple[float, float]]:
    """A parser of an option's two numbers of this kind; it raises UsageError for anything else.

    >>> pair_parser("--crop-scale", float)("0.2,1")
    (0.2, 1.0)
    """
    parse = parse_whole_number if kind is int else parse_number

    def two_numbers(text: str) -> tuple[float, float]:
        first, comma, second = text.partition(",")
        try:
            if comma:
                return parse(first), parse(second)
        except ValueError:
            pass
        raise UsageError(f"{option} {text!r} is not two numbers such as 0.9,0.99")

    return two_numbers


def _completer(choices: Sequence[str]) -> Callable[[str], list[str]]:
    def offered(incomplete: str) -> list[str]:
        return [one for one in choices if one.startswith(incomplete)]

    return offered


def with_wait_values(words: Sequence[str]) -> list[str]:
    """The words of a command line, in which a `--wait` without a number becomes `--wait=inf`.

    The parser's own optional values would take any next word, such as the name of a source.

    >>> with_wait_values(["--wait", "pairs.parquet", "--wait", "5", "--", "--wait"])
    ['--wait=inf', 'pairs.parquet', '--wait', '5', '--', '--wait']
    """
    own = words[: words.index("--")] if "--" in words else words
    found = [
        f"--wait={_FOREVER}" if word == "--wait" and not _is_number(following) else word
        for word, following in zip(own, [*own, ""][1:], strict=True)
    ]
    return [*found, *words[len(own) :]]


def _is_number(word: str) -> bool:
    try:
        parse_number(word)
    except ValueError:
        return word == _FOREVER
    return True


def start(*, quiet: bool = False, threads: int = DEFAULT_THREADS) -> None:
    """Set --quiet, and the thread counts that libraries read when they are imported."""
    console.set_quiet(quiet)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    if "torch" in sys.modules:  # batch imports torch before a command starts
        sys.modules["torch"].set_num_threads(threads)


def spelled(command: Callable[..., object]) -> dict[str, list[str]]:
    """How a command line has each parameter of a command: `--lr`, `--out` and `-o`; [] an argument.

    >>> from vlcpctl.commands.train_step import run
    >>> [spelled(run)[name] for name in ("tasks", "out", "flip")]
    [[], ['--out', '-o'], ['--flip', '--no-flip']]
    """
    found = {}
    for name, one in inspect.signature(command, eval_str=True).parameters.items():
        _, information = kind_of(one.annotation)
        names: list[str] = []
        if information.param_decls is not None:  # not an argument
            # typer takes the first name for a default.
            first = information.default
            names = [*([first] if isinstance(first, str) else []), *information.param_decls]
            names = names or [f"--{name.replace('_', '-')}"]
        found[name] = [part for words in names for part in words.split("/")]
    return found


def names_of(command: Callable[..., object]) -> list[str]:
    """The options of a command as they are written, one after the other."""
    return [name for names in spelled(command).values() for name in names]


def given(command: Callable[..., object], values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a command that have a value, from its `locals()`, by parameter name."""
    names = inspect.signature(command).parameters
    return {name: values[name] for name in names if values.get(name) is not None}

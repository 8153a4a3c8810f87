"""The options that commands share, so that each has one name and one meaning."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from vlcpctl.core.machine import thread_number
from vlcpctl.core.options import (
    DATA,
    EXECUTION,
    INPUT,
    METHOD,
    Amount,
    Auto,
    Command,
    MaybePath,
    OnePath,
    Options,
    Paths,
    PathTexts,
    like,
    option,
    printing,
    required,
    several,
    switch,
)
from vlcpctl.core.words import parse_number, parse_whole_number, printable

if TYPE_CHECKING:
    from vlcpctl.files.parts import Parts

MOST_WORKERS = 1024
SPLITS = ("train", "val", "test", "query", "gallery")
_FOREVER = "inf"  # of --wait


def wait_seconds(text: str) -> float:
    """The seconds of --wait, which may be infinite. Raises ValueError for anything else."""
    seconds = math.inf if text == _FOREVER else parse_number(text)
    if seconds < 0:
        raise ValueError(f"{text} is too small; it must be at least 0")
    return seconds


def worker_number(text: str) -> int | None:
    """The number of --workers; None for `auto`. Raises ValueError for anything else.

    >>> worker_number("4"), worker_number("auto")
    (4, None)
    """
    if text == "auto":
        return None
    try:
        count = parse_whole_number(text)
    except ValueError:
        raise ValueError(f"'{printable(text)}' is neither auto nor a whole number") from None
    if not 0 <= count <= MOST_WORKERS:
        raise ValueError(f"{text:.30} is not at least 0 and at most {MOST_WORKERS}")
    return count


def run_name(text: str) -> str:
    """The name of a run, for --run.

    Raises ValueError for a name that is empty, starts or ends with a space, or has characters that
    do not print.
    """
    if not text.strip():
        raise ValueError("the name is empty")
    if text != text.strip():
        raise ValueError(f"{text!r} starts or ends with a space")
    if printable(text) != text:
        raise ValueError(f"'{printable(text)}' contains characters that cannot be printed")
    return text


class Shared(Options):
    """Options that several commands have, which take them by `like`."""

    checkpoint: Paths = required("Checkpoint to evaluate; repeat for more", "DIR", INPUT)
    data: MaybePath = option("Directory with the data sets that are given by name", "DIR", INPUT)
    split: str = option("Split to evaluate on", "SPLIT", INPUT, default="test", offers=SPLITS)
    method_file: Paths = several(
        "Python file that defines methods of your own, which --method can name; repeat for more. "
        "Its code is run",
        "FILE.py",
        METHOD,
        otherwise="built-in methods and installed plug-ins",
    )
    limit: int | None = option(
        "Use only the first N samples, for a quick trial",
        "N",
        DATA,
        otherwise="all",
        within="[1, inf)",
    )
    max_skip: Amount = option(
        "Bad samples to tolerate: a number, or a share such as 0.1%",
        "N|SHARE",
        DATA,
        default="0.1%",
    )
    seed: int = option("Seed of all random choices", "N", EXECUTION, default=0, within="[0, inf)")
    device: str = option(
        "Device to compute on: auto, cpu, cuda or cuda:N",
        "NAME",
        EXECUTION,
        default="auto",
        offers=("auto", "cpu", "cuda"),
    )
    workers: Auto = option(
        "Processes that decode images; 0 decodes in the main process",
        "auto|N",
        EXECUTION,
        otherwise="auto: on a GPU the cores of this process but one, at most 64; on a CPU 0",
        parse=worker_number,
        offers=("auto",),
    )
    nproc: int | None = option(
        "Number of processes that run the model, one per GPU; the result is the same for any",
        "N",
        EXECUTION,
        otherwise="1, or as started by torchrun",
        within="[1, inf)",
    )
    # With another number the last bits are others.
    threads: int = option(
        "CPU threads for arithmetic; auto: as many as this process has cores",
        "auto|N",
        EXECUTION,
        default=1,
        parse=thread_number,
        offers=("auto",),
    )
    wait: float | None = option(
        "If another process is writing the output, wait until it ends, or for at most SECONDS",
        "[SECONDS]",
        EXECUTION,
        otherwise="exit with code 4 at once",
        parse=wait_seconds,
    )
    cache: MaybePath = option(
        "Directory to keep data that is read from an object store, such as s3://bucket/x; several "
        "processes can share it",
        "DIR",
        EXECUTION,
        otherwise="vlcpctl/objects in the user's cache directory",
    )
    run: str | None = option(
        "Name of the run in the rows", "NAME", otherwise="the checkpoint's", parse=run_name
    )
    save_ranks: MaybePath = option(
        "Parquet file for the rank of each query's best correct answer, and its best wrong answer",
        "FILE",
        writes=True,
    )
    log: PathTexts = several(
        "Also log to TensorBoard or Weights & Biases; repeat for more",
        "tensorboard:DIR|wandb:PROJECT",
        offers=("tensorboard:", "wandb:"),
    )


class Computed(Command):
    """A command that runs a model."""

    seed: int = like(Shared, "seed", default=0, usual=True)
    device: str = like(Shared, "device", default="auto", usual=True)
    nproc: int | None = like(Shared, "nproc", default=None)
    threads: int = like(Shared, "threads", default=1)


class Sharded(Command):
    """A command that can share its work with others."""

    num_shards: int | None = option(
        "Number of commands that share the work, each with a --shard-index; the same line without "
        "--shard-index joins their shards",
        "N",
        EXECUTION,
        within="[1, inf)",
    )
    shard_index: int | None = option(
        "Index of this command, from 0 to --num-shards - 1, which computes one share of that work",
        "I",
        EXECUTION,
        within="[0, inf)",
    )

    def parts_of(self, out: Path, *, force: bool) -> Parts | None:
        """The parts of this work beside an output, if there are any to make or to join."""
        from vlcpctl.files.parts import parts_of

        return parts_of(out, self.num_shards, self.shard_index, force=force)


class Stored(Command):
    """A command whose inputs may be in an object store."""

    cache: MaybePath = like(Shared, "cache", default=None)


class Quiet(Command):
    """A command that prints more than its result."""

    quiet: bool = switch("Print only the result, no progress or notes", short="-q")


class Json(Command):
    """A command whose result can be one JSON object."""

    json: bool = printing("Print the result as one JSON object")


class Result(Quiet):
    """A command that writes one path."""

    out: OnePath = required("Path of the result", "PATH", short="-o", writes=True)
    force: bool = switch(
        "Replace --out; the old output is kept beside it, in .NAME.vlcpctl/replaced/"
    )
    wait: float | None = like(Shared, "wait", default=None)


class Planned(Result, Json):
    """One that can say what it would do."""

    dry_run: bool = printing("Check the inputs, print the plan and write nothing", usual=True)

"""The options that commands share, so that each has one name and one meaning."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from vlcpctl.core import console

Out = Annotated[Path, typer.Option("--out", "-o", help="Where the result is written.")]
Force = Annotated[
    bool, typer.Option("--force", help="Replace the output at --out; the old one is kept hidden.")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]
Workers = Annotated[
    int, typer.Option("--workers", min=0, help="Processes that decode images (0: none).")
]
Threads = Annotated[int, typer.Option("--threads", min=1, help="CPU threads for arithmetic.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check and print the plan; write nothing.")]
Limit = Annotated[
    int | None,
    typer.Option("--limit", min=1, help="Stop after this many samples (to try things out)."),
]
MaxSkip = Annotated[
    str, typer.Option("--max-skip", help="Bad samples to tolerate: a count, or a share like 0.1%.")
]

DEFAULT_THREADS = 1  # two OpenMP threads on a busy machine can be ten times slower than one


def start(*, quiet: bool = False, threads: int = DEFAULT_THREADS) -> None:
    """Apply what must be set before heavy libraries are imported."""
    console.set_quiet(quiet)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    if "torch" in sys.modules:  # batch has imported it already
        sys.modules["torch"].set_num_threads(threads)

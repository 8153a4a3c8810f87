"""`vlcpctl invert-texts`: generate negative texts from a buffer with the model of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from vlcpctl.commands import options
from vlcpctl.core.console import emit, say
from vlcpctl.methods.incclip import Incclip

if TYPE_CHECKING:
    from vlcpctl.data.precomputed.pseudo_texts import PseudoTextFile

WHEN = {"before": "_before", "after": ""}  # with the suffix of the columns

Checkpoint = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        help="Model that computes the similarities, usually the previous checkpoint.",
        rich_help_panel=options.INPUT,
    ),
]
Buffer = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        help="Buffer to take captions and images from.",
        rich_help_panel=options.INPUT,
    ),
]
Count = Annotated[
    int,
    typer.Option(
        min=1,
        max=10**9,
        metavar="N",
        help="Number of texts to generate.",
        rich_help_panel=options.METHOD,
    ),
]
Images = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="Images per mini-batch, and number of texts generated against them.",
        rich_help_panel=options.METHOD,
    ),
]
Iterations = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        help="Iterations of gradient descent per mini-batch.",
        rich_help_panel=options.OPTIMIZATION,
    ),
]
Rate = Annotated[
    float,
    typer.Option(
        metavar="X",
        help="Learning rate of the gradient descent.",
        rich_help_panel=options.OPTIMIZATION,
    ),
]
Low = Annotated[
    float,
    typer.Option(
        metavar="X",
        help="Lower bound for the similarity of texts and images.",
        rich_help_panel=options.METHOD,
    ),
]
High = Annotated[
    float,
    typer.Option(
        metavar="X",
        help="Upper bound for the similarity of texts and images.",
        rich_help_panel=options.METHOD,
    ),
]
BatchSize = Annotated[
    int,
    typer.Option(
        min=1, metavar="N", help="Texts to process at once.", rich_help_panel=options.EXECUTION
    ),
]


def run(
    out: options.Out,
    checkpoint: Checkpoint,
    buffer: Buffer,
    count: Count = 10_000,
    images: Images = 256,
    iterations: Iterations = Incclip.iterations,
    rate: Rate = Incclip.rate,
    min_score: Low = Incclip.s_min,
    max_score: High = Incclip.s_max,
    batch_size: BatchSize = 256,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    workers: options.Workers = None,
    nproc: options.Nproc = None,
    threads: options.Threads = options.DEFAULT_THREADS,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    r"""Generate negative texts from a buffer: token embeddings of no real caption (IncCLIP).

    Mixtures of two captions are changed by gradient descent until their similarity to a mini-batch
    of the buffer's images is between --min-score and --max-score. Pass the file to train-step with
    --pseudo-texts.

    --nproc shares the work between processes of one command. The same command writes the same
    bytes; one that was interrupted starts again.

    Examples:
      vlcpctl invert-texts --checkpoint run/00 --buffer buffer/00 \
          -o pseudo/00.parquet --count 20000
    """
    options.start(quiet=quiet, threads=threads)
    from vlcpctl.core.batch import InversionSettings
    from vlcpctl.data.precomputed.pseudo_texts import open_pseudo_texts
    from vlcpctl.distributed.ranks import processes
    from vlcpctl.precompute.compute_options import ComputeOptions
    from vlcpctl.precompute.invert_plan import InversionRequest, already_inverted, make_plan

    bounds = {"low": min_score, "high": max_score}
    settings = InversionSettings(
        texts=images, pairs=images, iterations=iterations, rate=rate, **bounds
    )
    request = InversionRequest(
        checkpoint=checkpoint, buffer=buffer, out=out, count=count, settings=settings, seed=seed
    )
    compute = ComputeOptions(
        batch_size=batch_size,
        device=device,
        workers=workers,
        threads=threads,
        nproc=processes(nproc),
    )
    plan = make_plan(request)
    if already_inverted(plan, force=force):
        say(f"invert-texts: {out} is already finished")
    else:
        say(f"invert-texts: {plan}, {compute}")
        if dry_run:
            return
        from vlcpctl.precompute.invert_texts import invert_texts

        invert_texts(plan, compute)
    found = open_pseudo_texts(out)
    for line in _histogram(found):
        say(line)
    emit(_result(found) if as_json else out)


def _histogram(file: PseudoTextFile) -> Iterator[str]:
    """Histograms of the texts' mean similarity to their images, before and after inversion."""
    low, high = (file.identity["inversion"][name] for name in ("low", "high"))
    similarities = {when: file.column(f"similarity{ending}") for when, ending in WHEN.items()}
    least = min(float(values.min()) for values in similarities.values())
    most = max(float(values.max()) for values in similarities.values())
    for when, values in similarities.items():
        within = int(((values >= low) & (values <= high)).sum())
        share = 100 * float(file.column(f"within{WHEN[when]}").mean())
        yield (
            f"{when:6} {least:5.2f} |{_bins(values, least, most)}| {most:.2f}  {within} "
            f"of {file.count} texts and {share:.1f} % of all similarities in [{low}, {high}]"
        )


def _bins(values: np.ndarray, low: float, high: float) -> str:
    """A histogram of values from `low` to `high`, a character per bin, darker where fuller."""
    counts, _ = np.histogram(values, 40, (low, high))
    shades = " .:-=+*#%@"
    return "".join(shades[-(-count * 9 // max(1, counts.max()))] for count in counts)


def _result(file: PseudoTextFile) -> str:
    from vlcpctl.data.precomputed.pseudo_texts import SCORES

    fields = {name: file.metadata[name] for name in ("content", "length", "width")}
    scores = {name: float(file.column(name).mean()) for name in SCORES}
    return json.dumps({"path": str(file.path), "count": file.count, **fields, **scores})

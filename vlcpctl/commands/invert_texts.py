"""`vlcpctl invert-texts`: make negative texts of a buffer, with the model of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vlcpctl.commands import options
from vlcpctl.core.console import emit, say
from vlcpctl.methods.incclip import Incclip

if TYPE_CHECKING:
    from vlcpctl.data.pseudo_texts import PseudoFile

WHEN = {"before": "_before", "after": ""}  # and the ending of the columns that say so

Checkpoint = Annotated[
    Path, typer.Option(help="The model that finds the texts similar: that of the step before.")
]
Buffer = Annotated[Path, typer.Option(help="Where captions and images are taken from.")]
Count = Annotated[int, typer.Option(min=1, help="Texts to make.")]
Images = Annotated[
    int, typer.Option(min=1, help="Of a mini-batch; as many texts are made against them.")
]
Iterations = Annotated[int, typer.Option(min=0, help="Steps of gradient descent.")]
Rate = Annotated[float, typer.Option(help="Of the gradient descent.")]
Low = Annotated[float, typer.Option(help="Similarity to the images that a text has at least.")]
High = Annotated[float, typer.Option(help="Similarity to the images that it has at most.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Texts made at once.")]


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
    workers: options.Workers = 0,
    threads: options.Threads = options.DEFAULT_THREADS,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Make negative texts of a buffer: token embeddings that no caption has.

    Mixtures of two captions are moved until their similarity to a mini-batch of the buffer's images
    lies between --min-score and --max-score. train-step takes the file as --pseudo-texts. Killed
    and started again, it goes on where it was and ends with the same bytes.

    vlcpctl invert-texts --checkpoint run/00 --buffer buffer/00 -o pseudo/00.parquet --count 20000
    """
    options.start(quiet=quiet, threads=threads)
    from vlcpctl.core.pseudo_texts import Inversion
    from vlcpctl.data.pseudo_texts import open_pseudo_texts
    from vlcpctl.engine.invert_plan import Request, already_inverted, make_plan
    from vlcpctl.engine.parts import Means

    bounds = {"low": min_score, "high": max_score}
    how = Inversion(texts=images, pairs=images, iterations=iterations, rate=rate, **bounds)
    request = Request(
        checkpoint=checkpoint, buffer=buffer, out=out, count=count, how=how, seed=seed
    )
    means = Means(batch_size=batch_size, device=device, workers=workers, threads=threads)
    plan = make_plan(request)
    if already_inverted(plan, force=force):
        say(f"invert-texts: {out} is there already")
    else:
        say(f"invert-texts: {plan}")
        if dry_run:
            return
        from vlcpctl.engine.invert_texts import invert_texts

        invert_texts(plan, means, force=force)
    found = open_pseudo_texts(out)
    for line in _histogram(found):
        say(line)
    emit(_result(found) if as_json else out)


def _histogram(file: PseudoFile) -> Iterator[str]:
    """How similar the texts are to their images on average, when they were mixed and now."""
    from vlcpctl.report.histogram import histogram_line

    low, high = (file.identity["inversion"][name] for name in ("low", "high"))
    means = {when: file.column(f"similarity{ending}") for when, ending in WHEN.items()}
    least = min(float(values.min()) for values in means.values())
    most = max(float(values.max()) for values in means.values())
    for when, values in means.items():
        within = int(((values >= low) & (values <= high)).sum())
        share = 100 * float(file.column(f"within{WHEN[when]}").mean())
        yield (
            f"{when:6} {least:5.2f} |{histogram_line(values, least, most)}| {most:.2f}  {within} "
            f"of {file.count} texts and {share:.1f} % of all similarities in [{low}, {high}]"
        )


def _result(file: PseudoFile) -> str:
    from vlcpctl.data.pseudo_texts import REACHED

    fields = {name: file.metadata[name] for name in ("content", "length", "width")}
    reached = {name: float(file.column(name).mean()) for name in REACHED}
    return json.dumps({"path": str(file.path), "count": file.count, **fields, **reached})

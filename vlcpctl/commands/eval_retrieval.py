"""`vlcpctl eval-retrieval`: how well checkpoints find texts, images or pairs of a class."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcpctl.commands import options
from vlcpctl.commands.row_files import STDOUT, has_rows, refuse_json_of_rows, rows_to, tell_file
from vlcpctl.core import console

if TYPE_CHECKING:
    from vlcpctl.engine.evaluation_plan import Job, Means, Request

Tasks = Annotated[list[Path], typer.Argument(help="Task directories.")]
Checkpoints = Annotated[
    list[Path], typer.Option("--checkpoint", help="A checkpoint; may be given again.")
]
Gallery = Annotated[
    str, typer.Option("--gallery", help="own (each task's), merged (all up to a step) or both.")
]
Protocol = Annotated[
    str,
    typer.Option(
        "--protocol", help="cross-modal (recall) or multi-modal (fused pairs, average precision)."
    ),
]
MapVariant = Annotated[
    str | None,
    typer.Option(
        "--map-variant",
        help="Average precision by eq11 (CTP's equation), ctp (with the cut-offs of its authors' "
        "code) or min-rn (over all hits that are possible). [default: eq11]",
    ),
]
SplitName = Annotated[
    str | None,
    typer.Option(
        "--split",
        help="The part of each task to measure on. [default: test, or query and gallery]",
    ),
]
Duplicates = Annotated[
    str,
    typer.Option("--duplicates", help="unite: identical content is one entry; or separate."),
]
Backend = Annotated[str, typer.Option("--backend", help="auto, faiss or torch; same ranks.")]
SaveEmbeddings = Annotated[
    Path | None,
    typer.Option("--save-embeddings", help="Also write them there, as clip-retrieval does."),
]
RunName = Annotated[
    str | None, typer.Option("--run", help="Name in the rows. [default: the checkpoint's]")
]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Items encoded at once.")]
_TIMINGS = "vlcpctl.timings/1"
Timings = Annotated[Path | None, typer.Option("--timings", help="Write timings there, as NDJSON.")]


def run(
    tasks: Tasks,
    checkpoint: Checkpoints,
    gallery: Gallery = "own",
    protocol: Protocol = "cross-modal",
    map_variant: MapVariant = None,
    split: SplitName = None,
    duplicates: Duplicates = "unite",
    backend: Backend = "auto",
    save_embeddings: SaveEmbeddings = None,
    run_name: RunName = None,
    batch_size: BatchSize = 256,
    timings: Timings = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="File of rows; - is stdout.")] = STDOUT,
    device: options.Device = "auto",
    workers: options.Workers = 0,
    threads: options.Threads = options.DEFAULT_THREADS,
    limit: options.Limit = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure retrieval of checkpoints on tasks, as rows.

    One line of JSON for each checkpoint and gallery, written when it is known: recall at 1, 5 and
    10 in percent, from images to texts (i2t) and back (t2i). A right answer that is tied with a
    wrong one is no hit; n_ties counts the queries that this decided. Images or texts of identical
    content are one entry and one query, right for all that any of them is right for.

    With --protocol multi-modal queries and gallery are pairs, each image fused with its first
    caption, and pairs of one class are right for each other; the query itself is left out. The
    rows have mean average precision at 1, 5 and 10 in percent (map_1, map_5, map_10), and n_alone,
    the queries without a right answer, which score 0. It takes a fusion model and tasks with class
    labels, and their splits query and gallery where all of them have both.

    A merged gallery holds tasks 0..i of the stream; there is one for every i up to the
    checkpoint's step.

    vlcpctl eval-retrieval stream/0* --checkpoint run/02 -o rows.ndjson

    vlcpctl eval-retrieval stream/0* --checkpoint run/00 --checkpoint run/01 --gallery both |
    vlcpctl forgetting-report -

    vlcpctl eval-retrieval stream/0* --checkpoint run/02 --gallery merged --protocol multi-modal

    vlcpctl eval-retrieval coco --checkpoint run/02 --split val --save-embeddings emb
    """
    options.start(quiet=quiet, threads=threads)
    refuse_json_of_rows(out, as_json=json_)
    from vlcpctl.data.task import open_task
    from vlcpctl.engine.evaluation_plan import Means, Request, make_plan

    request = Request(
        tasks=tuple(open_task(path) for path in dict.fromkeys(tasks)),
        checkpoints=tuple(dict.fromkeys(checkpoint)),
        gallery=gallery,
        protocol=protocol,
        map_variant=map_variant,
        split=split,
        duplicates=duplicates,
        run=run_name,
        limit=limit,
        save_embeddings=save_embeddings,
        force=force,
    )
    jobs = make_plan(request)
    if dry_run:
        _say_plan(jobs)
        return
    cells = [cell for job in jobs for cell in job.cells]
    if has_rows(out, cells, force=force) and all(job.embeddings is None for job in jobs):
        console.say(f"eval-retrieval: {out} is there already")
    else:
        means = Means(backend=backend, device=device, batch_size=batch_size, workers=workers)
        _measure(request, jobs, means, out, timings)
    tell_file(out, len(cells), as_json=json_)


def _measure(
    request: Request, jobs: list[Job], means: Means, out: Path, timings: Path | None
) -> None:
    from vlcpctl.core.rows import write_row
    from vlcpctl.engine.evaluation import evaluate

    with rows_to(out) as stream, _timings_to(timings) as note:
        for row in evaluate(request, jobs, means, note):
            write_row(stream, row)


def _say_plan(jobs: list[Job]) -> None:
    for job in jobs:
        for line in job.lines():
            console.say(line)


@contextmanager
def _timings_to(path: Path | None) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Takes timings: each to the file, if there is one, and their sums to the log."""
    from vlcpctl.core.atomic import new_file, refuse_foreign_file
    from vlcpctl.core.rows import starts_with_schema

    is_ours = functools.partial(starts_with_schema, schema=_TIMINGS)
    if path is not None:
        refuse_foreign_file(path, is_ours)  # before the work, not after it
    found: list[dict[str, Any]] = []
    yield found.append
    for what in ("embed", "search"):
        seconds = sum(row["seconds"] for row in found if row["what"] == what)
        console.say(f"eval-retrieval: {what} {seconds:.1f} s")
    if path is not None:
        with new_file(path, is_ours) as temporary:
            lines = (json.dumps({"schema": _TIMINGS, **row}) for row in found)
            temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

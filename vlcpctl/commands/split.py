"""`vlcpctl split`: pairs in, a stream of tasks out."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcpctl.commands import options
from vlcpctl.core.errors import UsageError

if TYPE_CHECKING:
    from vlcpctl.data.pseudo_labels import Classifier
    from vlcpctl.data.split_options import SplitOptions

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help="Parquet, tar, JSON, CSV or TSV files, directories of them, or folders of images.",
    ),
]
ByOption = Annotated[
    str,
    typer.Option(
        "--by", help="column:NAME, iid, classes, source, or time:COLUMN.", show_default=False
    ),
]
Tasks = Annotated[
    int | None, typer.Option("--tasks", min=1, help="Number of tasks (iid, classes, time).")
]
Take = Annotated[
    int | None, typer.Option("--take", min=1, help="Keep the first so many pairs of each task.")
]
Order = Annotated[
    str | None, typer.Option("--order", help="Task names in order, or reverse, or shuffle.")
]
HoldoutOption = Annotated[
    str | None,
    typer.Option(
        "--holdout",
        help="Shares (test=0.1,val=0.05), images per task (test=5000), or none. [test=0.1]",
    ),
]
SplitColumn = Annotated[
    str | None,
    typer.Option(
        "--split-column",
        help="Column that says train, val, test, query or gallery; split: a list's name does.",
    ),
]
ShardSize = Annotated[str, typer.Option("--shard-size", help="Size of a tar, such as 256MB.")]
ImageColumn = Annotated[
    str | None, typer.Option("--image-column", help="Bytes or paths of images.")
]
CaptionColumn = Annotated[
    str | None, typer.Option("--caption-column", help="A caption or a list of them.")
]
ImageRoot = Annotated[
    list[str] | None,
    typer.Option(
        "--image-root",
        metavar="DIR",
        help="Where paths of images begin; may be given again. [beside the list]",
    ),
]
LabelColumn = Annotated[str | None, typer.Option("--label-column", help="Class labels.")]
LabelsFrom = Annotated[
    str | None,
    typer.Option(
        "--labels-from",
        metavar="SOURCE",
        help="A column, timm:MODEL[,WEIGHTS], checkpoint:DIR, or open_clip:MODEL,WEIGHTS.",
    ),
]
ClassNames = Annotated[
    Path | None,
    typer.Option("--class-names", help="Names of a classifier's classes, a line each."),
]
Templates = Annotated[
    Path | None,
    typer.Option("--templates", help='Of a classifier by names. ["a photo of a {c}."]'),
]
Device = Annotated[
    str | None, typer.Option("--device", help="Of a classifier: auto, cpu or cuda. [auto]")
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=0, help="Threads that decode images for a classifier. [0]"),
]
Decode = Annotated[bool, typer.Option("--decode", help="Decode every image, not only its header.")]


def run(
    sources: Sources,
    out: options.Out,
    by: ByOption,
    tasks: Tasks = None,
    take: Take = None,
    order: Order = None,
    holdout: HoldoutOption = None,
    split_column: SplitColumn = None,
    shard_size: ShardSize = "256MB",
    image_column: ImageColumn = None,
    caption_column: CaptionColumn = None,
    label_column: LabelColumn = None,
    labels_from: LabelsFrom = None,
    class_names: ClassNames = None,
    templates: Templates = None,
    image_root: ImageRoot = None,
    max_skip: options.MaxSkip = "0.1%",
    decode: Decode = False,
    limit: options.Limit = None,
    seed: options.Seed = 0,
    device: Device = None,
    workers: Workers = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Split image-text pairs into a stream of tasks.

    Images are passed through byte for byte; what cannot be used is counted and named. An image is
    held out by its own hash, so it falls on the same side in every task and in every later split.

    Lists are ALBEF's, Karpathy's, COCO's and P9D's JSON, and text tables with a header. Rows that
    follow each other with one image are its captions. In folders, and in tars, files of one name
    make a pair: an image, .txt with a caption a line, .json. Failed downloads of img2dataset are
    left out. No pickle is read.

    --labels-from takes class labels from a column, or from a classifier that looks at every image
    first: one of timm, or a model here that knows --class-names. Tasks --by classes, and what
    eval-zeroshot measures on them, need such labels where the data has none.

    Examples:
      vlcpctl split pairs.parquet -o stream --by column:group

      vlcpctl split shards/ -o stream --by iid --tasks 5 --holdout test=0.1,val=0.05

      vlcpctl split P9D -o stream --by column:industry_name --split-column split

      vlcpctl split dataset_coco.json -o stream --by iid --tasks 5 --split-column split
      --image-root coco

      vlcpctl split week1.parquet week2.parquet -o stream --by source

      vlcpctl split pairs.parquet -o stream --by time:date --tasks 12 --order reverse

      vlcpctl split shards/ -o stream --by classes --tasks 4 --labels-from timm:resnet50
    """
    options.start(quiet=quiet)
    from vlcpctl.core.console import emit
    from vlcpctl.data.split_options import SplitOptions

    given = SplitOptions(
        sources=sources,
        by=by,
        tasks=tasks,
        take=take,
        order=order,
        holdout=holdout,
        split_column=split_column,
        shard_size=shard_size,
        image_column=image_column,
        caption_column=caption_column,
        label_column=label_column,
        labels_from=labels_from,
        class_names=class_names,
        templates=templates,
        image_root=tuple(image_root or ()),
        max_skip=max_skip,
        decode=decode,
        limit=limit,
        seed=seed,
    )
    make = _plan if dry_run else partial(_stream, device=device, workers=workers)
    whole = {"path": str(out), **make(given, out, force=force)}
    emit(json.dumps(whole, ensure_ascii=False) if dry_run or json_ else out)


def _plan(given: SplitOptions, out: Path, *, force: bool) -> dict[str, Any]:
    from vlcpctl.data.making_streams import describe_plan

    return describe_plan(given, out, force=force)


def _stream(
    given: SplitOptions, out: Path, *, device: str | None, workers: int | None, force: bool
) -> dict[str, Any]:
    from vlcpctl.data.making_streams import make_stream

    labelling = given.labelling()
    if labelling is None:
        for option, value in (("--device", device), ("--workers", workers)):
            if value is not None:
                raise UsageError(f"{option} has no effect without a classifier (--labels-from)")
        return make_stream(given, out, force=force)

    def load() -> Classifier:
        from vlcpctl.engine.labelling import classifier_of

        return classifier_of(labelling, device or "auto")

    return make_stream(given, out, force=force, classifier=load, threads=workers or 0)

"""`vlcpctl split`: split image-text pairs into a stream of tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcpctl.commands import options
from vlcpctl.core.machine import worker_count
from vlcpctl.core.option_rules import GoesWith, refuse_idle
from vlcpctl.files.inputs import MOST_TASKS

if TYPE_CHECKING:
    from vlcpctl.data.splitting.options import SplitOptions
    from vlcpctl.data.splitting.pseudo_labels import Classifier

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        help="Files (.parquet, .tar, .json, .jsonl, .ndjson, .csv, .tsv, .arrow), directories of "
        "such files, folders of images, Hugging Face imagefolders, data sets that save_to_disk "
        "wrote, or tasks of a stream.",
    ),
]
ByOption = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="RULE",
        help="Rule that assigns pairs to tasks: column:NAME, iid, classes, source or time:COLUMN; "
        "all:NAME makes one task of this name.",
        show_default=False,
        rich_help_panel=options.METHOD,
    ),
]
Tasks = Annotated[
    int | None,
    typer.Option(
        "--tasks",
        min=1,
        max=MOST_TASKS,
        metavar="N",
        help="Number of tasks, for --by iid, classes and time.",
        rich_help_panel=options.METHOD,
    ),
]
TimeFormat = Annotated[
    str | None,
    typer.Option(
        "--time-format",
        metavar="FORMAT",
        help="How the times of --by time are written, in the signs of strptime, such as %d.%m.%Y "
        "(default: ISO 8601, or numbers).",
        rich_help_panel=options.INPUT,
    ),
]
Take = Annotated[
    int | None,
    typer.Option(
        "--take",
        min=1,
        metavar="N",
        help="Keep the first N pairs of each task (default: all).",
        rich_help_panel=options.METHOD,
    ),
]
Only = Annotated[
    str | None,
    typer.Option(
        "--only",
        metavar="NAMES",
        help="Values of the column, or sources, that become tasks, separated by commas and in this "
        "order (default: all).",
        rich_help_panel=options.METHOD,
    ),
]
Order = Annotated[
    str | None,
    typer.Option(
        "--order",
        metavar="NAMES",
        help="Order of the tasks: names separated by commas, reverse or shuffle "
        "(default: the order of the rule).",
        rich_help_panel=options.METHOD,
    ),
]
HoldoutOption = Annotated[
    str | None,
    typer.Option(
        "--holdout",
        metavar="SPLIT=SHARE",
        help="Held-out splits: shares (test=0.1,val=0.05; test=1.0 for all images), images per "
        "task (test=5000) or none (default: test=0.1). Shares are drawn by image hash and never "
        "leak into the training data of other streams; images per task can.",
        rich_help_panel=options.METHOD,
    ),
]
HoldoutMost = Annotated[
    str | None,
    typer.Option(
        "--holdout-most",
        metavar="P%",
        help="Share of a task that a --holdout of N images per task may take: a task too small "
        "for that holds out P% instead (default: no limit; a task of fewer than N is refused).",
        rich_help_panel=options.METHOD,
    ),
]
SplitColumn = Annotated[
    str | None,
    typer.Option(
        "--split-column",
        metavar="NAME",
        help="Column with each row's split: train, val, test, query or gallery (default: use "
        "--holdout). In a list without a column 'split', the name split means the file name; in "
        "an imagefolder or saved data set, the directory's name.",
        rich_help_panel=options.INPUT,
    ),
]
ShardSize = Annotated[
    str,
    typer.Option(
        "--shard-size",
        metavar="BYTES",
        help="Maximum size of a tar, such as 256MB.",
        rich_help_panel=options.OUTPUT,
    ),
]
ImageColumn = Annotated[
    str | None,
    typer.Option(
        "--image-column",
        metavar="NAME",
        help="Column with image bytes or paths (default: found by its name).",
        rich_help_panel=options.INPUT,
    ),
]
CaptionColumn = Annotated[
    str | None,
    typer.Option(
        "--caption-column",
        metavar="NAME",
        help="Column with a caption or a list of captions (default: found by its name).",
        rich_help_panel=options.INPUT,
    ),
]
ImageRoot = Annotated[
    list[str] | None,
    typer.Option(
        "--image-root",
        metavar="DIR",
        help="Directory that image paths are relative to; repeat for more (default: that of the "
        "list).",
        rich_help_panel=options.INPUT,
    ),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        "--label-column",
        metavar="NAME",
        help="Column with class labels (default: found by its name).",
        rich_help_panel=options.INPUT,
    ),
]
KeepColumns = Annotated[
    str | None,
    typer.Option(
        "--keep-columns",
        metavar="NAMES",
        help="Columns to keep in the index, separated by commas, such as customer,date: 'vlcpctl "
        "forget --where' finds pairs by them. In folders and tars, fields of the .json.",
        rich_help_panel=options.INPUT,
    ),
]
LabelsFrom = Annotated[
    str | None,
    typer.Option(
        "--labels-from",
        metavar="SOURCE",
        help="Source of class labels: a column, timm:MODEL[,WEIGHTS], checkpoint:DIR or "
        "open_clip:MODEL,WEIGHTS (default: the label column).",
        rich_help_panel=options.MODEL,
    ),
]
ClassNames = Annotated[
    Path | None,
    typer.Option(
        "--class-names",
        metavar="FILE",
        help="Class names of the classifier, one per line, for --labels-from.",
        rich_help_panel=options.MODEL,
    ),
]
Templates = Annotated[
    Path | None,
    typer.Option(
        "--templates",
        metavar="FILE",
        help='Prompt templates for --class-names (default: "a photo of a {c}.").',
        rich_help_panel=options.MODEL,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="Device of the classifier: auto, cpu, cuda or cuda:N (default: auto).",
        rich_help_panel=options.EXECUTION,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        parser=options.workers,
        metavar="auto|N",
        help="Threads that decode images for the classifier (default: auto: on a GPU the cores of "
        "this process, at most 8; on a CPU 0).",
        rich_help_panel=options.EXECUTION,
    ),
]
InPlace = Annotated[
    bool,
    typer.Option(
        "--in-place",
        help="Copy no image: the tasks are indexes of the sources, which must be tars and must "
        "stay as they are.",
        rich_help_panel=options.OUTPUT,
    ),
]
Decode = Annotated[
    bool,
    typer.Option(
        "--decode",
        help="Decode every image to check it, not only its header.",
        rich_help_panel=options.DATA,
    ),
]


LeaveOut = Annotated[
    list[Path] | None,
    typer.Option(
        "--not",
        metavar="PATH",
        help="Leave out the pairs of a receipt of 'vlcpctl forget', or of a task or stream; repeat "
        "for more (default: none).",
        rich_help_panel=options.DATA,
    ),
]
NotTestImages = Annotated[
    list[str] | None,
    typer.Option(
        "--not-test-images",
        metavar="PATH|self",
        help="Leave out pairs for training whose image is in the test split of a task or stream, "
        "or, with 'self' and --split-column, of this one; repeat for more (default: none).",
        rich_help_panel=options.DATA,
    ),
]
Cap = Annotated[
    list[str] | None,
    typer.Option(
        "--cap",
        metavar="NAME=N",
        help="Change a limit that protects against damaged files; repeat for more (defaults: "
        "captions=10000 and caption-length=1000000 characters per image, name-length=4096 "
        "characters of keys, labels and kept values, kept-values=10000 per kept column and image, "
        "columns=10000, group-bytes=64MiB per row group of Parquet).",
        rich_help_panel=options.DATA,
    ),
]


def run(
    sources: Sources,
    out: options.Out,
    by: ByOption,
    tasks: Tasks = None,
    time_format: TimeFormat = None,
    take: Take = None,
    only: Only = None,
    order: Order = None,
    holdout: HoldoutOption = None,
    holdout_most: HoldoutMost = None,
    split_column: SplitColumn = None,
    shard_size: ShardSize = "256MB",
    image_column: ImageColumn = None,
    caption_column: CaptionColumn = None,
    label_column: LabelColumn = None,
    keep_columns: KeepColumns = None,
    labels_from: LabelsFrom = None,
    class_names: ClassNames = None,
    templates: Templates = None,
    image_root: ImageRoot = None,
    max_skip: options.MaxSkip = "0.1%",
    not_: LeaveOut = None,
    not_test_images: NotTestImages = None,
    decode: Decode = False,
    in_place: InPlace = False,
    cap: Cap = None,
    limit: options.Limit = None,
    seed: options.Seed = 0,
    device: Device = None,
    workers: Workers = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    r"""Split image-text pairs into a stream of tasks.

    Images are copied byte for byte; pairs that cannot be used are counted and reported. With
    --in-place they stay where they are: the tars of a task are symbolic links to those of the
    sources, which must not change or move afterwards.

    With --holdout test=0.1 an image is held out by its own hash, so it is in the same split in
    every task and in every later stream. With test=500 each task holds out the 500 images with the
    lowest hashes: an image may be in test here and in train in another stream, such as next week's.

    --keep-columns stores columns of the sources in the index, as text: for each image the distinct
    values of all rows that became this image, skipped duplicates included. Buffers carry them on.

    --by time:COLUMN takes ISO 8601 of any precision, in UTC unless it has a zone, or numbers of one
    unit; --time-format says how other times are written. Each task's first and last are printed.

    Lists can be the JSON of ALBEF, Karpathy, COCO or P9D, JSON Lines, or text tables with a header.
    Consecutive rows with the same image become one image with several captions. Data sets of
    Hugging Face can be Parquet files, an imagefolder with metadata.jsonl, .csv or .parquet, whose
    images without a row are skipped, or what save_to_disk wrote; class labels of the last are
    named, not numbered.

    In folders and tars, files with the same name form a pair: an image, a .txt with one caption per
    line, a .json. Tars that were joined end to end are read whole. Repeats of a pair and failed
    downloads of img2dataset are skipped, and do not count against --max-skip. Pickles are never
    read.

    --not leaves out pairs, which are counted and recorded: those of a deletion, by key, by image if
    --sha256 selected it, and by the value of a kept column if --where selected it; or those that a
    task or stream has, by key. A copy with other bytes, such as another compression, has another
    key. --not-test-images leaves leaks out: pairs for training with an image that is tested
    elsewhere, whatever their captions; images are compared by the sha256 of their bytes.

    If it is interrupted, the same command starts over. To continue it would have to read and hash
    the pairs again and compare them with what is written, which takes as long.

    Images must be JPEG, PNG or WebP with at most 40 million pixels and 256 MiB, in any colour mode.
    The first frame of an animation is used. EXIF orientation is ignored, as in open_clip.

    --labels-from takes class labels from a column, or from a classifier that predicts them: a timm
    model, or an image-text model with --class-names. --by classes needs labels; so does
    eval-zeroshot, when it evaluates the tasks.

    Examples:
      vlcpctl split pairs.parquet -o stream --by column:group
      vlcpctl split pairs.parquet -o stream --by column:group --only flags,food
      vlcpctl split shards/ -o stream --by iid --tasks 5 \
          --holdout test=0.1,val=0.05
      vlcpctl split /data/cc12m -o stream --by iid --tasks 8 --in-place
      vlcpctl split P9D -o stream --by column:industry_name --split-column split
      vlcpctl split dataset_coco.json -o stream --by iid --tasks 5 \
          --split-column split --image-root coco
      vlcpctl split pairs.jsonl -o stream --by time:date --tasks 12
      vlcpctl split saved_dataset/ -o stream --by column:label \
          --split-column split
      vlcpctl split week1.parquet week2.parquet -o stream --by source
      vlcpctl split week3.parquet -o weeks/03 --by source \
          --keep-columns customer,date --holdout test=500 --holdout-most 10%
      vlcpctl split pairs.parquet -o stream --by time:date --tasks 12 \
          --order reverse
      vlcpctl split shards/ -o stream --by classes --tasks 4 \
          --labels-from timm:resnet50
      vlcpctl split july/ -o july-2026 --by all:july-2026
      vlcpctl split week4.parquet -o weeks/04 --by source --not weeks/03 \
          --not receipts/0001.json
    """
    options.start(quiet=quiet)
    from vlcpctl.core.console import emit
    from vlcpctl.data.splitting.options import SplitOptions
    from vlcpctl.data.splitting.stream import describe_plan

    given = SplitOptions(
        sources=sources,
        by=by,
        tasks=tasks,
        time_format=time_format,
        take=take,
        only=only,
        order=order,
        holdout=holdout,
        holdout_most=holdout_most,
        split_column=split_column,
        shard_size=shard_size,
        image_column=image_column,
        caption_column=caption_column,
        label_column=label_column,
        keep_columns=keep_columns,
        labels_from=labels_from,
        class_names=class_names,
        templates=templates,
        image_root=tuple(image_root or ()),
        max_skip=max_skip,
        cap=tuple(cap or ()),
        decode=decode,
        in_place=in_place,
        limit=limit,
        seed=seed,
        leave_out=tuple(map(str, not_ or ())),
        not_test_images=tuple(not_test_images or ()),
    )
    if dry_run:
        made = describe_plan(given, out, force=force)
    else:
        made = _stream(given, out, device=device, workers=workers, force=force)
    whole = {"path": str(out), **made}
    emit(json.dumps(whole, ensure_ascii=False) if dry_run or json_ else out)


def _stream(
    options: SplitOptions, out: Path, *, device: str | None, workers: int | None, force: bool
) -> dict[str, Any]:
    from vlcpctl.data.splitting.labels_from import CLASSIFIERS
    from vlcpctl.data.splitting.stream import make_stream

    rows = [GoesWith(name, "labels_from", CLASSIFIERS) for name in ("device", "workers")]
    refuse_idle(rows, {"device": device, "workers": workers, "labels_from": options.labels_kind()})
    labelling = options.labelling()
    if labelling is None:
        return make_stream(options, out, force=force)

    def load() -> Classifier:
        from vlcpctl.precompute.label_classifiers import classifier_of

        return classifier_of(labelling, device or "auto")

    threads = worker_count(workers, device or "auto")
    return make_stream(options, out, force=force, classifier=load, threads=threads)

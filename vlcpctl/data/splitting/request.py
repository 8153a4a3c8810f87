"""The options of `vlcpctl split` that decide what is written."""

from __future__ import annotations

from vlcpctl.core.options import (
    DATA,
    EXECUTION,
    INPUT,
    METHOD,
    MODEL,
    Amount,
    MaybePath,
    MaybePathText,
    Names,
    Options,
    Paths,
    PathTexts,
    Texts,
    argument,
    option,
    required,
    several,
    switch,
)
from vlcpctl.files.inputs import MOST_TASKS

ZEROSHOT = ("checkpoint", "open_clip")  # they classify by the class names alone
CLASSIFIERS = ("timm", *ZEROSHOT)


class SplitOptions(Options):
    """What to split, and how; all of it affects what is written."""

    sources: PathTexts = argument(
        "SOURCE",
        "Files (.parquet, .tar, .json, .jsonl, .ndjson, .csv, .tsv, .arrow), directories of "
        "such files, folders of images, Hugging Face imagefolders, data sets that save_to_disk "
        "wrote, or tasks of a stream",
        kw_only=False,
        stored=True,
    )
    by: str = required(
        "Rule that assigns pairs to tasks: column:NAME, iid, classes, source or time:COLUMN; "
        "all:NAME makes one task of this name",
        "RULE",
        METHOD,
        offers=("column:", "iid", "classes", "source", "time:", "all:"),
    )
    tasks: int | None = option(
        "Number of tasks, for --by iid, classes and time",
        "N",
        METHOD,
        goes_with=("by", ("iid", "classes", "time")),
        within=f"[1, {MOST_TASKS}]",
    )
    time_format: str | None = option(
        "How the times of --by time are written, in the signs of strptime, such as %d.%m.%Y",
        "FORMAT",
        INPUT,
        otherwise="ISO 8601, or numbers",
        goes_with=("by", ("time",)),
    )
    take: int | None = option(
        "Keep the first N pairs of each task", "N", METHOD, otherwise="all", within="[1, inf)"
    )
    only: Names = option(
        "Values of the column, or sources, that become tasks, separated by commas and in this "
        "order",
        "NAMES",
        METHOD,
        otherwise="all",
        goes_with=("by", ("column", "source")),
    )
    order: Names = option(
        "Order of the tasks: names separated by commas, reverse or shuffle",
        "NAMES",
        METHOD,
        otherwise="the order of the rule",
        offers=("reverse", "shuffle"),
    )
    holdout: str | None = option(
        "Held-out splits: shares (test=0.1,val=0.05; test=1.0 for all images), images per task "
        "(test=5000) or none (default: test=0.1). Shares are drawn by image hash and never leak "
        "into the training data of other streams; images per task can",
        "SPLIT=SHARE",
        METHOD,
        goes_with=("split_column", (), "the column decides every row's split"),
        usual=True,
    )
    holdout_most: str | None = option(
        "Share of a task that a --holdout of N images per task may take: a task too small for "
        "that holds out P% instead",
        "P%",
        METHOD,
        otherwise="no limit; a task of fewer than N is refused",
    )
    split_column: str | None = option(
        "Column with each row's split: train, val, test, query or gallery (default: use "
        "--holdout). In a list without a column 'split', the name split means the file name; in "
        "an imagefolder or saved data set, the directory's name",
        "NAME",
        INPUT,
        usual=True,
    )
    shard_size: str = option("Maximum size of a tar, such as 256MB", "BYTES", default="256MB")
    image_column: str | None = option(
        "Column with image bytes or paths", "NAME", INPUT, otherwise="found by its name", usual=True
    )
    caption_column: str | None = option(
        "Column with a caption or a list of captions",
        "NAME",
        INPUT,
        otherwise="found by its name",
        usual=True,
    )
    label_column: str | None = option(
        "Column with class labels",
        "NAME",
        INPUT,
        otherwise="found by its name",
        goes_with=("labels_from", (), "it replaces the sources' labels"),
        usual=True,
    )
    keep_columns: Names = option(
        "Columns to keep in the index, separated by commas, such as customer,date: 'vlcpctl "
        "forget --where' finds pairs by them. In folders and tars, fields of the .json",
        "NAMES",
        INPUT,
        usual=True,
    )
    labels_from: MaybePathText = option(
        "Source of class labels: a column, timm:MODEL[,WEIGHTS], checkpoint:DIR or "
        "open_clip:MODEL,WEIGHTS",
        "SOURCE",
        MODEL,
        otherwise="the label column",
        offers=("timm:", "checkpoint:", "open_clip:"),
    )
    class_names: MaybePath = option(
        "Class names of the classifier, one per line, for --labels-from",
        "FILE",
        MODEL,
        goes_with=("labels_from", CLASSIFIERS),
    )
    templates: MaybePath = option(
        "Prompt templates for --class-names",
        "FILE",
        MODEL,
        otherwise='"a photo of a {c}."',
        goes_with=("labels_from", ZEROSHOT),
    )
    image_root: PathTexts = several(
        "Directory that image paths are relative to; repeat for more",
        "DIR",
        INPUT,
        otherwise="that of the list",
        stored=True,
    )
    max_skip: Amount = option(
        "Bad samples to tolerate: a number, or a share such as 0.1%",
        "N|SHARE",
        DATA,
        default="0.1%",
    )
    cap: Texts = several(
        "Change a limit that protects against damaged files; repeat for more (defaults: "
        "captions=10000 and caption-length=1000000 characters per image, name-length=4096 "
        "characters of keys, labels and kept values, kept-values=10000 per kept column and "
        "image, columns=10000, group-bytes=64MiB per row group of Parquet)",
        "NAME=N",
        DATA,
        offers="caps",
    )
    decode: bool = switch("Decode every image to check it, not only its header", DATA)
    limit: int | None = option(
        "Use only the first N samples, for a quick trial",
        "N",
        DATA,
        otherwise="all",
        within="[1, inf)",
    )
    seed: int = option("Seed of all random choices", "N", EXECUTION, default=0, within="[0, inf)")
    not_: Paths = several(
        "Leave out the pairs of a receipt of 'vlcpctl forget', or of a task or stream; repeat "
        "for more",
        "PATH",
        DATA,
        usual=True,
    )
    not_test_images: PathTexts = several(
        "Leave out pairs for training whose image is in the test split of a task or stream, or, "
        "with 'self' and --split-column, of this one; repeat for more",
        "PATH|self",
        DATA,
        stored=True,
    )
    in_place: bool = switch(
        "Copy no image: the tasks are indexes of the sources, which must be tars and must stay "
        "as they are"
    )

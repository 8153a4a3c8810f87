"""`vlcpctl eval-zeroshot`: evaluate zero-shot classification of checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vlcpctl.commands import options
from vlcpctl.commands.evaluation import STDOUT, evaluation

if TYPE_CHECKING:
    from vlcpctl.evaluation.evaluator import Evaluator

DataSets = Annotated[
    list[str],
    typer.Argument(
        metavar="DATASET",
        help="Task directories, folders in CLIP_benchmark's layout, or data sets by name "
        "(listed above).",
    ),
]
Templates = Annotated[
    Path | None,
    typer.Option(
        "--templates",
        metavar="FILE",
        help="Prompt templates with {c}, one per line, or CLIP_benchmark's JSON "
        "(default: those of the data set).",
        rich_help_panel=options.METHOD,
    ),
]
Classes = Annotated[
    str,
    typer.Option(
        "--classes",
        metavar="NAME",
        help="Classes to choose from for a task: of its whole stream (all) or its own (task).",
        rich_help_panel=options.METHOD,
    ),
]


@evaluation("eval-zeroshot")
def run(
    data_sets: DataSets,
    checkpoint: options.Checkpoints,
    data: options.Data = None,
    templates: Templates = None,
    classes: Classes = "all",
    split: options.Split = "test",
    run_name: options.Run = None,
    max_skip: options.MaxSkip = "0.1%",
    save_ranks: options.SaveRanks = None,
    out: options.Rows = STDOUT,
    limit: options.Limit = None,
    num_shards: options.NumShards = None,
    shard_index: options.ShardIndex = None,
    force: options.Force = False,
) -> Evaluator:
    r"""Evaluate zero-shot classification of checkpoints, and write rows.

    Writes one JSON line for each checkpoint and data set as soon as it is computed: acc1, acc5 and
    mean_per_class_recall in percent. A class is represented by the mean of its prompts'
    embeddings; a class that is tied with the correct one ranks before it. Classes with the same
    prompts are united, and a hit in either is a hit: options.united in the row is their number.
    For data sets outside the stream there is an additional average row.

    The classes of a task are its labels, with the template "a photo of a {c}.". A folder contains
    classnames.txt, zeroshot_classification_templates.txt and test/0.tar, test/1.tar, ...; for
    ImageNet, missing class names and templates are taken from open_clip.

    Data sets found by name in the directory --data: imagenet1k, cifar10, cifar100, caltech101,
    sun397, food101, flowers, dtd (together: incclip), places365, objectnet.

    --save-ranks writes a row for each image (schema vlcpctl.ranks/1): run, seed, step, checkpoint,
    data, gallery, task and split as in the rows, then direction (i2c), query (key of the image),
    label (its class), rank (of its class, from 1), wrong and wrong_rank (the best wrong class and
    its rank); query_caption and wrong_caption are null.

    Several commands, perhaps on different machines, can share the embedding of images and prompts:
    with --num-shards N and --shard-index 0 to N - 1, in any order, each stores its shard beside
    --out. Then the same line without --shard-index measures the rows, with the bytes that one
    process writes. It refuses shards of other checkpoints, data, prompts or settings. A shard that
    was killed resumes when its line is run again. A shard takes the images that --embedding-cache
    has; only the joining line stores there.

    Examples:
      vlcpctl eval-zeroshot incclip --data benchmarks --checkpoint run/02 \
          -o rows.ndjson
      vlcpctl eval-zeroshot stream/0* --split train --checkpoint run/00 \
          --checkpoint run/01 | vlcpctl forgetting-report -
    """
    from vlcpctl.data.classification.benchmarks import expand_groups
    from vlcpctl.data.tasks.skips import Tolerance
    from vlcpctl.evaluation.classification.zeroshot import Zeroshot
    from vlcpctl.files.parts import parts_of

    return Zeroshot(
        words=tuple(dict.fromkeys(expand_groups(data_sets))),
        checkpoints=tuple(dict.fromkeys(checkpoint)),
        data=data,
        templates=templates,
        classes=classes,
        split=split,
        run=run_name,
        limit=limit,
        tolerance=Tolerance.parse(max_skip),
        save_ranks=save_ranks,
        shards=parts_of(out, num_shards, shard_index, force=force),
        out=out,
        force=force,
    )

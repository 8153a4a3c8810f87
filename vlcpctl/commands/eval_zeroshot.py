"""`vlcpctl eval-zeroshot`: evaluate zero-shot classification of checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vlcpctl.commands.evaluation import Evaluate
from vlcpctl.commands.paths import STDOUT
from vlcpctl.commands.shared import Sharded, Shared, Stored
from vlcpctl.core.options import METHOD, Amount, MaybePath, Paths, PathTexts, argument, like, option

if TYPE_CHECKING:
    from vlcpctl.evaluation.evaluator import Evaluator


class EvalZeroshot(Evaluate, Sharded, Stored):
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

    command = "eval-zeroshot"

    data_sets: PathTexts = argument(
        "DATASET",
        "Task directories, folders in CLIP_benchmark's layout, or data sets by name (listed above)",
        kw_only=False,
        offers="data_sets",
        stored=True,
    )
    checkpoint: Paths = like(Shared, "checkpoint")
    data: MaybePath = like(Shared, "data", default=None, usual=True, stored=True)
    templates: MaybePath = option(
        "Prompt templates with {c}, one per line, or CLIP_benchmark's JSON",
        "FILE",
        METHOD,
        otherwise="those of the data set",
        usual=True,
    )
    classes: str = option(
        "Classes to choose from for a task: of its whole stream (all) or its own (task)",
        "NAME",
        METHOD,
        default="all",
        choices=("all", "task"),
    )
    split: str = like(Shared, "split", default="test", usual=True)
    run: str | None = like(Shared, "run", default=None)
    max_skip: Amount = like(Shared, "max_skip", default="0.1%")
    save_ranks: MaybePath = like(Shared, "save_ranks", default=None, usual=True)

    def evaluator(self) -> Evaluator:
        from vlcpctl.data.classification.benchmarks import expand_groups
        from vlcpctl.data.tasks.samples import Tolerance
        from vlcpctl.evaluation.classification.zeroshot import Zeroshot

        return self.made(
            Zeroshot,
            words=tuple(dict.fromkeys(expand_groups(self.data_sets))),
            checkpoints=tuple(dict.fromkeys(self.checkpoint)),
            tolerance=Tolerance.parse(self.max_skip),
            shards=self.parts_of(self.out or STDOUT, force=self.force),
        )

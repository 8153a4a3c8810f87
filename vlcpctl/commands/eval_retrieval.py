"""`vlcpctl eval-retrieval`: evaluate cross-modal or multi-modal retrieval of checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vlcpctl.commands import options
from vlcpctl.commands.evaluation import STDOUT, evaluation

if TYPE_CHECKING:
    from vlcpctl.evaluation.evaluator import Evaluator

Gallery = Annotated[
    str,
    typer.Option(
        "--gallery",
        metavar="NAME",
        help="Gallery to search: own (of each task), merged (of all tasks up to a step) or both.",
        rich_help_panel=options.METHOD,
    ),
]
Protocol = Annotated[
    str,
    typer.Option(
        "--protocol",
        metavar="NAME",
        help="Evaluation protocol: cross-modal (recall) or multi-modal (average precision of "
        "fused pairs).",
        rich_help_panel=options.METHOD,
    ),
]
MapVariant = Annotated[
    str | None,
    typer.Option(
        "--map-variant",
        metavar="NAME",
        help="Definition of average precision: eq11 (CTP's equation), ctp (with the cut-offs of "
        "the authors' code) or min-rn (divided by the number of possible hits) (default: eq11).",
        rich_help_panel=options.METHOD,
    ),
]
Distractors = Annotated[
    list[Path] | None,
    typer.Option(
        "--distractors",
        metavar="TASK",
        help="Task whose images and captions are added to every gallery as wrong answers; repeat "
        "for more.",
        rich_help_panel=options.INPUT,
    ),
]
GalleryCheckpoint = Annotated[
    Path | None,
    typer.Option(
        "--gallery-checkpoint",
        metavar="DIR",
        help="Checkpoint that embeds the galleries, as an index that was built earlier; those of "
        "--checkpoint embed the queries (default: each checkpoint embeds both).",
        rich_help_panel=options.INPUT,
    ),
]
DistractorsBy = Annotated[
    str | None,
    typer.Option(
        "--distractors-by",
        metavar="NAME",
        help="Checkpoint that embeds the distractors: gallery (that of --gallery-checkpoint) or "
        "query, as an index to which the new model has added items (default: gallery).",
        rich_help_panel=options.METHOD,
    ),
]
SplitName = Annotated[
    str | None,
    typer.Option(
        "--split",
        metavar="SPLIT",
        help="Split of each task to evaluate on (default: test; multi-modal: query and gallery "
        "where all tasks have them).",
        rich_help_panel=options.INPUT,
    ),
]
Duplicates = Annotated[
    str,
    typer.Option(
        "--duplicates",
        metavar="NAME",
        help="Handling of identical content: unite (as one entry) or separate.",
        rich_help_panel=options.METHOD,
    ),
]
SaveEmbeddings = Annotated[
    Path | None,
    typer.Option(
        "--save-embeddings",
        metavar="DIR",
        help="Directory to write embeddings to, in clip-retrieval's layout (default: none).",
        rich_help_panel=options.OUTPUT,
    ),
]
Timings = Annotated[
    Path | None,
    typer.Option(
        "--timings",
        metavar="FILE",
        help="File to write timings to, as NDJSON (default: none).",
        rich_help_panel=options.OUTPUT,
    ),
]


Sample = Annotated[
    int | None,
    typer.Option(
        "--sample",
        min=1,
        metavar="N",
        help="Use only the N samples of each split that have the lowest keys, the same ones in "
        "every evaluation (default: all).",
        rich_help_panel=options.DATA,
    ),
]


@evaluation("eval-retrieval")
def run(
    tasks: options.Tasks,
    checkpoint: options.Checkpoints,
    gallery: Gallery = "own",
    distractors: Distractors = None,
    gallery_checkpoint: GalleryCheckpoint = None,
    distractors_by: DistractorsBy = None,
    protocol: Protocol = "cross-modal",
    map_variant: MapVariant = None,
    split: SplitName = None,
    duplicates: Duplicates = "unite",
    save_embeddings: SaveEmbeddings = None,
    save_ranks: options.SaveRanks = None,
    run_name: options.Run = None,
    timings: Timings = None,
    out: options.Rows = STDOUT,
    limit: options.Limit = None,
    sample: Sample = None,
    num_shards: options.NumShards = None,
    shard_index: options.ShardIndex = None,
    force: options.Force = False,
) -> Evaluator:
    r"""Evaluate image-text retrieval of checkpoints on tasks, and write rows.

    Writes one JSON line for each checkpoint and gallery as soon as it is computed: recall at 1, 5
    and 10 in percent, from image to text (i2t) and from text to image (t2i). A correct answer that
    is tied with a wrong one does not count; n_ties is the number of queries affected. Images or
    texts with identical content are one entry and one query; its correct answers are those of all
    its duplicates.

    Models with a sigmoid loss (SigLIP) give a probability for each pair. Their rows also say
    whether it holds, over all images and texts of the gallery: pair_recall, pair_precision and
    pair_calibration, in percent.

    With --protocol multi-modal, queries and gallery are pairs, each image fused with its first
    caption, and pairs of the same class are correct answers; the query itself is excluded. The
    rows hold mean average precision at 1, 5 and 10 in percent (map_1, map_5, map_10) and n_alone,
    the number of queries without a correct answer, which score 0. This needs a fusion model and
    tasks with class labels; it uses the splits query and gallery if all tasks have both.

    A merged gallery contains tasks 0 to i of the stream; there is one for every i up to the
    checkpoint's step.

    --distractors makes galleries larger, because small ones hide losses. Queries stay those of the
    tasks. A pair of the distractors is left out (n_left_out counts them) if its image or one of its
    captions is also in the gallery's own data: its other half would be a right answer that counts
    as a wrong one.

    With --gallery-checkpoint, queries are embedded by --checkpoint and galleries by an earlier
    checkpoint: what users of an index get that was not built again. Both are dual encoders with
    embeddings of one size. With --distractors-by query, the distractors are items that the new
    model has added to such an index.

    --save-ranks writes a row for each query (schema vlcpctl.ranks/1): run, seed, step, checkpoint,
    data, gallery, task and split as in the rows, then direction (i2t or t2i), query (key of the
    sample), query_caption (index of the caption; null for an image), label (null), rank (of
    the best correct answer, from 1), wrong, wrong_caption and wrong_rank (the best wrong answer,
    null if there is none). Recall at K is the share of queries with rank at most K.

    Several commands, perhaps on different machines, can share the work: with --num-shards N and
    --shard-index 0 to N - 1, in any order, each stores the embeddings of its shard beside --out.
    When all are stored, the same lines, run a second time, search, each for a share of the queries;
    a small gallery needs no second round. Then the line without --shard-index measures the rows,
    with the bytes that one process writes, and searches what no shard has. It refuses shards of
    other checkpoints, data or settings. A shard that was killed resumes when its line is run again.
    A shard takes what --embedding-cache has; only the joining line stores there.

    Examples:
      vlcpctl eval-retrieval stream/0* --checkpoint run/02 -o rows.ndjson
      vlcpctl eval-retrieval stream/0* --checkpoint run/00 --checkpoint run/01 \
          --gallery both | vlcpctl forgetting-report -
      vlcpctl eval-retrieval stream/0* --checkpoint run/02 --gallery merged \
          --protocol multi-modal
      vlcpctl eval-retrieval coco --checkpoint run/02 --split val \
          --save-embeddings emb
      vlcpctl eval-retrieval golden --checkpoint run/02 \
          --gallery-checkpoint run/00 --distractors stream/02-c \
          --distractors-by query -o index.ndjson
    """
    from vlcpctl.data.tasks.task import open_task
    from vlcpctl.evaluation.retrieval.evaluator import Retrieval
    from vlcpctl.files.parts import parts_of

    return Retrieval(
        tasks=tuple(open_task(path) for path in dict.fromkeys(tasks)),
        checkpoints=tuple(dict.fromkeys(checkpoint)),
        gallery=gallery,
        distractors=tuple(open_task(path) for path in dict.fromkeys(distractors or ())) or None,
        gallery_checkpoint=gallery_checkpoint,
        distractors_by=distractors_by,
        protocol=protocol,
        map_variant=map_variant,
        split=split,
        duplicates=duplicates,
        run=run_name,
        limit=limit,
        sample=sample,
        timings=timings,
        save_embeddings=save_embeddings,
        save_ranks=save_ranks,
        shards=parts_of(out, num_shards, shard_index, force=force),
        out=out,
        force=force,
    )

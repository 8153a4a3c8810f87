"""`vlcpctl eval-retrieval`: evaluate cross-modal or multi-modal retrieval of checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vlcpctl.commands.evaluation import Evaluate
from vlcpctl.commands.paths import STDOUT
from vlcpctl.commands.shared import SPLITS, Sharded, Shared, Stored
from vlcpctl.core.options import (
    DATA,
    INPUT,
    METHOD,
    MaybePath,
    Paths,
    argument,
    like,
    option,
    several,
)

if TYPE_CHECKING:
    from vlcpctl.evaluation.evaluator import Evaluator


_CROSS_MODAL = ("protocol", ("cross-modal",))


class EvalRetrieval(Evaluate, Sharded, Stored):
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

    command = "eval-retrieval"

    tasks: Paths = argument("TASK", "Task directories", kw_only=False, stored=True)
    checkpoint: Paths = like(Shared, "checkpoint")
    gallery: str = option(
        "Gallery to search: own (of each task), merged (of all tasks up to a step) or both",
        "NAME",
        METHOD,
        default="own",
        choices=("own", "merged", "both"),
        usual=True,
    )
    distractors: Paths = several(
        "Task whose images and captions are added to every gallery as wrong answers; repeat for "
        "more",
        "TASK",
        INPUT,
        goes_with=_CROSS_MODAL,
        stored=True,
    )
    gallery_checkpoint: MaybePath = option(
        "Checkpoint that embeds the galleries, as an index that was built earlier; those of "
        "--checkpoint embed the queries",
        "DIR",
        INPUT,
        otherwise="each checkpoint embeds both",
        goes_with=_CROSS_MODAL,
    )
    distractors_by: str | None = option(
        "Checkpoint that embeds the distractors: gallery (that of --gallery-checkpoint) or "
        "query, as an index to which the new model has added items",
        "NAME",
        METHOD,
        otherwise="gallery",
        goes_with=("gallery_checkpoint",),
        choices=("gallery", "query"),
    )
    protocol: str = option(
        "Evaluation protocol: cross-modal (recall) or multi-modal (average precision of fused "
        "pairs)",
        "NAME",
        METHOD,
        default="cross-modal",
        choices=("cross-modal", "multi-modal"),
    )
    map_variant: str | None = option(
        "Definition of average precision: eq11 (CTP's equation), ctp (with the cut-offs of the "
        "authors' code) or min-rn (divided by the number of possible hits)",
        "NAME",
        METHOD,
        otherwise="eq11",
        goes_with=("protocol", ("multi-modal",)),
        choices=("eq11", "ctp", "min-rn"),
    )
    split: str | None = option(
        "Split of each task to evaluate on",
        "SPLIT",
        INPUT,
        otherwise="test; multi-modal: query and gallery where all tasks have them",
        offers=SPLITS,
        usual=True,
    )
    duplicates: str = option(
        "Handling of identical content: unite (as one entry) or separate",
        "NAME",
        METHOD,
        default="unite",
        choices=("unite", "separate"),
    )
    save_embeddings: MaybePath = option(
        "Directory to write embeddings to, in clip-retrieval's layout",
        "DIR",
        goes_with=_CROSS_MODAL,
        writes=True,
    )
    save_ranks: MaybePath = like(
        Shared, "save_ranks", default=None, goes_with=_CROSS_MODAL, usual=True
    )
    run: str | None = like(Shared, "run", default=None)
    timings: MaybePath = option("File to write timings to, as NDJSON", "FILE", writes=True)
    sample: int | None = option(
        "Use only the N samples of each split that have the lowest keys, the same ones in every "
        "evaluation",
        "N",
        DATA,
        otherwise="all",
        within="[1, inf)",
    )

    def evaluator(self) -> Evaluator:
        from vlcpctl.data.tasks.task import open_task
        from vlcpctl.evaluation.retrieval.evaluator import Retrieval

        return self.made(
            Retrieval,
            tasks=tuple(open_task(path) for path in dict.fromkeys(self.tasks)),
            checkpoints=tuple(dict.fromkeys(self.checkpoint)),
            distractors=tuple(open_task(path) for path in dict.fromkeys(self.distractors)) or None,
            shards=self.parts_of(self.out or STDOUT, force=self.force),
        )

"""`vlcpctl eval-probe`: evaluate linear probes on the image features of checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vlcpctl.commands.evaluation import Evaluate
from vlcpctl.commands.shared import SPLITS, Shared, Stored
from vlcpctl.core.options import (
    INPUT,
    METHOD,
    OPTIMIZATION,
    Amount,
    MaybePath,
    Paths,
    PathTexts,
    argument,
    like,
    option,
)

if TYPE_CHECKING:
    from vlcpctl.evaluation.evaluator import Evaluator


class EvalProbe(Evaluate, Stored):
    r"""Evaluate linear probes on frozen image features, and write rows.

    For each checkpoint and data set, a linear classifier is trained on the image embeddings of one
    split and evaluated on another: acc1, acc5 and mean_per_class_recall in percent, computed as in
    eval-zeroshot. The classes of a task are its labels. A test image whose class does not occur
    in the train split (n_unseen) counts as wrong.

    The loss is the mean cross-entropy plus strength / 2 times the squared weights. The strength
    is the best of 0.1, 0.01, ... 1e-8 on a held-out part of the train split, chosen by the images'
    keys; weaker ones are not tried once two in a row are less accurate than the best so far. The
    probe is then trained on the whole split.

    With --protocol modx, the probe is that of the program that Mod-X's authors released: a linear
    layer on raw features (the image encoder's projections, not of unit length), trained by SGD
    (momentum 0.9, batches of 256, weight decay 1e-6, a cosine from --lr down to 0) on random crops
    and flips. Every training image is embedded again in each epoch, which takes --epochs times as
    long. The accuracy is that of the best epoch, chosen on --split itself, so it is optimistic;
    last_acc1 is that of the last epoch. A report never mixes the protocols.

    Examples:
      vlcpctl eval-probe stream/0* --checkpoint run/00 --checkpoint run/01 \
          -o rows.ndjson
      vlcpctl eval-probe imagenet1k --data benchmarks --checkpoint run/02 \
          --strength 1e-7
      vlcpctl eval-probe imagenet1k --data benchmarks --checkpoint run/02 \
          --protocol modx --nproc 8
    """

    command = "eval-probe"

    data_sets: PathTexts = argument(
        "DATASET",
        "Task directories, folders in CLIP_benchmark's layout, or data sets by name (listed in "
        "eval-zeroshot -h)",
        kw_only=False,
        offers="data_sets",
        stored=True,
    )
    checkpoint: Paths = like(Shared, "checkpoint")
    data: MaybePath = like(Shared, "data", default=None, usual=True, stored=True)
    protocol: str = option(
        "Evaluation protocol: logistic (regression on unit features, its strength chosen on a "
        "held-out part) or modx (the probe of Mod-X's authors, see above)",
        "NAME",
        METHOD,
        default="logistic",
        choices=("logistic", "modx"),
        usual=True,
    )
    strength: float | None = option(
        "Strength of the L2 regularisation",
        "X",
        OPTIMIZATION,
        otherwise="chosen on a held-out part",
        goes_with=("protocol", ("logistic",)),
        within="(0, inf)",
    )
    held_out: float | None = option(
        "Share of the train split on which --strength is chosen",
        "SHARE",
        OPTIMIZATION,
        otherwise="0.1",
        goes_with=("protocol", ("logistic",)),
        within="(0, 1)",
    )
    epochs: int | None = option(
        "Epochs of --protocol modx",
        "N",
        OPTIMIZATION,
        otherwise="100",
        goes_with=("protocol", ("modx",)),
        within="[1, inf)",
    )
    lr: float | None = option(
        "Initial learning rate of --protocol modx (default: 0.3)",
        "X",
        OPTIMIZATION,
        goes_with=("protocol", ("modx",)),
        within="(0, inf)",
    )
    train_split: str = option(
        "Split to train the probes on", "SPLIT", INPUT, default="train", offers=SPLITS, usual=True
    )
    split: str = like(Shared, "split", default="test", usual=True)
    run: str | None = like(Shared, "run", default=None)
    max_skip: Amount = like(Shared, "max_skip", default="0.1%")
    seed: int = like(Shared, "seed", default=0)

    def evaluator(self) -> Evaluator:
        from vlcpctl.data.classification.benchmarks import expand_groups
        from vlcpctl.data.tasks.samples import Tolerance
        from vlcpctl.evaluation.classification.probe import LinearProbe

        return self.made(
            LinearProbe,
            words=tuple(dict.fromkeys(expand_groups(self.data_sets))),
            checkpoints=tuple(dict.fromkeys(self.checkpoint)),
            tolerance=Tolerance.parse(self.max_skip),
        )

"""`vlcpctl eval-probe`: evaluate linear probes on the image features of checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vlcpctl.commands import options
from vlcpctl.commands.evaluation import evaluation

if TYPE_CHECKING:
    from vlcpctl.evaluation.evaluator import Evaluator

DataSets = Annotated[
    list[str],
    typer.Argument(
        metavar="DATASET",
        help="Task directories, folders in CLIP_benchmark's layout, or data sets by name "
        "(listed in eval-zeroshot -h).",
    ),
]
Protocol = Annotated[
    str,
    typer.Option(
        "--protocol",
        metavar="NAME",
        help="Evaluation protocol: logistic (regression on unit features, its strength chosen on a "
        "held-out part) or modx (the probe of Mod-X's authors, see above).",
        rich_help_panel=options.METHOD,
    ),
]
Strength = Annotated[
    float | None,
    typer.Option(
        "--strength",
        metavar="X",
        help="Strength of the L2 regularisation (default: chosen on a held-out part).",
        rich_help_panel=options.OPTIMIZATION,
    ),
]
HeldOut = Annotated[
    float | None,
    typer.Option(
        "--held-out",
        metavar="SHARE",
        help="Share of the train split on which --strength is chosen (default: 0.1).",
        rich_help_panel=options.OPTIMIZATION,
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option(
        "--epochs",
        min=1,
        metavar="N",
        help="Epochs of --protocol modx (default: 100).",
        rich_help_panel=options.OPTIMIZATION,
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--lr",
        metavar="X",
        help="Initial learning rate of --protocol modx (default: 0.3).",
        rich_help_panel=options.OPTIMIZATION,
    ),
]
TrainSplit = Annotated[
    str,
    typer.Option(
        "--train-split",
        metavar="SPLIT",
        help="Split to train the probes on.",
        rich_help_panel=options.INPUT,
    ),
]


@evaluation("eval-probe")
def run(
    data_sets: DataSets,
    checkpoint: options.Checkpoints,
    data: options.Data = None,
    protocol: Protocol = "logistic",
    strength: Strength = None,
    held_out: HeldOut = None,
    epochs: Epochs = None,
    lr: Rate = None,
    train_split: TrainSplit = "train",
    split: options.Split = "test",
    run_name: options.Run = None,
    max_skip: options.MaxSkip = "0.1%",
    seed: options.Seed = 0,
    limit: options.Limit = None,
) -> Evaluator:
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
    from vlcpctl.data.classification.benchmarks import expand_groups
    from vlcpctl.data.tasks.skips import Tolerance
    from vlcpctl.evaluation.classification.probe import LinearProbe

    return LinearProbe(
        words=tuple(dict.fromkeys(expand_groups(data_sets))),
        checkpoints=tuple(dict.fromkeys(checkpoint)),
        data=data,
        protocol=protocol,
        strength=strength,
        held_out=held_out,
        epochs=epochs,
        lr=lr,
        train_split=train_split,
        split=split,
        run=run_name,
        limit=limit,
        seed=seed,
        tolerance=Tolerance.parse(max_skip),
    )

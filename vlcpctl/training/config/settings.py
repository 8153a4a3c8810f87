"""The settings of a train-step, each described once, at its field. Torch-free.

Command lines, help, completion, checks, and the pages of the documentation follow from the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from vlcpctl.core.option_rules import (
    DATA,
    EXECUTION,
    METHOD,
    MODEL,
    OPTIMIZATION,
    option,
    option_rows,
)
from vlcpctl.core.transform import EXACT, JPEG_DECODINGS, PILLOW, RESIZERS

# The limits of our RandAugment: number of operations, and magnitude (data/images/randaugment.py).
RANDAUGMENT_MOST = (14, 10)
SOFTMAX, SIGMOID = "softmax", "sigmoid"  # of --loss
_WITH_BETAS = ("optimizer", ("adamw", "adam", "lamb"))
_setting = partial(option, otherwise="from the preset")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one train-step, apart from its methods' own hyper-parameters."""

    model: str = _setting(
        "",
        MODEL,
        "NAME|FILE.json",
        "Model of a first task: an open_clip or albef name, or a JSON configuration",
        none="that of `--previous`; a first task needs the option",
    )
    pretrained: str | None = _setting(
        None,
        MODEL,
        "WEIGHTS",
        "Pretrained weights of a first task: an open_clip tag or a file; for albef models also "
        "none or image=NAME|FILE,text=NAME|DIR (timm, BERT)",
        none="none; for albef models those of the configuration",
    )
    temperature: str | None = _setting(
        None,
        MODEL,
        "fixed:X|learn:X",
        "Temperature of the contrastive loss: fixed, or learned from an initial value",
        none="that of the model",
    )
    text_length: int | None = _setting(
        None,
        MODEL,
        "N",
        "Number of tokens per caption",
        none="that of the model",
        within="[4, 4096]",
    )
    optimizer: str = _setting(
        "adamw",
        OPTIMIZATION,
        "NAME",
        "Optimizer: adamw, adam, sgd or lamb",
        choices=("adamw", "adam", "sgd", "lamb"),
    )
    lr: float = _setting(
        1e-4,
        OPTIMIZATION,
        "X",
        "Peak learning rate, above 0",
        within="(0, 1e30]",  # beyond it, the arithmetic of optimizers overflows
    )
    min_lr: float = _setting(
        0.0,
        OPTIMIZATION,
        "X",
        "Final learning rate of the schedule, at most --lr",
        within="[0, 1e30]",
        goes_with=("schedule", ("cosine", "plateau")),
    )
    weight_decay: float = _setting(
        0.05, OPTIMIZATION, "X", "Weight decay of the optimizer", within="[0, 1e30]"
    )
    decay: str = _setting(
        "weights",
        OPTIMIZATION,
        "NAME",
        "Parameters with weight decay: weights (not norms and biases) or all",
        choices=("weights", "all"),
    )
    betas: tuple[float, float] = _setting(
        (0.9, 0.999),
        OPTIMIZATION,
        "B1,B2",
        "Betas of adamw, adam and lamb, below 1",
        within="[0, 1)",
        goes_with=_WITH_BETAS,
    )
    eps: float = _setting(
        1e-8,
        OPTIMIZATION,
        "X",
        "Epsilon of adamw, adam and lamb",
        within="(0, inf)",
        goes_with=_WITH_BETAS,
    )
    momentum: float = _setting(
        0.9,
        OPTIMIZATION,
        "X",
        "Momentum of sgd, below 1",
        otherwise="0.9",
        within="[0, 1)",
        goes_with=("optimizer", ("sgd",)),
    )
    clip_norm: float | None = _setting(
        None,
        OPTIMIZATION,
        "X",
        "Norm to clip the gradient to, above 0",
        otherwise="no clipping",
        none="no clipping",
        within="(0, inf)",
    )
    schedule: str = _setting(
        "cosine",
        OPTIMIZATION,
        "NAME",
        "Learning rate schedule: cosine, constant or plateau",
        choices=("cosine", "constant", "plateau"),
    )
    warmup: float = _setting(
        0.0,
        OPTIMIZATION,
        "SHARE",
        "Share of the steps with a linear warm-up, below 1",
        within="[0, 1)",
    )
    patience: int = _setting(
        1,
        OPTIMIZATION,
        "N",
        "Epochs without improvement before --schedule plateau lowers the learning rate",
        within="[0, inf)",
        goes_with=("schedule", ("plateau",)),
    )
    epochs: int = _setting(1, OPTIMIZATION, "N", "Number of epochs", within="[1, inf)")
    steps: int | None = _setting(
        None,
        OPTIMIZATION,
        "N",
        "Number of optimizer steps, instead of --epochs",
        otherwise="from --epochs",
        within="[1, inf)",
    )
    batch_size: int = _setting(
        64,
        OPTIMIZATION,
        "N",
        "Pairs per batch, over all processes",
        otherwise="from the preset, or all pairs if they are fewer",
        within="[2, inf)",
    )
    micro_batch: int | None = _setting(
        None,
        EXECUTION,
        "N",
        "Pairs to encode at once, to save memory; the loss still sees the whole batch, but batch "
        "norms see these pairs",
        otherwise="the batch size",
        within="[1, inf)",
    )
    precision: str = _setting(
        "fp32",
        EXECUTION,
        "NAME",
        "Floating-point precision: fp32, bf16, fp16, or auto: bf16 on a GPU that has it, else fp32",
        otherwise="from the preset, or fp32",
        choices=("auto", "fp32", "bf16", "fp16"),
    )
    replay: str = _setting(
        "union",
        METHOD,
        "union|share=X|least=X",
        "Use of --buffer: union (shuffled with the task), share=X of each batch, or least=X: "
        "union, but share=X if union replays less",
        otherwise="union",
    )
    captions: str = _setting(
        "one",
        DATA,
        "one|all",
        "Captions per image and epoch: one or all",
        otherwise="one",
        choices=("one", "all"),
    )
    loss: str | None = _setting(
        None,
        METHOD,
        "softmax|sigmoid",
        "Contrastive loss of a first task's model: softmax (CLIP), or sigmoid with a learned bias "
        "(SigLIP)",
        otherwise="that of the model's configuration: sigmoid if it has init_logit_bias",
        choices=(SOFTMAX, SIGMOID),
    )
    base_loss: str = _setting(
        "mean",
        METHOD,
        "mean|sum",
        "Reduction of the two directions of a softmax loss: mean or sum; a sigmoid loss is one sum "
        "over all pairs",
        choices=("mean", "sum"),
        goes_with=("loss", (SOFTMAX,)),
    )
    negatives: str = _setting(
        "all",
        METHOD,
        "all|distinct",
        "Negatives of a pair in the contrastive loss: all other pairs, or only distinct ones, "
        "which share neither the image nor a caption with it, directly or through other pairs",
        otherwise="from the preset, or all",
        choices=("all", "distinct"),
    )
    image_size: int | None = _setting(
        None,
        MODEL,
        "PIXELS",
        "Side of the square images",
        otherwise="that of the model",
        within="[8, 4096]",
    )
    crop: str = _setting(
        "center",
        DATA,
        "NAME",
        "Crop of training images: none, center or random",
        choices=("none", "center", "random"),
    )
    crop_scale: tuple[float, float] = _setting(
        (0.2, 1.0),
        DATA,
        "LOW,HIGH",
        "Smallest and largest share of the area that --crop random keeps, above 0 and at most 1",
        within="(0, 1]",
        goes_with=("crop", ("random",)),
    )
    flip: bool = _setting(
        False, DATA, None, "Mirror training images with probability 0.5", has_opposite=True
    )
    randaugment: tuple[int, int] | None = _setting(
        None,
        DATA,
        "N,M",
        "Apply RandAugment with N operations (at most 14) of magnitude M (at most 10); 0,0 applies "
        "none",
        none="none",
    )
    jpeg_decode: str = _setting(
        EXACT,
        DATA,
        "exact|scaled",
        "Decoding of JPEG training images: exact, or scaled down by the decoder to what the crop "
        "needs, which is faster and changes pixels slightly",
        otherwise="from the preset, or exact",
        choices=JPEG_DECODINGS,
    )
    resize: str = _setting(
        PILLOW,
        DATA,
        "pillow|torch",
        "What resizes training images: pillow, as in the papers' programs, or torch, which is "
        "faster on a CPU with AVX2 and changes pixels slightly",
        otherwise="pillow",
        choices=RESIZERS,
    )
    keep: str = _setting(
        "last",
        OPTIMIZATION,
        "NAME",
        "Epoch whose weights to keep: last, best:val_loss or best:val_rmean",
        choices=("last", "best:val_loss", "best:val_rmean"),
    )
    blend_buffers: bool = _setting(
        False,
        METHOD,
        None,
        "Average BatchNorm statistics, not only weights, in momentum models",
        otherwise="weights only",
    )
    lora: str | None = _setting(
        None,
        METHOD,
        "RANK[,ALPHA]",
        "Train adapters of this rank in attention and MLP of both encoders, in place of the "
        "weights, which change by (ALPHA / RANK) B A; ALPHA is twice the rank unless given",
        otherwise="no adapters: all weights train",
        none="no adapters",
    )
    mask_share: float = _setting(
        0.15,
        DATA,
        "SHARE",
        "Share of tokens to mask and predict, in fusion models",
        otherwise="0.15",
        within="[0, 1)",
    )
    masking: str = _setting(
        "bert",
        DATA,
        "NAME",
        "Masking of tokens in fusion models: bert (80/10/10) or all (always [MASK])",
        otherwise="bert",
        choices=("bert", "all"),
    )
    heads: str | None = _setting(
        None,
        MODEL,
        "NAME",
        "Projection heads of a new fusion model: linear or cosine",
        otherwise="from its configuration",
        choices=("linear", "cosine"),
    )
    scale_per_step: str | None = _setting(
        None,
        METHOD,
        "N|paper",
        "Rescale the decays of averages that are updated at each step (ctp.m, dha.main_share, "
        "dha.history_share, ema.decay) from the N steps per task that they were chosen for, or "
        "those of the paper, to the steps of this run",
        otherwise="as given",
    )


ROWS = option_rows(Settings)
SETTINGS = tuple(ROWS)
# The settings of the model itself, which a previous checkpoint decides, and their origin then.
OF_MODEL = tuple(name for name, row in ROWS.items() if row.section == MODEL)
PREVIOUS = "previous"
OF_ITS_MODEL = "model"  # the origin of a loss that is not given

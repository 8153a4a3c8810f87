"""The settings of a train-step and its other options, each at its field. Torch-free.

Command lines, help, completion, checks, and the pages of the documentation follow from the fields.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from vlcpctl.core.errors import UsageError
from vlcpctl.core.options import (
    DATA,
    EXECUTION,
    INPUT,
    METHOD,
    MODEL,
    OPTIMIZATION,
    MaybePath,
    MaybePathText,
    Options,
    PathText,
    option,
    options_of,
    spelled,
    switch,
)
from vlcpctl.core.transform import EXACT, JPEG_DECODINGS, PILLOW, RESIZERS
from vlcpctl.core.words import parse_number, parse_whole_number

# The limits of our RandAugment: number of operations, and magnitude (data/images/randaugment.py).
RANDAUGMENT_MOST = (14, 10)
SOFTMAX, SIGMOID = "softmax", "sigmoid"  # of --loss
BENCHMARK = "benchmark"  # of --cudnn
PRESET = "from the preset"
setting = partial(option, otherwise=PRESET)
WITH_BETAS = ("optimizer", ("adamw", "adam", "lamb"))


@dataclass(frozen=True)
class SaveEvery:
    """How often a state is saved: every `steps` optimizer steps, or every `seconds`."""

    steps: int | None = None
    seconds: float | None = None


def save_every(text: str) -> SaveEvery:
    """Parse `--save-every`; raises UsageError for anything else.

    >>> save_every("500"), save_every("10min")
    (SaveEvery(steps=500, seconds=None), SaveEvery(steps=None, seconds=600.0))
    """
    with suppress(ValueError):
        for unit, seconds in (("min", 60.0), ("h", 3600.0), ("s", 1.0)):
            if text.endswith(unit) and (count := parse_number(text.removesuffix(unit))) > 0:
                return SaveEvery(seconds=count * seconds)
        if (steps := parse_whole_number(text)) > 0:
            return SaveEvery(steps=steps)
    raise UsageError(
        f"--save-every {text!r} is neither a number of steps nor a time such as 10min or 2h"
    )


def _checked_interval(text: str) -> str:
    save_every(text)
    return text


class Settings(Options):
    """The settings of one train-step, apart from its methods' own hyper-parameters."""

    refuses_idle = False  # only those that the user gives: `resolution.refuse_idle_settings`

    model: PathText = option(
        "Model of a first task: an open_clip or albef name, or a JSON configuration",
        "NAME|FILE.json",
        MODEL,
        default="",
        otherwise="from the preset, or that of --previous",
        offers="models",
    )
    pretrained: MaybePathText = option(
        "Pretrained weights of a first task: an open_clip tag or a file; for albef models also "
        "none or image=NAME|FILE,text=NAME|DIR (timm, BERT)",
        "WEIGHTS",
        MODEL,
        otherwise="from the preset, or none; for albef models those of the configuration",
    )
    temperature: str | None = option(
        "Temperature of the contrastive loss: fixed, or learned from an initial value",
        "fixed:X|learn:X",
        MODEL,
        offers=("fixed:", "learn:"),
        otherwise="from the preset, or that of the model",
    )
    text_length: int | None = option(
        "Number of tokens per caption",
        "N",
        MODEL,
        otherwise="from the preset, or that of the model",
        within="[4, 4096]",
    )
    optimizer: str = setting(
        "Optimizer: adamw, adam, sgd or lamb",
        "NAME",
        OPTIMIZATION,
        default="adamw",
        choices=("adamw", "adam", "sgd", "lamb"),
    )
    lr: float = setting(
        "Peak learning rate, above 0",
        "X",
        OPTIMIZATION,
        default=1e-4,
        within="(0, 1e30]",
        usual=True,
    )
    min_lr: float = setting(
        "Final learning rate of the schedule, at most --lr",
        "X",
        OPTIMIZATION,
        default=0.0,
        within="[0, 1e30]",
        goes_with=("schedule", ("cosine", "plateau")),
    )
    weight_decay: float = setting(
        "Weight decay of the optimizer",
        "X",
        OPTIMIZATION,
        default=0.05,
        within="[0, 1e30]",
    )
    decay: str = setting(
        "Parameters with weight decay: weights (not norms and biases) or all",
        "NAME",
        OPTIMIZATION,
        default="weights",
        choices=("weights", "all"),
        rare=True,
    )
    betas: tuple[float, float] = setting(
        "Betas of adamw, adam and lamb, below 1",
        "B1,B2",
        OPTIMIZATION,
        default=(0.9, 0.999),
        within="[0, 1)",
        goes_with=WITH_BETAS,
        rare=True,
    )
    eps: float = setting(
        "Epsilon of adamw, adam and lamb",
        "X",
        OPTIMIZATION,
        default=1e-8,
        within="(0, inf)",
        goes_with=WITH_BETAS,
        rare=True,
    )
    momentum: float = option(
        "Momentum of sgd, below 1",
        "X",
        OPTIMIZATION,
        default=0.9,
        otherwise="0.9",
        within="[0, 1)",
        goes_with=("optimizer", ("sgd",)),
        rare=True,
    )
    clip_norm: float | None = option(
        "Norm to clip the gradient to, above 0",
        "X",
        OPTIMIZATION,
        otherwise="no clipping",
        within="(0, inf)",
    )
    schedule: str = setting(
        "Learning rate schedule: cosine, constant or plateau",
        "NAME",
        OPTIMIZATION,
        default="cosine",
        choices=("cosine", "constant", "plateau"),
    )
    warmup: float = setting(
        "Share of the steps with a linear warm-up, below 1",
        "SHARE",
        OPTIMIZATION,
        default=0.0,
        within="[0, 1)",
    )
    patience: int = setting(
        "Epochs without improvement before --schedule plateau lowers the learning rate",
        "N",
        OPTIMIZATION,
        default=1,
        within="[0, inf)",
        goes_with=("schedule", ("plateau",)),
        rare=True,
    )
    epochs: int = setting(
        "Number of epochs",
        "N",
        OPTIMIZATION,
        default=1,
        within="[1, inf)",
        usual=True,
    )
    steps: int | None = option(
        "Number of optimizer steps, instead of --epochs",
        "N",
        OPTIMIZATION,
        otherwise="from --epochs",
        within="[1, inf)",
        usual=True,
    )
    batch_size: int = option(
        "Pairs per batch, over all processes",
        "N",
        OPTIMIZATION,
        default=64,
        otherwise="from the preset, or all pairs if they are fewer",
        within="[2, inf)",
        usual=True,
    )
    micro_batch: int | None = option(
        "Pairs to encode at once, to save memory; the loss still sees the whole batch, but "
        "batch norms see these pairs",
        "N",
        EXECUTION,
        otherwise="the batch size",
        within="[1, inf)",
    )
    precision: str = option(
        "Floating-point precision: fp32, bf16, fp16, or auto: bf16 on a GPU that has it, else fp32",
        "NAME",
        EXECUTION,
        default="fp32",
        otherwise="from the preset, or fp32",
        choices=("auto", "fp32", "bf16", "fp16"),
    )
    replay: str = option(
        "Use of --buffer: union (shuffled with the task), share=X of each batch, or least=X: "
        "union, but share=X if union replays less",
        "union|share=X|least=X",
        METHOD,
        default="union",
        offers=("union", "share=", "least="),
        otherwise="union",
    )
    captions: str = option(
        "Captions per image and epoch: one or all",
        "one|all",
        DATA,
        default="one",
        otherwise="one",
        choices=("one", "all"),
    )
    loss: str | None = option(
        "Contrastive loss of a first task's model: softmax (CLIP), or sigmoid with a learned "
        "bias (SigLIP)",
        "softmax|sigmoid",
        METHOD,
        otherwise="that of the model's configuration: sigmoid if it has init_logit_bias",
        choices=(SOFTMAX, SIGMOID),
    )
    base_loss: str = setting(
        "Reduction of the two directions of a softmax loss: mean or sum; a sigmoid loss is one "
        "sum over all pairs",
        "mean|sum",
        METHOD,
        default="mean",
        choices=("mean", "sum"),
        goes_with=("loss", (SOFTMAX,)),
        rare=True,
    )
    negatives: str = option(
        "Negatives of a pair in the contrastive loss: all other pairs, or only distinct ones, "
        "which share neither the image nor a caption with it, directly or through other pairs",
        "all|distinct",
        METHOD,
        default="all",
        otherwise="from the preset, or all",
        choices=("all", "distinct"),
    )
    image_size: int | None = option(
        "Side of the square images",
        "PIXELS",
        MODEL,
        otherwise="that of the model",
        within="[8, 4096]",
    )
    crop: str = setting(
        "Crop of training images: none, center or random",
        "NAME",
        DATA,
        default="center",
        choices=("none", "center", "random"),
    )
    crop_scale: tuple[float, float] = setting(
        "Smallest and largest share of the area that --crop random keeps, above 0 and at most 1",
        "LOW,HIGH",
        DATA,
        default=(0.2, 1.0),
        within="(0, 1]",
        goes_with=("crop", ("random",)),
    )
    flip: bool = switch(
        "Mirror training images with probability 0.5", DATA, opposite="--no-flip", otherwise=PRESET
    )
    randaugment: tuple[int, int] | None = option(
        "Apply RandAugment with N operations (at most 14) of magnitude M (at most 10); 0,0 "
        "applies none",
        "N,M",
        DATA,
        otherwise="from the preset, or none",
    )
    jpeg_decode: str = option(
        "Decoding of JPEG training images: exact, or scaled down by the decoder to what the "
        "crop needs, which is faster and changes pixels slightly",
        "exact|scaled",
        DATA,
        default=EXACT,
        otherwise="from the preset, or exact",
        choices=JPEG_DECODINGS,
        rare=True,
    )
    resize: str = option(
        "What resizes training images: pillow, as in the papers' programs, or torch, which is "
        "faster on a CPU with AVX2 and changes pixels slightly",
        "pillow|torch",
        DATA,
        default=PILLOW,
        otherwise="pillow",
        choices=RESIZERS,
        rare=True,
    )
    keep: str = setting(
        "Epoch whose weights to keep: last, best:val_loss or best:val_rmean",
        "NAME",
        OPTIMIZATION,
        default="last",
        choices=("last", "best:val_loss", "best:val_rmean"),
    )
    blend_buffers: bool = switch(
        "Average BatchNorm statistics, not only weights, in momentum models",
        METHOD,
        otherwise="weights only",
        rare=True,
    )
    lora: str | None = option(
        "Train adapters of this rank in attention and MLP of both encoders, in place of the "
        "weights, which change by (ALPHA / RANK) B A; ALPHA is twice the rank unless given",
        "RANK[,ALPHA]",
        METHOD,
        otherwise="no adapters: all weights train",
    )
    mask_share: float = option(
        "Share of tokens to mask and predict, in fusion models",
        "SHARE",
        DATA,
        default=0.15,
        otherwise="0.15",
        within="[0, 1)",
        rare=True,
    )
    masking: str = option(
        "Masking of tokens in fusion models: bert (80/10/10) or all (always [MASK])",
        "NAME",
        DATA,
        default="bert",
        otherwise="bert",
        choices=("bert", "all"),
        rare=True,
    )
    heads: str | None = option(
        "Projection heads of a new fusion model: linear or cosine",
        "NAME",
        MODEL,
        otherwise="from its configuration",
        choices=("linear", "cosine"),
        rare=True,
    )
    scale_per_step: str | None = option(
        "Rescale the decays of averages that are updated at each step (ctp.m, dha.main_share, "
        "dha.history_share, ema.decay) from the N steps per task that they were chosen for, or "
        "those of the paper, to the steps of this run",
        "N|paper",
        METHOD,
        offers=("paper",),
        otherwise="as given",
        rare=True,
    )


class RunOptions(Options):
    """The inputs of one train-step that are no settings, and how it is executed."""

    previous: MaybePath = option(
        "Checkpoint of the previous task, for initial weights, teacher and method state; "
        "required after the first task, unless --from-scratch is given",
        "DIR",
        INPUT,
        usual=True,
    )
    buffer: MaybePath = option(
        "Buffer of earlier pairs to replay", "DIR", INPUT, usual=True, stored=True
    )
    pseudo_texts: MaybePath = option(
        "Negative texts from invert-texts", "DIR", INPUT, otherwise="generated during training"
    )
    reference: MaybePath = option(
        "Task with pairs, beside those to learn, on which a method keeps what the teacher can do",
        "DIR",
        INPUT,
        stored=True,
    )
    targets: MaybePath = option(
        "Teacher embeddings precomputed by distill", "DIR", INPUT, otherwise="run the teacher"
    )
    teacher: MaybePath = option(
        "Checkpoint of the frozen teacher", "DIR", INPUT, otherwise="--previous"
    )
    from_scratch: bool = switch("Allow training on a later task without --previous", METHOD)
    fresh_state: bool = switch(
        "Initialise the method's state instead of taking it from --previous", METHOD
    )
    attempt: int = option(
        "Number of this training among those of one --seed: each draws other batches, views and "
        "initial weights",
        "N",
        METHOD,
        default=0,
        within="[0, inf)",
        rare=True,
    )
    compile: bool = switch(
        "Compile the model with torch.compile: minutes at the start, then faster steps", EXECUTION
    )
    tf32: bool = switch(
        "Multiply float32 in TF32, on GPUs that have it: faster, with 10 bits of mantissa",
        EXECUTION,
        rare=True,
    )
    cudnn: str = option(
        "Convolutions of a GPU: deterministic, or the fastest algorithms by a trial, whose "
        "results differ from run to run in their last bits",
        "deterministic|benchmark",
        EXECUTION,
        default="deterministic",
        choices=("deterministic", BENCHMARK),
        rare=True,
    )
    grad_checkpointing: bool = switch(
        "Recompute activations in backward instead of storing them: less memory, slower steps",
        EXECUTION,
    )
    save_every: str = option(
        "Interval at which the training state is saved: steps, or a time such as 10min",
        "N|TIME",
        EXECUTION,
        default="10min",
        parse=_checked_interval,
    )
    accept_inexact: bool = switch(
        "Resume even on a different kind of machine or with other versions of libraries, where "
        "results are not bit-exact",
        EXECUTION,
    )
    nproc: int = option(
        "Number of processes that train together, one per GPU",
        "N",
        EXECUTION,
        default=1,
        otherwise="1, or as started by torchrun",
        within="[1, inf)",
    )
    nodes: int = option(
        "Number of machines that the processes run on; start the same command on each",
        "N",
        EXECUTION,
        default=1,
        within="[1, inf)",
        rare=True,
    )
    rendezvous: str | None = option(
        "Address on one of the machines; required if --nodes is above 1",
        "HOST:PORT",
        EXECUTION,
        rare=True,
    )
    local_loss: bool = switch(
        "With several processes, compute only the loss rows of a process's own pairs, to save "
        "memory and time; the loss is the same",
        EXECUTION,
        otherwise="every process computes all",
        rare=True,
    )


SETTINGS = tuple(options_of(Settings))
# The settings of the model itself, which a previous checkpoint decides, and their origin then.
OF_MODEL = tuple(name for name, (row, _) in options_of(Settings).items() if row.section == MODEL)
PREVIOUS = "previous"
OF_ITS_MODEL = "model"  # the origin of a loss that is not given

# The options of an execution on one machine: several machines run the same command, and a resume is
# accepted once.
_ELSEWHERE = frozenset({"nodes", "rendezvous", "accept_inexact"})
MACHINE_OPTIONS = {
    spelled(name, row): name
    for name, (row, _) in options_of(RunOptions).items()
    if row.section == EXECUTION and name not in _ELSEWHERE
}

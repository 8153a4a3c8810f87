"""The inputs of a train-step, and how it is executed, each described once, at its field."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vlcpctl.core.option_rules import EXECUTION, INPUT, METHOD, option


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of one train-step that are no settings. Torch-free."""

    previous: Path | None = option(
        None,
        INPUT,
        "DIR",
        "Checkpoint of the previous task, for initial weights, teacher and method state; required "
        "after the first task, unless --from-scratch is given",
    )
    buffer: Path | None = option(
        None, INPUT, "DIR", "Buffer of earlier pairs to replay", otherwise="none"
    )
    pseudo_texts: Path | None = option(
        None,
        INPUT,
        "FILE",
        "Negative texts from invert-texts",
        otherwise="generated during training",
    )
    reference: Path | None = option(
        None,
        INPUT,
        "DIR",
        "Task with pairs, beside those to learn, on which a method keeps what the teacher can do",
        otherwise="none",
    )
    targets: Path | None = option(
        None,
        INPUT,
        "DIR",
        "Teacher embeddings precomputed by distill",
        otherwise="run the teacher",
    )
    teacher: Path | None = option(
        None, INPUT, "DIR", "Checkpoint of the frozen teacher", otherwise="--previous"
    )
    from_scratch: bool = option(
        False, METHOD, None, "Allow training on a later task without --previous"
    )
    fresh_state: bool = option(
        False,
        METHOD,
        None,
        "Initialise the method's state instead of taking it from --previous",
    )
    attempt: int = option(
        0,
        METHOD,
        "N",
        "Number of this training among those of one --seed: each draws other batches, views and "
        "initial weights",
        within="[0, inf)",
    )
    # No option below decides what is computed. The first four decide the last bits.
    compile: bool = option(
        False,
        EXECUTION,
        None,
        "Compile the model with torch.compile: minutes at the start, then faster steps",
    )
    tf32: bool = option(
        False,
        EXECUTION,
        None,
        "Multiply float32 in TF32, on GPUs that have it: faster, with 10 bits of mantissa",
    )
    cudnn: str = option(
        "deterministic",
        EXECUTION,
        "deterministic|benchmark",
        "Convolutions of a GPU: deterministic, or the fastest algorithms by a trial, whose results "
        "differ from run to run in their last bits",
        choices=("deterministic", "benchmark"),
    )
    grad_checkpointing: bool = option(
        False,
        EXECUTION,
        None,
        "Recompute activations in backward instead of storing them: less memory, slower steps",
    )
    save_every: str = option(
        "10min",
        EXECUTION,
        "N|TIME",
        "Interval at which the training state is saved: steps, or a time such as 10min",
    )
    accept_inexact: bool = option(
        False,
        EXECUTION,
        None,
        "Resume even on a different kind of machine or with other versions of libraries, where "
        "results are not bit-exact",
    )
    nproc: int = option(
        1,
        EXECUTION,
        "N",
        "Number of processes that train together, one per GPU",
        otherwise="1, or as started by torchrun",
        within="[1, inf)",
    )
    nodes: int = option(
        1,
        EXECUTION,
        "N",
        "Number of machines that the processes run on; start the same command on each",
        within="[1, inf)",
    )
    rendezvous: str | None = option(
        None,
        EXECUTION,
        "HOST:PORT",
        "Address on one of the machines; required if --nodes is above 1",
    )
    local_loss: bool = option(
        False,
        EXECUTION,
        None,
        "With several processes, compute only the loss rows of a process's own pairs, to save "
        "memory and time; the loss is the same",
        otherwise="every process computes all",
    )

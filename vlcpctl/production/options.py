"""The options of `vlcpctl update`: those of update.toml, and those that each call gives."""

from __future__ import annotations

from typing import Literal

from vlcpctl.core.machine import thread_number
from vlcpctl.core.options import (
    DATA,
    EXECUTION,
    INPUT,
    METHOD,
    MaybeAmount,
    MaybePath,
    MaybePathText,
    Names,
    OnePath,
    Options,
    Paths,
    PathTexts,
    Takes,
    Texts,
    argument,
    like,
    option,
    printing,
    required,
    several,
    switch,
)
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.training.settings import RunOptions
from vlcpctl.training.settings import Settings as Training

POLICIES = ("reservoir", "ring", "herding", "kmeans", "random")  # those of `data`, slow to import


def week_number(text: str) -> int | None:
    """The number of a week; None if the text is not one, or too long for one.

    Python refuses to convert thousands of digits.
    """
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _keep(text: str) -> str:
    if text != "all" and not week_number(text):
        raise ValueError(f"{text!r} is not a number of weeks, such as 12, and not all")
    return text


def _threads(text: str) -> str:
    thread_number(text)
    return text


def _index_week(text: str) -> str:
    if text != "none" and week_number(text) is None:
        raise ValueError(f"{text!r} is not the number of a week, and not none")
    return text


def _unicode(text: str) -> str:
    text.encode()  # whose error is a ValueError
    return text


class UpdateOptions(Options):
    """What a call of `update` asks for."""

    state: OnePath = required(
        "State directory: the accepted weeks, and everything that the next one needs", "DIR", INPUT
    )
    sources: PathTexts = argument(
        "NEW_DATA",
        "New image-text pairs, in any form that split takes",
        kw_only=False,
        default=(),
        stored=True,
    )
    init: MaybePathText = option(
        "Start a new state directory from this checkpoint or other weights, which are copied",
        "CKPT|open_clip:MODEL,TAG",
        INPUT,
        otherwise="continue",
        offers=("open_clip:",),
        usual=True,
    )
    model: MaybePathText = option(
        "Model of --init, if its file does not say it, as import-checkpoint takes it",
        "NAME|FILE.json",
        INPUT,
        goes_with=("init", None),
        offers="models",
    )
    buffer_from: PathTexts = several(
        "Earlier training data that fill the first buffer, with --init; repeat for more",
        "DATA",
        INPUT,
        otherwise="week 1 replays nothing",
        usual=True,
        stored=True,
    )
    rollback: int | None = option(
        "Make this week the last accepted one again, 0 for the start",
        "WEEK",
        METHOD,
        within="[0, inf)",
        usual=True,
    )
    redo: MaybeAmount = option(
        "Make this week again from its pairs in DIR, and the weeks after it, with today's "
        "settings: an accepted or rolled-back one by its number, any by its directory, such as "
        "attempts/0007. If all pass, they replace those that they are",
        "WEEK",
        METHOD,
        usual=True,
    )
    guard: PathTexts = several(
        "Task outside the stream on whose test split the model must not get worse; repeat for "
        "more, or give 'none' for no guards",
        "TASK",
        INPUT,
        usual=True,
        stored=True,
    )
    guard_classes: PathTexts = several(
        "Data set of zero-shot classification on which the model must not get worse, as "
        "eval-zeroshot takes it: a task with labels, a folder or a name; repeat for more, or "
        "give 'none' for no such guards",
        "DATASET",
        INPUT,
        offers="data_sets",
        stored=True,
    )
    distractors: PathTexts = several(
        "Task whose images and captions are added to the gallery of every --guard, because "
        "small galleries hide losses; repeat for more, or give 'none'",
        "TASK",
        INPUT,
        stored=True,
    )
    reference: MaybePathText = option(
        "Task outside the stream with pairs, beside those of each week, on which zscl, snd or "
        "gift keeps what the model of last week can do",
        "TASK",
        INPUT,
        resets=True,
        stored=True,
    )
    fail_if: Texts = several(
        "Condition that rejects a week, as forgetting-report takes it; repeat for more, or give "
        "'none' for no condition",
        "METRIC:OP:VALUE",
        METHOD,
        otherwise="worst_drop:gt:2 and step_drop:gt:2, with a guard, worst_week:gt:5 and "
        "bwt_gem.rm:lt:-2; 'default' takes them again",
        offers="conditions",
        usual=True,
    )
    method: str | None = option(
        "Method, or several joined with +; 'vlcpctl methods' lists them",
        "NAME[+NAME...]",
        METHOD,
        otherwise="ctp",
        short="-m",
        offers="joined_methods",
        resets=True,
        usual=True,
    )
    method_file: Paths = several(
        "Python file that defines methods of your own, which --method can name; repeat for more. "
        "Its code is run, so that each call gives it",
        "FILE.py",
        METHOD,
        otherwise="built-in methods and installed plug-ins",
    )
    preset: str | None = option(
        "Training budget: update, tiny or another preset of train-step",
        "NAME",
        METHOD,
        otherwise="update",
        offers="presets",
        resets=True,
    )
    set: Texts = several(
        "Set a setting of DIR/update.toml, or a hyper-parameter of a method; VALUE may be none, "
        "which takes it back; repeat for more",
        "SECTION.NAME=VALUE|METHOD.PARAMETER=VALUE",
        METHOD,
        otherwise="see DIR/update.toml and vlcpctl methods",
        offers="assignments",
    )
    epochs: Takes[int | None, int | Literal["none"] | None] = like(
        Training, "epochs", default=None, resets=True, usual=True
    )
    steps: Takes[int | None, int | Literal["none"] | None] = like(
        Training, "steps", default=None, resets=True
    )
    lr: Takes[float | None, float | Literal["none"] | None] = like(
        Training, "lr", default=None, resets=True, usual=True
    )
    batch_size: Takes[int | None, int | Literal["none"] | None] = like(
        Training, "batch_size", default=None, resets=True
    )
    holdout: str | None = like(SplitOptions, "holdout", resets=True)
    split_column: str | None = like(SplitOptions, "split_column", resets=True)
    keep_columns: Names = like(SplitOptions, "keep_columns", resets=True)
    image_column: str | None = like(SplitOptions, "image_column", resets=True)
    caption_column: str | None = like(SplitOptions, "caption_column", resets=True)
    image_root: PathTexts = like(SplitOptions, "image_root")
    max_skip: MaybeAmount = like(
        SplitOptions, "max_skip", default=None, otherwise="0.1%", resets=True
    )
    drop_leaks: bool | None = option(
        "Leave out training pairs that have a test image of a guard, of an accepted week or of "
        "their own week, or end with exit code 3 before the training",
        None,
        DATA,
        otherwise="--refuse-leaks",
        opposite="--refuse-leaks",
        usual=True,
    )
    keep: MaybeAmount = option(
        "Weeks that keep weights, buffer and pairs for training, at the end; older ones keep their "
        "rows, report and test images",
        "N|all",
        otherwise="all",
        parse=_keep,
        offers=("all",),
        resets=True,
    )
    cache: MaybePath = option(
        "Directory to keep data that is read from an object store; it is recorded",
        "DIR",
        EXECUTION,
        otherwise="vlcpctl/objects in the user's cache directory",
    )
    junit: MaybePath = option("File for the verdicts as JUnit XML", "FILE")
    on_accept: str | None = option(
        "Command that sh runs once the week is accepted and DIR/current is set, with "
        "VLCPCTL_CHECKPOINT and others in its environment; give it with each call",
        "COMMAND",
    )
    on_reject: str | None = option(
        "Command that sh runs once the week is rejected, likewise", "COMMAND"
    )
    reason: str | None = option(
        "Why this week is made, redone, rolled back, or accepted after it was rolled back; it is "
        "written into DIR/events.ndjson",
        "TEXT",
        parse=_unicode,
    )
    log: PathTexts = several(
        "Also log to TensorBoard or Weights & Biases; repeat for more",
        "tensorboard:DIR|wandb:PROJECT",
        offers=("tensorboard:", "wandb:"),
    )
    quiet: bool = switch("Print only the result, no progress or notes", short="-q")
    force: bool = switch("Make the week from scratch: what --state has of it is discarded")
    dry_run: bool = printing("Check the settings, print the lines and write nothing", usual=True)


class OnlyInFile(Options):
    """The settings of update.toml that no option of `update` has: no help shows these texts."""

    refuses_idle = False

    run: str | None = option("Name of the run in rows and reports, given with --init")
    data: MaybePathText = option("Directory with the data sets that are given by name")
    index_week: MaybeAmount = option("Week whose model the index has, or none", parse=_index_week)
    start_from: str | None = option("What is trained on", choices=("latest", "merged", "base"))
    deploy: str | None = option("What is judged and deployed: latest, ema, ema:DECAY or merged")
    retries: int | None = option("How often a rejected week is trained again", within="[0, 1]")
    sample: int | None = option("Most test images of a week to evaluate", within="[1, inf)")
    seed: int | None = option("Seed of all random choices", within="[0, inf)")
    device: str | None = option("Device to compute on")
    workers: int | None = option("Processes that decode images", within="[0, 1024]")
    threads: MaybeAmount = option("CPU threads, or auto", parse=_threads)
    set: Texts = several("Hyper-parameter of a method: METHOD.PARAMETER=VALUE")
    fresh_state: bool = like(RunOptions, "fresh_state")
    size: MaybeAmount = option("Size of the replay buffer: images, or a share of each week")
    policy: str | None = option("Rule that chooses the pairs of the buffer", choices=POLICIES)
    undefined: str | None = option("See forgetting-report", choices=("error", "pass"))
    false_alarms: float | None = option("See forgetting-report", within="(0, inf)")

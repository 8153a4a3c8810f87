"""`vlcpctl update`: the weekly job of a model in production."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcpctl.commands import options, values
from vlcpctl.core import console
from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.core.words import shown
from vlcpctl.training.config.settings import SETTINGS, Settings

if TYPE_CHECKING:
    from vlcpctl.production.redo import RedoRequest
    from vlcpctl.production.update import UpdateRequest

Sources = Annotated[
    list[str] | None,
    typer.Argument(metavar="NEW_DATA", help="New image-text pairs, in any form that split takes."),
]
StateDir = Annotated[
    Path,
    typer.Option(
        "--state",
        metavar="DIR",
        help="State directory: the accepted weeks, and everything that the next one needs.",
        rich_help_panel=options.INPUT,
    ),
]
Init = Annotated[
    str | None,
    typer.Option(
        "--init",
        metavar="CKPT|open_clip:MODEL,TAG",
        help="Start a new state directory from this checkpoint or pretrained model; it is "
        "copied (default: continue).",
        rich_help_panel=options.INPUT,
    ),
]
BufferFrom = Annotated[
    list[str] | None,
    typer.Option(
        "--buffer-from",
        metavar="DATA",
        help="Earlier training data that fill the first buffer, with --init; repeat for more "
        "(default: week 1 replays nothing).",
        rich_help_panel=options.INPUT,
    ),
]
GuardTasks = Annotated[
    list[str] | None,
    typer.Option(
        "--guard",
        metavar="TASK",
        help="Task outside the stream on whose test split the model must not get worse; repeat "
        "for more, or give 'none' for no guards.",
        rich_help_panel=options.INPUT,
    ),
]
GuardClasses = Annotated[
    list[str] | None,
    typer.Option(
        "--guard-classes",
        metavar="DATASET",
        help="Data set of zero-shot classification on which the model must not get worse, as "
        "eval-zeroshot takes it: a task with labels, a folder or a name; repeat for more, or "
        "give 'none' for no such guards.",
        rich_help_panel=options.INPUT,
    ),
]
Distractors = Annotated[
    list[str] | None,
    typer.Option(
        "--distractors",
        metavar="TASK",
        help="Task whose images and captions are added to the gallery of every --guard, because "
        "small galleries hide losses; repeat for more, or give 'none' (default: none).",
        rich_help_panel=options.INPUT,
    ),
]


Reference = Annotated[
    str | None,
    typer.Option(
        "--reference",
        metavar="TASK",
        help="Task outside the stream with pairs, beside those of each week, on which zscl, snd or "
        "gift keeps what the model of last week can do (default: none).",
        rich_help_panel=options.INPUT,
    ),
]


def _index_week(text: str) -> str:
    """The text of --index-week: `none` must differ from an option that is not given."""
    from vlcpctl.production.layout import week_number

    if text != "none" and week_number(text) is None:
        raise ValueError(f"{text!r} is not the number of a week, and not none")
    return text


IndexWeek = Annotated[
    str | None,
    typer.Option(
        "--index-week",
        parser=_index_week,
        metavar="WEEK|none",
        help="Week whose model the index of users was built with; the report says what they lose "
        "if it stays. With none, there is no index to evaluate (default: 0, the start).",
        rich_help_panel=options.INPUT,
    ),
]
FailIf = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="METRIC:OP:VALUE",
        help="Condition that rejects a week, as forgetting-report takes it; repeat for more, or "
        "give 'none' for no condition (default: worst_drop:gt:2 and step_drop:gt:2, with a guard, "
        "worst_week:gt:5 and bwt_gem.rm:lt:-2; 'default' takes them again).",
        rich_help_panel=options.METHOD,
    ),
]
FalseAlarms = Annotated[
    float | None,
    typer.Option(
        "--false-alarms",
        metavar="A",
        help="How many weeks of a year of weekly updates may be rejected because of chance alone, "
        "on average, by each kind of condition on losses (default: 1).",
        rich_help_panel=options.METHOD,
    ),
]
Retries = Annotated[
    int | None,
    typer.Option(
        "--retries",
        min=0,
        max=1,
        metavar="0|1",
        help="How often a rejected week is trained again with other draws, unless it clearly lost "
        "more than a bound allows; the last verdict counts (default: 1).",
        rich_help_panel=options.METHOD,
    ),
]
SmallGuard = Annotated[
    bool,
    typer.Option(
        "--small-guard",
        help="Accept a --guard of fewer than 50 test images, on which chance hides losses.",
        rich_help_panel=options.METHOD,
    ),
]
Undefined = Annotated[
    str | None,
    typer.Option(
        "--undefined",
        metavar="POLICY",
        help="Outcome of a condition on forgetting in the first week, which has none yet: error "
        "(exit code 3) or pass (default: error with --fail-if, else pass).",
        rich_help_panel=options.METHOD,
    ),
]
# Not called junit: that would lock the file, which the line that writes it does itself.
Junit = Annotated[
    Path | None,
    typer.Option(
        "--junit",
        metavar="FILE",
        help="File for the verdicts as JUnit XML (default: none).",
        rich_help_panel=options.OUTPUT,
    ),
]
Rollback = Annotated[
    int | None,
    typer.Option(
        "--rollback",
        min=0,
        metavar="WEEK",
        help="Make this week the last accepted one again, 0 for the start; later weeks are moved "
        "to DIR/rolled-back.",
        rich_help_panel=options.METHOD,
    ),
]
Redo = Annotated[
    str | None,
    typer.Option(
        "--redo",
        metavar="WEEK",
        help="Make this week again from its pairs in DIR, and the weeks after it, with today's "
        "settings; an accepted, rejected or rolled-back one, by its number or as rejected/0002-1. "
        "If all are accepted, they replace those that they are.",
        rich_help_panel=options.METHOD,
    ),
]


def _hook(text: str) -> str:
    if not text.strip():
        raise ValueError("the command is empty")
    return text


OnAccept = Annotated[
    str | None,
    typer.Option(
        "--on-accept",
        parser=_hook,
        metavar="COMMAND",
        help="Command that sh runs once the week is accepted and DIR/current is set, with "
        "VLCPCTL_CHECKPOINT and others in its environment; give it with each call (default: none).",
        rich_help_panel=options.OUTPUT,
    ),
]
OnReject = Annotated[
    str | None,
    typer.Option(
        "--on-reject",
        parser=_hook,
        metavar="COMMAND",
        help="Command that sh runs once the week is rejected, likewise (default: none).",
        rich_help_panel=options.OUTPUT,
    ),
]


def _reason(text: str) -> str:
    from vlcpctl.deletion.selectors import require_unicode

    return require_unicode("--reason", text)


Reason = Annotated[
    str | None,
    typer.Option(
        "--reason",
        parser=_reason,
        metavar="TEXT",
        help="Why this week is made, judged again, redone or rolled back; it is written into "
        "DIR/history.ndjson (default: none).",
        rich_help_panel=options.OUTPUT,
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        "--method",
        "-m",
        metavar="NAME[+NAME...]",
        help="Method, or several joined with +; 'vlcpctl methods' lists them (default: ctp).",
        rich_help_panel=options.METHOD,
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="Training budget: update, tiny or another preset of train-step (default: update).",
        rich_help_panel=options.METHOD,
    ),
]
Assign = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="METHOD.PARAMETER=VALUE",
        help="Set a hyper-parameter of a method; repeat for more, or give 'none' for the "
        "defaults (default: see vlcpctl methods).",
        rich_help_panel=options.METHOD,
    ),
]
StartFrom = Annotated[
    str | None,
    typer.Option(
        "--start-from",
        metavar="WHICH",
        help="What a week is trained from: latest, as trained last; merged, what --deploy has "
        "merged; or base, the start (default: latest).",
        rich_help_panel=options.METHOD,
    ),
]
Deploy = Annotated[
    str | None,
    typer.Option(
        "--deploy",
        metavar="WHICH",
        help="What is judged and deployed: latest, as trained; ema or ema:DECAY, the moving "
        "average of what was deployed and what was trained; or merged, the mean of the start and "
        "of all weeks (default: latest).",
        rich_help_panel=options.METHOD,
    ),
]
FreshState = Annotated[
    bool,
    typer.Option(
        "--fresh-state",
        help="Initialise the method's state instead of taking it from the last week, this week "
        "only: for a change of --method.",
        rich_help_panel=options.METHOD,
    ),
]
BufferSize = Annotated[
    str | None,
    typer.Option(
        "--buffer-size",
        metavar="N|P%",
        help="Size of the replay buffer: images, or a share of each week (default: 20000).",
        rich_help_panel=options.METHOD,
    ),
]
Policy = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="Rule that chooses the pairs of the buffer (default: reservoir, or as the method "
        "needs it).",
        rich_help_panel=options.METHOD,
    ),
]


def _setting(name: str, metavar: str, text: str, panel: str) -> Any:
    return typer.Option(name, metavar=metavar, help=text, rich_help_panel=panel)


_O, _D, _E = options.OPTIMIZATION, options.DATA, options.EXECUTION
HoldoutOption = Annotated[
    str | None,
    _setting(
        "--holdout",
        "SPLIT=SHARE",
        "Held-out splits of each week: shares (test=0.1) or images (test=500) (default: test=0.1).",
        _D,
    ),
]
HoldoutMost = Annotated[
    str | None,
    _setting(
        "--holdout-most",
        "P%",
        "Share of a week that a --holdout of N images may take; a smaller week holds out the "
        "share instead (default: 10%).",
        _D,
    ),
]
SplitColumn = Annotated[
    str | None,
    _setting(
        "--split-column",
        "NAME",
        "Column with the split of each pair, as split takes it (default: use --holdout).",
        _D,
    ),
]
KeepColumns = Annotated[
    str | None,
    _setting(
        "--keep-columns",
        "NAME,...",
        "Columns of the data to keep in the index, as split takes them (default: none).",
        _D,
    ),
]
ImageColumn = Annotated[
    str | None,
    _setting("--image-column", "NAME", "Column with images (default: found by its name).", _D),
]
CaptionColumn = Annotated[
    str | None,
    _setting("--caption-column", "NAME", "Column with captions (default: found by its name).", _D),
]
ImageRoot = Annotated[
    list[str] | None,
    _setting(
        "--image-root",
        "DIR",
        "Directory that image paths are relative to; repeat for more, or give 'none' for that "
        "of the list (default: that of the list).",
        _D,
    ),
]


def _keep(text: str) -> str:
    """The text of --keep: `all` must differ from an option that is not given."""
    from vlcpctl.production.layout import week_number

    if text != "all" and not week_number(text):
        raise ValueError(f"{text!r} is not a number of weeks, such as 12, and not all")
    return text


Keep = Annotated[
    str | None,
    typer.Option(
        "--keep",
        parser=_keep,
        metavar="N|all",
        help="Weeks that keep weights, buffer and pairs for training, at the end; older ones keep "
        "their rows, report and test images (default: all).",
        rich_help_panel=options.OUTPUT,
    ),
]
MaxSkip = Annotated[
    str | None,
    _setting("--max-skip", "N|SHARE", "Bad samples to tolerate in a week (default: 0.1%).", _D),
]
Known = Annotated[
    str | None,
    _setting(
        "--known",
        "skip|train",
        "Pairs that an accepted week has already: skip leaves them out, train trains on them again "
        "(default: skip).",
        _D,
    ),
]
DropLeaks = Annotated[
    bool | None,
    typer.Option(
        "--drop-leaks/--refuse-leaks",
        help="Leave out training pairs that have a test image of a guard, of an accepted week or "
        "of their own week, or end with exit code 3 before the training "
        "(default: --refuse-leaks).",
        show_default=False,
        rich_help_panel=_D,
    ),
]
Readmit = Annotated[
    list[Path] | None,
    typer.Option(
        "--readmit",
        metavar="RECEIPT",
        help="Deletion whose pairs may be in this week again: a receipt of forget, or a file of "
        "DIR/deleted; repeat for more (default: leave out all deleted pairs).",
        rich_help_panel=_D,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        min=0,
        metavar="N",
        help="Seed of all random choices (default: 0).",
        rich_help_panel=_E,
    ),
]
Device = Annotated[
    str | None,
    _setting("--device", "NAME", "Device to compute on (default: auto).", _E),
]


def _workers(text: str) -> str:
    """The text of --workers: `auto` must differ from an option that is not given."""
    options.workers(text)
    return text


Workers = Annotated[
    str | None,
    typer.Option(
        "--workers",
        parser=_workers,
        metavar="auto|N",
        help="Processes that decode images (default: auto, as in train-step).",
        rich_help_panel=_E,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        max=1024,
        metavar="N",
        help="CPU threads for arithmetic (default: 1).",
        rich_help_panel=_E,
    ),
]
TrainOption = Annotated[
    str | None,
    typer.Option(
        "--train-option",
        metavar="OPTIONS",
        help="Options of train-step that decide how a week is trained on this machine, in quotes, "
        "such as '--nproc 2 --compile'; 'none' for none (default: none).",
        rich_help_panel=_E,
    ),
]
RunName = Annotated[
    str | None,
    typer.Option(
        "--run",
        parser=options.run_name,
        metavar="NAME",
        help="Name of the run in rows and reports, given with --init (default: the name of DIR).",
        rich_help_panel=options.OUTPUT,
    ),
]
AcceptInexact = Annotated[
    bool,
    typer.Option(
        "--accept-inexact",
        help="Resume an interrupted training on a different kind of machine, or with another "
        "--threads or --device, where results are not bit-exact; this week only, and recorded.",
        rich_help_panel=_E,
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Make the week from scratch: what --state has of it, unfinished or rejected, is "
        "discarded.",
        rich_help_panel=options.OUTPUT,
    ),
]
# The settings of train-step that a week takes, too.
_OF_TRAINING = ("epochs", "steps", "lr", "batch_size", "micro_batch", "precision", "replay")
_SAME = {
    *_OF_TRAINING, "method", "preset", "buffer_size", "policy", "holdout", "holdout_most",
    "split_column", "keep_columns", "image_column", "caption_column", "max_skip", "undefined",
    "seed", "device", "threads", "false_alarms", "retries", "drop_leaks",
    "start_from", "deploy",
}  # fmt: skip
# Options that "none" takes back to their defaults. Lists such as --guard take it as "no value",
# and --index-week as "no index".
_RESETTABLE = (_SAME - {"drop_leaks"}) | {
    *("data", "known", "reference", "workers", "keep", "cache")
}
_NOT_BESIDE_REDO = {"init", "buffer_from", "run_name", "fresh_state"}
_BESIDE_ROLLBACK = {"state", "quiet", "dry_run", "as_json", "wait", "rollback", "reason"}
_OTHERWISE_NAMED = {"set_": "set", "run_name": "run", "junit_xml": "junit"}


@options.with_fields(
    Settings,
    only=_OF_TRAINING,
    words={
        "batch_size": "Pairs per batch; more than the week has are refused",
        "replay": "Use of the buffer, as in train-step: union, share=X or least=X",
    },
    otherwise={"replay": "least=0.25; union in a state that a version before 0.3.0 started"},
)
def run(
    state: StateDir,
    sources: Sources = None,
    init: Init = None,
    buffer_from: BufferFrom = None,
    rollback: Rollback = None,
    redo: Redo = None,
    guard: GuardTasks = None,
    guard_classes: GuardClasses = None,
    data: options.Data = None,
    distractors: Distractors = None,
    reference: Reference = None,
    index_week: IndexWeek = None,
    fail_if: FailIf = None,
    undefined: Undefined = None,
    false_alarms: FalseAlarms = None,
    retries: Retries = None,
    small_guard: SmallGuard = False,
    method: Method = None,
    method_file: options.MethodFiles = None,
    preset: Preset = None,
    set_: Assign = None,
    fresh_state: FreshState = False,
    *,
    start_from: StartFrom = None,
    deploy: Deploy = None,
    buffer_size: BufferSize = None,
    policy: Policy = None,
    holdout: HoldoutOption = None,
    holdout_most: HoldoutMost = None,
    split_column: SplitColumn = None,
    keep_columns: KeepColumns = None,
    image_column: ImageColumn = None,
    caption_column: CaptionColumn = None,
    image_root: ImageRoot = None,
    max_skip: MaxSkip = None,
    known: Known = None,
    drop_leaks: DropLeaks = None,
    readmit: Readmit = None,
    run_name: RunName = None,
    keep: Keep = None,
    seed: Seed = None,
    device: Device = None,
    workers: Workers = None,
    threads: Threads = None,
    train_option: TrainOption = None,
    accept_inexact: AcceptInexact = False,
    cache: options.Cache = None,
    junit_xml: Junit = None,
    on_accept: OnAccept = None,
    on_reject: OnReject = None,
    reason: Reason = None,
    log: options.Log = None,
    wait: options.Wait = None,
    force: Force = False,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    **training: Any,
) -> None:
    r"""Update a model in production with the new data of a week.

    Splits the data, trains from the last accepted checkpoint with the last accepted buffer,
    updates the buffer, evaluates the new checkpoint on the guards and on the test parts of all
    weeks, writes a report and judges it. If no condition is true, the week is accepted:
    DIR/weeks/0001 appears, and DIR/current is a link to its checkpoint. Otherwise it is rejected
    with exit code 7: the state stays as it was, and DIR/pending keeps the attempt with its report
    until the next week starts; DIR/rejected has it then, without weights. With code 3, a condition
    is undefined, and nothing is accepted. report/week.html of a week has the verdict in words, what
    was lost, and what changed. DIR/history.ndjson has a line for each of these actions.

    The first call needs --init. Options are kept in the state: later calls need only NEW_DATA and
    --state, and an option that is given again holds from that week on, in place of all its earlier
    values: give every --fail-if and --guard that is to stay. The value none takes an option back to
    its default, as in --split-column none or --steps none; it empties one that can be repeated,
    such as --guard. If it is interrupted, run the same command again: it resumes.

    NEW_DATA, guards and other data may be URLs of an object store, such as s3://bucket/week.parquet;
    DIR and --init are local.

    Pairs that an accepted week has already are left out, and so are those that 'vlcpctl forget' has
    deleted from DIR. They are counted. If nothing is left, no week is made and the exit code is 0.

    Before anything is trained, the images of the training pairs, and of --buffer-from, are compared
    with the test images of the guards and of all weeks. Leaks end the update with exit code 3, and
    the state stays as it was; with --drop-leaks they are left out and counted.

    If --on-accept or --on-reject fails, the exit code is 9 and nothing is taken back; the same
    command runs it again.

    --dry-run prints the command lines, which 'vlcpctl batch' takes, and as comments what the week
    would take in and leave out, its leaks, steps, time and disk. For that it reads the bytes of
    each image once; it writes nothing.

    Examples:
      vlcpctl update week1.parquet --state prod --init runs/production \
          --buffer-from 2025.parquet --guard golden/00-all
      vlcpctl update week2.parquet --state prod
      vlcpctl update week3.parquet --state prod --fail-if worst_drop:gt:1 \
          --fail-if bwt_gem:lt:-1
      vlcpctl update --state prod --rollback 1
      vlcpctl update --state prod --redo 2 --lr 1e-5
      vlcpctl inspect prod
    """
    given = options.given(run, locals() | training)
    count = threads if isinstance(threads, int) else options.DEFAULT_THREADS  # it may be none
    options.start(quiet=quiet, threads=count)
    from vlcpctl.production.layout import word_of

    state = word_of(state)
    if rollback is not None:
        _refuse_beside_rollback(given)
        _roll_back(state, rollback, wait, reason, dry_run=dry_run, as_json=as_json)
        return
    _check_given(given)
    from vlcpctl.production.hooks import Hooks
    from vlcpctl.production.lines import Call
    from vlcpctl.production.redo import RedoRequest
    from vlcpctl.production.update import UpdateRequest
    from vlcpctl.tracking.destinations import destinations

    call = Call(
        data=tuple(sources or ()),
        fresh_state=fresh_state,
        readmit=tuple(readmit or ()),
        accept_inexact=accept_inexact,
        small_guard=small_guard,
        junit=junit_xml,
        log=[str(one) for one in destinations(log)],
        quiet=quiet,
        reason=reason,
    )
    how: dict[str, Any] = {"state": state, "call": call, "force": force}
    how["given"] = _settings(state, given)
    how["hooks"] = Hooks(on_accept=on_accept, on_reject=on_reject)
    if redo is not None:
        _redo(RedoRequest(week=redo, **how), wait, dry_run=dry_run, as_json=as_json)
        return
    _check_place(state, [*call.data, *(buffer_from or []), *([init] if init else [])])
    earlier = tuple(map(shown, buffer_from or ()))
    request = UpdateRequest(init=init, buffer_from=earlier, **how)
    _update(request, wait, dry_run=dry_run, as_json=as_json)


run.__dict__["resettable"] = _RESETTABLE


def _update(request: UpdateRequest, wait: float | None, *, dry_run: bool, as_json: bool) -> None:
    from vlcpctl.production.update import dry_run as lines_of
    from vlcpctl.production.update import run_lines, update

    if dry_run:
        for line in lines_of(request):
            console.emit(line)
        return
    with _locked(request.state, wait):
        outcome = update(request, run_lines)
    if as_json:
        console.emit(json.dumps(outcome.as_json(), ensure_ascii=False))
    elif outcome.judged.accepted:
        console.emit(outcome.checkpoint)
    outcome.refuse()


def _check_given(given: dict[str, Any]) -> None:
    """Raise UsageError for options that are missing, or have no effect beside others."""
    if given.get("small_guard") and "guard" not in given:
        raise UsageError("--small-guard has no effect without --guard")
    if "redo" in given:
        _refuse_beside_redo(given)
    elif not given.get("sources"):
        raise UsageError("NEW_DATA is missing; see 'vlcpctl update --help'")


def _settings(state: Path, given: dict[str, Any]) -> dict[str, Any]:
    """The given options by the names of the settings, with paths as they are recorded."""
    from vlcpctl.production.guards import find_guards, find_reference, record_classes
    from vlcpctl.production.layout import relative_to_root
    from vlcpctl.production.left_out import SKIP
    from vlcpctl.production.settings import NONE, conditions, default_of, record_method_files

    reset = {name for name in _RESETTABLE & given.keys() if given[name] == values.NONE}
    given = {name: value for name, value in given.items() if name not in reset}
    found = {name: given[name] for name in _SAME & given.keys()}
    for name in reset:
        setting = "kept_weeks" if name == "keep" else name
        found[setting] = default_of(setting)
    if "image_root" in given:
        roots = given["image_root"]
        found["image_root"] = tuple(
            one if roots == [NONE] else relative_to_root(state, Path(one)) for one in roots
        )
    others: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
        ("run_name", "run", str),
        ("data", "data", partial(relative_to_root, state)),
        ("guard", "guards", partial(find_guards, state)),
        ("distractors", "distractors", partial(find_guards, state, option="--distractors")),
        ("reference", "reference", partial(find_reference, state)),
        ("guard_classes", "classes", partial(record_classes, state)),
        ("set_", "assignments", tuple),
        ("known", "known", lambda text: None if text == SKIP else text),
        ("fail_if", "fail_if", conditions),
        ("index_week", "index_week", lambda text: None if text == "none" else int(text)),
        ("keep", "kept_weeks", lambda text: None if text == "all" else int(text)),
        ("method_file", "method_files", partial(record_method_files, state)),
        ("workers", "workers", options.workers),
        ("train_option", "train_options", _train_words),
        ("cache", "cache", str),
    )
    for option, name, convert in others:
        if option in given:
            found[name] = convert(given[option])
    return found


def _train_words(text: str) -> tuple[str, ...]:
    """The words of --train-option. Raises UsageError for an option that it does not take."""
    from vlcpctl.production.settings import NONE
    from vlcpctl.training.config.machine_options import MACHINE_OPTIONS

    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"--train-option {text!r}: {str(error).lower()}") from error
    if not words:
        raise UsageError(f"--train-option is empty; {NONE!r} stands for no options")
    for word in words:
        name = word.partition("=")[0] if word.startswith("--") else word[:2]
        if name.startswith("-") and name not in MACHINE_OPTIONS:
            raise UsageError(f"--train-option: {_why_not(name, MACHINE_OPTIONS)}")
    return words


def _why_not(name: str, known: Collection[str]) -> str:
    """Why an option that is not among the known ones is none of --train-option."""
    from vlcpctl.commands.train_step import run as train_step

    of_train_step = options.names_of(train_step)
    if name not in of_train_step:
        return unknown_name("option of train-step", name, of_train_step)
    if name in options.names_of(run):
        return f"update has {name} itself; give it outside --train-option"
    if name.removeprefix("--no-").strip("-").replace("-", "_") in SETTINGS:
        return f"{name} decides what is trained, and update takes it from --preset"
    return f"update decides about {name} itself; it passes on {', '.join(known)}"


def _refuse_beside_rollback(given: dict[str, Any]) -> None:
    if given.get("sources"):
        raise UsageError("--rollback takes no NEW_DATA; update with it in a second command")
    if given.get("drop_leaks") is False:
        given = {**given, "refuse_leaks": True}
    others = sorted(name for name in given.keys() - _BESIDE_ROLLBACK if given[name] is not False)
    if others:
        name = _OTHERWISE_NAMED.get(others[0], others[0].replace("_", "-"))
        raise UsageError(f"--{name} has no effect with --rollback")


def _refuse_beside_redo(given: dict[str, Any]) -> None:
    if given.get("sources"):
        raise UsageError("--redo takes no NEW_DATA: the pairs are in the state; leave it out")
    others = sorted(name for name in _NOT_BESIDE_REDO & given.keys() if given[name] is not False)
    if others:
        name = _OTHERWISE_NAMED.get(others[0], others[0].replace("_", "-"))
        raise UsageError(f"--{name} has no effect with --redo")


def _redo(request: RedoRequest, wait: float | None, *, dry_run: bool, as_json: bool) -> None:
    from vlcpctl.production.layout import Layout
    from vlcpctl.production.redo import dry_run as lines_of
    from vlcpctl.production.redo import redo, refuse_rejected
    from vlcpctl.production.state import read_state
    from vlcpctl.production.update import run_lines

    read_state(Layout(request.state))  # before a lock is made in what is not a state directory
    if dry_run:
        for line in lines_of(request):
            console.emit(line)
        return
    with _locked(request.state, wait):
        outcomes = redo(request, run_lines)
    last = outcomes[-1]
    if as_json:
        console.emit(json.dumps([one.as_json() for one in outcomes], ensure_ascii=False))
    elif last.judged.accepted:
        console.emit(last.checkpoint)
    refuse_rejected(request, outcomes)


def _roll_back(
    state: Path,
    week: int,
    wait: float | None,
    reason: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    from vlcpctl.production.layout import Layout
    from vlcpctl.production.rollback import fate_of_pending, require_week, rollback
    from vlcpctl.production.state import read_state
    from vlcpctl.production.update import as_recovered, recover

    place = Layout(state)
    read_state(place)  # before a lock is made in what is not a state directory
    if dry_run:
        before = as_recovered(place)
        require_week(place, before, week)
        for number in range(week + 1, before.last + 1):
            console.emit(f"# {place.week(number)} becomes {place.next_rolled_back(number)}")
        if week < before.last and (fate := fate_of_pending(place)) is not None:
            console.emit(f"# {fate}")
        return
    with _locked(state, wait):
        before = recover(place, reason)
        rollback(place, before, week, reason)
    checkpoint = place.week(week) / "checkpoint"
    found = {"week": week, "checkpoint": str(checkpoint)}
    console.emit(json.dumps(found, ensure_ascii=False) if as_json else checkpoint)


def _check_place(state: Path, inputs: list[str]) -> None:
    """Refuse a state directory that is or contains an input, or that cannot be one."""
    from vlcpctl.files.outputs import check_output_path
    from vlcpctl.production.layout import Layout
    from vlcpctl.production.start import refuse_other_files

    check_output_path(state, [Path(one) for one in inputs if Path(one).exists()], "--state")
    refuse_other_files(Layout(state))  # before a lock is made in it


@contextmanager
def _locked(state: Path, wait: float | None) -> Iterator[None]:
    """Hold the lock of the state directory within the block, waiting as given by --wait."""
    from vlcpctl.files.locks import set_patience
    from vlcpctl.files.outputs import naming_output
    from vlcpctl.production.hooks import refuse_in_hook
    from vlcpctl.production.layout import Layout

    refuse_in_hook(Layout(state))
    set_patience(wait or 0.0)
    with naming_output(state), Layout(state).locked():
        yield

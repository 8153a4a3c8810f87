"""`vlcpctl update`: the weekly job of a model in production."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vlcpctl.commands.shared import Json, Quiet, Shared, run_name, worker_number
from vlcpctl.core import console
from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.core.options import (
    DATA,
    EXECUTION,
    INPUT,
    METHOD,
    NONE,
    Auto,
    Command,
    MaybeAmount,
    MaybePath,
    MaybePathText,
    Names,
    OnePath,
    Paths,
    PathTexts,
    Takes,
    Texts,
    argument,
    like,
    option,
    options_of,
    printing,
    required,
    several,
    spelled,
    switch,
    value_of,
)
from vlcpctl.core.words import shown
from vlcpctl.training.config.settings import SETTINGS, Settings

if TYPE_CHECKING:
    from vlcpctl.production.redo import RedoRequest
    from vlcpctl.production.update import UpdateRequest


def _index_week(text: str) -> str:
    """The text of --index-week: `none` must differ from an option that is not given."""
    from vlcpctl.production.layout import week_number

    if text != "none" and week_number(text) is None:
        raise ValueError(f"{text!r} is not the number of a week, and not none")
    return text


def _hook(text: str) -> str:
    if not text.strip():
        raise ValueError("the command is empty")
    return text


def _reason(text: str) -> str:
    from vlcpctl.deletion.selectors import require_unicode

    return require_unicode("--reason", text)


def _keep(text: str) -> str:
    """The text of --keep: `all` must differ from an option that is not given."""
    from vlcpctl.production.layout import week_number

    if text != "all" and not week_number(text):
        raise ValueError(f"{text!r} is not a number of weeks, such as 12, and not all")
    return text


def _workers(text: str) -> str:
    """The text of --workers: `auto` must differ from an option that is not given."""
    worker_number(text)
    return text


# The settings of train-step that a week takes, too.
_OF_TRAINING = ("epochs", "steps", "lr", "batch_size", "micro_batch", "precision", "replay")
_SAME = {
    *_OF_TRAINING, "method", "preset", "buffer_size", "policy", "holdout", "holdout_most",
    "split_column", "keep_columns", "image_column", "caption_column", "max_skip", "undefined",
    "seed", "device", "threads", "false_alarms", "retries", "drop_leaks",
    "start_from", "deploy",
}  # fmt: skip
_NOT_BESIDE_REDO = {"init", "buffer_from", "run", "fresh_state"}
_BESIDE_ROLLBACK = {"state", "quiet", "dry_run", "json", "wait", "rollback", "reason"}


class Update(Quiet, Json):
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
        "Start a new state directory from this checkpoint or pretrained model; it is copied",
        "CKPT|open_clip:MODEL,TAG",
        INPUT,
        otherwise="continue",
        offers=("open_clip:",),
        usual=True,
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
        "Make this week the last accepted one again, 0 for the start; later weeks are moved to "
        "DIR/rolled-back",
        "WEEK",
        METHOD,
        within="[0, inf)",
        usual=True,
    )
    redo: MaybeAmount = option(
        "Make this week again from its pairs in DIR, and the weeks after it, with today's "
        "settings; an accepted, rejected or rolled-back one, by its number or as "
        "rejected/0002-1. If all are accepted, they replace those that they are",
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
    data: MaybePath = like(Shared, "data", default=None, stored=True, resets=True)
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
    index_week: MaybeAmount = option(
        "Week whose model the index of users was built with; the report says what they lose if "
        "it stays; none: users have no index",
        "WEEK|none",
        INPUT,
        offers=("none",),
        otherwise="0, the start",
        parse=_index_week,
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
    undefined: str | None = option(
        "Outcome of a condition on forgetting in the first week, which has none yet: error "
        "(exit code 3) or pass",
        "POLICY",
        METHOD,
        otherwise="error with --fail-if, else pass",
        rare=True,
        choices=("error", "pass"),
        resets=True,
    )
    false_alarms: Takes[float | None, float | Literal["none"] | None] = option(
        "How many weeks of a year of weekly updates may be rejected because of chance alone, on "
        "average, by each kind of condition on losses",
        "A",
        METHOD,
        otherwise="1",
        rare=True,
        resets=True,
    )
    retries: Takes[int | None, int | Literal["none"] | None] = option(
        "How often a rejected week is trained again with other draws, unless it clearly lost "
        "more than a bound allows; the last verdict counts",
        "0|1",
        METHOD,
        otherwise="1",
        rare=True,
        within="[0, 1]",
        resets=True,
    )
    small_guard: bool = switch(
        "Accept a --guard of fewer than 50 test images, on which chance hides losses",
        METHOD,
        goes_with=("guard", None),
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
    method_file: Paths = like(Shared, "method_file", default=())
    preset: str | None = option(
        "Training budget: update, tiny or another preset of train-step",
        "NAME",
        METHOD,
        otherwise="update",
        offers="presets",
        resets=True,
    )
    set: Texts = several(
        "Set a hyper-parameter of a method; repeat for more, or give 'none' for the defaults",
        "METHOD.PARAMETER=VALUE",
        METHOD,
        otherwise="see vlcpctl methods",
        offers="assignments",
    )
    fresh_state: bool = switch(
        "Initialise the method's state instead of taking it from the last week, this week only: "
        "for a change of --method",
        METHOD,
    )
    epochs: Takes[int | None, int | Literal["none"] | None] = like(
        Settings, "epochs", default=None, resets=True, usual=True
    )
    steps: Takes[int | None, int | Literal["none"] | None] = like(
        Settings, "steps", default=None, resets=True
    )
    lr: Takes[float | None, float | Literal["none"] | None] = like(
        Settings, "lr", default=None, resets=True, usual=True
    )
    batch_size: Takes[int | None, int | Literal["none"] | None] = like(
        Settings,
        "batch_size",
        default=None,
        text="Pairs per batch; more than the week has are refused",
        resets=True,
    )
    micro_batch: Takes[int | None, int | Literal["none"] | None] = like(
        Settings, "micro_batch", default=None, resets=True
    )
    precision: str | None = like(Settings, "precision", default=None, resets=True)
    replay: str | None = like(
        Settings,
        "replay",
        default=None,
        text="Use of the buffer, as in train-step: union, share=X or least=X",
        otherwise="least=0.25; union in a state that a version before 0.3.0 started",
        resets=True,
    )
    start_from: str | None = option(
        "What a week is trained from: latest, as trained last; merged, what --deploy has "
        "merged; or base, the start",
        "WHICH",
        METHOD,
        otherwise="latest",
        rare=True,
        resets=True,
    )
    deploy: str | None = option(
        "What is judged and deployed: latest, as trained; ema or ema:DECAY, the moving average "
        "of what was deployed and what was trained; or merged, the mean of the start and of all "
        "weeks",
        "WHICH",
        METHOD,
        otherwise="latest",
        rare=True,
        resets=True,
    )
    buffer_size: MaybeAmount = option(
        "Size of the replay buffer: images, or a share of each week",
        "N|P%",
        METHOD,
        otherwise="20000",
        resets=True,
    )
    policy: str | None = option(
        "Rule that chooses the pairs of the buffer",
        "NAME",
        METHOD,
        otherwise="reservoir, or as the method needs it",
        choices=("reservoir", "ring", "herding", "kmeans", "random"),
        resets=True,
    )
    holdout: str | None = option(
        "Held-out splits of each week: shares (test=0.1) or images (test=500)",
        "SPLIT=SHARE",
        DATA,
        otherwise="test=0.1",
        resets=True,
        usual=True,
    )
    holdout_most: str | None = option(
        "Share of a week that a --holdout of N images may take; a smaller week holds out the "
        "share instead",
        "P%",
        DATA,
        otherwise="10%",
        rare=True,
        resets=True,
    )
    split_column: str | None = option(
        "Column with the split of each pair, as split takes it",
        "NAME",
        DATA,
        otherwise="use --holdout",
        usual=True,
        resets=True,
    )
    keep_columns: Names = option(
        "Columns of the data to keep in the index, as split takes them",
        "NAME,...",
        DATA,
        usual=True,
        resets=True,
    )
    image_column: str | None = option(
        "Column with images", "NAME", DATA, otherwise="found by its name", resets=True, usual=True
    )
    caption_column: str | None = option(
        "Column with captions", "NAME", DATA, otherwise="found by its name", resets=True, usual=True
    )
    image_root: PathTexts = several(
        "Directory that image paths are relative to; repeat for more, or give 'none' for that "
        "of the list",
        "DIR",
        DATA,
        otherwise="that of the list",
        stored=True,
    )
    max_skip: MaybeAmount = option(
        "Bad samples to tolerate in a week", "N|SHARE", DATA, otherwise="0.1%", resets=True
    )
    known: str | None = option(
        "Pairs that an accepted week has already: skip leaves them out, train trains on them again",
        "skip|train",
        DATA,
        otherwise="skip",
        resets=True,
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
    readmit: Paths = several(
        "Deletion whose pairs may be in this week again: a receipt of forget, or a file of "
        "DIR/deleted; repeat for more",
        "RECEIPT",
        DATA,
        otherwise="leave out all deleted pairs",
    )
    run: str | None = option(
        "Name of the run in rows and reports, given with --init",
        "NAME",
        otherwise="the name of DIR",
        parse=run_name,
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
    seed: Takes[int | None, int | Literal["none"] | None] = option(
        "Seed of all random choices", "N", EXECUTION, otherwise="0", within="[0, inf)", resets=True
    )
    device: str | None = option(
        "Device to compute on",
        "NAME",
        EXECUTION,
        otherwise="auto",
        offers=("auto", "cpu", "cuda"),
        resets=True,
    )
    workers: Auto = option(
        "Processes that decode images",
        "auto|N",
        EXECUTION,
        otherwise="auto, as in train-step",
        parse=_workers,
        resets=True,
    )
    threads: Takes[int | None, int | Literal["none"] | None] = option(
        "CPU threads for arithmetic", "N", EXECUTION, otherwise="1", within="[1, 1024]", resets=True
    )
    train_option: str | None = option(
        "Options of train-step that decide how a week is trained on this machine, in quotes, "
        "such as '--nproc 2 --compile'; 'none' for none",
        "OPTIONS",
        EXECUTION,
    )
    accept_inexact: bool = switch(
        "Resume an interrupted training on a different kind of machine, or with another "
        "--threads or --device, where results are not bit-exact; this week only, and recorded",
        EXECUTION,
    )
    cache: MaybePath = like(Shared, "cache", default=None, resets=True)
    junit: MaybePath = option("File for the verdicts as JUnit XML", "FILE")
    on_accept: str | None = option(
        "Command that sh runs once the week is accepted and DIR/current is set, with "
        "VLCPCTL_CHECKPOINT and others in its environment; give it with each call",
        "COMMAND",
        parse=_hook,
    )
    on_reject: str | None = option(
        "Command that sh runs once the week is rejected, likewise", "COMMAND", parse=_hook
    )
    reason: str | None = option(
        "Why this week is made, judged again, redone or rolled back; it is written into "
        "DIR/history.ndjson",
        "TEXT",
        parse=_reason,
    )
    log: PathTexts = like(Shared, "log", default=())
    wait: float | None = like(Shared, "wait", default=None)
    force: bool = switch(
        "Make the week from scratch: what --state has of it, unfinished or rejected, is discarded"
    )
    dry_run: bool = printing("Check the inputs, print the plan and write nothing", usual=True)

    def execute(self) -> None:
        given = {name: value_of(self, name) for name in options_of(Update)}
        given = {name: one for name, one in given.items() if one is not None and one is not False}
        if self.drop_leaks is not None:
            given["drop_leaks"] = self.drop_leaks
        from vlcpctl.production.layout import word_of

        state = word_of(self.state)
        if self.rollback is not None:
            _refuse_beside("rollback", given, given.keys() - _BESIDE_ROLLBACK)
            self._roll_back(state, self.rollback)
            return
        if self.redo is not None:
            _refuse_beside("redo", given, _NOT_BESIDE_REDO & given.keys())
        elif not self.sources:
            raise UsageError("NEW_DATA is missing; see 'vlcpctl update --help'")
        from vlcpctl.production.hooks import Hooks
        from vlcpctl.production.lines import Call
        from vlcpctl.production.redo import RedoRequest
        from vlcpctl.production.update import UpdateRequest
        from vlcpctl.tracking.destinations import destinations

        call = Call(
            data=tuple(self.sources),
            fresh_state=self.fresh_state,
            readmit=tuple(self.readmit),
            accept_inexact=self.accept_inexact,
            small_guard=self.small_guard,
            junit=self.junit,
            log=list(destinations(self.log)),
            quiet=self.quiet,
            reason=self.reason,
        )
        how: dict[str, Any] = {"state": state, "call": call, "force": self.force}
        how["given"] = _settings(state, given)
        how["hooks"] = Hooks(on_accept=self.on_accept, on_reject=self.on_reject)
        if self.redo is not None:
            self._redo(RedoRequest(week=self.redo, **how))
            return
        _check_place(state, [*self.sources, *self.buffer_from, *([self.init] if self.init else [])])
        earlier = tuple(map(shown, self.buffer_from))
        self._update(UpdateRequest(init=self.init, buffer_from=earlier, **how))

    def _update(self, request: UpdateRequest) -> None:
        from vlcpctl.production.update import dry_run as lines_of
        from vlcpctl.production.update import run_lines, update

        if self.dry_run:
            for line in lines_of(request):
                console.emit(line)
            return
        with _locked(request.state):
            outcome = update(request, run_lines)
        if self.json:
            console.emit(json.dumps(outcome.as_json(), ensure_ascii=False))
        elif outcome.judged.accepted:
            console.emit(outcome.checkpoint)
        outcome.refuse()

    def _redo(self, request: RedoRequest) -> None:
        from vlcpctl.production.layout import Layout
        from vlcpctl.production.redo import dry_run as lines_of
        from vlcpctl.production.redo import redo, refuse_rejected
        from vlcpctl.production.state import read_state
        from vlcpctl.production.update import run_lines

        read_state(Layout(request.state))  # before a lock is made in what is not a state directory
        if self.dry_run:
            for line in lines_of(request):
                console.emit(line)
            return
        with _locked(request.state):
            outcomes = redo(request, run_lines)
        last = outcomes[-1]
        if self.json:
            found = [one.as_json() for one in outcomes]
            console.emit(json.dumps(found, ensure_ascii=False))
        elif last.judged.accepted:
            console.emit(last.checkpoint)
        refuse_rejected(request, outcomes)

    def _roll_back(self, state: Path, week: int) -> None:
        from vlcpctl.production.layout import Layout
        from vlcpctl.production.rollback import fate_of_pending, require_week, rollback
        from vlcpctl.production.state import read_state
        from vlcpctl.production.update import as_recovered, recover

        place = Layout(state)
        read_state(place)  # before a lock is made in what is not a state directory
        if self.dry_run:
            before = as_recovered(place)
            require_week(place, before, week)
            for number in range(week + 1, before.last + 1):
                console.emit(f"# {place.week(number)} becomes {place.next_rolled_back(number)}")
            if week < before.last and (fate := fate_of_pending(place)) is not None:
                console.emit(f"# {fate}")
            return
        with _locked(state):
            before = recover(place, self.reason)
            rollback(place, before, week, self.reason)
        checkpoint = place.week(week) / "checkpoint"
        found = {"week": week, "checkpoint": str(checkpoint)}
        console.emit(json.dumps(found, ensure_ascii=False) if self.json else checkpoint)


def _settings(state: Path, given: dict[str, Any]) -> dict[str, Any]:
    """The given options by the names of the settings, with paths as they are recorded."""
    from vlcpctl.production.guards import find_guards, find_reference, record_classes
    from vlcpctl.production.layout import relative_to_root
    from vlcpctl.production.left_out import SKIP
    from vlcpctl.production.settings import conditions, default_of, record_method_files

    rows = options_of(Update)
    reset = {name for name, one in given.items() if rows[name][0].resets and str(one) == NONE}
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
        ("run", "run", str),
        ("data", "data", partial(relative_to_root, state)),
        ("guard", "guards", partial(find_guards, state)),
        ("distractors", "distractors", partial(find_guards, state, option="--distractors")),
        ("reference", "reference", partial(find_reference, state)),
        ("guard_classes", "classes", partial(record_classes, state)),
        ("set", "assignments", tuple),
        ("known", "known", lambda text: None if text == SKIP else text),
        ("fail_if", "fail_if", conditions),
        ("index_week", "index_week", lambda text: None if text == "none" else int(text)),
        ("keep", "kept_weeks", lambda text: None if text == "all" else int(text)),
        ("method_file", "method_files", partial(record_method_files, state)),
        ("workers", "workers", worker_number),
        ("train_option", "train_options", _train_words),
        ("cache", "cache", str),
    )
    for one, name, convert in others:
        if one in given:
            found[name] = convert(given[one])
    return found


def _train_words(text: str) -> tuple[str, ...]:
    """The words of --train-option. Raises UsageError for an option that it does not take."""
    from vlcpctl.training.config.settings import MACHINE_OPTIONS

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
    from vlcpctl.commands.train_step import TrainStep

    of_train_step = _names_of(TrainStep)
    if name not in of_train_step:
        return unknown_name("option of train-step", name, of_train_step)
    if name in _names_of(Update):
        return f"update has {name} itself; give it outside --train-option"
    if name.removeprefix("--no-").strip("-").replace("-", "_") in SETTINGS:
        return f"{name} decides what is trained, and update takes it from --preset"
    return f"update decides about {name} itself; it passes on {', '.join(known)}"


def _names_of(kind: type[Command]) -> list[str]:
    """The options of a command as they are written."""
    rows = [(spelled(name, row), row) for name, (row, _) in options_of(kind).items()]
    return [one for long, row in rows for one in (long, row.short, row.opposite) if one]


def _refuse_beside(option_: str, given: Mapping[str, Any], others: Collection[str]) -> None:
    """Raise UsageError for NEW_DATA, and for options without effect beside --rollback or --redo."""
    if "sources" in given:
        raise UsageError(f"--{option_} takes no NEW_DATA; update with it in a second command")
    for name in sorted(others):
        row, _ = options_of(Update)[name]
        shown_ = row.opposite if given[name] is False else spelled(name, row)
        raise UsageError(f"{shown_} has no effect with --{option_}")


def _check_place(state: Path, inputs: list[str]) -> None:
    """Refuse a state directory that is or contains an input, or that cannot be one."""
    from vlcpctl.files.outputs import check_output_path
    from vlcpctl.production.layout import Layout
    from vlcpctl.production.start import refuse_other_files

    check_output_path(state, [Path(one) for one in inputs if Path(one).exists()], "--state")
    refuse_other_files(Layout(state))  # before a lock is made in it


@contextmanager
def _locked(state: Path) -> Iterator[None]:
    """Hold the lock of the state directory within the block, waiting as given by --wait."""
    from vlcpctl.files.outputs import naming_output
    from vlcpctl.production.hooks import refuse_in_hook
    from vlcpctl.production.layout import Layout

    refuse_in_hook(Layout(state))
    with naming_output(state), Layout(state).locked():
        yield

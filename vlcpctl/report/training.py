"""What checkpoints record of the runs of a report: losses, cost and settings."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.step_config import step_config
from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.core.words import size
from vlcpctl.files.digests import changed_prefix
from vlcpctl.files.ids import canonical_json, content_id
from vlcpctl.files.inputs import open_regular, parse_json
from vlcpctl.files.manifest import MANIFESTS, kind_of, with_article
from vlcpctl.files.rows import Row, run_label
from vlcpctl.models.checkpoint_files import LOG, WEIGHT_SUFFIXES, is_slot
from vlcpctl.report.charts import Floats, Line, LineChart, RunStyle, step_name, ticks
from vlcpctl.report.scores import START, Spread
from vlcpctl.report.table import Column, RowGroup, Table, TableCell, number_cell

ABSENT = "-"  # a run does not have the setting
LEVELS = 4  # of subdirectories below a directory that is searched for checkpoints
MOST_BYTES = 1 << 27  # of a log: about a million optimizer steps
MOST_TERMS = 24  # of losses that are drawn

_MOST_ROWS, _LEAST_ROWS = 200, 2  # kept of each phase of a log
_ALL_ROWS = 10_000  # kept of one phase of all logs together, unless that is fewer than _LEAST_ROWS
_MOST_NOTES = 5  # on logs
_MOST_CHARACTERS = 200  # of a setting
_HEAD = re.compile(rb'\{"phase": "([^"\\]{1,100})", "step": (\d{1,12})[,}]')
_TRAINS = "train"  # the phase whose terms have no prefix
# Drawn first and last; the terms of methods are between them.
_FIRST, _LAST = ("loss", "contrastive"), ("val_loss", "lr")
_SPEED, _PEAK, _DEVICE = "pairs/s", "peak memory", "peak GPU memory"
_STATE, _MODEL = "state", "model"
# The measures of a cost, with the ranks of their columns.
_COSTS = ("seconds", "pairs", _SPEED, _PEAK, _DEVICE, _STATE, _MODEL)
_COST_NOTES = {
    "seconds": "seconds: of the training loop, with its validations and saved states; steps that a "
    "killed run repeats count once. pairs: as seen, so that a second epoch counts them again",
    _PEAK: "peak memory: resident memory of the first process, without those that decode images; "
    "after a resume, since then",
    _STATE: "state: files that the method carries from task to task; a replay buffer is not among "
    "them",
}

SettingTexts = dict[str, str]
_Place = tuple[str, int, int]  # run, seed, and step or START


class Log(NamedTuple):
    """The terms of a log, (2, N) optimizer steps and values; how many steps its training had."""

    steps: int
    terms: dict[str, Floats]


@dataclass(frozen=True)
class StepCard:
    """One checkpoint of a run: its seed, its step (or START) and what it records."""

    seed: int
    step: int
    manifest: CheckpointManifest
    log: Log | None

    @property
    def is_trained(self) -> bool:
        """Whether a train-step made it: merged and imported models have no cost."""
        return not self.manifest.is_merged and self.manifest.origin is None

    @property
    def first_step(self) -> int:
        """The step of the first task that this train-step learned, or START."""
        learned = max(1, len(self.manifest.identity.get("tasks") or ()))  # joint training: several
        steps = self.manifest.task_steps[-learned:]
        return min((step for step in steps if step is not None), default=self.step)

    @cached_property
    def cost(self) -> dict[str, float]:
        """What its training cost, by measure, as far as it was recorded."""
        made, memory = self.manifest, self.manifest.peak_memory or {}
        found: dict[str, Any] = {"seconds": made.train_seconds, "pairs": made.pairs}
        found |= {_PEAK: memory.get("process"), _DEVICE: memory.get("device")}
        found |= dict.fromkeys((_STATE, _MODEL), 0) if made.digests else {}
        for path, entry in made.digests.items():
            known = entry.get("bytes") if isinstance(entry, dict) else None
            name = _STATE if is_slot(path) else _MODEL
            if name == _STATE or PurePosixPath(path).suffix in WEIGHT_SUFFIXES:
                found[name] += known if isinstance(known, int) else 0
        return {name: value for name, value in found.items() if isinstance(value, int | float)}


@dataclass(frozen=True)
class Cards:
    """The checkpoints of each run that has some, by seed and step; notes on what was left out."""

    runs: Mapping[str, Sequence[StepCard]]
    notes: tuple[str, ...]
    most_rows: int  # that were kept of each phase of a log

    @property
    def digest(self) -> str:
        """An id of all that was read, wherever it was."""
        read = [
            {
                "place": [run, one.seed, one.step],
                "content": one.manifest.content,
                "manifest": one.manifest.body(),
                "made_by": one.manifest.made_by,
                "log": one.manifest.digests.get(LOG) if one.log else None,
            }
            for run, steps in self.runs.items()
            for one in steps
        ]
        return content_id([read, list(self.notes)])

    def costs(self, run: str) -> dict[str, Spread]:
        """The measures of a run that every seed recorded, over its seeds; none if not trained.

        Seconds and pairs are summed over the tasks; of memory it is the highest, of files the last.
        """
        of_seed: dict[int, list[dict[str, float]]] = {}
        for one in self.runs[run]:
            if one.is_trained:
                of_seed.setdefault(one.seed, []).append(one.cost)
        found = {}
        for name in _COSTS:
            values = [[cost[name] for cost in of if name in cost] for of in of_seed.values()]
            if values and all(values):
                found[name] = Spread(tuple(_over_tasks(name, of) for of in values))
        if found and sum(found["seconds"].values):
            total = sum(found["pairs"].values) / math.fsum(found["seconds"].values)
            found[_SPEED] = Spread((total,))  # of all seeds
        return found


def _over_tasks(name: str, values: Sequence[float]) -> float:
    if name in {"seconds", "pairs"}:
        return math.fsum(values)
    return max(values) if name in {_PEAK, _DEVICE} else values[-1]


def read_cards(paths: Sequence[Path], rows: Iterable[Row], runs: Collection[str] = ()) -> Cards:
    """The cards of the runs in these rows, or only of `runs`, from checkpoints at these paths.

    A path is a checkpoint, or a directory that is searched LEVELS levels deep. A checkpoint belongs
    to a run if a row of the run has its content id, or if it is of the same run and seed and one of
    these was trained from it. Raises BadInput if a path does not exist, is another artifact, or has
    no checkpoint below it.
    """
    found: dict[str, tuple[Path, CheckpointManifest]] = {}
    notes: list[str] = []
    for path in dict.fromkeys(paths):
        for content, one in _checkpoints(path, notes):
            found.setdefault(content, one)
    places = _places(rows, runs, {content: made for content, (_, made) in found.items()})
    used = set(places.values())
    most = min(_MOST_ROWS, max(_LEAST_ROWS, _ALL_ROWS // max(len(used), 1)))
    cards: dict[str, list[StepCard]] = {}
    unread: list[str] = []
    for (run, seed, step), content in sorted(places.items()):
        place, made = found[content]
        log = None
        try:
            log = read_log(place, made, most)
        except BadInput as error:
            reason = str(error).replace(f"{place}/", "")
            whose = f"run {run!r}, seed {seed}, step {step_name(step)}"
            unread.append(f"--checkpoint: the log of {whose} was left out: {reason}")
        cards.setdefault(run, []).append(StepCard(seed, step, made, log))
    notes += unread[:_MOST_NOTES]
    left = len(found) - len(used)
    if left:
        notes.append(f"--checkpoint: {left} of {len(found)} checkpoints are in no row: left out")
    return Cards(cards, tuple(notes), most)


def _checkpoints(
    path: Path, notes: list[str]
) -> Iterator[tuple[str, tuple[Path, CheckpointManifest]]]:
    """The checkpoints at or below a path by content id; a note for each that cannot be read."""
    places = list(_directories(path))
    places = [place for place in places if (place / MANIFESTS["checkpoint"]).is_file()]
    if not places:
        kind = kind_of(path)
        if kind is not None:
            raise BadInput(f"{path} is not a checkpoint, it is {with_article(kind)}")
        raise BadInput(
            f"{path} has no checkpoint in it, searched {LEVELS} levels deep; "
            "give the directory of a run, or a checkpoint"
        )
    for place in places:
        try:
            made = CheckpointManifest.read(place)
        except BadInput as error:
            # Its own path alone: a report must not depend on where its inputs are.
            name = place.relative_to(path) if place != path else Path(path.name)
            reason = str(error).replace(str(place), str(name))
            notes.append(f"--checkpoint: a checkpoint was left out: {reason}")
        else:
            yield made.content, (place, made)


def _directories(top: Path) -> Iterator[Path]:
    """The directories to look at, sorted; not those inside of artifacts, or that are hidden."""

    def refuse(error: OSError) -> None:
        if error.filename == str(top):
            raise BadInput(unreadable(top, error)) from error

    for name, below, _ in os.walk(top, onerror=refuse):
        place = Path(name)
        yield place
        is_deep = len(place.relative_to(top).parts) >= LEVELS
        stops = is_deep or kind_of(place) is not None
        below[:] = [] if stops else sorted(one for one in below if not one.startswith("."))


def _places(
    rows: Iterable[Row], runs: Collection[str], found: Mapping[str, CheckpointManifest]
) -> dict[_Place, str]:
    """The content id of the checkpoint at each place of the runs."""
    places: dict[_Place, str] = {}
    for row in rows:
        if row.checkpoint in found and (not runs or row.run in runs):
            step = START if row.step is None else row.step
            places.setdefault((row.run, row.seed, step), row.checkpoint)
    # Rows are often of the last model only, which was trained from the models before it.
    for (run, seed, _), content in list(places.items()):
        seen, parent = {content}, found[content].parent
        while parent is not None and parent in found and parent not in seen:
            made = found[parent]
            if (run_label(made.run, made.alpha), made.seed) != (run, seed):
                break
            places.setdefault((run, seed, START if made.step is None else made.step), parent)
            seen.add(parent)
            parent = made.parent
    return places


def read_log(checkpoint: Path, made: CheckpointManifest, most: int) -> Log | None:
    """The log of a checkpoint, with at most `most` rows of each phase; None if it has none.

    Rows are evenly spaced by their place in the file, the first and the last among them. A term has
    NaN where the file lacks steps or a value is not finite. Raises BadInput if the file is not what
    the checkpoint recorded, is too large, or is not a training log.
    """
    path = checkpoint / LOG
    entry = made.digests.get(LOG)
    if entry is None and not path.exists():
        return None
    problem = changed_prefix(path, entry) if entry and "bytes" in entry else None
    if problem is not None:
        raise BadInput(problem)
    try:
        with open_regular(path) as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadInput(unreadable(path, error)) from error
    if len(data) > MOST_BYTES:
        raise BadInput(f"cannot read {path}: it has more than {MOST_BYTES} bytes")
    groups: dict[tuple[str, bool], list[tuple[int, bytes]]] = {}
    for number, line in enumerate(data.splitlines(), 1):
        head = _HEAD.match(line)
        if head is None:
            raise BadInput(f"{path}:{number} is not a row of a training log")
        phase = head[1].decode("utf-8", "replace")
        groups.setdefault((phase, b'"val_' in line), []).append((int(head[2]), line))
    terms: dict[str, Floats] = {}
    for (phase, _), rows in groups.items():
        terms |= _terms(path, phase, rows, most)
    ends = [rows[-1][0] + 1 for (phase, _), rows in groups.items() if phase == _TRAINS]
    return Log(max(ends, default=0), terms)


def _terms(
    path: Path, phase: str, rows: Sequence[tuple[int, bytes]], most: int
) -> dict[str, Floats]:
    """The terms of the rows of one phase, or of its validations."""
    steps = np.array([step for step, _ in rows], dtype=np.float64)
    if (np.diff(steps) <= 0).any():
        raise BadInput(f"{path}: the steps of phase {phase!r} are not in order")
    count = len(rows)
    kept = np.arange(most) * (count - 1) // (most - 1) if count > most else np.arange(count)
    values = [_values(path, rows[place][1]) for place in kept.tolist()]
    found = {}
    for name in dict.fromkeys(name for row in values for name in row):
        of = np.array([row.get(name, math.nan) for row in values])
        found[name if phase == _TRAINS else f"{phase}: {name}"] = np.stack([steps[kept], of])
    return found


def _values(path: Path, line: bytes) -> dict[str, float]:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise BadInput(f"{path} has a row that is not readable JSON: {error}") from error
    return {
        name: float(value) if math.isfinite(value) else math.nan
        for name, value in row.items()
        if name != "step" and isinstance(value, int | float) and not isinstance(value, bool)
    }


def loss_charts(cards: Cards, styles: Mapping[str, RunStyle]) -> list[LineChart]:
    """The loss terms that training logged, a chart for each with a line for each run.

    With several tasks, x is a task of the run plus the share of its training; else it is the
    optimizer step. Where a checkpoint or rows are missing, a line is broken.
    """
    logged = {run: [one for one in of if one.log] for run, of in cards.runs.items()}
    by_tasks = any(len({one.step for one in of}) > 1 for of in logged.values())
    found: dict[str, list[Line]] = {}
    for run, of in logged.items():
        for term in dict.fromkeys(term for one in of if one.log for term in one.log.terms):
            points = _run_points(of, term, by_tasks=by_tasks)
            if np.isfinite(points[1]).any():
                found.setdefault(term, []).append(Line(run, styles[run], points))
    if not found:
        return []
    names = sorted(found, key=_rank)
    lines = [line for of_term in found.values() for line in of_term]
    xs = np.concatenate([line.points[0] for line in lines])
    first = math.floor(xs.min())
    ends = float(first), float(max(math.ceil(xs.max()), first + 1))
    caption = _loss_caption(cards.most_rows, by_tasks=by_tasks)
    if any(line.has_band for line in lines):
        caption += " Line: mean over seeds. Band: lowest to highest seed."
    if len(names) > MOST_TERMS:
        caption += f" {len(names) - MOST_TERMS} more terms are not drawn."
    titles = ("task of the run" if by_tasks else "optimizer step", "")
    return [
        loss_chart(name, caption, titles, tuple(found[name]), ends) for name in names[:MOST_TERMS]
    ]


def loss_chart(
    name: str,
    caption: str,
    titles: tuple[str, str],
    lines: tuple[Line, ...],
    ends: tuple[float, float],
) -> LineChart:
    """A term of a loss over x from the first to the last of `ends`."""
    marks = [mark for mark in ticks(*ends, 8) if mark % 1 == 0 and ends[0] <= mark <= ends[1]]
    values = np.concatenate([line.points[2:].ravel() for line in lines])
    ys = ticks(float(np.nanmin(values)), float(np.nanmax(values)))
    title = f"{name} over the steps"
    return LineChart(name, title, caption, titles, lines, ends, marks, ys, "{:g}".format,
                     (320, 160), 1)  # fmt: skip


def _loss_caption(most_rows: int, *, by_tasks: bool) -> str:
    tasks = (
        ": a task spans one unit, from its first optimizer step to its last, and joint training "
        "spans all of its tasks"
    )
    return (
        f"Each term of the loss as training logged it in metrics.jsonl{tasks if by_tasks else ''}. "
        f"At most {most_rows} rows of each log and phase are drawn, evenly spaced, the first and "
        "the last among them; each is one batch, not an average. A line is broken where a "
        "checkpoint, rows or a finite value are missing; a resumed run continues its log without a "
        "gap."
    )


def _rank(term: str) -> tuple[int, str]:
    if term in _FIRST:
        return _FIRST.index(term), ""
    if term in _LAST:
        return 20 + _LAST.index(term), ""
    return (10 if ":" not in term else 30), term


def _run_points(cards: Sequence[StepCard], term: str, *, by_tasks: bool) -> Floats:
    """(4, N) of a term of a run: x, the mean over seeds, the lowest and the highest one."""
    pieces: list[Floats] = []
    last_end: float | None = None
    for step in sorted({one.step for one in cards}):
        members = [one for one in cards if one.step == step]
        found = [(one, one.log.terms[term]) for one in members if one.log and term in one.log.terms]
        if not found:
            continue
        card = found[0][0]
        steps = found[0][1][0]
        for _, of_seed in found[1:]:
            steps = np.intersect1d(steps, of_seed[0])
        values = np.stack([of[1, np.searchsorted(of[0], steps)] for _, of in found])
        x = steps
        start, end = (float(card.first_step), card.step + 1.0) if by_tasks else (0.0, math.inf)
        if by_tasks:
            # Another phase has its own number of steps, which it counts from 0.
            own = float(found[0][1][0, -1]) + 1
            length = max(own, card.log.steps) if card.log and ":" not in term else own
            x = start + (steps + 0.5) * (end - start) / length
        if last_end is not None and start > last_end:  # a checkpoint between them is missing
            pieces.append(np.array([[last_end], [math.nan], [math.nan], [math.nan]]))
        pieces.append(np.stack([x, values.mean(axis=0), values.min(axis=0), values.max(axis=0)]))
        last_end = end
    return np.concatenate(pieces, axis=1)


def settings_by_run(rows: Iterable[Row], cards: Cards | None) -> dict[str, SettingTexts]:
    """For each run, its settings by name, as one text each; runs without settings are left out.

    A setting that changes over the steps lists each of its values with the steps. Rows have the
    settings of their checkpoint; `cards` those of further checkpoints.
    """
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    for row in rows:
        if row.config is not None and row.step is not None and row.since is None:
            found.setdefault(row.run, {}).setdefault(row.step, row.config["values"])
    for run, steps in cards.runs.items() if cards else ():
        for card in steps:
            config = step_config(card.manifest)
            if config is not None and card.step != START:
                found.setdefault(run, {}).setdefault(card.step, config["values"])
    return {run: _over_steps(by_step) for run, by_step in sorted(found.items())}


def _over_steps(by_step: Mapping[int, Mapping[str, Any]]) -> SettingTexts:
    known: dict[int, SettingTexts] = {}  # rows share equal settings, so each is read once
    for values in by_step.values():
        if id(values) not in known:
            known[id(values)] = setting_texts(values)
    texts = {step: known[id(by_step[step])] for step in sorted(by_step)}
    found = {}
    for name in dict.fromkeys(name for one in texts.values() for name in one):
        by_text: dict[str, list[int]] = {}
        for step, of_step in texts.items():
            by_text.setdefault(of_step.get(name, ABSENT), []).append(step)
        parts = (f"{text} at {steps_text(steps)}" for text, steps in by_text.items())
        found[name] = "; ".join(parts) if len(by_text) > 1 else next(iter(by_text))
    return found


def steps_text(steps: Sequence[int]) -> str:
    """Steps in words.

    >>> steps_text([0]), steps_text([1, 2, 3]), steps_text([0, 2])
    ('step 0', 'steps 1 to 3', 'steps 0 and 2')
    """
    if len(steps) == 1:
        return f"step {steps[0]}"
    if list(steps) == list(range(steps[0], steps[-1] + 1)) and len(steps) > 2:
        return f"steps {steps[0]} to {steps[-1]}"
    return f"steps {', '.join(map(str, steps[:-1]))} and {steps[-1]}"


def setting_texts(values: Mapping[str, Any]) -> SettingTexts:
    """The settings by name; those of a method are METHOD.NAME.

    >>> setting_texts({"method": "ewc", "settings": {"lr": 0.1}, "hyper": {"ewc": {"lambda": 2}}})
    {'method': 'ewc', 'lr': '0.1', 'ewc.lambda': '2'}
    """
    found: SettingTexts = {}
    for name, value in values.items():
        if name in {"settings", "hyper"} and isinstance(value, Mapping):
            found |= _leaves(value, "")
        elif name == "buffer" and isinstance(value, Mapping):
            found[name] = f"{value.get('policy')}, {value.get('size')} pairs"
        elif name != "start":  # where a run starts is provenance, not a setting of train-step
            found |= _leaves({name: value}, "")
    return found


def _leaves(values: Mapping[str, Any], under: str) -> SettingTexts:
    found: SettingTexts = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _leaves(value, f"{under}{name}.")
        else:
            found[f"{under}{name}"] = _text(value)
    return found


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple) and all(isinstance(one, str | int | float) for one in value):
        text = ", ".join(map(_text, value)) or "none"
    else:
        text = value if isinstance(value, str) else canonical_json(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."


def differing(settings: Mapping[str, SettingTexts]) -> list[str]:
    """The names of the settings that are not the same in all of the runs, in their order.

    >>> differing({"a": {"lr": "0.1", "epochs": "1"}, "b": {"lr": "0.2", "epochs": "1"}})
    ['lr']
    """
    names = dict.fromkeys(name for texts in settings.values() for name in texts)
    found = {name: {texts.get(name, ABSENT) for texts in settings.values()} for name in names}
    return [name for name in names if len(found[name]) > 1]


def training_tables(cards: Cards | None, settings: Mapping[str, SettingTexts]) -> list[Table]:
    """The costs of each run, and the settings that differ."""
    found = [] if cards is None else [_cost_table(cards)]
    return [table for table in (*found, settings_table(settings)) if table is not None]


def _cost_table(cards: Cards) -> Table | None:
    """A line per run: sums of seconds and pairs, highest peaks and the last state."""
    costs = {run: cards.costs(run) for run in cards.runs}
    names = [name for name in _COSTS if any(name in of for of in costs.values())]
    rows = []
    for run, of in costs.items():
        if of:
            tasks = len({one.step for one in cards.runs[run] if one.is_trained})
            cells = (_cell(name, of.get(name)) for name in names)
            rows.append((TableCell(run), TableCell(str(tasks), value=float(tasks)), *cells))
    if not rows:
        return None
    several = any(len({one.seed for one in of}) > 1 for of in cards.runs.values())
    sums = "seconds and pairs: sums over the tasks; memory: the highest; state and model: the last"
    of_seeds = "means over the seeds, with the standard deviation of the seconds"
    return Table(
        "Cost of the training",
        (
            Column("run", is_number=False),
            Column("tasks"),
            *map(Column, names),
        ),
        (RowGroup("", tuple(rows)),),
        (sums, of_seeds) if several else (sums,),
        readings=tuple(note for name, note in _COST_NOTES.items() if name in names),
        name="cost",
    )


def _cell(name: str, spread: Spread | None) -> TableCell:
    """The mean of a measure over seeds, blank if a seed lacks it."""
    if spread is None:
        return TableCell("")
    if name == "seconds":
        return number_cell(spread)
    text = f"{spread.mean:.0f}" if name in {"pairs", _SPEED} else size(round(spread.mean))
    return TableCell(text, value=spread.mean)


def settings_table(settings: Mapping[str, SettingTexts]) -> Table | None:
    """The settings in which runs differ, the longer of runs and settings down; None if none do."""
    names, runs = differing(settings), list(settings)
    if not names:
        return None
    heads: list[str] = ["setting", *runs]
    lines = [(name, *(settings[run].get(name, ABSENT) for run in runs)) for name in names]
    if len(runs) > len(names):
        heads = ["run", *names]
        lines = [(run, *(settings[run].get(name, ABSENT) for name in names)) for run in runs]
    alike = len({name for texts in settings.values() for name in texts}) - len(names)
    notes = (f"{alike} other settings are the same in all runs",) if alike else ()
    rows = tuple(tuple(TableCell(text, is_faint=text == ABSENT) for text in line) for line in lines)
    columns = tuple(Column(name, is_number=False) for name in heads)
    group = RowGroup("", rows)
    return Table("Settings that differ", columns, (group,), notes, name="settings")

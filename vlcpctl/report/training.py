"""What checkpoints record of the runs of a report: losses, cost and settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.step_config import step_config
from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.core.words import size
from vlcpctl.files.digests import changed_prefix
from vlcpctl.files.ids import content_id
from vlcpctl.files.inputs import open_regular, parse_json
from vlcpctl.files.manifest import MANIFESTS
from vlcpctl.files.rows import Row, run_label
from vlcpctl.models.checkpoint_files import LOG, WEIGHT_SUFFIXES, is_slot
from vlcpctl.report.charts import Floats, Line, LineChart, RunStyle, ticks
from vlcpctl.report.comparable import setting_text
from vlcpctl.report.scores import START, Spread, grouped
from vlcpctl.report.table import Column, RowGroup, Table, TableCell, number_cell

ABSENT = "-"  # a run does not have the setting

_MOST_ROWS, _LEAST_ROWS = 200, 2  # kept of each log
_ALL_ROWS = 10_000  # kept of all logs together, unless that is fewer than _LEAST_ROWS of each
_PLACE = frozenset({"phase", "step"})
# Where terms are drawn; those of methods are at 4, between them.
_RANKS = {"loss": 0, "contrastive": 1, "val_loss": 5, "lr": 6}
_SPEED, _PEAK, _STATE, _MODEL = "pairs/s", "peak memory", "state", "model"
# What a training cost, and how that is taken over the tasks of a seed; memory: the highest.
_TOTALS: dict[str, Callable[[Sequence[float]], float]] = {
    "seconds": math.fsum,
    "pairs": math.fsum,
    _PEAK: max,
    "peak GPU memory": max,
    _STATE: itemgetter(-1),
    _MODEL: itemgetter(-1),
}
_COST_NOTES = {
    "seconds": "seconds: of the training loop, with its validations and saved states; steps that a "
    "killed run repeats count once. pairs: as seen, so that a second epoch counts them again",
    _PEAK: "peak memory: resident memory of the first process, without those that decode images; "
    "after a resume, since then",
    _STATE: "state: files that the method carries from task to task; a replay buffer is not among "
    "them",
}
_LOSS_CAPTION = (
    "Each term of the loss as training logged it in metrics.jsonl: a task spans one unit, from its "
    "first optimizer step to its last, and joint training spans all of its tasks. At most {} rows "
    "of each log are drawn, evenly spaced, the first and the last among them; each is one batch, "
    "not an average. A line is broken where a checkpoint, rows or a finite value are missing."
)

SettingTexts = dict[str, str]
Terms = dict[str, Floats]  # of a log: (2, N) optimizer steps and values
_Place = tuple[str, int, int]  # run, seed, and step or START


@dataclass(frozen=True)
class StepCard:
    """One checkpoint of a run: its seed, its step (or START) and what it records."""

    seed: int
    step: int
    manifest: CheckpointManifest
    log: Terms | None

    @property
    def is_trained(self) -> bool:
        """Whether a train-step made it: merged and imported models have no cost."""
        return not self.manifest.is_merged and self.manifest.origin is None

    @cached_property
    def cost(self) -> dict[str, float]:
        """What its training cost, by measure, as far as it was recorded."""
        made, memory = self.manifest, self.manifest.peak_memory or {}
        files = {_STATE: 0, _MODEL: 0}
        for path, entry in made.digests.items():
            known = entry.get("bytes") if isinstance(entry, dict) else None
            name = _STATE if is_slot(path) else _MODEL
            if name == _STATE or PurePosixPath(path).suffix in WEIGHT_SUFFIXES:
                files[name] += known if isinstance(known, int) else 0
        of_training = (made.train_seconds, made.pairs, memory.get("process"), memory.get("device"))
        every = [*of_training, *(files.values() if made.digests else (None, None))]
        found = zip(_TOTALS, every, strict=True)
        return {name: value for name, value in found if isinstance(value, int | float)}


@dataclass(frozen=True)
class Cards:
    """The checkpoints of each run that has some, by seed and step."""

    runs: Mapping[str, Sequence[StepCard]]
    notes: tuple[str, ...]
    most_rows: int  # that were kept of each log

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

    def in_order(self, names: Iterable[str]) -> Cards:
        """The same with the runs in this order."""
        return replace(self, runs={one: self.runs[one] for one in names if one in self.runs})

    def costs(self, run: str) -> dict[str, Spread]:
        """The measures of a run that every seed recorded, over its seeds; none if not trained."""
        trained = (one for one in self.runs[run] if one.is_trained)
        of_seeds = grouped(trained, lambda one: one.seed).values()
        found = {}
        for name, total in _TOTALS.items():
            values = [[one.cost[name] for one in of if name in one.cost] for of in of_seeds]
            if values and all(values):
                found[name] = Spread(tuple(map(total, values)))
        if found and sum(found["seconds"].values):
            speed = sum(found["pairs"].values) / math.fsum(found["seconds"].values)
            found[_SPEED] = Spread((speed,))  # of all seeds
        return found


def read_cards(paths: Sequence[Path], rows: Iterable[Row], runs: Collection[str] = ()) -> Cards:
    """The cards of the runs in these rows, or only of `runs`, from checkpoints at these paths.

    A path is a checkpoint, or a directory that has some. A checkpoint belongs to a run if a row of
    the run has its content id, or if it is of the same run and seed and one of these was trained
    from it. Raises BadInput if a path has no checkpoint, and if one or its log cannot be read.
    """
    found: dict[str, tuple[Path, CheckpointManifest]] = {}
    for path in dict.fromkeys(paths):
        for place in _checkpoints(path):
            made = CheckpointManifest.read(place)
            found.setdefault(made.content, (place, made))
    places = _places(rows, runs, {content: made for content, (_, made) in found.items()})
    used = set(places.values())
    most = min(_MOST_ROWS, max(_LEAST_ROWS, _ALL_ROWS // max(len(used), 1)))
    cards: dict[str, list[StepCard]] = {}
    for (run, seed, step), content in sorted(places.items()):
        place, made = found[content]
        cards.setdefault(run, []).append(StepCard(seed, step, made, read_log(place, made, most)))
    left = len(found) - len(used)
    note = f"--checkpoint: {left} of {len(found)} checkpoints are in no row: left out"
    return Cards(cards, (note,) if left else (), most)


def _checkpoints(top: Path) -> list[Path]:
    """The checkpoints at or below a path, sorted; not hidden ones."""
    found = [path.parent for path in sorted(top.rglob(MANIFESTS["checkpoint"]))]
    shown = [
        one for one in found if not any(part.startswith(".") for part in one.relative_to(top).parts)
    ]
    if not shown:
        raise BadInput(f"{top} has no checkpoint; give the directory of a run, or a checkpoint")
    return shown


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


def read_log(checkpoint: Path, made: CheckpointManifest, most: int) -> Terms | None:
    """The terms of a training's log and of its validations, at most `most` rows of each.

    Rows are evenly spaced by their place in the file, the first and the last among them. A term has
    NaN where the file lacks steps or a value is not finite. None without a log. Raises BadInput if
    the file is not what the checkpoint recorded, or is not a training log.
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
            # Phases such as that of Fisher matrices count their own steps.
            lines = [one for one in file.read().splitlines() if b'"phase": "train"' in one]
    except OSError as error:
        raise BadInput(unreadable(path, error)) from error
    terms: Terms = {}
    for is_validation in (False, True):
        rows = [one for one in lines if (b'"val_' in one) is is_validation]
        terms |= _terms(path, rows, most)
    return terms


def _terms(path: Path, rows: Sequence[bytes], most: int) -> Terms:
    """The terms of the rows of trainings, or of validations."""
    count = len(rows)
    kept = np.arange(most) * (count - 1) // (most - 1) if count > most else np.arange(count)
    try:
        values = [parse_json(rows[place]) for place in kept.tolist()]
        steps = np.array([one["step"] for one in values], dtype=np.float64)
    except (ValueError, KeyError) as error:
        raise BadInput(f"{path} has a row that is not of a training log: {error}") from error
    if (np.diff(steps) <= 0).any():
        raise BadInput(f"{path}: the steps are not in order")
    found = {}
    for name in dict.fromkeys(name for row in values for name in row if name not in _PLACE):
        of = np.array([row.get(name, math.nan) for row in values], dtype=np.float64)
        found[name] = np.stack([steps, np.where(np.isfinite(of), of, math.nan)])
    return found


def loss_charts(cards: Cards, styles: Mapping[str, RunStyle]) -> list[LineChart]:
    """The loss terms that training logged, a chart for each with a line for each run.

    x is a task of the run plus the share of its training. Where a checkpoint or rows are missing, a
    line is broken.
    """
    found: dict[str, list[Line]] = {}
    for run, of in cards.runs.items():
        for term in dict.fromkeys(term for one in of if one.log for term in one.log):
            points = _run_points(of, term)
            if np.isfinite(points[1]).any():
                found.setdefault(term, []).append(Line(run, styles[run], points))
    if not found:
        return []
    names = sorted(found, key=lambda term: (_RANKS.get(term, len(_RANKS)), term))
    lines = [line for of_term in found.values() for line in of_term]
    xs = np.concatenate([line.points[0] for line in lines])
    ends = float(math.floor(xs.min())), float(math.ceil(xs.max()))
    caption = _LOSS_CAPTION.format(cards.most_rows)
    if any(line.has_band for line in lines):
        caption += " Line: mean over seeds. Band: lowest to highest seed."
    titles = ("task of the run", "")
    return [loss_chart(name, caption, titles, tuple(found[name]), ends) for name in names]


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
    axes = ends, marks, ys, "{:g}".format
    return LineChart(name, f"{name} over the steps", caption, titles, lines, *axes, (320, 160), 1)


def _run_points(cards: Sequence[StepCard], term: str) -> Floats:
    """(4, N) of a term of a run: x, the mean over seeds, the lowest and the highest one."""
    pieces: list[Floats] = []
    end: float | None = None
    for step in sorted({one.step for one in cards}):
        logs = [(one, one.log) for one in cards if one.step == step and one.log]
        found = [log[term] for _, log in logs if term in log]
        if not found:
            continue
        steps = reduce(np.intersect1d, [of_seed[0] for of_seed in found])
        values = np.stack([of[1, np.searchsorted(of[0], steps)] for of in found])
        card, log = logs[0]
        # Joint training learned several tasks at once.
        learned = max(1, len(card.manifest.identity.get("tasks") or ()))
        known = (one for one in card.manifest.task_steps[-learned:] if one is not None)
        start = float(min(known, default=card.step))
        if end is not None and start > end:  # a checkpoint between them is missing
            pieces.append(np.array([[end], [math.nan], [math.nan], [math.nan]]))
        end = card.step + 1.0
        count = 1 + max(of_term[0, -1] for of_term in log.values())
        x = start + (steps + 0.5) * (end - start) / count
        pieces.append(np.stack([x, values.mean(axis=0), values.min(axis=0), values.max(axis=0)]))
    return np.concatenate(pieces, axis=1)


def settings_by_run(rows: Iterable[Row], cards: Cards | None) -> dict[str, SettingTexts]:
    """For each run, its settings by name, as one text each; runs without settings are left out.

    A setting that changes over the steps lists its values. Rows have the settings of their
    checkpoint; `cards` those of further checkpoints.
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
    texts: dict[str, SettingTexts] = {}
    for run, by_step in sorted(found.items()):
        different = {id(values): values for _, values in sorted(by_step.items())}  # shared by rows
        every = list(map(setting_texts, different.values()))
        texts[run] = {
            name: ", then ".join(dict.fromkeys(one.get(name, ABSENT) for one in every))
            for name in dict.fromkeys(name for one in every for name in one)
        }
    return texts


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
            found[f"{under}{name}"] = setting_text(value) or "none"
    return found


def training_tables(cards: Cards | None, settings: Mapping[str, SettingTexts]) -> list[Table]:
    """The costs of each run, and the settings that differ."""
    found = [] if cards is None else [_cost_table(cards)]
    return [table for table in (*found, settings_table(settings)) if table is not None]


def _cost_table(cards: Cards) -> Table | None:
    """A line per run: sums of seconds and pairs, highest peaks and the last state."""
    costs = {run: of for run in cards.runs if (of := cards.costs(run))}
    order = ("seconds", "pairs", _SPEED, *list(_TOTALS)[2:])
    names = [name for name in order if any(name in of for of in costs.values())]
    rows = []
    for run, of in costs.items():
        tasks = len({one.step for one in cards.runs[run] if one.is_trained})
        cells = [TableCell(run), TableCell(str(tasks), value=float(tasks))]
        for name in names:
            value = of[name].mean if name in of else None
            text = size(round(value or 0)) if name in order[3:] else f"{value or 0:.0f}"
            cell = number_cell(of.get(name)) if name == "seconds" else TableCell(text, value=value)
            cells.append(TableCell("") if value is None else cell)
        rows.append(tuple(cells))
    several = any(len({one.seed for one in of}) > 1 for of in cards.runs.values())
    sums = "seconds and pairs: sums over the tasks; memory: the highest; state and model: the last"
    of_seeds = "means over the seeds, with the standard deviation of the seconds"
    notes = [sums, *([of_seeds] if several else [])]
    columns = (Column("run", is_number=False), *map(Column, ("tasks", *names)))
    notes += [note for name, note in _COST_NOTES.items() if name in names]
    groups = (RowGroup("", tuple(rows)),)
    return (
        Table("Cost of the training", columns, groups, tuple(notes), name="cost") if rows else None
    )


def settings_table(settings: Mapping[str, SettingTexts]) -> Table | None:
    """The settings in which runs differ, the longer of runs and settings down; None if none do."""
    runs, every = list(settings), dict.fromkeys(one for of in settings.values() for one in of)
    names = [one for one in every if len({of.get(one, ABSENT) for of in settings.values()}) > 1]
    if not names:
        return None
    heads: list[str] = ["setting", *runs]
    lines = [(name, *(settings[run].get(name, ABSENT) for run in runs)) for name in names]
    if len(runs) > len(names):
        heads = ["run", *names]
        lines = [(run, *(settings[run].get(name, ABSENT) for name in names)) for run in runs]
    alike = len(every) - len(names)
    notes = (f"{alike} other settings are the same in all runs",) if alike else ()
    rows = tuple(tuple(TableCell(text, is_faint=text == ABSENT) for text in line) for line in lines)
    columns = tuple(Column(name, is_number=False) for name in heads)
    group = RowGroup("", rows)
    return Table("Settings that differ", columns, (group,), notes, name="settings")

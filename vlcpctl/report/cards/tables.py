"""Tables of the cards: cost, settings that differ, and one set of tables per run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from vlcpctl.checkpoints.model_facts import shown
from vlcpctl.core.words import counted
from vlcpctl.report.cards.runs import Cards, RunCard, StepCard
from vlcpctl.report.cards.settings import ABSENT, SettingTexts, differing
from vlcpctl.report.charts import step_name
from vlcpctl.report.scores import Spread
from vlcpctl.report.table import Column, RowGroup, Table, TableCell, number_cell

DIGITS = 12  # of a content id in a table
MOST_LINES = 1000  # of tasks in the table of costs, and of checkpoints in those of all runs
_LEAST_LINES = 4  # of each run

_PEAK, _DEVICE, _STATE, _MODEL = "peak memory", "peak GPU memory", "state", "model"
_COST_NOTES = {
    "seconds": "seconds: of the training loop, with its validations and saved states; steps that a "
    "killed run repeats count once. pairs: as seen, so that a second epoch counts them again",
    _PEAK: "peak memory: resident memory of the first process, without those that decode images; "
    "after a resume, since then",
    _STATE: "state: files that the method carries from task to task; a replay buffer is not among "
    "them",
}

_MEASURES: dict[str, Callable[[StepCard], float | None]] = {
    "seconds": lambda one: one.manifest.train_seconds,
    "pairs": lambda one: one.manifest.pairs,
    "pairs/s": lambda one: one.pairs_per_second,
    _PEAK: lambda one: one.peak_bytes,
    _DEVICE: lambda one: one.peak_device_bytes,
    _STATE: lambda one: one.state_bytes,
    _MODEL: lambda one: one.model_bytes,
}
_RANKS = {_MODEL: 2, _DEVICE: 1}
# The columns of the table of checkpoints, with their ranks.
_PROVENANCE = {
    "step": 0,
    "learned": 1,
    "checkpoint": 0,
    "trained from": 0,
    "task data": 2,
    "buffer data": 2,
    "version": 3,
}
_BYTES = frozenset({_PEAK, _DEVICE, _STATE, _MODEL})


def bytes_text(count: float) -> str:
    """A number of bytes in words, with three digits.

    >>> bytes_text(0), bytes_text(999), bytes_text(2_920_244), bytes_text(99_285_504)
    ('0', '999 B', '2.92 MB', '99.3 MB')
    """
    if count <= 0:
        return "0"
    power = min(4, int(math.log10(count)) // 3)
    scaled = count / 1000**power
    if power == 0:
        return f"{scaled:.0f} B"
    decimals = 2 - min(2, int(math.log10(scaled)))
    return f"{scaled:.{decimals}f} {('', 'kB', 'MB', 'GB', 'TB')[power]}"


def cost_table(cards: Cards) -> Table | None:
    """A line per run: sums of seconds and pairs, highest peaks and the last state.

    None if there is no trained checkpoint.
    """
    recorded = _recorded(cards)
    shown = [name for name in _MEASURES if name in recorded or name == "pairs/s"]
    rows = []
    for run in cards.runs:
        trained = [one for one in run.steps if one.is_trained]
        if trained:
            steps = len({one.step for one in trained})
            words = (TableCell(run.name), TableCell(str(steps), value=float(steps)))
            rows.append((*words, *(_total_cell(trained, name) for name in shown)))
    if not rows:
        return None
    columns = (
        Column("run", is_number=False),
        Column("tasks"),
        *(Column(name, rank=_RANKS.get(name, 0)) for name in shown),
    )
    notes = (
        "seconds and pairs: sums over the tasks; memory: the highest; state and model: the last",
        *_seed_note(cards),
    )
    readings = tuple(note for name, note in _COST_NOTES.items() if name in shown)
    group = RowGroup("", tuple(rows))
    title = "Cost of the training"
    return Table(title, columns, (group,), notes, readings=readings, name="cost")


def cost_per_task_table(cards: Cards) -> Table | None:
    """A line per run and task; None if there are no trained checkpoints."""
    shown = _recorded(cards)
    groups, count, total = [], 0, 0
    for run in cards.runs:
        by_step: dict[int, list[StepCard]] = {}  # of all seeds
        for one in sorted(run.steps, key=lambda one: (one.step, one.seed)):
            if one.is_trained:
                by_step.setdefault(one.step, []).append(one)
        lines = [
            (
                TableCell(step_name(step)),
                TableCell(_learned(members[0])),
                *(_cell(name, list(map(_MEASURES[name], members))) for name in shown),
            )
            for step, members in by_step.items()
        ][: max(0, MOST_LINES - count)]
        count += len(lines)
        total += len(by_step)
        groups += [RowGroup(run.name, tuple(lines))] if lines else []
    if not groups:
        return None
    columns = (
        Column("step", is_number=False),
        Column("learned", is_number=False, rank=3),
        *(Column(name, rank=_RANKS.get(name, 0)) for name in shown),
    )
    cut = (f"shows the first {count} of {total} lines",) if total > count else ()
    return Table("Cost per task", columns, tuple(groups), (*cut, *_seed_note(cards)))


def _recorded(cards: Cards) -> list[str]:
    """The measures that any checkpoint recorded."""
    trained = [one for run in cards.runs for one in run.steps if one.is_trained]
    return [name for name, of in _MEASURES.items() if any(of(one) is not None for one in trained)]


def _total_cell(trained: Sequence[StepCard], name: str) -> TableCell:
    """The cost of a run over its tasks, one value per seed, but the speed of all seeds."""
    if name == "pairs/s":
        seconds = math.fsum(one.manifest.train_seconds for one in trained)
        pairs = sum(one.manifest.pairs for one in trained)
        return _cell(name, [pairs / seconds if seconds else None])
    found: dict[int, list[float]] = {seed: [] for seed in sorted({one.seed for one in trained})}
    for one in trained:
        value = _MEASURES[name](one)
        found[one.seed] += [] if value is None else [value]
    if name in {"seconds", "pairs"}:
        totals = [math.fsum(values) if values else None for values in found.values()]
    elif name in {_PEAK, _DEVICE}:
        totals = [max(values, default=None) for values in found.values()]
    else:
        totals = [values[-1] if values else None for values in found.values()]
    return _cell(name, totals)


def _cell(name: str, values: Sequence[float | None]) -> TableCell:
    """The mean of a measure over seeds, blank if a seed lacks it."""
    known = tuple(value for value in values if value is not None)
    if not known or len(known) < len(values):
        return TableCell("")
    spread = Spread(known)
    if name in _BYTES:
        return TableCell(bytes_text(spread.mean), value=spread.mean)
    if name == "seconds":
        return number_cell(spread)
    return TableCell(f"{spread.mean:.0f}", value=spread.mean)


def _seed_note(cards: Cards) -> tuple[str, ...]:
    several = any(len(run.seeds) > 1 for run in cards.runs)
    return ("means over the seeds, with the standard deviation of the seconds",) if several else ()


def _learned(card: StepCard) -> str:
    """The tasks that a train-step learned, in words."""
    names = card.manifest.task_names[-card.learned :]
    return names[0] if len(names) == 1 else f"{len(names)} tasks"


def settings_table(settings: Mapping[str, SettingTexts]) -> Table | None:
    """The settings in which runs differ, the longer of runs and settings down; None if none do."""
    names = differing(settings)
    if not names:
        return None
    runs = list(settings)
    if len(runs) > len(names):
        heads = ("run", *names)
        lines = [(run, *(settings[run].get(name, ABSENT) for name in names)) for run in runs]
    else:
        heads = ("setting", *runs)
        lines = [(name, *(settings[run].get(name, ABSENT) for run in runs)) for name in names]
    rows = tuple(
        (TableCell(first), *(TableCell(text, is_faint=text == ABSENT) for text in texts))
        for first, *texts in lines
    )
    alike = len({name for texts in settings.values() for name in texts}) - len(names)
    notes = (f"{alike} other settings are the same in all runs",) if alike else ()
    return Table(
        "Settings that differ", _words(*heads), (RowGroup("", rows),), notes, name="settings"
    )


def _words(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, is_number=False) for name in names)


def run_tables(
    cards: Cards, run: RunCard, differ: Sequence[str], settings: SettingTexts
) -> list[Table]:
    """Tables of one run: where its checkpoints come from, their commands, and its settings.

    The first two have the first and the last checkpoints of many.
    """
    most = max(_LEAST_LINES, MOST_LINES // len(cards.runs))
    shown = list(run.steps)
    if len(shown) > most:
        shown = [*shown[: most // 2], *shown[-(most - most // 2) :]]
    left_out = len(run.steps) - len(shown)
    cut = (f"{left_out} more checkpoints are in summary.json",) if left_out else ()
    has_seeds = len(run.seeds) > 1
    columns = tuple(Column(name, is_number=False, rank=rank) for name, rank in _PROVENANCE.items())
    by_seed = tuple(
        RowGroup(
            f"seed {seed}" if has_seeds else "",
            tuple(_provenance(one) for one in shown if one.seed == seed),
        )
        for seed in run.seeds
    )
    ids = f"content ids: the first {DIGITS} digits; summary.json has all of them"
    commands = tuple(
        (
            TableCell(step_name(one.step) + (f", seed {one.seed}" if has_seeds else "")),
            TableCell(str(one.manifest.made_by.get("time", ""))[:16].replace("T", " ")),
            TableCell(one.command),
        )
        for one in shown
    )
    origins = run.last.manifest.origins
    values = tuple(
        (
            TableCell(name, is_strong=name in differ),
            TableCell(text, is_strong=name in differ),
            TableCell(str(origins.get(name, ""))),
        )
        for name, text in settings.items()
    )
    bold = ("bold: not the same in all runs",) if any(name in differ for name in settings) else ()
    utc = ("times are in UTC", *cut)
    made = _words("step", "made", "command")
    return [
        Table(f"{run.name}: checkpoints", columns, by_seed, (ids, *cut)),
        Table(f"{run.name}: commands", made, (RowGroup("", commands),), utc),
        Table(
            f"{run.name}: settings",
            _words("setting", "value", "from"),
            (RowGroup("", values),),
            bold,
        ),
    ]


def _provenance(one: StepCard) -> tuple[TableCell, ...]:
    """A line about a checkpoint, with the columns of _PROVENANCE."""
    made = one.manifest
    texts = (
        step_name(one.step),
        _learned(one) if one.is_trained and made.tasks else "",
        _short(made.content),
        " and ".join(map(_short, one.parents)),
        ", ".join(map(_short, made.tasks[-one.learned :])) if one.is_trained else "",
        _short(made.identity.get("buffer")),
        str(made.made_by.get("version", "")),
    )
    return tuple(map(TableCell, texts))


def _short(content: object) -> str:
    return str(content)[:DIGITS] if content else ""


def provenance_facts(run: RunCard) -> list[str]:
    """Sentences about a run: method, preset, model, start, teacher and data."""
    made = run.last.manifest
    origins = (str(origin) for origin in made.origins.values())
    presets = {one.split(",")[0] for one in origins if one.startswith("preset ")}
    facts = [f"method {made.method}", *sorted(presets)]
    model = made.model or {}
    if isinstance(model.get("name"), str):
        facts.append(f"model {shown(model)}")
    if isinstance(model.get("pretrained"), str):
        facts.append(f"pretrained weights {shown(model, 'pretrained')}")
    if made.buffer:
        facts.append(f"buffer {made.buffer.get('policy')}, {made.buffer.get('size')} pairs")
    if made.alpha is not None:
        facts.append(f"average of two checkpoints, share of the second {made.alpha:g}")
    elif made.parents is not None:
        facts.append(f"merged from {counted(len(made.parents), 'checkpoint')}")
        facts += [made.rule_values] if made.rule_values else []
    if made.origin is not None:
        facts.append(f"imported from {made.origin.get('name')}")
    given = {name: made.identity.get(name) for name in ("teacher", "targets", "pseudo_texts")}
    facts += [f"{name.replace('_', ' ')} {_short(id_)}" for name, id_ in given.items() if id_]
    ids = {"stream": made.stream, "start": made.start}
    facts += [f"{name} {_short(id_)}" for name, id_ in ids.items() if id_]
    return facts


def cards_tables(
    cards: Cards, settings: Mapping[str, SettingTexts], *, is_long: bool
) -> list[Table | None]:
    """The table of costs; if `is_long` also the costs per task, and the tables of each run."""
    tables = [cost_table(cards)]
    if is_long:
        tables.append(cost_per_task_table(cards))
        differ = differing(settings)
        for run in cards.runs:
            tables += run_tables(cards, run, differ, settings.get(run.name, {}))
    return tables

"""Tables of the cards: cost, settings that differ, and one set of tables per run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.report.cards.runs import Cards, RunCard, StepCard
from vlcpctl.report.cards.settings import ABSENT, SettingTexts, differing
from vlcpctl.report.scores.runs import START
from vlcpctl.report.scores.summary import Spread
from vlcpctl.report.tables.table import Column, RowGroup, Table, TableCell, number_cell

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

_Measure = Callable[[StepCard], float | None]
_MEASURES: tuple[tuple[str, _Measure], ...] = (
    ("seconds", lambda one: one.manifest.train_seconds),
    ("pairs", lambda one: one.manifest.pairs),
    ("pairs/s", lambda one: one.pairs_per_second),
    (_PEAK, lambda one: one.peak_bytes),
    (_DEVICE, lambda one: one.peak_device_bytes),
    (_STATE, lambda one: one.state_bytes),
    (_MODEL, lambda one: one.model_bytes),
)
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
    rows = []
    shown = [name for name in _recorded(cards) if name != "pairs/s"]
    for run in cards.runs:
        trained = [one for one in run.steps if one.is_trained]
        if trained:
            cells = [_total_cell(trained, name) for name in shown]
            speed = _mean_speed(trained)
            cells.insert(shown.index("pairs") + 1, speed)
            steps = len({one.step for one in trained})
            words = (TableCell(run.name), TableCell(str(steps), value=float(steps)))
            rows.append((*words, *cells))
    if not rows:
        return None
    shown.insert(shown.index("pairs") + 1, "pairs/s")
    columns = (
        Column("run", is_number=False),
        Column("tasks"),
        *(Column(name, rank=_rank(name)) for name in shown),
    )
    notes = (
        "seconds and pairs: sums over the tasks; memory: the highest; state and model: the last",
        *_seed_note(cards),
        *(note for name, note in _COST_NOTES.items() if name in shown),
    )
    return Table("Cost of the training", columns, (RowGroup("", tuple(rows)),), notes)


def cost_per_task_table(cards: Cards) -> Table | None:
    """A line per run and task; None if there are no trained checkpoints."""
    shown = _recorded(cards)
    groups, count = [], 0
    for run in cards.runs:
        by_step = _by_step(run)
        lines = [
            (
                TableCell(_step_label(step)),
                TableCell(_learned(members[0])),
                *(_cell(name, [_value(one, name) for one in members]) for name in shown),
            )
            for step, members in by_step.items()
        ][: max(0, MOST_LINES - count)]
        count += len(lines)
        if lines:
            groups.append(RowGroup(run.name, tuple(lines)))
    if not groups:
        return None
    columns = (
        Column("step", is_number=False),
        Column("learned", is_number=False, rank=3),
        *(Column(name, rank=_rank(name)) for name in shown),
    )
    total = sum(len(_by_step(run)) for run in cards.runs)
    cut = (f"shows the first {count} of {total} lines",) if total > count else ()
    return Table("Cost per task", columns, tuple(groups), (*cut, *_seed_note(cards)))


def _rank(name: str) -> int:
    return {_MODEL: 2, _DEVICE: 1}.get(name, 0)


def _recorded(cards: Cards) -> list[str]:
    """The measures that any checkpoint recorded."""
    trained = [one for run in cards.runs for one in run.steps if one.is_trained]
    return [name for name, of in _MEASURES if any(of(one) is not None for one in trained)]


def _by_step(run: RunCard) -> dict[int, list[StepCard]]:
    """The trained checkpoints of all seeds, by step in order."""
    found: dict[int, list[StepCard]] = {}
    for one in sorted(run.steps, key=lambda one: (one.step, one.seed)):
        if one.is_trained:
            found.setdefault(one.step, []).append(one)
    return found


def _value(card: StepCard, name: str) -> float | None:
    return dict(_MEASURES)[name](card)


def _total_cell(trained: Sequence[StepCard], name: str) -> TableCell:
    """The cost of a run over its tasks, one value per seed."""
    found: list[float | None] = []
    for seed in sorted({one.seed for one in trained}):
        members = [one for one in trained if one.seed == seed]
        values = [value for one in members if (value := _value(one, name)) is not None]
        if not values:
            found.append(None)
        elif name in {"seconds", "pairs"}:
            found.append(math.fsum(values))
        else:
            found.append(max(values) if name in {_PEAK, _DEVICE} else values[-1])
    return _cell(name, found)


def _mean_speed(trained: Sequence[StepCard]) -> TableCell:
    seconds = math.fsum(one.manifest.train_seconds for one in trained)
    pairs = sum(one.manifest.pairs for one in trained)
    return _cell("pairs/s", [pairs / seconds if seconds else None])


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


def _step_label(step: int) -> str:
    return "start" if step == START else str(step)


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
        columns = (
            Column("run", is_number=False),
            *(Column(name, is_number=False) for name in names),
        )
        lines = [(run, *(settings[run].get(name, ABSENT) for name in names)) for run in runs]
    else:
        columns = (
            Column("setting", is_number=False),
            *(Column(run, is_number=False) for run in runs),
        )
        lines = [(name, *(settings[run].get(name, ABSENT) for run in runs)) for name in names]
    rows = tuple(
        (TableCell(first), *(TableCell(text, is_faint=text == ABSENT) for text in texts))
        for first, *texts in lines
    )
    alike = len({name for texts in settings.values() for name in texts}) - len(names)
    notes = (f"{alike} other settings are the same in all runs",) if alike else ()
    return Table("Settings that differ", columns, (RowGroup("", rows),), notes)


def run_tables(
    cards: Cards, run: RunCard, differ: Sequence[str], settings: SettingTexts
) -> list[Table]:
    """Tables of one run: where its checkpoints come from, their commands, and its settings."""
    shown = _shown_steps(run, max(_LEAST_LINES, MOST_LINES // len(cards.runs)))
    left_out = len(run.steps) - len(shown)
    cut = (f"{left_out} more checkpoints are in summary.json",) if left_out else ()
    return [
        _provenance_table(run, shown, cut),
        _command_table(run, shown, cut),
        _all_settings_table(run, differ, settings),
    ]


def _shown_steps(run: RunCard, most: int) -> list[StepCard]:
    """The first and the last checkpoints of a run."""
    if len(run.steps) <= most:
        return list(run.steps)
    return [*run.steps[: most // 2], *run.steps[-(most - most // 2) :]]


def provenance_facts(run: RunCard) -> list[str]:
    """Sentences about a run: method, preset, model, start, teacher and data."""
    made = run.last.manifest
    facts = [f"method {made.method}", *_preset(made)]
    model = made.model or {}
    if isinstance(model.get("name"), str):
        facts.append(f"model {model['name']}")
    if isinstance(model.get("pretrained"), str):
        facts.append(f"pretrained weights {model['pretrained']}")
    if made.buffer:
        facts.append(f"buffer {_buffer(made)}")
    if made.alpha is not None:
        facts.append(f"average of two checkpoints, share of the second {made.alpha:g}")
    if made.origin is not None:
        facts.append(f"imported from {made.origin.get('name')}")
    given = {name: made.identity.get(name) for name in ("teacher", "targets", "pseudo_texts")}
    facts += [f"{name.replace('_', ' ')} {_short(id_)}" for name, id_ in given.items() if id_]
    ids = {"stream": made.stream, "start": made.start}
    facts += [f"{name} {_short(id_)}" for name, id_ in ids.items() if id_]
    return facts


def _preset(made: CheckpointManifest) -> list[str]:
    origins = [str(origin) for origin in made.origins.values()]
    names = {one.split(",")[0] for one in origins if one.startswith("preset ")}
    return sorted(names)


def _buffer(made: CheckpointManifest) -> str:
    buffer = made.buffer or {}
    return f"{buffer.get('policy')}, {buffer.get('size')} pairs"


def _short(content: object) -> str:
    return str(content)[:DIGITS] if content else ""


def _provenance_table(run: RunCard, shown: Sequence[StepCard], cut: tuple[str, ...]) -> Table:
    names = ("step", "learned", "checkpoint", "trained from", "task data", "buffer data", "version")
    columns = [
        Column(name, is_number=False, rank=rank)
        for rank, name in zip((0, 1, 0, 0, 2, 2, 3), names, strict=True)
    ]
    rows = tuple(
        tuple(
            map(
                TableCell,
                (
                    _step_label(one.step),
                    _learned(one) if one.is_trained and one.manifest.tasks else "",
                    _short(one.manifest.content),
                    " and ".join(map(_short, one.parents)),
                    ", ".join(map(_short, one.manifest.tasks[-one.learned :]))
                    if one.is_trained
                    else "",
                    _short(one.manifest.identity.get("buffer")),
                    str(one.manifest.made_by.get("version", "")),
                ),
            )
        )
        for one in shown
    )
    groups = [
        RowGroup(
            f"seed {seed}" if len(run.seeds) > 1 else "",
            tuple(row for row, one in zip(rows, shown, strict=True) if one.seed == seed),
        )
        for seed in run.seeds
    ]
    notes = (f"content ids: the first {DIGITS} digits; summary.json has all of them", *cut)
    return Table(f"{run.name}: checkpoints", tuple(columns), tuple(groups), notes)


def _command_table(run: RunCard, shown: Sequence[StepCard], cut: tuple[str, ...]) -> Table:
    columns = tuple(Column(name, is_number=False) for name in ("step", "made", "command"))
    rows = tuple(
        (
            TableCell(_step_label(one.step) + (f", seed {one.seed}" if len(run.seeds) > 1 else "")),
            TableCell(str(one.manifest.made_by.get("time", ""))[:16].replace("T", " ")),
            TableCell(one.command),
        )
        for one in shown
    )
    return Table(
        f"{run.name}: commands", columns, (RowGroup("", rows),), ("times are in UTC", *cut)
    )


def _all_settings_table(run: RunCard, differ: Sequence[str], settings: SettingTexts) -> Table:
    origins = run.last.manifest.origins
    columns = tuple(Column(name, is_number=False) for name in ("setting", "value", "from"))
    rows = tuple(
        (
            TableCell(name, is_strong=name in differ),
            TableCell(text, is_strong=name in differ),
            TableCell(str(origins.get(name, ""))),
        )
        for name, text in settings.items()
    )
    notes = ("bold: not the same in all runs",) if any(name in differ for name in settings) else ()
    return Table(f"{run.name}: settings", columns, (RowGroup("", rows),), notes)


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

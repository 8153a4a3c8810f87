"""The content of a report, whatever its format: tracks, main metric, notes and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from vlcpctl.core.errors import UsageError, some_names, unknown_name
from vlcpctl.metrics.definitions import DEFINITIONS, LEGEND
from vlcpctl.report.cards.runs import Cards
from vlcpctl.report.cards.settings import SettingTexts
from vlcpctl.report.cards.tables import cards_tables, settings_table
from vlcpctl.report.comparability import Mixed
from vlcpctl.report.forgotten.changes import Forgotten
from vlcpctl.report.gates.verdicts import Verdict, advice, names_tracks
from vlcpctl.report.published.cells import FilledTable
from vlcpctl.report.published.layout import as_table
from vlcpctl.report.scores.drops import Curve, Drop
from vlcpctl.report.scores.roll_out import RollOut
from vlcpctl.report.scores.runs import Track
from vlcpctl.report.sweeps.best import Choice
from vlcpctl.report.tables.angles import SpatialTrack
from vlcpctl.report.tables.calibration import calibration_table
from vlcpctl.report.tables.comparison import comparison_tables, ordered_runs
from vlcpctl.report.tables.guards import every_metric_table, guards_table, shown_guards
from vlcpctl.report.tables.matrices import matrix_table
from vlcpctl.report.tables.per_task import per_task_tables
from vlcpctl.report.tables.roll_out import roll_out_table
from vlcpctl.report.tables.stability import stability_points, stability_table
from vlcpctl.report.tables.table import Column, RowGroup, Table, TableCell
from vlcpctl.report.tables.transfer import every_step_tables, transfer_table

TITLE = "Forgetting report"

_CHANCE = (
    "chance: a loss that chance alone hardly shows; a condition fails if the loss is above this "
    "and above its bound"
)
_PREFERRED = ("rm", "top1", "acc1", "map_1")  # the first that a track has is its default


@dataclass(frozen=True)
class Document:
    """Everything a report shows, whatever its format."""

    tracks: tuple[Track, ...]
    metric: str | None
    galleries: tuple[str, ...]
    notes: tuple[str, ...]
    verdicts: tuple[Verdict, ...] = ()
    spatial_tracks: tuple[SpatialTrack, ...] = ()
    mixed: tuple[Mixed, ...] = ()
    curves: tuple[Curve, ...] = ()
    drops: tuple[Drop, ...] = ()
    baseline: str | None = None  # as it was given; None: each run's start
    has_ranks: bool = False
    roll_outs: tuple[RollOut, ...] = ()  # of runs that were evaluated on an index of another model
    published: tuple[FilledTable, ...] = ()  # tables of papers, in the order of --table
    forgotten: Forgotten | None = None  # from ranks; None: no examples were wanted
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # --group-by: runs by line
    choices: tuple[Choice, ...] = ()  # of --best
    # Of the lines that --best chose: their name in a paper, such as "ctp" of "ctp, lr=0.1".
    short_names: Mapping[str, str] = field(default_factory=dict)
    cards: Cards | None = None  # of --checkpoint
    settings: Mapping[str, SettingTexts] = field(default_factory=dict)  # of each run

    def key(self, track: Track) -> str:
        """The metric key that a track's tables and charts show."""
        return main_key(track, self.metric)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every run, in the one order of all tables and charts: joint training, then by score."""
        names = [run.name for one in self.tracks for run in ordered_runs(one, self.key(one))]
        # Runs without rows on their stream, and models that others start from.
        names += sorted({one.run.name for one in self.curves})
        names += sorted({one.run for track in self.tracks for one in track.transfers})
        names += sorted({pair.run for space in self.spatial_tracks for pair in space.pairs})
        names += [one.name for one in self.cards.runs] if self.cards else []
        return tuple(dict.fromkeys([*names, *self.settings]))

    @cached_property
    def ordered_cards(self) -> Cards | None:
        """The cards of the runs in the order of `names`."""
        if self.cards is None:
            return None
        runs = sorted(self.cards.runs, key=lambda one: self.names.index(one.name))
        return replace(self.cards, runs=tuple(runs))

    @cached_property
    def ordered_settings(self) -> Mapping[str, SettingTexts]:
        """The settings of the runs in the order of `names`."""
        return {name: self.settings[name] for name in self.names if name in self.settings}

    def published_sections(self) -> list[tuple[str, list[Table]]]:
        """The chosen tables of papers under one heading; empty without --table."""
        tables = [as_table(one) for one in self.published]
        return [("Published tables", tables)] if tables else []

    def calibration_sections(self) -> list[tuple[str, list[Table]]]:
        """The probabilities of sigmoid models under one heading; empty without any in the rows."""
        tables = (calibration_table(self._curves(one), one.title) for one in self.tracks)
        found = [one for one in tables if one is not None]
        return [("Calibration", found)] if found else []

    def sections(
        self, *, has_every_metric: bool = False, has_matrices: bool = True
    ) -> list[tuple[str, list[Table]]]:
        """(heading, tables) per track and space, then the --fail-if table without a heading.

        `has_every_metric` adds the tables that are long: guards and transfer in every metric, and
        what each task lost; it leaves out that of --fail-if, which comes first there.
        `has_matrices` adds the task x step matrix of each run.
        """
        sections = [
            (track.title, self._tables(track, has_every_metric, has_matrices))
            for track in self.tracks
        ]
        sections += self.calibration_sections()
        sections += [(track_.title, track_.tables()) for track_ in self.spatial_tracks]
        training = self.training_tables(is_long=has_every_metric)
        sections += [("Training", training)] if training else []
        return sections if has_every_metric else [*sections, *self._conditions()]

    def terminal_sections(self) -> list[tuple[str, list[Table]]]:
        """What a terminal shows: the chosen tables of papers and --fail-if, or else everything."""
        published = self.published_sections()
        return [*published, *self._conditions()] if published else self.sections()

    def _conditions(self) -> list[tuple[str, list[Table]]]:
        return [("", [verdicts_table(self.verdicts)])] if self.verdicts else []

    def training_tables(self, *, is_long: bool) -> list[Table]:
        """The tables of costs and settings; without --checkpoint, only the settings that differ.

        `is_long` adds the tables of each task and each run.
        """
        if self.cards is None and not is_long:
            return []
        settings, cards = self.ordered_settings, self.ordered_cards
        tables = [settings_table(settings)]
        if cards is not None:
            tables = [*cards_tables(cards, settings, is_long=is_long), *tables]
        return [table for table in tables if table is not None]

    def compared_with(self) -> list[str]:
        """Sentences that name the baselines and the guards, if there are any."""
        models: dict[str, list[str]] = {}
        for one in self.curves:
            if one.run.models:
                runs = models.setdefault(" and ".join(one.run.models), [])
                runs += [one.run.name] if one.run.name not in runs else []
        guards = sorted({one.data for one in self.drops if one.is_guard})
        lines = []
        if models:
            what = "the model that each run started from" if self.baseline is None else "--baseline"
            names = [
                name if len(models) == 1 else f"{name} (of {some_names(sorted(runs))})"
                for name, runs in sorted(models.items())
            ]
            lines.append(f"Baseline, {what}: {some_names(names)}")
        if guards:
            lines.append(f"Guards, data outside the stream: {some_names(guards)}")
        return lines

    def outside_tables(self, track: Track, *, has_every_metric: bool) -> list[Table]:
        """The tables of data outside the stream: the guards, and what has no baseline."""
        key = self.key(track)
        curves = self.guards(track)
        of_track = [one for one in self.drops if one.track is track and one.is_guard]
        compared = {(one.run.name, one.data) for one in curves}
        found = [guards_table(curves, of_track, key)]
        if has_every_metric:
            found.append(every_metric_table(of_track, compared))
        indexes = [one for one in self.roll_outs if one.curve.track is track]
        found.append(roll_out_table(indexes, key))
        found.append(transfer_table(track, key, compared, self.names))
        return [table for table in found if table is not None]

    def guards(self, track: Track) -> list[Curve]:
        """The guards of the runs of a track that have a baseline."""
        return shown_guards(self._curves(track))

    def _curves(self, track: Track) -> list[Curve]:
        of_track = [one for one in self.curves if one.track is track]
        return sorted(of_track, key=lambda one: self.names.index(one.run.name))

    def _tables(self, track: Track, has_every_metric: bool, has_matrices: bool) -> list[Table]:
        key = self.key(track)
        tables = comparison_tables(track, key, self.galleries)
        points, _ = stability_points(track, key)
        if has_every_metric and len(points) > 1 and "own" in self.galleries:
            tables.append(stability_table(points, key))
        tables += [
            matrix_table(run, key, self.galleries)
            for run in ordered_runs(track, key)
            if run.steps and has_matrices
        ]
        if has_every_metric and "own" in self.galleries:
            tables += per_task_tables(track, key, ordered_runs(track, key))
        tables += self.outside_tables(track, has_every_metric=has_every_metric)
        return [*tables, *(every_step_tables(track) if has_every_metric else [])]


def _interval(verdict: Verdict) -> str:
    return "-" if verdict.low is None else f"{verdict.low:.2f} to {verdict.high:.2f}"


def _chance(verdict: Verdict) -> str:
    return "-" if verdict.chance is None else f"{verdict.chance:.2f}"


def main_key(track: Track, metric: str | None) -> str:
    """The requested metric if the track has it, else the track's default metric."""
    return next(key for key in (metric, *_PREFERRED, *track.keys) if key in track.keys)


def check_metric(metric: str | None, tracks: Iterable[Track]) -> None:
    """Raise UsageError if no row has this metric key."""
    known = {key for track in tracks for key in track.keys}
    if metric is not None and metric not in known:
        raise UsageError(f"--metric: {unknown_name('metric key', metric, known)}")


def definitions_table() -> Table:
    """A table of the summary metrics: name, formula, how to read the sign, and the source."""
    names = ("metric", "formula", "reading", "source")
    columns = tuple(Column(name, is_number=False) for name in names)
    rows = tuple(
        tuple(map(TableCell, (d.name, d.formula, d.reading, d.source)))
        for d in DEFINITIONS.values()
    )
    return Table("Definitions", columns, (RowGroup("", rows),), (LEGEND,))


def verdicts_table(verdicts: Sequence[Verdict]) -> Table:
    """A table of the --fail-if conditions: what each applies to, its value, bound and verdict.

    The columns of data and tracks are left out if no verdict needs them.
    """
    words: list[tuple[Column, Callable[[Verdict], str]]] = [
        (Column("condition", is_number=False), lambda one: one.condition),
        (Column("run", is_number=False), lambda one: one.run),
    ]
    if any(one.data is not None for one in verdicts):
        words.append((Column("data", is_number=False), lambda one: one.data or ""))
    if names_tracks(verdicts):
        words.append((Column("track", is_number=False, rank=3), lambda one: one.track or ""))
    words += [
        (Column("metric", is_number=False, rank=2), lambda one: one.metric),
        (Column("value"), lambda one: "-" if one.value is None else f"{one.value:.4f}"),
    ]
    if any(one.chance is not None for one in verdicts):
        words.append((Column("95 % interval", rank=1), _interval))
    words.append((Column("bound", rank=1), lambda one: one.comparison))
    if any(one.chance is not None for one in verdicts):
        words.append((Column("chance", rank=1), _chance))
    columns = (*(column for column, _ in words), Column("verdict", is_number=False))
    rows = tuple(
        (
            *(TableCell(text(one)) for _, text in words),
            TableCell(one.outcome, is_strong=not one.passes),
        )
        for one in verdicts
    )
    notes = tuple(advice(verdicts))
    if any(one.chance is not None for one in verdicts):
        notes = (_CHANCE, *notes)
    return Table("Conditions (--fail-if)", columns, (RowGroup("", rows),), notes)

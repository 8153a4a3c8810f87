"""A report of rows: what is read, what is found, and the files that are written."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from itertools import chain, product
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from vlcpctl.core.errors import BadInput, UsageError, some_names, unknown_name
from vlcpctl.core.words import printable_json
from vlcpctl.files.ids import content_id
from vlcpctl.files.rows import PART_OF, Row, firsts
from vlcpctl.metrics.chance import PER_REPORT
from vlcpctl.metrics.definitions import DEFINITIONS
from vlcpctl.report.angles import CheckpointPair, SpatialTrack, collect_spatial_tracks
from vlcpctl.report.comparable import data_notes, parse_fields, require_alike, require_comparable
from vlcpctl.report.facts import Facts
from vlcpctl.report.formats import csv_text, number_text, records_csv
from vlcpctl.report.gates import Gate, Verdict, judge, parse_gate, verdicts_table
from vlcpctl.report.joined import Baseline, JoinedRows, find_baseline, joined, lineages
from vlcpctl.report.papers import Paper, fill, load_paper, paper_table, table_id
from vlcpctl.report.ranks import RanksOfRows, ranks_of
from vlcpctl.report.rollout import (
    CHOICES,
    RollOut,
    every_pair,
    judged_losses,
    roll_out_table,
    roll_outs,
    with_intervals,
)
from vlcpctl.report.scores import (
    START,
    Against,
    Curve,
    Drop,
    Run,
    Spread,
    Track,
    curves_of,
    earlier_tasks,
    grouped,
    require_complete,
    score_notes,
    tracks_of,
    with_oracle,
    without_unmeasured,
)
from vlcpctl.report.sweep import (
    Choice,
    Grouped,
    best_settings,
    grouped_by,
    parse_group_by,
)
from vlcpctl.report.table import Table
from vlcpctl.report.tables import (
    calibration_table,
    comparison_tables,
    matrix_table,
    oracle_gap,
    ordered_runs,
    outside_table,
)
from vlcpctl.report.training import SettingTexts, settings_by_run, training_tables

if TYPE_CHECKING:
    from vlcpctl.data.tasks.task import Task
    from vlcpctl.evaluation.rank_files import SavedRanks
    from vlcpctl.report.forgotten import Forgotten
    from vlcpctl.report.training import Cards

SCHEMA = "vlcpctl.report/2"
TITLE = "Forgetting report"
FACTS = "facts.csv"
FIELDS = (
    *("run", "method", "evaluator", "protocol", "map_variant", "split", "gallery", "data"),
    *("step", "since", "metric", "key", "value", "sd", "n", "seeds", "values"),
    *("low", "high", "se", "samples", "undefined"),
)
_ENDS = ("low", "high")
_FLOATS = ("value", "sd", "low", "high", "se")

_PREFERRED = ("rm", "top1", "acc1", "map_1")  # the first that a track has is its default
_METRICS: dict[Against, str] = {
    "baseline": "drop",
    "step before": "step_drop",
    "learned": "task_drop",
    "old index": "index_loss",
    "new index": "reembed_gain",
}
# What tells rows apart; alpha is in the label of the run.
_NOT_STORED = frozenset({"schema", "alpha", "config"})
_OF_MODEL, _OF_DATA = (
    attrgetter(*(name for name, part in PART_OF.items() if part == of and name not in _NOT_STORED))
    for of in ("model_part", "data_part")
)


@dataclass(frozen=True, kw_only=True)
class ReportRequest:
    """The options of a report, as `forgetting-report` takes them."""

    metric: str | None = None
    runs: Sequence[str] = ()
    fail_if: Sequence[str] = ()
    allow_missing: bool = False
    allow_mixed: Sequence[str] = ()
    baseline: str | None = None
    oracle: str | None = None  # a run; None: the only one of joint training
    guards: Sequence[str] = ()
    undefined: str = "error"
    false_alarms: float | None = None  # by chance, of the losses of a report; None: PER_REPORT
    tables: Sequence[str] = ()
    group_by: Sequence[str] = ()
    best: str | None = None


@dataclass(frozen=True)
class Files:
    """What a report reads beside rows: ranks, tasks with pictures of examples, checkpoints."""

    ranks: Sequence[SavedRanks] = ()
    images: Sequence[Task] = ()
    cards: Cards | None = None


NO_FILES = Files()


@dataclass(frozen=True, eq=False)
class Document:
    """Everything a report shows, whatever its format."""

    tracks: tuple[Track, ...]
    request: ReportRequest
    notes: tuple[str, ...]
    curves: tuple[Curve, ...]
    drops: tuple[Drop, ...]  # against the baseline
    losses: tuple[Drop, ...]  # against later models, and on an index
    spatial_tracks: tuple[SpatialTrack, ...]
    roll_outs: tuple[RollOut, ...]  # of runs that were evaluated on an index of another model
    verdicts: tuple[Verdict, ...] = ()
    published: tuple[Paper, ...] = ()  # tables of papers, in the order of --table
    forgotten: Forgotten | None = None  # from ranks
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # --group-by: runs by line
    choices: tuple[Choice, ...] = ()  # of --best
    # Of the lines that --best chose: their name in a paper, such as "ctp" of "ctp, lr=0.1".
    short_names: Mapping[str, str] = field(default_factory=dict)
    # In the order of `names`, as all tables and charts.
    cards: Cards | None = None  # of --checkpoint
    settings: Mapping[str, SettingTexts] = field(default_factory=dict)  # of each run
    names: tuple[str, ...] = ()  # of every run: joint training, then by score

    def key(self, track: Track) -> str:
        """The metric key that a track's tables and charts show."""
        return main_key(track, self.request.metric)

    def published_sections(self) -> list[tuple[str, list[Table]]]:
        """The chosen tables of papers under one heading; empty without --table."""
        tables = [paper_table(one) for one in self.published]
        return [("Published tables", tables)] if tables else []

    def calibration_sections(self) -> list[tuple[str, list[Table]]]:
        """The probabilities of sigmoid models under one heading; empty without any in the rows."""
        tables = (calibration_table(self.curves_on(one), one.title) for one in self.tracks)
        found = [one for one in tables if one is not None]
        return [("Calibration", found)] if found else []

    def sections(
        self, *, has_settings: bool = True, has_matrices: bool = True
    ) -> list[tuple[str, list[Table]]]:
        """(heading, tables) per track and space, and of the training.

        `has_settings` adds the settings that rows record without --checkpoint, `has_matrices` the
        task x step matrix of each run.
        """
        sections = [(one.title, self._tables(one, has_matrices)) for one in self.tracks]
        sections += self.calibration_sections()
        sections += [(space.title, space.tables()) for space in self.spatial_tracks]
        if self.cards or has_settings:
            training = training_tables(self.cards, self.settings)
            sections += [("Training", training)] if training else []
        return sections

    def terminal_sections(self) -> list[tuple[str, list[Table]]]:
        """What a terminal shows: the chosen tables of papers and --fail-if, or else everything."""
        published = self.published_sections()
        return [*(published or self.sections(has_settings=False)), *self.conditions()]

    def conditions(self) -> list[tuple[str, list[Table]]]:
        """The table of --fail-if without a heading; empty without any."""
        return [("", [verdicts_table(self.verdicts)])] if self.verdicts else []

    def compared_with(self) -> list[str]:
        """Sentences that name the baselines and the guards, if there are any."""
        runs = {one.run.name: " and ".join(one.run.of.models) for one in self.curves}
        models = grouped((run for run in sorted(runs) if runs[run]), runs.__getitem__)
        guards = sorted({one.data for one in self.drops if one.curve.is_guard})
        is_given = self.request.baseline is not None
        what = "--baseline" if is_given else "the model that each run started from"
        names = [
            name if len(models) == 1 else f"{name} (of {some_names(of)})"
            for name, of in sorted(models.items())
        ]
        lines = [f"Baseline, {what}: {some_names(names)}"] if names else []
        return lines + [f"Guards, data outside the stream: {some_names(guards)}"] * bool(guards)

    def outside_tables(self, track: Track) -> list[Table]:
        """The tables of data outside the stream: the guards, and what has no baseline."""
        key, curves = self.key(track), self.guards(track)
        drops = [one for one in self.drops if one.curve.track is track and one.curve.is_guard]
        compared = {(one.run.name, one.data) for one in curves}
        others = [
            Curve(track, run, column)
            for run in sorted(track.every, key=lambda run: self.names.index(run.name))
            for column, data in enumerate(run.data)
            if column >= len(run.tasks) and (run.name, data) not in compared
        ]
        found = (
            outside_table(curves, drops, key),
            roll_out_table([one for one in self.roll_outs if one.curve.track is track], key),
            outside_table(sorted(others, key=lambda one: one.data), (), key),
        )
        return [table for table in found if table is not None]

    def guards(self, track: Track) -> list[Curve]:
        """The guards of the runs of a track that have a baseline."""
        every = self.curves_on(track)
        return [one for one in every if one.is_guard and not one.run.of.unknown]

    def curves_on(self, track: Track) -> list[Curve]:
        """The curves of a track in the order of `names`."""
        of_track = [one for one in self.curves if one.track is track]
        return sorted(of_track, key=lambda one: self.names.index(one.run.name))

    def _tables(self, track: Track, has_matrices: bool) -> list[Table]:
        key = self.key(track)
        runs = ordered_runs(track, key) if has_matrices else []
        matrices = (matrix_table(run, key) for run in runs if run.steps)
        return [*comparison_tables(track, key), *matrices, *self.outside_tables(track)]


def main_key(track: Track, metric: str | None) -> str:
    """The requested metric if the track has it, else the track's default metric."""
    return next(key for key in (metric, *_PREFERRED, *track.keys) if key in track.keys)


def build(rows: Sequence[Row], request: ReportRequest, files: Files = NO_FILES) -> Document:
    """Build the report of these rows, with what other files add to it.

    Raises UsageError for an unknown run, metric, field, condition, baseline, guard or
    table, and BadInput if rows contradict each other, cannot be compared (but for the fields of
    `allow_mixed`) or (without `allow_missing`) are missing, if the rows lack the baseline, or if a
    table has a mistake.
    """
    alarms = _false_alarms(request)
    allowed, fields = parse_fields(request.allow_mixed), parse_group_by(request.group_by)
    usual = _usual(rows)
    baseline = None if request.baseline is None else find_baseline(request.baseline, usual)
    groups = grouped_by(usual, fields, request.runs)
    found = joined(groups.rows, groups.runs, allowed, baseline)
    chosen = _selected(found.rows, groups.runs)
    mixed = require_comparable(chosen, allowed)
    choices: tuple[Choice, ...] = ()
    if request.best is not None:
        chosen, choices = best_settings(
            chosen,
            request.best,
            groups.first,
            lambda track: main_key(track, request.metric),
            allow_missing=request.allow_missing,
        )
    tracks = _tracks(chosen, found, baseline, request)
    curves = _compared(tracks, baseline)
    require_alike((pair for one in curves for pair in one.pairs()), allowed)
    keys = dict.fromkeys(key for track in tracks for key in track.keys)
    gates = [parse_gate(text, keys) for text in request.fail_if]
    indexes = roll_outs(curves, rows)
    against = _against(gates, has_ranks=bool(files.ranks))
    ranks = ranks_of(curves, files.ranks, ("baseline", *against), every_pair(indexes))
    rolled = with_intervals(indexes, ranks, alarms)
    losses = [drop for one in against for drop in _drops(curves, one, ranks)]
    spatial = collect_spatial_tracks(row for row in chosen if row.since is not None)
    cards, settings = files.cards, settings_by_run(chosen, files.cards)
    names = _names(
        tracks,
        request,
        [
            *sorted({one.run.name for one in curves}),  # also of runs without rows on their stream
            *sorted({run.name for track in tracks for run in track.every if run.outside}),
            *sorted({pair.run for space in spatial for pair in space.pairs}),
            *(cards.runs if cards else ()),
            *settings,
        ],
    )
    document = Document(
        tracks,
        request,
        (
            *(choice.sentence() for choice in choices),
            *mixed,
            *score_notes(tracks),
            *data_notes(chosen),
            *(cards.notes if cards else ()),
        ),
        tuple(curves),
        tuple(_drops(_shown(curves, request), "baseline", ranks)),
        (*losses, *judged_losses(rolled)),
        spatial,
        rolled,
        groups=groups.members,
        choices=choices,
        short_names=_short_names(chosen, groups) if choices else {},
        cards=cards and cards.in_order(names),
        settings={one: settings[one] for one in names if one in settings},
        names=names,
    )
    document = _with_forgotten(document, chosen, files, ranks)
    facts = Facts(
        tracks,
        document.key,
        chosen,
        [*document.drops, *document.losses],
        spatial,
    )
    papers = (load_paper(name, keys) for name in dict.fromkeys(request.tables))
    early_passes = request.undefined == "pass"
    return replace(
        document,
        published=tuple(fill(one, facts) for one in papers),
        verdicts=tuple(judge(gates, facts, alarms, early_passes=early_passes)),
    )


def _names(
    tracks: Iterable[Track], request: ReportRequest, others: Iterable[str]
) -> tuple[str, ...]:
    ordered = (ordered_runs(one, main_key(one, request.metric)) for one in tracks)
    return tuple(dict.fromkeys([*(run.name for runs in ordered for run in runs), *others]))


def _false_alarms(request: ReportRequest) -> float:
    alarms = PER_REPORT if request.false_alarms is None else request.false_alarms
    if not 0 < alarms < math.inf:
        raise UsageError(f"--false-alarms must be a number above 0, not {alarms}")
    return alarms


def _usual(rows: Sequence[Row]) -> list[Row]:
    """The rows of models on their own gallery: the others are about an index, and only that.

    Raises BadInput if there are only others.
    """
    found = [row for row in rows if row.gallery_checkpoint is None]
    if rows and not found:
        raise BadInput(
            f"{rows[0].place} and all other rows have a gallery_checkpoint; add the rows of these "
            "checkpoints without --gallery-checkpoint"
        )
    return found


def _selected(rows: list[Row], runs: Sequence[str]) -> list[Row]:
    """The rows of these runs, or of all. Raises UsageError for an unknown run."""
    known = {row.run for row in rows}
    for name in runs:
        if name not in known:
            raise UsageError(f"--run: {unknown_name('run', name, known)}")
    return [row for row in rows if row.run in runs] if runs else rows


def _tracks(
    rows: Sequence[Row], found: JoinedRows, baseline: Baseline | None, request: ReportRequest
) -> tuple[Track, ...]:
    of = lineages(rows, found.starts, baseline)
    tracks = tracks_of(rows, of, request.guards, found.baseline)
    known = {key for track in tracks for key in track.keys}
    if request.metric is not None and request.metric not in known:
        raise UsageError(f"--metric: {unknown_name('metric key', request.metric, known)}")
    if request.oracle is not None and request.oracle not in of:
        raise UsageError(f"--oracle: {unknown_name('run', request.oracle, of)}")
    if request.allow_missing:
        tracks = list(map(without_unmeasured, tracks))
    for track in tracks if not request.allow_missing else ():
        require_complete(track)
    return tuple(with_oracle(track, request.oracle) for track in tracks)


def _compared(tracks: Sequence[Track], baseline: Baseline | None) -> list[Curve]:
    """The curves; BadInput if no run was evaluated on any data of the given baseline."""
    found = curves_of(tracks)
    if baseline is not None and not any(one.pairs() for one in found):
        raise BadInput(
            f"--baseline: {baseline.text} and the last models of the runs have no data in common; "
            "evaluate it on theirs"
        )
    return found


def _against(gates: Sequence[Gate], *, has_ranks: bool) -> list[Against]:
    """The later models that these conditions need the last ones to be compared with."""
    names = {gate.metric.name for gate in gates}
    against: list[Against] = ["step before"] if names & {"step_drop", "worst_week"} else []
    is_mean = has_ranks and "bwt_gem" in names  # its interval is that of a mean of such drops
    against += ["learned"] if is_mean or "worst_week" in names else []
    return against


def _shown(curves: Sequence[Curve], request: ReportRequest) -> list[Curve]:
    """The curves whose drops are shown: of tasks, all only if a condition may select them."""
    is_every = bool(request.fail_if or request.tables)
    return [one for one in curves if is_every or one.is_guard or one.pairs()]


def _drops(curves: Sequence[Curve], against: Against, ranks: RanksOfRows) -> list[Drop]:
    """The drops against the baseline on all data, or against a later model where that is a loss."""
    chosen = list(curves)
    if against != "baseline":
        outside = [one for one in curves if one.task is None and against == "step before"]
        chosen = [*outside, *earlier_tasks(curves)]
    return drops_of(chosen, lambda track: track.keys, ranks, against)


def drops_of(
    curves: Iterable[Curve],
    keys: Callable[[Track], Sequence[str]],
    ranks: RanksOfRows,
    against: Against,
) -> list[Drop]:
    """A drop for every run, data set and metric key that the run has there."""
    found = []
    for curve in curves:
        ends = ranks.intervals(curve, curve.pairs(against), against)
        known = filter(curve.has, keys(curve.track))
        found += [curve.drop(key, against, ends.get(key)) for key in known]
    return found


def _short_names(rows: Sequence[Row], groups: Grouped) -> dict[str, str]:
    """The first field's value of each line, if no other line or run of these rows has it."""
    runs = {row.run for row in rows}
    lines = {run: groups.first[run] for run in sorted(runs) if run in groups.first}
    counts = Counter([*lines.values(), *(runs - lines.keys())])
    return {line: value for line, value in lines.items() if counts[value] == 1}


def _with_forgotten(
    document: Document, rows: Sequence[Row], files: Files, ranks: RanksOfRows
) -> Document:
    """The document with examples of what was forgotten, and the notes on the ranks."""
    if not files.ranks:
        return document
    # Slow to import, as are the ranks.
    from vlcpctl.report.forgotten import Library, find_forgotten

    shown = {one for task in files.images for one in task.ids}
    if files.images and shown.isdisjoint(row.data for row in rows):
        raise UsageError("--images has no effect: no row is of the tasks that it names")
    tasks = (
        Curve(track, run, task)
        for track in document.tracks
        for run in track.runs
        for task in range(min(run.of.last, len(run.tasks)))
    )
    found = find_forgotten(tasks, files.ranks, ("learned",))
    unused = {file.path for file in files.ranks} - ranks.used - found.used
    note = (
        f"not used: {len(unused)} of {len(files.ranks)} files of --ranks, without ranks of a "
        "baseline or a last model that belong to the rows"
    )
    notes = [*document.notes, *ranks.notes, *([note] if unused else []), *found.notes]
    # Guards are shown where --images names them: their pictures are what it is given for.
    guards = [
        one
        for one in document.curves
        if one.is_guard and any(row.data in shown for row in one.last_rows)
    ]
    lost = find_forgotten(guards, files.ranks, ("baseline",))
    library = Library(files.images, frozenset(row.split for row in rows))
    return replace(
        document,
        forgotten=replace(found, tallies=(*lost.tallies, *found.tallies), library=library),
        notes=tuple(dict.fromkeys(notes)),
    )


def records(document: Document) -> Iterator[dict[str, Any]]:
    """Every fact but the scores as a record with FIELDS: summaries, drops, angles, costs."""
    for track in document.tracks:
        for run in dict.fromkeys((*track.runs, *track.runs_with("outside"))):
            yield from _run_records(track, run)
    for drop in (*document.drops, *document.losses):
        if drop.curve.is_guard or drop.drop:
            yield _drop_record(drop, _METRICS[drop.against])
    for one in document.roll_outs:
        for key, choice in product(one.curve.track.keys, CHOICES):
            yield _drop_record(one.loss(choice, key), f"lost, {choice}") | {"since": one.index}
    for space in document.spatial_tracks:
        yield from chain.from_iterable(_angle_records(space, pair) for pair in space.pairs)
    yield from _file_records(document.cards, document.forgotten)


def _file_records(cards: Cards | None, forgotten: Forgotten | None) -> Iterator[dict[str, Any]]:
    """What other files than rows add: the cost of runs, and counts of what they forgot."""
    for run in sorted(cards.runs) if cards else ():
        seeds = sorted({one.seed for one in cards.runs[run]}) if cards else []
        for key, cost in cards.costs(run).items() if cards else ():
            yield {"run": run, "metric": "cost", "key": key} | _numbers(cost, seeds)
    for tally in forgotten.tallies if forgotten else ():
        yield from tally.records()


def _angle_records(space: SpatialTrack, pair: CheckpointPair) -> Iterator[dict[str, Any]]:
    (since, step), first = pair.steps.split(" -> "), pair.rows[0]
    about = {"run": pair.run, "method": first.method, "split": space.split, "data": space.task}
    about |= {"evaluator": first.evaluator, "step": step, "since": since, "metric": "angle"}
    seeds = [row.seed for row in pair.rows]
    for key, values in pair.metrics.items():
        yield about | {"key": key} | _numbers(Spread(values), seeds)


def _names_of(track: Track, run: str, method: str) -> dict[str, Any]:
    about = {name: getattr(track, name) for name in FIELDS[2:6]}
    return {"run": run, "method": method, **about}


def _numbers(value: Spread | None, seeds: Sequence[int]) -> dict[str, Any]:
    if value is None:
        return {}
    several = " ".join(map(number_text, value.values)) if len(value.values) > 1 else ""
    found = {"value": value.mean, "sd": value.sd, "n": len(value.values), "values": several}
    is_of_each = len(seeds) == len(value.values)  # not so where other seeds were compared
    return found | {"seeds": " ".join(map(str, seeds)) if is_of_each else ""}


def _run_records(track: Track, run: Run) -> Iterator[dict[str, Any]]:
    names = _names_of(track, run.name, run.method) | {"step": run.of.last}
    for one, key in product(DEFINITIONS.values(), run.keys):
        if one.gallery == "outside" or run.galleries:
            value = run.summary(key, one.name)
            why = run.why_undefined(one) or "rows that it needs are missing"
            place = "own" if one.gallery == "start" else one.gallery
            about = {"gallery": place, "metric": one.name, "key": key}
            numbers = _numbers(value, run.seeds) if value else {"undefined": why}
            yield names | about | numbers
    for key in run.keys if run.galleries else ():
        more: list[tuple[str, str, Spread | None, tuple[float, float] | None]] = [
            ("change", "own", run.change(key), None),
            ("start", "own", run.mean_at(key, START), None),
        ]
        for gallery in ("own", "merged"):
            gap, interval = oracle_gap(track, run, key, gallery) or (None, None)
            more.append(("to_oracle", gallery, gap, interval))
        for metric, gallery, value, ends in more:
            if value is not None:
                about = {"gallery": gallery, "metric": metric, "key": key}
                low_high = dict(zip(_ENDS, ends, strict=True)) if ends else {}
                yield names | about | low_high | _numbers(value, run.seeds)


def _drop_record(drop: Drop, metric: str) -> dict[str, Any]:
    curve, run = drop.curve, drop.curve.run
    about = {"gallery": "outside" if curve.is_guard else "own", "data": drop.data}
    about |= {"step": str(run.of.last), "metric": metric, "key": drop.key}
    found = _names_of(curve.track, run.name, run.method) | about | _numbers(drop.drop, run.seeds)
    if drop.interval is not None:
        ends = drop.interval
        found |= {"low": ends.low, "high": ends.high, "se": ends.error, "samples": ends.samples}
    return found | {"undefined": drop.undefined}


def facts_csv(document: Document) -> Iterator[str]:
    """facts.csv in parts: a header and one line for each number of a report; blank: none.

    `value` is a mean over `n` seeds, whose own are in `values` if there are several.
    """
    yield records_csv(FIELDS, records(document))
    for track in document.tracks:
        for run in track.every:
            yield from _score_lines(track, run)


def _score_lines(track: Track, run: Run) -> Iterator[str]:
    """The scores on own and merged galleries after each step, a text for each metric.

    There may be millions: what lines have in common is made once, and only joined for each.
    """
    names = _names_of(track, run.name, run.method)
    head = _line([names.get(name) for name in FIELDS[: FIELDS.index("gallery")]])
    own = [f"{head},{_line(['own', one])}" for one in run.data]
    merged = [f"{head},merged,0..{task}" for task in range(len(run.tasks))]
    seeds = " ".join(map(str, run.seeds))
    for key in run.keys:
        about = _line(["", "score", key])
        places = ((own, run.own[key][:, :-1], START), (merged, run.merged.get(key), 0))
        for columns, scores, first in places:
            if scores is not None:
                known = np.nonzero(~np.isnan(scores).any(axis=0))
                steps = ["start" if step == START else step for step in (known[0] + first).tolist()]
                values = scores[:, known[0], known[1]].T.tolist()
                yield "".join(
                    f"{columns[column]},{step},{about},{_score_text(each, seeds)}\n"
                    for step, column, each in zip(steps, known[1].tolist(), values, strict=True)
                )


def _score_text(values: Sequence[float], seeds: str) -> str:
    """The fields of a score from its value on."""
    if len(values) == 1:
        return f"{number_text(values[0])},,1,{seeds},,,,,,"
    one, several = Spread(tuple(values)), " ".join(map(number_text, values))
    mean, sd = number_text(one.mean), number_text(one.sd or 0.0)
    return f"{mean},{sd},{len(values)},{seeds},{several},,,,,"


def _line(values: Iterable[str | None]) -> str:
    return csv_text([[value or "" for value in values]])[:-1]


def read_facts(text: str) -> list[dict[str, Any]]:
    """The lines of facts.csv, with numbers as numbers and None for what is blank.

    `values` is a list with the value of each of the `seeds`.
    """
    found = []
    for line in csv.DictReader(io.StringIO(text)):
        one: dict[str, Any] = {name: value or None for name, value in line.items()}
        one |= {name: float(line[name]) if line[name] else None for name in _FLOATS}
        one |= {name: int(line[name]) if line[name] else None for name in ("n", "samples")}
        one["seeds"] = [int(seed) for seed in line["seeds"].split()]
        one["values"] = [float(value) for value in (line["values"] or line["value"]).split()]
        found.append(one)
    return found


def summary(document: Document, identity: Mapping[str, Any]) -> dict[str, Any]:
    """summary.json: what was asked, what was judged, and what a reader should know."""
    models = {one.run.name: list(one.run.of.models) for one in document.curves}
    groups = {name: list(runs) for name, runs in sorted(document.groups.items())}
    return {
        "schema": SCHEMA,
        "content": identity["rows"],
        "identity": identity,
        "notes": list(document.notes),
        "tracks": [
            {"title": track.title, "metric": document.key(track)} for track in document.tracks
        ],
        # As it was given (null: each run's start), and its models for each run.
        "baseline": {
            "given": document.request.baseline,
            "runs": {name: found for name, found in sorted(models.items()) if found},
        },
        "guards": sorted({one.data for one in document.drops if one.curve.is_guard}),
        "verdicts": [verdict.as_json() for verdict in document.verdicts],
        **({"groups": groups} if groups else {}),
        **({"best": [one.as_json() for one in document.choices]} if document.choices else {}),
    }


def as_line(document: Document, identity: Mapping[str, Any]) -> str:
    """What --json prints: summary.json and the facts on one line, safe for a terminal."""
    found = summary(document, identity) | {"facts": read_facts("".join(facts_csv(document)))}
    return printable_json(json.dumps(found, ensure_ascii=False, allow_nan=False))


def identity(
    rows: Sequence[Row], request: ReportRequest, files: Files = NO_FILES
) -> dict[str, Any]:
    """What determines a written report: rows, options, ranks and cards, not where these are.

    Images that were rewritten count as others: a report may show pairs that were removed from them.
    """
    given, usual = _options(request), _options(ReportRequest())
    found: dict[str, Any] = {"rows": _rows_id(rows)}
    found |= {name: value for name, value in given.items() if value != usual[name]}
    if files.ranks:
        found["ranks"] = sorted({file.digest for file in files.ranks})
    if files.images:
        found["images"] = sorted({task.content for task in files.images})
    if files.cards:
        found["checkpoints"] = files.cards.digest
    return found


def _options(request: ReportRequest) -> dict[str, Any]:
    return asdict(request) | {
        "runs": sorted(request.runs),
        "fail_if": list(request.fail_if),
        "allow_mixed": sorted(parse_fields(request.allow_mixed)),
        "guards": sorted(set(request.guards)),
        # The text of a table counts, not its place: a file of the user may change.
        "tables": [table_id(name) for name in dict.fromkeys(request.tables)],
        "group_by": list(parse_group_by(request.group_by)),
    }


def _rows_id(rows: Sequence[Row]) -> str:
    """An id of the rows, whatever their order and places."""
    encode = msgspec.json.Encoder(order="deterministic").encode
    models = {  # what many rows have in common
        row.model_part: encode((row.config and row.config["id"], _OF_MODEL(row)))
        for row in firsts(rows, "model_part")
    }
    data = {row.data_part: encode(_OF_DATA(row)) for row in firsts(rows, "data_part")}
    lines = (
        models[row.model_part] + data[row.data_part] + encode((row.metrics, row.degrees))
        for row in rows
    )
    return content_id(sorted(blake2b(line, digest_size=16).hexdigest() for line in lines))

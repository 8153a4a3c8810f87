"""Build the document of a report from rows and what else was given."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from vlcpctl.core.errors import BadInput, UsageError, unknown_name
from vlcpctl.files.rows import Row
from vlcpctl.metrics.chance import PER_REPORT
from vlcpctl.report.cards.settings import settings_by_run
from vlcpctl.report.comparability import (
    mixed_notes,
    parse_fields,
    require_alike,
    require_comparable,
)
from vlcpctl.report.document import Document, check_metric, main_key
from vlcpctl.report.facts.table import Facts
from vlcpctl.report.gates.grammar import Gate, parse_gate
from vlcpctl.report.gates.judging import POLICIES, UNRESOLVED, Rule, judge
from vlcpctl.report.published.cells import filled
from vlcpctl.report.published.definition import load_table
from vlcpctl.report.request import EXAMPLES, GALLERIES, NO_FILES, Files, ReportRequest
from vlcpctl.report.row_notes import row_notes
from vlcpctl.report.scores.baseline import Baseline, find_baseline
from vlcpctl.report.scores.collect import collect
from vlcpctl.report.scores.drops import Against, Curve, Drop, curves, drops, earlier_tasks
from vlcpctl.report.scores.joining import JoinedRows, joined
from vlcpctl.report.scores.missing import notes, require_complete, without_tasks, without_unmeasured
from vlcpctl.report.scores.roll_out import (
    every_pair,
    judged_losses,
    roll_outs,
    unused_note,
    with_intervals,
)
from vlcpctl.report.scores.runs import Track, is_outside
from vlcpctl.report.scores.saved_ranks import RankIntervals
from vlcpctl.report.sweeps.best import Choice, best_settings
from vlcpctl.report.sweeps.grouping import Grouped, grouped, parse_group_by
from vlcpctl.report.tables.angles import collect_spatial_tracks


def build(rows: Sequence[Row], request: ReportRequest, files: Files = NO_FILES) -> Document:
    """Build the report of these rows, with what other files add to it.

    Raises UsageError for an unknown gallery, run, metric, field, condition, policy, baseline,
    guard or table, and BadInput if rows contradict each other, cannot be compared (but for the
    fields of `allow_mixed`) or (without `allow_missing`) are missing, if the rows lack the
    baseline, or if a table has a mistake.
    """
    _check_names(request)
    ranks, cards = files.ranks, files.cards
    allowed = parse_fields(request.allow_mixed)
    fields = parse_group_by(request.group_by)
    usual = _usual(rows)
    baseline = None if request.baseline is None else find_baseline(request.baseline, usual)
    groups = grouped(usual, fields, request.runs, allowed)
    found = joined(groups.rows, kept=groups.runs, allow_mixed=allowed, baseline=baseline)
    chosen = _selected(found.rows, groups.runs, request.gallery)
    mixed = require_comparable(chosen, allowed)
    chosen, choices = _best(chosen, request, groups)
    tracks = _tracks(chosen, found, request)
    compared = curves(tracks, found, chosen, baseline, request.guards)
    require_alike((pair for one in compared for pair in one.pairs()), allowed)
    keys = dict.fromkeys(key for track in tracks for key in track.keys)
    gates = [parse_gate(text, keys) for text in request.fail_if]
    against = _against(gates, has_ranks=bool(ranks))
    indexes = roll_outs(compared, rows)
    intervals = RankIntervals(compared, ranks, against, every_pair(indexes))
    rolled = with_intervals(indexes, intervals, _rule(request).false_alarms)
    every_drop = {one: _drops(compared, one, intervals) for one in against}
    said = (*groups.notes(fields), *(choice.sentence() for choice in choices), *mixed_notes(mixed))
    about = (
        *(*notes(tracks), *row_notes(chosen), *unused_note(rolled, rows)),
        *(cards.notes if cards else ()),
    )
    document = Document(
        tracks,
        request.metric,
        GALLERIES[request.gallery],
        (*said, *about),
        mixed=mixed,
        curves=tuple(compared),
        drops=tuple(every_drop["baseline"]),
        baseline=request.baseline,
        has_ranks=bool(ranks),
        roll_outs=rolled,
        cards=cards,
        settings=settings_by_run(chosen, cards),
        spatial_tracks=collect_spatial_tracks(row for row in chosen if row.since is not None),
        groups=groups.members,
        choices=choices,
        short_names=_short_names(chosen, groups) if choices else {},
    )
    document = _with_forgotten(document, chosen, request, files, intervals)
    facts = Facts(
        tracks,
        document.key,
        [*(drop for found_ in every_drop.values() for drop in found_), *judged_losses(rolled)],
        document.spatial_tracks,
        replace(found, rows=chosen),
        untrained=_untrained(chosen, baseline),
    )
    tables = (load_table(name, keys) for name in dict.fromkeys(request.tables))
    published = tuple(filled(one, facts, is_paper_data=request.paper_data) for one in tables)
    verdicts = tuple(judge(gates, facts, _rule(request)))
    return replace(document, published=published, verdicts=verdicts)


def _check_names(request: ReportRequest) -> None:
    if request.gallery not in GALLERIES:
        raise UsageError(f"--gallery: {unknown_name('gallery', request.gallery, GALLERIES)}")
    if request.undefined not in POLICIES:
        raise UsageError(f"--undefined: {unknown_name('policy', request.undefined, POLICIES)}")
    if request.unresolved not in UNRESOLVED:
        raise UsageError(f"--unresolved: {unknown_name('policy', request.unresolved, UNRESOLVED)}")
    alarms = request.false_alarms
    if alarms is not None and not 0 < alarms < math.inf:
        raise UsageError(f"--false-alarms must be a number above 0, not {alarms}")


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


def _rule(request: ReportRequest) -> Rule:
    alarms = PER_REPORT if request.false_alarms is None else request.false_alarms
    return Rule(request.undefined, alarms, request.unresolved)


def _against(gates: Sequence[Gate], *, has_ranks: bool) -> list[Against]:
    """The earlier models that these conditions need the last ones to be compared with."""
    names = {gate.metric.name for gate in gates}
    against: list[Against] = ["baseline"]
    against += ["step before"] if names & {"step_drop", "worst_week"} else []
    is_mean = has_ranks and "bwt_gem" in names  # its interval is that of a mean of such drops
    against += ["learned"] if is_mean or "worst_week" in names else []
    return against


def _drops(compared: Sequence[Curve], against: Against, intervals: RankIntervals) -> list[Drop]:
    """The drops against the baseline on all data, or against a later model where that is a loss."""
    chosen = list(compared)
    if against != "baseline":
        outside = [one for one in compared if one.task is None and against == "step before"]
        chosen = [*outside, *earlier_tasks(compared)]
    return drops(chosen, lambda track: track.keys, intervals.of, against)


def _tracks(rows: Sequence[Row], found: JoinedRows, request: ReportRequest) -> tuple[Track, ...]:
    tracks = tuple(collect((row for row in rows if row.since is None), found.starts))
    check_metric(request.metric, tracks)
    tracks = without_tasks(tracks, request.without)
    tracks = tuple(
        replace(track, runs=tuple(replace(run, recent=request.recent) for run in track.runs))
        for track in tracks
    )
    if request.allow_missing:
        return without_unmeasured(tracks)
    for track in tracks:
        require_complete(track)
    return tracks


def _best(
    rows: list[Row], request: ReportRequest, groups: Grouped
) -> tuple[list[Row], tuple[Choice, ...]]:
    """The rows of the best settings on the validation split, or without --best all rows."""
    if request.best is None:
        return rows, ()
    return best_settings(
        rows,
        request.best,
        groups.first,
        lambda track: main_key(track, request.metric),
        allow_missing=request.allow_missing,
    )


def _short_names(rows: Sequence[Row], groups: Grouped) -> dict[str, str]:
    """The first field's value of each line, if no other line or run of these rows has it."""
    runs = {row.run for row in rows}
    lines = {run: groups.first[run] for run in sorted(runs) if run in groups.first}
    counts = Counter([*lines.values(), *(runs - lines.keys())])
    return {line: value for line, value in lines.items() if counts[value] == 1}


def _with_forgotten(
    document: Document,
    rows: Sequence[Row],
    request: ReportRequest,
    files: Files,
    intervals: RankIntervals,
) -> Document:
    """The document with examples of what was forgotten, and the notes on the ranks."""
    most = EXAMPLES if request.examples is None else request.examples
    if not files.ranks or not most:
        return replace(document, notes=(*document.notes, *intervals.notes))
    # Slow to import, as are the ranks.
    from vlcpctl.report.forgotten.finding import find_forgotten, find_lost
    from vlcpctl.report.forgotten.library import Library

    shown = {one for task in files.images for one in task.ids}
    if files.images and shown.isdisjoint(row.data for row in rows):
        raise UsageError("--images has no effect: no row is of the tasks that it names")
    found = find_forgotten(rows, files.ranks, most, request.recent)
    intervals.note_used(found.used)
    # Guards are shown where --images names them: their pictures are what it is given for.
    guards = [one for one in document.curves if one.is_guard and one.is_of(shown)]
    lost = find_lost(guards, files.ranks, most, ("baseline",))
    found = replace(found, tasks=(*lost, *found.tasks))
    splits = frozenset(row.split for row in rows)
    library = Library(files.images, splits) if files.images else None
    return replace(
        document,
        forgotten=replace(found, library=library),
        notes=(*document.notes, *intervals.notes, *found.notes),
    )


def _untrained(rows: Sequence[Row], baseline: Baseline | None) -> frozenset[str]:
    """The names of the baseline if it is an untrained model: conditions are about the runs."""
    if baseline is None:
        return frozenset()
    return frozenset(
        row.run for row in rows if row.step is None and row.checkpoint == baseline.of(row.seed)
    )


def _selected(rows: Sequence[Row], runs: Sequence[str], gallery: str) -> list[Row]:
    """The rows of these runs, or of all, on these galleries.

    Raises UsageError for an unknown run, and BadInput if the runs have rows, but none of these.
    """
    known = {row.run for row in rows}
    for name in runs:
        if name not in known:
            raise UsageError(f"--run: {unknown_name('run', name, known)}")
    wanted = set(runs) or known
    galleries = GALLERIES[gallery]
    # A row of an unknown gallery is kept, so that `collect` refuses it by its place.
    chosen = [
        row
        for row in rows
        if row.run in wanted
        and (row.gallery in galleries or _has_no_gallery(row) or row.gallery not in GALLERIES)
    ]
    if rows and not chosen:
        raise BadInput(
            f"no row is of the {gallery} gallery; 'vlcpctl eval-retrieval --gallery {gallery}' "
            "writes such rows"
        )
    return chosen


def _has_no_gallery(row: Row) -> bool:
    """Whether --gallery does not apply: data outside the stream, or a pair of checkpoints."""
    return row.since is not None or is_outside(row)

"""report/week.html, the page of a week: its facts, from the week and from the one before."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.model_facts import shown, shown_settings
from vlcpctl.checkpoints.step_config import step_config
from vlcpctl.data.tasks.facts import read_stream, read_task
from vlcpctl.files.manifest import MANIFESTS
from vlcpctl.files.outputs import new_part
from vlcpctl.files.rows import Row, read_rows
from vlcpctl.jobs.script import CommandLine
from vlcpctl.metrics.chance import loss_at_chance, margin_of
from vlcpctl.production.attempt import VERDICT_FILE, Attempt, trained_in, verdicts_of
from vlcpctl.production.layout import PAGE, Layout, shown_path, sizes_of
from vlcpctl.production.left_out import described
from vlcpctl.production.records import VERDICT, sealed_record
from vlcpctl.production.seconds import read_seconds
from vlcpctl.report.cards.search import FoundCheckpoint
from vlcpctl.report.cards.settings import flattened
from vlcpctl.report.cards.training_log import read_training_log
from vlcpctl.report.forgotten.changes import Forgotten
from vlcpctl.report.gates import Verdict, verdicts_table
from vlcpctl.report.ranks import RankIntervals
from vlcpctl.report.render.week import (
    MOST_LOST,
    Change,
    LossCurve,
    Settings,
    WeekFacts,
    week_name,
    week_page,
)
from vlcpctl.report.report import Document, Files, ReportRequest, build, drops_of
from vlcpctl.report.scores import Against, Drop, earlier_tasks
from vlcpctl.report.table import Column, RowGroup, Table, TableCell, number_cell
from vlcpctl.training.settings import SIGMOID

_CURVE_POINTS = 300
_TERMS = ("contrastive", "loss")  # the first that a log has is shown
_WEEK = re.compile(r"[0-9]+-week-([0-9]{4})")
_AFTER = re.compile(r"after ([0-9]+)")
_ROLL_OUT = "Roll-out"  # how the title of its table begins


def write_page(place: Layout, attempt: Attempt, line: CommandLine) -> WeekFacts:
    """Write the page of the week in `pending/`, which is judged; returns what it says.

    `line` is that of its report. Raises BadInput if a file of the week cannot be read.
    """
    facts = facts_of_week(place, attempt, line)
    with new_part(place.pending / "report" / PAGE) as temporary:
        temporary.write_text(week_page(facts), encoding="utf-8")
    return facts


def facts_of_week(place: Layout, attempt: Attempt, line: CommandLine) -> WeekFacts:
    """What the page of the judged week in `pending/` says. Raises as `write_page` does."""
    week, last = place.pending, place.week(attempt.number - 1)
    judged = sealed_record(week / VERDICT_FILE, VERDICT)
    verdicts = verdicts_of(judged["verdicts"], week / VERDICT_FILE)
    manifest = CheckpointManifest.read(week / "checkpoint")
    trained = CheckpointManifest.read(trained_in(week))
    document, ranks = _document(attempt, manifest.content, line, last)
    scores = _Scores(document, ranks, attempt, verdicts)
    accepted = replace(place, aside=None).week(attempt.number)
    where = accepted if judged["accepted"] else week
    return WeekFacts(
        state=attempt.settings.run,
        number=attempt.number,
        date=_date(judged),
        page=str(where / "report" / PAGE),
        sources=attempt.sources,
        model=_model(manifest, trained),
        accepted=judged["accepted"],
        verdicts=verdicts,
        attempts=judged.get("attempts", ()),
        warnings=judged.get("warnings", ()),
        learned=scores.learned(),
        kept=scores.kept(),
        guards=scores.guards(),
        settings=_settings(attempt, trained, last),
        data=_data(attempt, week, last if attempt.number > 1 else None),
        lost=_lost(place, attempt, document, ranks),
        loss=_loss(trained_in(week), trained),
        roll_out=_roll_out(document),
        seconds=read_seconds(week),
        disk=sizes_of(week),
        tables=scores.tables(verdicts),
        weeks=scores.names,
    )


def _document(
    attempt: Attempt, checkpoint: str, line: CommandLine, last: Path
) -> tuple[Document, Sequence[Any]]:
    """The report of the last two models, and of each week as it was learned; their ranks."""
    from vlcpctl.evaluation.rank_files import SavedRanks

    words = line.words[1:]
    given = list(pairwise(words))

    def values(option: str) -> list[str]:
        return [value for name, value in given if name == option]

    shown = {attempt.parent, checkpoint}
    rows = [
        row
        for row in read_rows(list(takewhile(lambda word: not word.startswith("-"), words)))
        if row.checkpoint in shown or _is_first(row)
    ]
    files = [*map(Path, values("--ranks")), *sorted((last / "ranks").glob("*.parquet"))]
    ranks = [SavedRanks.open(path) for path in dict.fromkeys(files)]
    request = ReportRequest(
        runs=(attempt.settings.run,),
        guards=tuple(values("--guard")),
        allow_missing=True,
    )
    return build(rows, request, Files(ranks)), ranks


def _is_first(row: Row) -> bool:
    """Whether a row is of a task just learned, or of data outside the stream, or of the start."""
    return row.step is None or row.task_step in {None, row.step}


class _Scores:
    """What the last model scores on its weeks and guards, compared with earlier models."""

    def __init__(
        self,
        document: Document,
        ranks: Sequence[Any],
        attempt: Attempt,
        verdicts: Iterable[Verdict],
    ) -> None:
        self.document, self.number = document, attempt.number
        tasks = {
            name: name for track in document.tracks for run in track.runs for name in run.tasks
        }
        self.names = {
            name: week_name(int(found[1])) for name in tasks if (found := _WEEK.fullmatch(name))
        }
        # Bounds of other metrics are not those of the scores that are shown.
        shown = {"", *(document.key(track) for track in document.tracks)}
        self.bounds = {
            one.name: abs(one.bound)
            for one in verdicts
            if math.isfinite(one.bound) and one.metric.partition(".")[2] in shown
        }
        losses: tuple[Against, ...] = ("step before", "learned")
        intervals = RankIntervals(document.curves, ranks, losses)
        self._of: dict[Against, list[Drop]] = {
            one: drops_of(document.curves, lambda track: [document.key(track)], intervals, one)
            for one in losses
        }

    def _drops(self, against: Against) -> list[Drop]:
        """In the main metric of each track."""
        found = self.document.drops if against == "baseline" else self._of[against]
        return [one for one in found if one.key == self.document.key(one.track)]

    def _earlier(self, against: Against) -> list[Drop]:
        """On the weeks before this one that have test pairs."""
        known = {
            (id(one.track), one.run.name, one.task) for one in earlier_tasks(self.document.curves)
        }
        return [one for one in self._drops(against) if (id(one.track), one.run, one.task) in known]

    def learned(self) -> list[Change]:
        """On the test of the week itself, since the model before it."""
        last = self.number - 1
        found = [one for one in self._drops("step before") if one.task == last]
        name = f"learned: {week_name(self.number)}"
        return _changes([(one, name, week_name(last), None) for one in found])

    def kept(self) -> list[Change]:
        """On the earlier weeks: their mean, and the one that has lost most since either model."""
        learned = [one for one in self._earlier("learned") if one.drop is not None]
        if not learned:
            return []
        found = [_mean(learned, self.bounds.get("bwt_gem"))]
        since = [(one, "learning") for one in learned]
        since += [(one, week_name(self.number - 1)) for one in self._earlier("step before")]
        bound = self.bounds.get("worst_week")
        one, words = max(since, key=lambda pair: pair[0].drop.mean if pair[0].drop else -math.inf)
        if len(learned) > 1 or bound is not None:
            name = f"kept: worst, {self.names.get(one.data, one.data)}"
            found += _changes([(one, name, words, bound)])
        return found

    def guards(self) -> list[Change]:
        """On each guard, since the start and since the model before."""
        since: list[tuple[Drop, str, float | None]] = []
        bound = self.bounds.get("worst_drop", self.bounds.get("drop"))
        since += [(one, week_name(0), bound) for one in self._drops("baseline") if one.is_guard]
        if self.number > 1:
            before, bound = week_name(self.number - 1), self.bounds.get("step_drop")
            since += [(one, before, bound) for one in self._drops("step before") if one.is_guard]
        since.sort(key=lambda found: found[0].data)
        return _changes([(one, one.data, words, bound) for one, words, bound in since])

    def tables(self, verdicts: Sequence[Verdict]) -> list[Table]:
        """The scores on every week and, in every metric, on guards, and the conditions."""
        found = [self._weeks_table(), verdicts_table(verdicts) if verdicts else None]
        for track in self.document.tracks:
            if self.document.guards(track):
                found += self.document.outside_tables(track, has_every_metric=True)[:2]
        found += [one for _, tables in self.document.calibration_sections() for one in tables]
        return [_renamed(one, self.names) for one in found if one is not None]

    def _weeks_table(self) -> Table | None:
        learned, before = self._earlier("learned"), self._earlier("step before")
        if not learned:
            return None
        columns = (
            *(Column("week", is_number=False), Column("images"), Column("when learned")),
            *(Column(week_name(self.number - 1)), Column("now")),
            *(Column("since learned"), Column("95 % interval"), Column("since last week")),
        )
        rows = []
        for one, other in zip(learned, before, strict=True):
            change = Change.of(one, "", "")
            step = Change.of(other, "", "")
            rows.append(
                (
                    TableCell(one.data),
                    TableCell("-" if one.images is None else str(one.images)),
                    *map(number_cell, (one.baseline, other.baseline, one.last)),
                    TableCell(f"{change.points:+.2f}" if change else "-"),
                    TableCell(change.interval if change else "-"),
                    TableCell(f"{step.points:+.2f}" if step else "-"),
                )
            )
        return Table("Earlier weeks, on their own tests", columns, (RowGroup("", tuple(rows)),))


def _changes(
    found: Iterable[tuple[Drop, str, str, float | None]],
) -> list[Change]:
    every = (Change.of(*one) for one in found)
    return [one for one in every if one is not None]


def _mean(learned: Sequence[Drop], bound: float | None) -> Change:
    """The mean over earlier weeks, with its interval if each has one."""
    before, now = (
        math.fsum(one.mean for one in side if one) / len(learned)
        for side in zip(*((one.baseline, one.last) for one in learned), strict=True)
    )
    name = f"kept: mean of {len(learned)} weeks" if len(learned) > 1 else "kept: the earlier week"
    images = [one.images for one in learned if one.images is not None]
    total = sum(images) if len(images) == len(learned) else None
    found = Change(name, "learning", before, now, images=total, bound=bound)
    intervals = [one.interval for one in learned if one.interval is not None]
    if len(intervals) < len(learned):
        return found
    margin = margin_of(math.sqrt(math.fsum(one.error**2 for one in intervals)) / len(intervals))
    return replace(found, low=found.points - margin, high=found.points + margin)


def _renamed(table: Table, names: Mapping[str, str]) -> Table:
    """The table with the one name of each week, and without the column of the run, the only one."""

    def change(text: str) -> str:
        found = _AFTER.fullmatch(text)
        return week_name(int(found[1]) + 1) if found else names.get(text, text)

    notes = tuple(note for note in table.notes if not note.startswith("after N"))
    places = [place for place, one in enumerate(table.columns) if one.name != "run"]
    return replace(table, notes=notes).only(places).with_texts(change)


def _date(judged: Mapping[str, Any]) -> str:
    """When the week was judged, such as "2026-07-04 12:03 UTC"."""
    return f"{str(judged['made_by']['time'])[:16].replace('T', ' ')} UTC"


def _model(manifest: CheckpointManifest, trained: CheckpointManifest) -> str:
    """The deployed model in words: architecture, method, how it was merged, and content."""
    how = dict.fromkeys((trained.method, manifest.method))
    return ", ".join(
        filter(None, (shown(manifest.model or {}), *how, f"checkpoint {manifest.content[:12]}"))
    )


def _settings(attempt: Attempt, manifest: CheckpointManifest, last: Path) -> Settings:
    """Every setting in the last week and in this one, those of training as they were resolved."""
    texts = _texts(manifest, attempt)
    if attempt.number == 1:
        return {name: (text, text) for name, text in texts.items()}
    before = _texts(CheckpointManifest.read(trained_in(last)), Attempt.read(last))
    names = dict.fromkeys([*texts, *before])
    return {name: (before.get(name, "none"), texts.get(name, "none")) for name in names}


def _texts(made: CheckpointManifest, attempt: Attempt) -> dict[str, str]:
    found = flattened((step_config(made) or {})["values"])
    return found | shown_settings(made.model or {}) | _of_update(attempt)


def _of_update(attempt: Attempt) -> dict[str, str]:
    how = attempt.settings
    guards = [*(one.name for one in how.guards), *how.classes]
    reference = {} if how.reference is None else {"reference": how.reference.in_words}
    merging = {"start from": how.start_from, "deploy": how.deploy} if how.merges else {}
    return {
        **merging,
        "gates": ", ".join(how.gates) or "none",
        "guards": ", ".join(guards) or "none",
        **reference,
        "hold-out": how.holdout if how.split_column is None else f"column {how.split_column}",
        "seed": str(how.seed),
    }


def _data(attempt: Attempt, week: Path, last: Path | None) -> Settings:
    """The sources and sizes of the data of the last week and of this one."""
    now = _sizes(attempt, week)
    before = {} if last is None else _sizes(Attempt.read(last), last)
    names = dict.fromkeys([*now, *before])
    return {name: (before.get(name, "-"), now.get(name, "-")) for name in names}


def _sizes(attempt: Attempt, week: Path) -> dict[str, str]:
    stream = read_stream(week / "stream")
    found = {f"{name} images": str(counts.images) for name, counts in stream.totals.items()}
    buffer = read_task(week / "buffer").splits.get("train")
    found["buffer images"] = str(buffer.images if buffer else 0)
    found["captions"] = str(sum(counts.captions for counts in stream.totals.values()))
    found |= {f"skipped: {why}": str(count) for why, count in stream.skipped.items()}
    if stream.left_out:
        found["left out"] = described(stream.left_out, stream.read)
    return {"sources": ", ".join(attempt.sources), **found}


def _lost(
    place: Layout, attempt: Attempt, document: Document, ranks: Sequence[Any]
) -> Forgotten | None:
    """What guards lost since the week before, or where it has no ranks, since the start."""
    from vlcpctl.report.forgotten.finding import find_lost
    from vlcpctl.report.forgotten.library import Library, open_library

    if not attempt.settings.has_guards:
        return None
    guards = [one for one in document.curves if one.is_guard]
    found = find_lost(guards, ranks, MOST_LOST, ("step before", "baseline"))
    words = [guard.path for guard in attempt.settings.guards]
    words += [one.removeprefix("path:") for one in attempt.settings.classes if "path:" in one]
    paths = [shown_path(place.root, word) for word in words]
    tasks = open_library([path for path in paths if (path / MANIFESTS["task"]).is_file()])
    return Forgotten(tuple(found), MOST_LOST, Library(tasks, frozenset({"test"})))


def _loss(checkpoint: Path, manifest: CheckpointManifest) -> LossCurve | None:
    """The contrastive term of the training, or its loss; None without a log."""
    log = read_training_log(FoundCheckpoint(checkpoint, manifest), _CURVE_POINTS)
    curves = {one.term: one for one in log.curves} if log else {}
    term = next((one for one in _TERMS if one in curves), None)
    if term is None:
        return None
    settings = manifest.identity.get("settings") or {}
    batch = settings.get("batch_size")
    if term != _TERMS[0] or not isinstance(batch, int) or batch < 2:
        return LossCurve(curves[term], None)
    return LossCurve(curves[term], loss_at_chance(batch, settings.get("loss") == SIGMOID))


def _roll_out(document: Document) -> Table | None:
    tables = (table for _, found in document.sections(has_matrices=False) for table in found)
    return next((one for one in tables if one.title.startswith(_ROLL_OUT)), None)

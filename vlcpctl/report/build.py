"""Build a document from rows, and write it as a report directory."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlcpctl.core.atomic import already_made, new_directory
from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.core.hashing import canonical_json, content_id
from vlcpctl.core.indented_json import indented_json
from vlcpctl.core.manifest import MANIFESTS
from vlcpctl.core.rows import EarlierCheckpoint, Row
from vlcpctl.report.cards.settings import settings_by_run
from vlcpctl.report.comparability import (
    mixed_notes,
    parse_fields,
    require_alike,
    require_comparable,
)
from vlcpctl.report.document import TITLE, Document, check_metric, definitions_table, main_key
from vlcpctl.report.forgotten.changes import DIRECTORY
from vlcpctl.report.gates.grammar import parse_gate
from vlcpctl.report.gates.verdicts import POLICIES, judge
from vlcpctl.report.published.candidates import Choices
from vlcpctl.report.published.cells import FilledTable, filled
from vlcpctl.report.published.definition import load_table, table_id
from vlcpctl.report.render.forgotten import forgotten_pages, forgotten_sections
from vlcpctl.report.render.gates import gates_markdown
from vlcpctl.report.render.markdown import markdown
from vlcpctl.report.render.page import page
from vlcpctl.report.row_notes import row_notes
from vlcpctl.report.scores.baseline import Baseline, find_baseline
from vlcpctl.report.scores.collect import collect
from vlcpctl.report.scores.drops import curves, drops
from vlcpctl.report.scores.joining import JoinedRows, joined
from vlcpctl.report.scores.missing import notes, require_complete
from vlcpctl.report.scores.runs import Track
from vlcpctl.report.scores.saved_ranks import RankIntervals, files_digest
from vlcpctl.report.summary_json import as_json
from vlcpctl.report.sweeps.best import Choice, best_settings
from vlcpctl.report.sweeps.grouping import Grouped, grouped, parse_group_by
from vlcpctl.report.tables.angles import collect_spatial_tracks

if TYPE_CHECKING:
    from vlcpctl.data.tasks.task import Task
    from vlcpctl.evaluation.rank_files import SavedRanks
    from vlcpctl.report.cards.runs import Cards

# Fields that rows got with schema 1.1 or later: rows without them keep the identity they had.
_NEW_FIELDS = frozenset(
    {
        *("data", "data_was", "limit", "options", "config", "start", "parent", "preset"),
        *("counts", "is_earlier"),
    }
)

_NOT_STORED = frozenset({"counts", "is_earlier", "place"})
# Rows share most of their fields with rows of the same checkpoint, task or evaluator: the text of
# each part, which begins with one of these names, is made once.
_PART_BEGINS = frozenset({"buffer", "data", "degrees", "metrics", "options", "task"})
_BY_IDENTITY = frozenset({"buffer", "config", "degrees", "options", "tasks"})

EXAMPLES = 12
GALLERIES = {"own": ("own",), "merged": ("merged",), "both": ("own", "merged")}


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of a report, as `forgetting-report` takes them."""

    metric: str | None = None
    gallery: str = "both"
    runs: Sequence[str] = ()
    fail_if: Sequence[str] = ()
    allow_missing: bool = False
    allow_mixed: Sequence[str] = ()
    baseline: str | None = None
    guards: Sequence[str] = ()
    undefined: str = "error"
    tables: Sequence[str] = ()
    paper_data: bool = False
    examples: int | None = None  # of what was forgotten, in a list; None: EXAMPLES
    group_by: Sequence[str] = ()
    best: str | None = None


def build(
    rows: Sequence[Row],
    request: Request,
    ranks: Sequence[SavedRanks] = (),
    images: Sequence[Task] = (),
    cards: Cards | None = None,
) -> Document:
    """Build the report of these rows, with intervals and examples from these ranks.

    The pictures and captions of examples are from the tasks `images`.

    Raises UsageError for an unknown gallery, run, metric, field, condition, policy, baseline,
    guard or table, and BadInput if rows contradict each other, cannot be compared (but for the
    fields of `allow_mixed`) or (without `allow_missing`) are missing, if the rows lack the
    baseline, or if a table has a mistake.
    """
    if request.gallery not in GALLERIES:
        raise UsageError(f"--gallery: {unknown_name('gallery', request.gallery, GALLERIES)}")
    if request.undefined not in POLICIES:
        raise UsageError(f"--undefined: {unknown_name('policy', request.undefined, POLICIES)}")
    allowed = parse_fields(request.allow_mixed)
    fields_ = parse_group_by(request.group_by)
    baseline = None if request.baseline is None else find_baseline(request.baseline, rows)
    groups = grouped(rows, fields_, request.runs, allowed)
    found = joined(groups.rows, kept=groups.runs, allow_mixed=allowed, baseline=baseline)
    chosen = _selected(found.rows, replace(request, runs=groups.runs))
    mixed = require_comparable(chosen, allowed)
    chosen, choices = _best(chosen, request, groups)
    tracks = tuple(collect((row for row in chosen if row.since is None), found.starts))
    check_metric(request.metric, tracks)
    if not request.allow_missing:
        for track in tracks:
            require_complete(track)
    compared = curves(tracks, found, chosen, baseline, request.guards)
    require_alike((pair for one in compared for pair in one.pairs), allowed)
    intervals = RankIntervals(compared, ranks)
    document = Document(
        tracks,
        request.metric,
        GALLERIES[request.gallery],
        (
            *groups.notes(fields_),
            *(choice.sentence() for choice in choices),
            *mixed_notes(mixed),
            *notes(tracks),
            *row_notes(chosen),
            *(cards.notes if cards else ()),
        ),
        mixed=mixed,
        curves=tuple(compared),
        drops=tuple(drops(compared, lambda track: track.keys, intervals.of)),
        baseline=request.baseline,
        has_ranks=bool(ranks),
        cards=cards,
        settings=settings_by_run(chosen, cards),
        spatial_tracks=collect_spatial_tracks(row for row in chosen if row.since is not None),
        groups=groups.members,
        choices=choices,
    )
    document = _with_forgotten(document, chosen, request, ranks, images)
    forgotten = document.forgotten
    if forgotten is not None:
        intervals.note_used(forgotten.used)
    more = () if forgotten is None else forgotten.notes
    document = replace(document, notes=(*document.notes, *intervals.notes, *more))
    keys = dict.fromkeys(key for track in tracks for key in track.keys)
    document = replace(document, published=_published(document, request, keys, chosen, found))
    gates = [parse_gate(text, keys) for text in request.fail_if]
    judged = [_without_baseline(track, chosen, baseline) for track in tracks]
    verdicts = judge(gates, judged, document.drops, document.key, request.undefined)
    return replace(document, verdicts=tuple(verdicts))


def _best(
    rows: list[Row], request: Request, groups: Grouped
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


def _published(
    document: Document,
    request: Request,
    keys: Collection[str],
    rows: Sequence[Row],
    found: JoinedRows,
) -> tuple[FilledTable, ...]:
    """The tables of papers that are chosen, each once, with the values of these rows."""
    if not request.tables:
        return ()
    choices = Choices(document.tracks, document.drops, rows, found.starts)
    tables = (load_table(name, keys) for name in dict.fromkeys(request.tables))
    return tuple(filled(one, choices, is_paper_data=request.paper_data) for one in tables)


def _with_forgotten(
    document: Document,
    rows: Sequence[Row],
    request: Request,
    ranks: Sequence[SavedRanks],
    images: Sequence[Task],
) -> Document:
    most = EXAMPLES if request.examples is None else request.examples
    if not ranks or not most:
        return document
    # Slow to import, as are the ranks.
    from vlcpctl.report.forgotten.finding import find_forgotten
    from vlcpctl.report.forgotten.library import Library

    found = find_forgotten(rows, ranks, most)
    splits = frozenset(row.split for row in rows)
    library = Library(images, splits) if images else None
    return replace(document, forgotten=replace(found, library=library))


def _without_baseline(track: Track, rows: Sequence[Row], baseline: Baseline | None) -> Track:
    """The track without the baseline if it is an untrained model: conditions are about the runs."""
    if baseline is None:
        return track
    names = {
        row.run
        for row in rows
        if row.step is None
        and row.checkpoint is not None
        and row.checkpoint == baseline.of(row.seed)
    }
    return replace(
        track, runs=tuple(run for run in track.runs if run.steps or run.name not in names)
    )


def identity(
    rows: Sequence[Row],
    request: Request,
    ranks: Sequence[SavedRanks] = (),
    images: Sequence[Task] = (),
    cards: Cards | None = None,
) -> dict[str, Any]:
    """What determines a written report: rows, options, ranks and cards, not where these are.

    Images that were rewritten count as others: a report may show pairs that were removed from them.
    """
    wanted = asdict(request)
    wanted["runs"], wanted["fail_if"] = sorted(request.runs), list(request.fail_if)
    if request.allow_mixed:
        wanted["allow_mixed"] = sorted(parse_fields(request.allow_mixed))
    else:
        del wanted["allow_mixed"]
    if request.undefined == "error":  # reports that were written before there was a choice
        del wanted["undefined"]
    wanted["guards"] = sorted(set(request.guards))
    # The text of a table counts, not its place: a file of the user may change.
    wanted["tables"] = [table_id(name) for name in dict.fromkeys(request.tables)]
    wanted["group_by"] = list(parse_group_by(request.group_by))
    for name in ("tables", "paper_data", "group_by", "best"):
        if not wanted[name]:
            del wanted[name]
    for name in ("baseline", "guards"):
        if not wanted[name]:
            del wanted[name]
    if request.examples is None:
        del wanted["examples"]
    of_ranks: dict[str, Any] = {"ranks": files_digest(ranks)} if ranks else {}
    of_images = {"images": sorted({task.content for task in images})} if images else {}
    of_cards = {"checkpoints": cards.digest} if cards else {}
    of_files = {**of_ranks, **of_images, **of_cards}
    return {"rows": content_id(sorted(_row_texts(rows))), **wanted, **of_files}


def _row_texts(rows: Sequence[Row]) -> list[str]:
    """The canonical JSON of each row: its known fields in the order of their names."""
    parts = [_part_texts(rows, names) for names in _parts()]
    return [f"{{{','.join(filter(None, of_row))}}}" for of_row in zip(*parts, strict=True)]


def _parts() -> list[list[str]]:
    found: list[list[str]] = []
    for name in sorted(one.name for one in fields(Row) if one.name not in _NOT_STORED):
        if name in _PART_BEGINS:
            found.append([])
        found[-1].append(name)
    return found


def _part_texts(rows: Sequence[Row], names: Sequence[str]) -> Iterator[str]:
    if "metrics" in names:  # which rows do not share
        yield from (_fields_text(row, names) for row in rows)
        return
    objects = [name for name in names if name in _BY_IDENTITY]
    others = attrgetter("is_earlier", *(name for name in names if name not in _BY_IDENTITY))
    texts: dict[Hashable, str] = {}
    for row in rows:
        key = others(row), *[id(getattr(row, name)) for name in objects]
        text = texts.get(key)
        if text is None:
            text = texts[key] = _fields_text(row, names)
        yield text


def _fields_text(row: Row, names: Iterable[str]) -> str:
    values = [(name, getattr(row, name)) for name in names]
    parts = [
        f'"{name}":{_field_text(value)}'
        for name, value in values
        if (not row.is_earlier if name == "options" else value or name not in _NEW_FIELDS)
    ]
    return ",".join(parts)


def _field_text(value: object) -> str:
    return canonical_json(asdict(value) if isinstance(value, EarlierCheckpoint) else value)


def _selected(rows: Sequence[Row], request: Request) -> list[Row]:
    known = {row.run for row in rows}
    for name in request.runs:
        if name not in known:
            raise UsageError(f"--run: {unknown_name('run', name, known)}")
    wanted = set(request.runs) or known
    galleries = GALLERIES[request.gallery]
    # A row of an unknown gallery is kept, so that `collect` refuses it by its place.
    return [
        row
        for row in rows
        if row.run in wanted
        and (row.gallery in galleries or _has_no_gallery(row) or row.gallery not in GALLERIES)
    ]


def _has_no_gallery(row: Row) -> bool:
    """Whether --gallery does not apply: data outside the stream, or a pair of checkpoints."""
    return row.since is not None or (row.gallery == "own" and row.task_step is None)


def write_report(document: Document, identity: dict[str, Any], out: Path, *, force: bool) -> bool:
    """Write the report directory; False if it already holds this very report.

    Raises OutputExists if `out` holds anything else, unless `force`.
    """
    if already_made(out, "report", identity, force=force):
        return False
    manifest = MANIFESTS["report"]
    summary = indented_json(as_json(document, identity))
    with new_directory(out, manifest) as directory:
        (directory / "report.html").write_text(page(document), encoding="utf-8")
        sections = [*document.published_sections(), *document.sections(has_every_metric=True)]
        text = markdown(
            TITLE,
            document.notes,
            [*sections, *forgotten_sections(document)],
            definitions_table(),
            first=gates_markdown(document),
        )
        (directory / "report.md").write_text(text, encoding="utf-8")
        _write_pages(document, directory / DIRECTORY)
        (directory / manifest).write_text(summary + "\n", encoding="utf-8")
    return True


def _write_pages(document: Document, directory: Path) -> None:
    """The pages of what was forgotten, if there are any."""
    for name, text in forgotten_pages(document):
        directory.mkdir(exist_ok=True)
        (directory / name).write_text(text, encoding="utf-8")

"""report/week.html, the page of a week: its facts, from the week and from the one before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from vlcpctl.production.attempt import VERDICT_FILE, Attempt, trained_in, verdicts_of
from vlcpctl.production.layout import PAGE, Layout, shown_path, sizes_of
from vlcpctl.production.left_out import described
from vlcpctl.production.records import VERDICT, sealed_record
from vlcpctl.production.seconds import read_seconds
from vlcpctl.report.report import Document, Files, ReportRequest, build
from vlcpctl.report.training import setting_texts
from vlcpctl.report.week import Pairs, Week, week_page


def write_page(place: Layout, attempt: Attempt, line: CommandLine, width: int | None) -> list[str]:
    """Write the page of the judged week in `pending/`; returns its lines for a terminal.

    `line` is that of its report. Raises BadInput if a file of the week cannot be read.
    """
    week, document, ranks = read_week(place, attempt, line)
    page, lines = week_page(week, document, ranks, width)
    with new_part(place.pending / "report" / PAGE) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return lines


def read_week(
    place: Layout, attempt: Attempt, line: CommandLine
) -> tuple[Week, Document, Sequence[Any]]:
    """What the page says of the judged week, its report and ranks. Raises as `write_page` does."""
    week, last = place.pending, place.week(attempt.number - 1)
    judged = sealed_record(week / VERDICT_FILE, VERDICT)
    verdicts = verdicts_of(judged["verdicts"], week / VERDICT_FILE)
    manifest = CheckpointManifest.read(week / "checkpoint")
    trained = CheckpointManifest.read(trained_in(week))
    document, ranks = _document(attempt, manifest.content, line, last)
    accepted = replace(place, aside=None).week(attempt.number)
    about = Week(
        state=attempt.settings.run,
        number=attempt.number,
        date=_date(judged),
        page=str((accepted if judged["accepted"] else week) / "report" / PAGE),
        sources=attempt.sources,
        model=_model(manifest, trained),
        accepted=judged["accepted"],
        warnings=judged.get("warnings", ()),
        attempts=[bool(one.get("accepted")) for one in judged.get("attempts", ())],
        settings=_settings(attempt, trained, last),
        data=_data(attempt, week, last if attempt.number > 1 else None),
        images=_images(place, attempt),
        checkpoint=trained_in(week),
        seconds=read_seconds(week),
        disk=sizes_of(week),
    )
    return about, replace(document, verdicts=tuple(verdicts)), ranks


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


def _date(judged: Mapping[str, Any]) -> str:
    """When the week was judged, such as "2026-07-04 12:03 UTC"."""
    return f"{str(judged['made_by']['time'])[:16].replace('T', ' ')} UTC"


def _model(manifest: CheckpointManifest, trained: CheckpointManifest) -> str:
    """The deployed model in words: architecture, method, how it was merged, and content."""
    how = dict.fromkeys((trained.method, manifest.method))
    return ", ".join(
        filter(None, (shown(manifest.model or {}), *how, f"checkpoint {manifest.content[:12]}"))
    )


def _settings(attempt: Attempt, manifest: CheckpointManifest, last: Path) -> Pairs:
    """Every setting in the last week and in this one, those of training as they were resolved."""
    texts = _texts(manifest, attempt)
    if attempt.number == 1:
        return {name: (text, text) for name, text in texts.items()}
    before = _texts(CheckpointManifest.read(trained_in(last)), Attempt.read(last))
    names = dict.fromkeys([*texts, *before])
    return {name: (before.get(name, "none"), texts.get(name, "none")) for name in names}


def _texts(made: CheckpointManifest, attempt: Attempt) -> dict[str, str]:
    found = setting_texts((step_config(made) or {})["values"])
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


def _data(attempt: Attempt, week: Path, last: Path | None) -> Pairs:
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


def _images(place: Layout, attempt: Attempt) -> list[Path]:
    """The tasks of the guards, which have the pictures of what was lost."""
    words = [guard.path for guard in attempt.settings.guards]
    words += [one.removeprefix("path:") for one in attempt.settings.classes if "path:" in one]
    paths = [shown_path(place.root, word) for word in words]
    return [path for path in paths if (path / MANIFESTS["task"]).is_file()]

"""report/week.html, the page of a week: what update knows beside its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.model_facts import shown
from vlcpctl.checkpoints.model_facts import shown_settings as of_model
from vlcpctl.checkpoints.step_config import step_config
from vlcpctl.data.splitting.leaving_out import sentence
from vlcpctl.data.tasks.facts import read_stream, read_task
from vlcpctl.files.manifest import MANIFESTS
from vlcpctl.files.outputs import new_part
from vlcpctl.files.rows import read_rows
from vlcpctl.production.changes import doubts
from vlcpctl.production.lines import Lines, Report
from vlcpctl.production.settings import shown_settings
from vlcpctl.production.state import PASSED, Attempt, State
from vlcpctl.report.comparable import parse_fields
from vlcpctl.report.report import Document, Files, build, identity
from vlcpctl.report.training import setting_texts
from vlcpctl.report.week import Pairs, Week, week_page
from vlcpctl.report.write import write_report

if TYPE_CHECKING:
    from vlcpctl.evaluation.rank_files import SavedRanks

_BOTH = "judged is the mean of two trainings"


def report_of(report: Report) -> tuple[Document, list[SavedRanks]]:
    """Write the report of a week; returns it, and its ranks.

    It is made in this process, so that its page is made of the same report. Raises as `build` and
    `write_report` do.
    """
    from vlcpctl.evaluation.rank_files import SavedRanks  # slow to import

    rows = read_rows(report.rows, parse_fields(report.request.allow_mixed))
    ranks = [SavedRanks.open(Path(one)) for one in report.ranks]
    document = build(rows, report.request, Files(ranks))
    about = identity(rows, report.request, Files(ranks))
    write_report(document, about, report.out, force=False)
    return document, ranks


def write_page(lines: Lines, document: Document, ranks: Sequence[SavedRanks]) -> list[str]:
    """Write the page of a judged attempt with this report; returns its lines for the terminal.

    Raises BadInput if a file of the week cannot be read.
    """
    page = lines.state.page(lines.made)
    text, said = week_page(_week(lines, page), document, ranks)
    with new_part(page) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return said


def _week(lines: Lines, page: Path) -> Week:
    state, made, last = lines.state, lines.made, lines.head[-1]
    place = state.place(made)
    before = _settings(state, last) if last.week else {}
    how = _beside(before, _settings(state, made), "none") if before else {}
    deployed = CheckpointManifest.read(state.made(made, "checkpoint"))
    trained = CheckpointManifest.read(state.trained(made))
    methods = dict.fromkeys((trained.method, deployed.method))
    model = (shown(deployed.model or {}), *methods, f"checkpoint {deployed.content[:12]}")
    guards = [*lines.settings.paths(state.root, "guard"), *lines.settings.classes(state.root)]
    images = [one for one in map(Path, guards) if (one / MANIFESTS["task"]).is_file()]
    return Week(
        state=str(lines.settings.own("run")),
        number=made.week,
        date=f"{made.judged[:16].replace('T', ' ')} UTC",
        page=str(page),
        sources=made.names,
        model=", ".join(filter(None, model)),
        accepted=made.status == PASSED,
        warnings=made.warnings,
        remarks=[*doubts(made.match, lines.head), *([_BOTH] if made.lost else [])],
        settings={name: pair for name, pair in how.items() if pair[0] != pair[1]},
        data=_beside(_data(state, last) if last.week else {}, _data(state, made), "-"),
        images=images,
        checkpoint=state.trained(made),
        seconds=sum(made.seconds.values()),
        disk=sum(x.stat().st_size for x in place.rglob("*") if x.is_file() and x != page),
    )


def _beside(before: Mapping[str, str], now: Mapping[str, str], none: str) -> Pairs:
    """Each value in the last week and in this one."""
    names = dict.fromkeys([*now, *before])
    return {name: (before.get(name, none), now.get(name, none)) for name in names}


def _settings(state: State, made: Attempt) -> dict[str, str]:
    """Every setting, those of the training as they were resolved."""
    manifest = CheckpointManifest.read(state.trained(made))
    resolved = setting_texts((step_config(manifest) or {})["values"]) | of_model(
        manifest.model or {}
    )
    own = {name: values for name, values in made.settings.items() if name != "train-step"}
    return resolved | shown_settings(own)


def _data(state: State, made: Attempt) -> dict[str, str]:
    stream = read_stream(state.place(made) / "stream")
    found = {f"{name} images": str(counts.images) for name, counts in stream.totals.items()}
    path = state.made(made, "buffer")
    buffer = read_task(path).splits.get("train") if path.exists() else None
    found["buffer images"] = str(buffer.images if buffer else 0)
    found["captions"] = str(sum(counts.captions for counts in stream.totals.values()))
    found |= {f"skipped: {why}": str(count) for why, count in stream.skipped.items()}
    if stream.left_out:
        found["left out"] = sentence(stream.left_out, stream.read)
    if made.match is not None:
        found["week match"] = str(made.match)
    return {"sources": ", ".join(made.names), **found}

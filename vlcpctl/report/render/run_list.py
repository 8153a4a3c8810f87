"""The list of runs on top of the page: the key to every chart, and what page.js sorts by."""

from __future__ import annotations

from collections.abc import Mapping

from vlcpctl.report.charts.legend import sample
from vlcpctl.report.charts.style import RunStyle
from vlcpctl.report.document import Document
from vlcpctl.report.markup import Markup, element
from vlcpctl.report.scores.runs import RunScores, Track
from vlcpctl.report.scores.summary import summarise
from vlcpctl.report.tables.comparison import headline

_NOTE = "The lines and markers of the runs, the same in every chart."


def run_list(document: Document, styles: Mapping[str, RunStyle]) -> Markup:
    """Every run with its line; empty for a single run.

    The attributes of an entry are facts of the first track that has the run. page.js makes the
    list a panel of controls: to filter, hide, group and sort runs.
    """
    if len(styles) < 2:
        return Markup("")
    found: dict[str, tuple[Track, RunScores]] = {}
    for track in document.tracks:
        for run in track.runs:
            found.setdefault(run.name, (track, run))
    items = []
    for name, style in styles.items():
        facts = _facts(document, *found[name]) if name in found else {}
        text = element("span", name, class_="name")
        is_level = name in found and found[name][1].final_only
        line = sample(style, is_level=is_level)
        items.append(element("li", line, text, data_run=style.number, **facts))
    return element(
        "section",
        element("h2", f"Runs ({len(items)})"),
        element("p", _NOTE, class_="about"),
        element("ul", *items, class_="legend"),
        id="runs",
    )


def _facts(document: Document, track: Track, run: RunScores) -> dict[str, object]:
    """The attributes of a run's entry: group, method, and its score and forgetting if defined."""
    key = document.key(track)
    score, forgetting = headline(run, key), summarise(run, key, "forgetting_max")
    return {
        "data-group": run.group,
        "data-method": f"{run.method}, {run.buffer}" if run.buffer else run.method,
        "data-score": f"{score:.6g}" if score > float("-inf") else None,
        "data-forgetting": None if forgetting is None else f"{forgetting.mean:.6g}",
    }

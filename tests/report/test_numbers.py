"""Every number in a table of the page is in facts.csv, or follows from its scores as it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from support.eval_rows import own_rows, read_back
from support.report_rows import run_rows
from support.run_checkpoints import write_run

from vlcpctl.core.words import size
from vlcpctl.report.page import page
from vlcpctl.report.report import Document, Files, ReportRequest, build, facts_csv, read_facts
from vlcpctl.report.training import read_cards

NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?![\w.])")


def _shown(text: str) -> Iterator[tuple[str, str]]:
    """(title of the table, number with decimals) of each cell below the heads of the page."""
    body = text.partition("<main>")[2].partition("</main>")[0].replace("\u2212", "-")
    for table in re.findall(r"<table.*?</table>", body, flags=re.DOTALL):
        title = re.search(r'<caption>(.*?)</caption>|aria-label="([^"]*)"', table)
        for cell in re.split(r"<td|<th", table.partition("</thead>")[2]):
            for number in NUMBER.findall(re.sub(r"^[^>]*>|<[^>]*>", " ", cell)):
                yield str(title and (title[1] or title[2])), number


def _derived(facts: list[dict[str, Any]]) -> Iterator[list[float]]:
    """The values over seeds of what the tables compute from scores on own galleries."""
    scores = [f for f in facts if f["metric"] == "score" and f["gallery"] == "own"]
    for _, found in groupby(scores, lambda one: (one["run"], one["key"], one["split"])):
        of = {(f["step"], f["data"]): f["values"] for f in found}
        names = sorted({data for _, data in of if data[0].isdigit()})  # not the guard
        last = max(int(step) for step, _ in of if step != "start")
        pairs = [(of[str(task), name], of[str(last), name])
                 for task, name in enumerate(names[:last]) if (str(task), name) in of]  # fmt: skip
        lost = [[a - b for a, b in zip(*pair, strict=True)] for pair in pairs]
        yield from lost
        yield from ([100 * (a - b) / a for a, b in zip(*pair, strict=True) if a] for pair in pairs)
        sides = [list(zip(*side, strict=True)) for side in zip(*pairs, strict=True)]
        if sides:
            yield [fmean(of_seed) for of_seed in zip(*lost, strict=True)]


def _known(document: Document) -> set[str]:
    facts = read_facts("".join(facts_csv(document)))
    numbers = [
        one[name]
        for one in facts
        for name in ("value", "sd", "low", "high")
        if one[name] is not None
    ]
    for values in _derived(facts):
        numbers += [fmean(values), *([stdev(values)] if len(values) > 1 else [])]
    bytes_of = [one["value"] for one in facts if one["metric"] == "cost"]
    found = {size(round(value)).split()[0] for value in bytes_of}
    return found | {
        f"{round(one, digits) + 0.0:.{digits}f}" for one in numbers for digits in (1, 2)
    }


def _of_runs(path: Path) -> Document:
    rows = [*run_rows(4, 5, 2, joint=True)]
    return build(read_back(path / "rows.ndjson", rows), ReportRequest())


def _of_checkpoints(path: Path) -> Document:
    rows = read_back(path / "rows.ndjson", own_rows())
    cards = read_cards([write_run(path / "ctp", slots=1500)], rows)
    return build(rows, ReportRequest(), Files(cards=cards))


@pytest.mark.parametrize("make", [_of_runs, _of_checkpoints])
def test_every_number_of_the_page_is_in_facts_csv(make: Any, tmp_path: Path) -> None:
    document = make(tmp_path)
    shown, known = [*_shown(page(document))], _known(document)
    assert len(shown) > 15
    assert [one for one in shown if one[1] not in known] == []

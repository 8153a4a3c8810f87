"""The tables of docs/results/leaderboard.md, from the reports that recipes/leaderboard.sh has made.

    python recipes/leaderboard_table.py DIR chosen.tsv    prints Markdown; DIR holds the reports

Every number is from facts.csv of a report or from chosen.tsv. Rows are sorted by the score of
the last model on the merged gallery; means and standard deviations are over seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlcpctl.report.report import FACTS, read_facts

METRIC = "rm"
COLUMNS = {
    "merged_final": "merged `rm`, last model",
    "own_learned": "own `rm`, just learned",
    "own_final": "own `rm`, last model",
    "forgetting_max": "`forgetting_max`",
}
REPORTS = {
    "memory-free": "Memory-free",
    "buffered": "With a buffer",
    "ablations": "Ablations",
}


def read_chosen(path: Path) -> dict[str, list[str]]:
    """The columns of chosen.tsv after the row's name, by that name."""
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    return {name: columns for name, *columns in lines}


def read_runs(report: Path) -> list[dict[str, Any]]:
    """The runs of a report, the best first."""
    runs: dict[str, dict[str, Any]] = {}
    for fact in read_facts((report / FACTS).read_text(encoding="utf-8")):
        if fact["metric"] in COLUMNS and fact["key"] == METRIC and fact["value"] is not None:
            runs.setdefault(fact["run"], {"run": fact["run"]})[fact["metric"]] = fact
    return sorted(runs.values(), key=lambda run: -run["merged_final"]["value"])


def cell(value: dict[str, Any] | None) -> str:
    """Mean and, of several seeds, standard deviation.

    >>> cell({"value": 7.104, "sd": 1.2}), cell(None)
    ('7.10 (1.20)', '-')
    """
    if value is None:
        return "-"
    deviation = "" if value["sd"] is None else f" ({value['sd']:.2f})"
    return f"{value['value']:.2f}{deviation}"


def table(runs: Sequence[dict[str, Any]], chosen: dict[str, list[str]]) -> list[str]:
    """Lines of Markdown: a row for each run, with the setting that was chosen for it, if any."""
    seeds = ", ".join(str(seed) for seed in runs[0]["merged_final"]["seeds"])
    first, *rest = COLUMNS.values()
    lines = [f"| {' | '.join(['row', 'setting', first, f'seeds {seeds}', *rest])} |"]
    lines.append("|---" * (len(COLUMNS) + 3) + "|")
    for run in runs:
        name = run["run"].split(" alpha=")[0]
        rate, settings = chosen.get(name, ["", ""])[:2]
        setting = ", ".join(filter(None, (rate, settings.replace(",", ", "))))
        scores = [run.get(column) for column in COLUMNS]
        values = ", ".join(f"{value:.2f}" for value in scores[0]["values"])
        cells = [f"`{name}`", setting, cell(scores[0]), values, *map(cell, scores[1:])]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def choices(chosen: dict[str, list[str]]) -> list[str]:
    """Lines of Markdown: what was tried for each row, and its score."""
    lines = ["| row | merged `rm` on the validation split, of each setting |", "|---|---|"]
    return lines + [f"| `{name}` | {columns[3]} |" for name, columns in chosen.items()]


def main(reports: Path, chosen_file: Path) -> None:
    """Print the tables of the reports that exist."""
    chosen = read_chosen(chosen_file)
    for name, title in REPORTS.items():
        if (reports / name / FACTS).is_file():
            print(f"## {title}", "", *table(read_runs(reports / name), chosen), "", sep="\n")
    print("## What was tried", "", *choices(chosen), sep="\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("give the directory of the reports and chosen.tsv")
    main(Path(sys.argv[1]), Path(sys.argv[2]))

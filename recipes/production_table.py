"""The table of docs/results/weekly.md, from the weekly reports of recipes/production.sh.

    python recipes/production_table.py DIR    prints Markdown; DIR is the recipe's --out

Numbers are from facts.csv of a report, verdicts from summary.json; only means are computed.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from vlcpctl.report.report import FACTS, read_facts

METRIC = "rm"
GUARD = "00-pairs"  # the production model's own test set
OLD, NEW = "bwt_gem:", "worst_drop:"  # how the conditions of the two gates start
LIBRARIES = ("vlcpctl", "torch", "open_clip_torch", "numpy")


class Report(NamedTuple):
    """The verdicts of a report, and its facts in METRIC."""

    verdicts: Sequence[dict[str, Any]]
    facts: Sequence[dict[str, Any]]

    def of(self, run: str, metric: str) -> list[dict[str, Any]]:
        """The facts of a run in a metric."""
        return [one for one in self.facts if (one["run"], one["metric"]) == (run, metric)]


def read_reports(out: Path) -> list[Report]:
    """The weekly reports, from the first week on."""
    return [
        Report(
            json.loads((path.parent / "summary.json").read_text())["verdicts"],
            [one for one in read_facts(path.read_text()) if one["key"] == METRIC],
        )
        for path in sorted(out.glob(f"report/*/{FACTS}"))
    ]


def spread(values: Sequence[float]) -> str:
    """Mean and, of several seeds, standard deviation.

    >>> spread([70.0, 72.0])
    '71.0 (1.4)'
    """
    deviation = f" ({statistics.stdev(values):.1f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{deviation}"


def guard_scores(report: Report, run: str) -> dict[str, list[float]]:
    """The guard's mean recall by step ("start", "0", ...), one value per seed."""
    return {one["step"]: one["values"] for one in report.of(run, "score") if one["data"] == GUARD}


def learned(report: Report, run: str) -> float:
    """The last model's mean recall over the weeks so far, averaged over seeds."""
    (found,) = report.of(run, "own_final")
    return float(found["value"])


def backward(report: Report, run: str) -> str:
    """Mean and spread of bwt_gem; a dash where it is not defined."""
    (found,) = report.of(run, "bwt_gem")
    return spread(found["values"]) if found["values"] else "-"


def outcomes(reports: Sequence[Report], run: str, gate: str) -> str:
    """The verdicts of a gate, and from which week on if they change."""
    found = [
        verdict["outcome"]
        for report in reports
        for verdict in report.verdicts
        if verdict["run"] == run and verdict["condition"].startswith(gate)
    ]
    defined = [one for one in found if not one.startswith("not defined yet")]
    if len(set(defined)) == 1:
        return defined[0]
    changes = [week for week, one in enumerate(found) if week == 0 or one != found[week - 1]]
    return ", ".join(f"{found[week]} from week {week + 1}" for week in changes)


def table(reports: Sequence[Report]) -> list[str]:
    """The lines of the table: one row per run, in the order of the guard's last score."""
    last = reports[-1]
    runs = [
        one["run"]
        for one in last.facts
        if one["metric"] == "own_final" and one["method"] != "imported"
    ]
    guard = {run: guard_scores(last, run) for run in runs}
    weeks = len(reports)
    heads = ("method", "guard, week 1", f"guard, week {weeks}", f"weeks 1 to {weeks}", "`bwt_gem`")
    heads += ("gate on `bwt_gem`", "gate on `worst_drop`")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for run in sorted(runs, key=lambda run: -statistics.mean(guard[run][str(weeks - 1)])):
        cells = (
            f"`{run}`",
            spread(guard[run]["0"]),
            spread(guard[run][str(weeks - 1)]),
            f"{learned(last, run):.1f}",
            backward(last, run),
            outcomes(reports, run, OLD),
            outcomes(reports, run, NEW),
        )
        lines.append(f"| {' | '.join(cells)} |")
    start = statistics.mean(guard[runs[0]]["start"])
    return [f"The production model has {start:.1f} on its own test set.", "", *lines]


def machine() -> str:
    """Processor, cores and versions in one line."""
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"{libraries}"
    )


def main(out: Path) -> None:
    """Print the table and the line of the machine."""
    print("\n".join([*table(read_reports(out)), "", f"Made on: {machine()}."]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

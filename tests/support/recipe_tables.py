"""What a recipe gives a published table: the runs, and the data that they are evaluated on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from support.recipe_lines import options_of_command

from vlcpctl.data.classification.benchmarks import GROUPS
from vlcpctl.jobs.script import CommandLine
from vlcpctl.report.published.definition import PublishedTable

EVALUATORS = ("eval-retrieval", "eval-zeroshot", "eval-probe", "spatial-report")


@dataclass(frozen=True)
class Reported:
    """The rows that the report with a table reads: runs and data by name."""

    runs: frozenset[str]
    data: frozenset[str]

    def lacks(self, table: PublishedTable) -> list[str]:
        """Patterns of the table, as FIELD=GLOB, that match none of these."""
        pairs = {("run", row.run) for row in table.rows if row.run}
        selectors = [
            table.selectors,
            *(one.selectors for one in table.columns),
            *(one.selectors for one in table.rows),
        ]
        pairs |= {pair for one in selectors for pair in one if pair[0] in {"run", "data"}}
        known = {"run": self.runs, "data": self.data}
        return sorted(
            f"{field}={glob}"
            for field, glob in pairs
            if not any(fnmatchcase(name, glob) for name in known[field])
        )


def reported(lines: list[CommandLine], table: str) -> Reported:
    """What the report that names the table reads."""
    (report,) = (
        given
        for given in options_of_command(lines, "forgetting-report")
        if table in (given["table"] or ())
    )
    files = set(report["rows"])
    names = {
        str(given["out"]): given["run_name"] or given["method"]
        for given in options_of_command(lines, "train-step")
    }
    runs, data = set[str](), set[str]()
    for command in EVALUATORS:
        for given in options_of_command(lines, command):
            if str(given["out"]) in files:
                runs |= {
                    names[str(one)] for one in _paths(given["checkpoint"]) if str(one) in names
                }
                data |= set(_data_names(given))
    return Reported(frozenset(runs), frozenset(data))


def tables_of(lines: list[CommandLine]) -> list[tuple[str, ...]]:
    """The tables that each report names."""
    return [tuple(given["table"] or ()) for given in options_of_command(lines, "forgetting-report")]


def _paths(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _data_names(given: dict[str, Any]) -> list[str]:
    """The names that rows give to the data of an evaluation, and to their average."""
    words = [str(one) for one in given.get("data_sets") or given.get("tasks") or ()]
    names = [Path(name).name for word in words for name in GROUPS.get(word, (word,))]
    is_zeroshot = "data_sets" in given
    return [*names, f"average of {len(names)}"] if is_zeroshot else names

"""What a recipe gives a published table: the runs, and the data that they are evaluated on."""

from __future__ import annotations

import csv
import shlex
import subprocess
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path

from support.evaluators import EVALUATORS
from support.recipe_lines import RECIPES, dry_run_of

from vlcpctl.data.classification.benchmarks import GROUPS
from vlcpctl.jobs.script import CommandLine
from vlcpctl.report.papers import Paper, shipped_names


@dataclass(frozen=True)
class Reported:
    """The rows that the report with a table reads: runs and data by name."""

    runs: frozenset[str]
    data: frozenset[str]

    def lacks(self, table: Paper) -> list[str]:
        """Patterns of the table, as FIELD=GLOB, that match none of these."""
        pairs = {("run", row.run) for row in table.rows if row.run}
        selectors = [
            table.selectors,
            *(cell.selectors for row in table.rows for cell in row.cells),
            *(row.selectors for row in table.rows),
        ]
        pairs |= {pair for one in selectors for pair in one if pair[0] in {"run", "data"}}
        known = {"run": self.runs, "data": self.data}
        return sorted(
            f"{field}={glob}"
            for field, glob in pairs
            if not any(fnmatchcase(name, glob) for name in known[field])
        )


def lines_of(command: str) -> list[CommandLine]:
    """The lines of a table's command, "bash recipes/NAME.sh ..."."""
    bash, recipe, *words = shlex.split(command)
    assert bash == "bash"
    assert Path(recipe).parent.name == "recipes"
    return dry_run_of(Path(recipe).name, *words)


def of_command(lines: list[CommandLine], name: str) -> list[CommandLine]:
    """The lines of a command."""
    return [line for line in lines if line.words[0] == name]


def values_of(line: CommandLine, *options: str) -> list[str]:
    """What a line gives for these options, in order; other tests parse every line in full."""
    pairs = zip(line.words, line.words[1:], strict=False)
    return [value for option, value in pairs if option in options]


def reported(lines: list[CommandLine], table: str) -> Reported:
    """What the report that names the table reads."""
    (report,) = (line for line in lines if table in values_of(line, "--table"))
    files = set(_operands(report))
    names = {
        values_of(line, "-o")[0]: values_of(line, "--run", "--method")[-1]
        for line in of_command(lines, "train-step")
    }
    runs, data = set[str](), set[str]()
    for line in lines:
        if line.words[0] in EVALUATORS and values_of(line, "-o")[0] in files:
            runs |= {names[one] for one in values_of(line, "--checkpoint") if one in names}
            data |= set(_data_names(line))
    return Reported(frozenset(runs), frozenset(data))


def tables_of(lines: list[CommandLine]) -> list[tuple[str, ...]]:
    """The tables that each report names."""
    return [tuple(values_of(line, "--table")) for line in of_command(lines, "forgetting-report")]


def _operands(line: CommandLine) -> list[str]:
    """The words between a command and its first option."""
    return list(takewhile(lambda word: not word.startswith("-"), line.words[1:]))


def _data_names(line: CommandLine) -> list[str]:
    """The names that rows give to the data of an evaluation, and to their average."""
    words = _operands(line)
    names = [Path(name).name for word in words for name in GROUPS.get(word, (word,))]
    return [*names, f"average of {len(names)}"] if line.words[0] == "eval-zeroshot" else names


@dataclass(frozen=True)
class Shown:
    """A published table of a written report: its rows, its headings, and which cells have values.

    `filled` has the row and column of each cell with a value of rows.
    """

    rows: tuple[str, ...]
    headings: tuple[str, ...]
    filled: frozenset[tuple[str, str]]

    @property
    def filled_rows(self) -> set[str]:
        """The rows with a value."""
        return {row for row, _ in self.filled}

    @property
    def filled_columns(self) -> set[str]:
        """The columns with a value."""
        return {column for _, column in self.filled}


def run_recipe(recipe: str, *words: str | Path) -> None:
    """Run a recipe on one core; its output is shown if it fails."""
    command = ["bash", RECIPES / recipe, *words, "--jobs", "1"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]


def shown_tables(report: Path) -> dict[str, Shown]:
    """The published tables of a report directory."""
    paths = (report / f"{name}.csv" for name in shipped_names())
    return {path.stem: _shown(path) for path in paths if path.is_file()}


def _shown(table: Path) -> Shown:
    with table.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    cells = [(" | ".join(filter(None, (one["group"], one["row"]))), one) for one in lines]
    return Shown(
        rows=tuple(dict.fromkeys(row for row, _ in cells)),
        headings=tuple(dict.fromkeys(one["column"] for _, one in cells)),
        filled=frozenset((row, one["column"]) for row, one in cells if one["here"]),
    )

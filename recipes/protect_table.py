"""The cells and the table of recipes/protect_the_start.sh, from its rows.

    python recipes/protect_table.py DIR -o cells.tsv    prints Markdown

`guard` is rm of the last model on the start's own test set, `weeks` its mean over the weeks,
`index` that of its queries on the guard in the index of the start, and `rm` the mean of guard and
weeks.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev

GUARD = "00-pairs"
COLUMNS = ("rm", "guard", "weeks", "index")
START = "start"
LAST = "05-week6"  # the task of the last week

Cells = dict[tuple[str, int], dict[str, float]]


def measured(directory: Path) -> Cells:
    """The cells by row and seed, from rows; those of the start have seed -1."""
    cells: Cells = {}
    patterns = ("*.ndjson", "seed*/*.ndjson", f"seed*/*/{LAST}*.ndjson")
    for path in sorted(path for one in patterns for path in directory.glob(one)):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        scores = {row["task"]: row["metrics"]["rm"] for row in rows if row["gallery"] == "own"}
        parts = path.relative_to(directory).parts
        seed = int(parts[0].removeprefix("seed")) if len(parts) > 1 else -1
        cell = cells.setdefault((rows[0]["run"], seed), {})
        guard = scores.pop(GUARD)
        if path.stem.endswith("-index"):
            cell["index"] = guard
        else:
            cell |= {"guard": guard, "weeks": mean(scores.values())}
            cell["rm"] = mean([cell["guard"], cell["weeks"]])
    return cells


def read_cells(path: Path) -> Cells:
    """Cells that were written before."""
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (line["row"], int(line["seed"])): {name: float(line[name]) for name in COLUMNS}
            for line in csv.DictReader(file, delimiter="\t")
        }


def write_cells(path: Path, cells: Cells) -> None:
    """Write a line for each row and seed: the start, then the best mean first."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(["row", "seed", *COLUMNS])
        for row in (START, *order_of(cells)):
            for seed, cell in of_row(cells, row):
                writer.writerow([row, seed, *(f"{cell[name]:.4f}" for name in COLUMNS)])


def order_of(cells: Cells) -> list[str]:
    """The rows but the start, the best mean of guard and weeks first."""
    names = dict.fromkeys(name for name, _ in cells if name != START)
    return sorted(names, key=lambda name: -mean(cell["rm"] for _, cell in of_row(cells, name)))


def of_row(cells: Cells, row: str) -> list[tuple[int, dict[str, float]]]:
    """The cells of a row by seed."""
    return sorted((seed, cell) for (name, seed), cell in cells.items() if name == row)


def table(cells: Cells) -> Iterator[str]:
    """Lines of Markdown: the start, then a line for each row."""
    yield "| row | guard and weeks | of each seed | guard | weeks | old index |"
    yield "|---|---|---|---|---|---|"
    for row in (START, *order_of(cells)):
        found = [cell for _, cell in of_row(cells, row)]
        each = ", ".join(f"{cell['rm']:.1f}" for cell in found)
        parts = [f"`{row}`", spread(found, "rm"), each]
        parts += [spread(found, name) for name in COLUMNS[1:]]
        yield f"| {' | '.join(parts)} |"


def spread(cells: list[dict[str, float]], name: str) -> str:
    """The mean and, of several seeds, the standard deviation."""
    values = [cell[name] for cell in cells]
    return f"{mean(values):.1f}" + (f" ({stdev(values):.1f})" if len(values) > 1 else "")


def main() -> None:
    """Write the cells and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("-o", "--out", required=True, type=Path)
    given = parser.parse_args()
    cells = measured(given.directory)
    if not cells:
        sys.exit(f"protect_table.py: {given.directory} has no rows")
    write_cells(given.out, cells)
    print("\n".join(table(cells)))


if __name__ == "__main__":
    main()

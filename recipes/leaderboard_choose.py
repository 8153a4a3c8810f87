"""Choose one setting of each row of recipes/leaderboard.sh from evaluation rows of the val split.

    python recipes/leaderboard_choose.py ROWS.ndjson... -o chosen.tsv

A run's name is ROW:RATE:SETTINGS. The score of a setting is rm of the merged gallery of all tasks
of its last model; the settings of one row are compared with one another. Rows of another split, or
of several seeds, are refused: nothing that is reported may have been used for the choice. The
lines of chosen.tsv are row, rate, settings, score, and the scores of all settings, the best first.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

VALIDATION = "val"
METRIC = "rm"


class Refused(Exception):
    """Rows that must not be chosen from."""


def read_rows(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The rows of the files. Raises Refused for a row of another split than val."""
    rows = []
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            row = json.loads(line)
            if row["split"] != VALIDATION:
                raise Refused(
                    f"{path}, line {number}: a row of split {row['split']!r}; settings are chosen "
                    f"from rows of split {VALIDATION!r} alone"
                )
            rows.append(row)
    return rows


def scores(rows: Iterable[dict[str, Any]]) -> dict[str, float]:
    """The score of each run: of its last model on the merged gallery of all tasks up to it.

    Raises Refused for a run with more than one, as from several seeds.
    """
    found: dict[str, float] = {}
    for row in rows:
        if row["gallery"] != "merged" or row["task_step"] != row["step"]:
            continue
        if row["run"] in found:
            raise Refused(
                f"run {row['run']!r} has more than one model; evaluate the last one of one seed"
            )
        found[row["run"]] = row["metrics"][METRIC]
    return found


def choose(found: dict[str, float]) -> list[tuple[str, ...]]:
    """The lines of chosen.tsv. Of equal scores, the setting that comes first is chosen.

    >>> choose({"ewc:1e-3:ewc.strength=5": 2.0, "ewc:3e-3:ewc.strength=5": 3.0})[0][:4]
    ('ewc', '3e-3', 'ewc.strength=5', '3.00')
    >>> choose({"seqf:1e-3:": 1.0, "seqf:3e-3:": 0.5})
    [('seqf', '1e-3', '', '1.00', '1.00 (1e-3), 0.50 (3e-3)')]
    """
    tried = defaultdict(list)
    for run, score in found.items():
        row, rate, settings = run.split(":")
        tried[row].append((score, rate, settings))
    lines = []
    for row, settings_of_row in tried.items():
        ordered = sorted(settings_of_row, key=lambda one: -one[0])
        score, rate, settings = ordered[0]
        everything = ", ".join(
            f"{value:.2f} ({' '.join(filter(None, words))})" for value, *words in ordered
        )
        lines.append((row, rate, settings, f"{score:.2f}", everything))
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the rows, write the file and say what was read and chosen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="+", type=Path)
    parser.add_argument("-o", "--out", required=True, type=Path)
    given = parser.parse_args(arguments)
    try:
        rows = read_rows(given.rows)
        found = scores(rows)
    except Refused as error:
        sys.exit(f"leaderboard_choose.py: {error}")
    lines = choose(found)
    given.out.write_text("".join("\t".join(line) + "\n" for line in lines))
    splits = ", ".join(sorted({row["split"] for row in rows}))
    tasks = ", ".join(sorted({task for row in rows for task in row["tasks"]}))
    print(
        f"read {len(rows)} rows of {len(given.rows)} files, all of split {splits}, on {tasks}; "
        f"chose {len(lines)} of {len(found)} settings",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()

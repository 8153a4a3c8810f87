"""Choose one setting of each row of recipes/leaderboard.sh from evaluation rows of the val split.

    python recipes/leaderboard_choose.py ROWS.ndjson... -o chosen.tsv

A run's name is ROW:RATE:SETTINGS. The score of a setting is rm of the merged gallery of all tasks
of its last model, the mean over seeds; the settings of one row are compared with one another. Rows
of another split are refused: nothing that is reported may have been used for the choice. So are
settings of one row with different seeds. The lines of chosen.tsv are row, rate, settings, score,
and the scores of all settings, the best first, with those of each seed where there are several.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
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


def scores(rows: Iterable[dict[str, Any]]) -> dict[str, dict[int, float]]:
    """The scores of each run by seed: of its last model on the merged gallery up to it.

    Raises Refused for a run with more than one model of a seed.
    """
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        if row["gallery"] != "merged" or row["task_step"] != row["step"]:
            continue
        if row["seed"] in found[row["run"]]:
            raise Refused(
                f"run {row['run']!r} has more than one model of seed {row['seed']}; "
                "evaluate the last one"
            )
        found[row["run"]][row["seed"]] = row["metrics"][METRIC]
    return found


def choose(found: dict[str, dict[int, float]]) -> list[tuple[str, ...]]:
    """The lines of chosen.tsv. Of equal scores, the setting that comes first is chosen.

    Raises Refused for settings of a row that have other seeds than its first.

    >>> choose({"ewc:1e-3:ewc.strength=5": {0: 2.0}, "ewc:3e-3:ewc.strength=5": {0: 3.0}})[0][:4]
    ('ewc', '3e-3', 'ewc.strength=5', '3.00')
    >>> choose({"seqf:1e-3:": {0: 1.0, 1: 2.0}, "seqf:3e-3:": {0: 0.5, 1: 0.5}})[0][3:]
    ('1.50', '1.50 (1e-3: 1.00, 2.00), 0.50 (3e-3: 0.50, 0.50)')
    """
    tried = defaultdict(list)
    for run, by_seed in found.items():
        row, rate, settings = run.split(":")
        if tried[row] and tried[row][0][0].keys() != by_seed.keys():
            raise Refused(f"run {run!r} has other seeds than another setting of {row}")
        tried[row].append((by_seed, rate, settings))
    lines = []
    for row, settings_of_row in tried.items():
        ordered = sorted(settings_of_row, key=lambda one: -mean(one[0].values()))
        by_seed, rate, settings = ordered[0]
        score = f"{mean(by_seed.values()):.2f}"
        lines.append((row, rate, settings, score, ", ".join(in_words(*one) for one in ordered)))
    return lines


def in_words(by_seed: dict[int, float], rate: str, settings: str) -> str:
    """A setting with its score, and with the scores of each seed if there are several."""
    setting = " ".join(filter(None, (rate, settings)))
    each = ", ".join(f"{by_seed[seed]:.2f}" for seed in sorted(by_seed))
    return f"{mean(by_seed.values()):.2f} ({setting}{f': {each}' if len(by_seed) > 1 else ''})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the rows, write the file and say what was read and chosen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="+", type=Path)
    parser.add_argument("-o", "--out", required=True, type=Path)
    given = parser.parse_args(arguments)
    try:
        rows = read_rows(given.rows)
        found = scores(rows)
        lines = choose(found)
    except Refused as error:
        sys.exit(f"leaderboard_choose.py: {error}")
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

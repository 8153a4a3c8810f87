"""The tables of docs/results/pretrained.md, from what recipes/pretrained.sh has made.

    python recipes/pretrained_table.py DIR    prints Markdown; DIR is the recipe's --out

Scores are rm in percent, from facts.csv of a report; differences are between runs of one seed.
Angles are in degrees, from rows of spatial-report. Means and standard deviations are over seeds.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vlcpctl.report.report import FACTS, read_facts

METRIC = "rm"
BASE = "00-base"  # the pictures that the base was trained on: their test views
KINDS = {"memory-free": "Memory-free", "buffered": "With a buffer"}
COLUMNS = {
    "own_learned": "own `rm`, just learned",
    "own_final": "own `rm`, last model",
    "forgetting_max": "`forgetting_max`",
}

# What the papers say of these rows: the first is above the second, and who says it.
CLAIMS = (
    ("lwf", "seqf", "CTP, Table 1; DHA, Table 1"),
    ("ewc", "seqf", "CTP, Table 1; Mod-X, Table 7"),
    ("lwf", "ewc", "CTP, Table 1"),
    ("geodl", "seqf", "GeoDL"),
    ("ctp", "lwf", "CTP, Table 1"),
    ("ctp", "ewc", "CTP, Table 1"),
    ("modx", "seqf", "Mod-X, Table 7"),
    ("modx", "ewc", "Mod-X, Table 7"),
    ("modx", "lwf", "Mod-X, Figure 6"),
    ("dha-adapt", "seqf", "DHA, Table 3"),
    ("dha", "dha-adapt", "DHA, Table 3"),
    ("dha", "lwf", "DHA, Table 1"),
    ("dha-strong-adapt", "seqf", "DHA, Table 3, with other shares"),
    ("dha-strong", "dha-strong-adapt", "DHA, Table 3, with other shares"),
    ("dha-strong", "lwf", "DHA, Table 1, with other shares"),
    ("interpolate", "seqf", "WiSE-FT"),
    ("er", "seqf", "CTP, Table 1; DHA, Table 1"),
    ("er", "lwf", "CTP, Table 1 (DHA, Table 1: the reverse)"),
    ("er", "ctp", "CTP, Table 1"),
    ("icarl", "er", "CTP, Table 1"),
    ("ctp+er", "icarl", "CTP, Table 1"),
    ("ctp+er", "ctp", "CTP, Table 1"),
)
ANGLES = {  # the columns of the table of angles, by their metrics
    "SAM, images": ("sam_image_mean",),
    "SAM, texts": ("sam_text_mean",),
    "RAM, images": ("ram_image_mean",),
    "RAM, texts": ("ram_text_mean",),
    "ImAV": ("imav_i2t_mean", "imav_t2i_mean"),
}
MODALITIES = ("images", "texts")


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Mean and, of several seeds, standard deviation.

    >>> spread([70.0, 72.0]), spread([1.5])
    ('71.00 (1.41)', '1.50')
    """
    deviation = f" ({statistics.stdev(values):.{digits}f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"


def read_reports(out: Path) -> dict[str, list[dict[str, Any]]]:
    """The facts in METRIC of each report that there is, by its kind."""
    paths = {kind: out / "report" / kind / FACTS for kind in KINDS}
    return {
        kind: [one for one in read_facts(path.read_text()) if one["key"] == METRIC]
        for kind, path in paths.items()
        if path.is_file()
    }


def read_rows(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The rows of files of evaluation rows."""
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def runs_of(facts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs that learned tasks, by metric what they have, the best on merged galleries first.

    A run's `kept` is the last model's score on the base's own test views.
    """
    runs: dict[str, dict[str, Any]] = {}
    for one in facts:
        run = runs.setdefault(one["run"], {"run": one["run"]})
        if one["metric"] == "score" and one["data"] == BASE:
            run["kept"] = one  # in the order of the steps
        elif one["metric"] != "score":
            run[one["metric"]] = one
    found = [run for run in runs.values() if values(run, "merged_final")]
    return sorted(found, key=lambda run: -statistics.mean(values(run, "merged_final")))


def name_of(run: dict[str, Any]) -> str:
    """The row's name, without the share of an average."""
    return str(run["run"]).split(" alpha=")[0]


def values(run: dict[str, Any], name: str) -> list[float]:
    """A summary of each seed; empty where it is not defined."""
    return list(run[name]["values"]) if name in run else []


def base_lines(out: Path) -> list[str]:
    """What the base has before any training on Emoji-9."""
    rows = read_rows([out / "start.ndjson"])
    tasks = [row["metrics"][METRIC] for row in rows if row["task"] != BASE]
    (own,) = [row["metrics"][METRIC] for row in rows if row["task"] == BASE]
    (whole,) = read_rows([out / "zero-shot.ndjson"])
    scores = whole["metrics"]
    by_chance = chance(whole)
    top = {k: f"{scores[f'i2t_r{k}']:.2f} and {scores[f't2i_r{k}']:.2f}" for k in (1, 10)}
    return [
        f"- On held-out views of its own pictures: {own:.1f}.",
        f"- Zero-shot among all pictures of Emoji-9: {scores[METRIC]:.2f}; chance {by_chance:.2f}.",
        f"- R@1 there, from image to text and back: {top[1]}; R@10: {top[10]}.",
        f"- Zero-shot in the gallery of each group: {statistics.mean(tasks):.2f} on average.",
    ]


def chance(row: dict[str, Any]) -> float:
    """Percent of queries that are found by chance: the mean over R@1, R@5, R@10, both ways."""
    sizes = [row[f"n_{kind}"] for kind in MODALITIES]
    return statistics.mean(100 * min(1, k / size) for size in sizes for k in (1, 5, 10))


def table(facts: Iterable[dict[str, Any]], rates: dict[str, str]) -> list[str]:
    """One row for each run."""
    runs = runs_of(facts)
    seeds = ", ".join(str(seed) for seed in runs[0]["merged_final"]["seeds"])
    heads = ["", "rate", "merged `rm`, last model", f"seeds {seeds}", *COLUMNS.values()]
    lines = [f"| {' | '.join([*heads, 'the base on its own pictures'])} |"]
    lines.append("|---" * (len(heads) + 1) + "|")
    for run in runs:
        merged = values(run, "merged_final")
        columns = [values(run, column) for column in (*COLUMNS, "kept")]
        cells = [
            f"`{name_of(run)}`",
            rates.get(chosen_as(name_of(run)), ""),
            spread(merged),
            ", ".join(f"{value:.2f}" for value in merged),
            *(spread(column) if column else "-" for column in columns),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def chosen_as(row: str) -> str:
    """The row whose learning rate this one takes."""
    return "dha" if row.startswith("dha") else "seqf" if row == "interpolate" else row


def claims(runs: dict[str, dict[str, Any]]) -> list[str]:
    """Each ordering of the papers that these runs can answer: how far apart, and in which seeds."""
    heads = ("is", "above", "source", "merged `rm`, last model", "own `rm`, last model")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for better, worse, source in CLAIMS:
        if better in runs and worse in runs:
            cells = [
                difference(runs[better], runs[worse], name)
                for name in ("merged_final", "own_final")
            ]
            lines.append(f"| `{better}` | `{worse}` | {source} | {' | '.join(cells)} |")
    return lines


def difference(better: dict[str, Any], worse: dict[str, Any], name: str) -> str:
    """Whether one run is above another: in all seeds, in none or in some, and by how much."""
    pairs = zip(values(better, name), values(worse, name), strict=True)
    apart = [first - second for first, second in pairs]
    above = sum(one > 0 for one in apart)
    answer = "yes" if above == len(apart) else "no" if above == 0 else f"in {above} of {len(apart)}"
    return f"{answer}: {statistics.mean(apart):+.2f}" + (
        f" ({statistics.stdev(apart):.2f})" if len(apart) > 1 else ""
    )


def angle_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Angles of each run and split: from the base to the last model, and one task further.

    Over single tasks, those of a seed are averaged first.
    """
    heads = ("", "split", "from, to", *ANGLES)
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    last = max(row["step"] for row in rows)
    for run, split in dict.fromkeys((row["run"], row["split"]) for row in rows):
        some = [row for row in rows if (row["run"], row["split"]) == (run, split)]
        whole = [row for row in some if row["since"]["step"] is None and row["step"] == last]
        single = [row for row in some if row not in whole or last == 0]
        for words, chosen in (("base to last model", whole), ("one task further", single)):
            cells = [of_seeds(chosen, names) for names in ANGLES.values()]
            lines.append(f"| `{run}` | {split} | {words} | {' | '.join(cells)} |")
    return lines


def of_seeds(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Mean and spread over seeds of some metrics; those of a seed are averaged first."""
    found: dict[int, list[float]] = {}
    for row in rows:
        measured = [row["metrics"][name] for name in names]
        found.setdefault(row["seed"], []).extend(one for one in measured if one is not None)
    means = [statistics.mean(of_seed) for of_seed in found.values() if of_seed]
    return spread(means, 1) if means else "-"


def main(out: Path) -> None:
    """Print what there is."""
    rates = dict(line.split("\t")[:2] for line in (out / "chosen.tsv").read_text().splitlines())
    reports = read_reports(out)
    print("## The base", "", *base_lines(out), "", sep="\n")
    for kind, facts in reports.items():
        print(f"## {KINDS[kind]}", "", *table(facts, rates), "", sep="\n")
    runs = {name_of(run): run for facts in reports.values() for run in runs_of(facts)}
    print("## The orderings of the papers", "", *claims(runs), "", sep="\n")
    angles = read_rows(sorted(out.glob("memory-free/*/*-angles-*.ndjson")))
    if angles:
        print("## Angles on the first group", "", *angle_table(angles), "", sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

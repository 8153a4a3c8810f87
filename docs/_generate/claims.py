"""What the boards show of the claims that were written down before: tables and sentences.

`claims.toml` has the claims on the boards, `claims_protect.toml` those on what keeps the abilities
of the start, and `cells/STREAM.tsv` the scores of each row and seed that a recipe measured. On each
stream the scores of the two rows are compared seed by seed by Student's t, two-sided, and the
p-values of its claims are adjusted together (Holm, Scandinavian Journal of Statistics 1979).
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from _generate.markdown import table as markdown_table

RESULTS = Path(__file__).parents[1] / "results"
FEWEST_SEEDS = 2

Scores = Mapping[str, Mapping[int, float]]  # by row and seed


@dataclass(frozen=True)
class Judged:
    """A claim on one stream: the differences of each seed, in points, and the adjusted p-value."""

    differences: tuple[float, ...]
    p: float
    level: float

    @property
    def verdict(self) -> str:
        """Whether the claim holds, its opposite does, or neither is shown."""
        if self.p >= self.level:
            return "not shown"
        return "holds" if mean(self.differences) > 0 else "the opposite holds"


def read_scores(path: Path) -> Scores:
    """The column rm of a file of cells, by row and seed."""
    scores: dict[str, dict[int, float]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file, delimiter="\t"):
            scores.setdefault(line["row"], {})[int(line["seed"])] = float(line["rm"])
    return scores


def adjusted(p_values: Sequence[float]) -> list[float]:
    """The p-values adjusted for their number by Holm's method.

    >>> adjusted([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    found = [0.0] * len(p_values)
    least = 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        found[place] = least
    return found


def judge(claims: Sequence[Mapping[str, str]], scores: Scores, level: float) -> list[Judged | None]:
    """Each claim on a stream; None where a row was not measured there with two seeds or more."""
    from scipy.stats import ttest_1samp

    differences = [_differences(scores, claim["better"], claim["than"]) for claim in claims]
    tested = [place for place, found in enumerate(differences) if len(found) >= FEWEST_SEEDS]
    p_values = [float(ttest_1samp(differences[place], 0.0).pvalue) for place in tested]
    judged: list[Judged | None] = [None] * len(claims)
    for place, p in zip(tested, adjusted(p_values), strict=True):
        judged[place] = Judged(differences[place], p, level)
    return judged


def _differences(scores: Scores, better: str, than: str) -> tuple[float, ...]:
    one, other = scores.get(better, {}), scores.get(than, {})
    return tuple(one[seed] - other[seed] for seed in sorted(one.keys() & other.keys()))


@cache
def _judged(name: str = "claims") -> tuple[Mapping[str, Any], dict[str, list[Judged | None]]]:
    """A file of claims, and each claim by the title of its stream, of those measured so far."""
    document = tomllib.loads((RESULTS / f"{name}.toml").read_text(encoding="utf-8"))
    found = {}
    for stream, title in document["streams"].items():
        path = RESULTS / "cells" / f"{stream}.tsv"
        if path.is_file():
            found[title] = judge(document["claims"], read_scores(path), document["level"])
    return document, found


def table(name: str = "claims") -> str:
    """Each claim of a file on each stream: the mean difference, each seed's, p, and the verdict."""
    document, judged = _judged(name)
    rows = []
    for place, claim in enumerate(document["claims"]):
        cells = [_cell(found[place]) for found in judged.values()]
        rows.append([f"`{claim['better']}` ahead of `{claim['than']}`", claim["from"], *cells])
    return markdown_table(["claim", "from", *judged], rows)


def _cell(judged: Judged | None) -> str:
    if judged is None:
        return "not tested"
    each = ", ".join(f"{one:+.2f}" for one in judged.differences)
    p = f"p = {judged.p:.3f}" if judged.p >= 0.0005 else "p < 0.001"
    return f"**{judged.verdict}**: {mean(judged.differences):+.2f} ({each}), {p}"


def sentences(*names: str) -> str:
    """A list of what the boards show of the claims on these rows; of all if none is named."""
    return "\n".join(f"- {line}" for line in _lines(names))


def _lines(names: Sequence[str]) -> Iterator[str]:
    document, judged = _judged()
    for place, claim in enumerate(document["claims"]):
        if names and not {claim["better"], claim["than"]} & set(names):
            continue
        found = {title: of_stream[place] for title, of_stream in judged.items()}
        yield f"`{claim['better']}` against `{claim['than']}`: {_in_words(found)}."


def _in_words(found: Mapping[str, Judged | None]) -> str:
    """Where a claim holds, fails and was not shown, and that it was not tested elsewhere."""
    words = {"holds": "ahead", "the opposite holds": "behind", "not shown": "no difference shown"}
    parts = []
    for verdict, said in words.items():
        streams = [
            f"{title} ({len(one.differences)} seeds)"
            for title, one in found.items()
            if one is not None and one.verdict == verdict
        ]
        if streams:
            parts.append(f"{said} on {' and '.join(streams)}")
    return ", ".join([*parts, "not tested elsewhere"])

"""Eight weeks of updates, four of them with something wrong, judged by the default gates.

    bash recipes/production.sh --prepare --out DIR
    python recipes/weekly_stream.py DIR [--seeds 0 1 2] [--methods ctp er seqf]

The model of recipes/production.sh, which knows Emoji-9, gets eight weekly batches of OpenMoji, by
`vlcpctl update` with its default gates and the model's test set as the guard. Week 3 has its
captions shuffled, week 5 contains 20 pictures of the guard, week 6 has new views of week 2's
pictures, and week 7 is trained with a learning rate 20 times as high; if it is rejected, it is made
again with the usual one. The other weeks are harmless. All methods have 40 steps of 64 pairs a week
at 2e-4, and `ctp` and `er` replay a buffer. The table goes to stdout: docs/results/weekly.md. What
was made stays in DIR/weekly, and the same call continues.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import production_weeks
import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.data.emoji9.glyphs import Glyph

LR, STEPS, FACTOR = 2e-4, 40, 20
LEAKED = 20
REJECTED, REFUSED = 7, 3  # exit codes
BAD, LEAKING, REPEATING, STEEP = 3, 5, 6, 7  # weeks
WHAT = {
    BAD: "captions shuffled",
    LEAKING: "20 guard pictures in it",
    REPEATING: "week 2 again, new views",
    STEEP: f"learning rate x {FACTOR}",
}


@dataclass(frozen=True)
class Made:
    """What an update said of a week."""

    code: int
    said: Mapping[str, Any]
    last_line: str


def halves(glyphs: Sequence[Glyph]) -> list[list[Glyph]]:
    """The pictures of the eight weeks: each of the four weeks of the recipe in two."""
    found = []
    for subjects in production_weeks.WEEKS:
        of_week = [one for one in glyphs if one.subgroup in subjects]
        found += [of_week[: len(of_week) // 2], of_week[len(of_week) // 2 :]]
    return found


def write_weeks(out: Path, guard: Path) -> None:
    """Write week1.parquet to week8.parquet; `guard` is the Parquet file of the model's pairs."""
    rng = np.random.default_rng(0)
    weeks = halves(production_weeks.read_glyphs())
    for number, glyphs in enumerate(weeks, start=1):
        rows = [row for glyph in glyphs for row in production_weeks.pairs_of(glyph)]
        if number == BAD:
            captions = [rows[place]["captions"] for place in rng.permutation(len(rows))]
            rows = [row | {"captions": one} for row, one in zip(rows, captions, strict=True)]
        if number == LEAKING:
            rows += leaked(guard)
        if number == REPEATING:
            rows = [row for glyph in weeks[1] for row in new_views(glyph)]
        table = pa.Table.from_pylist(rows, production_weeks.SCHEMA)
        pq.write_table(table, out / f"week{number}.parquet")


def leaked(guard: Path) -> list[dict[str, Any]]:
    """Test pairs of the guard, as training pairs."""
    rows = [one for one in pq.read_table(guard).to_pylist() if one["split"] == "test"][:LEAKED]
    return [
        {
            "image": row["image"],
            "captions": row["captions"],
            "emoji": row["emoji"],
            "subject": "leaked",
            "split": "train",
        }
        for row in rows
    ]


def new_views(glyph: Glyph) -> Iterator[dict[str, Any]]:
    """Other views of a picture than `pairs_of` draws: of one whose code has a suffix."""
    from dataclasses import replace

    yield from production_weeks.pairs_of(replace(glyph, emoji=f"{glyph.emoji}-again"))


def update(state: Path, week: Path, *options: str) -> Made:
    """Run `vlcpctl update` on a week."""
    words = ["vlcpctl", "update", str(week), "--state", str(state), "--json", "-q", *options]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode not in {0, REJECTED, REFUSED}:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}")
    lines = done.stderr.strip().splitlines()
    said = json.loads(done.stdout) if done.stdout.strip() else {}
    return Made(done.returncode, said, lines[-1] if lines else "")


def stream(place: Path, method: str, seed: int) -> Iterator[tuple[int, str, Made]]:
    """Run the eight weeks with a method and a seed: week, options, and what was said of it."""
    state = place / "weekly" / f"{method}-{seed}"
    first = ["--init", str(place / "start"), "--guard", str(place / "production/00-pairs")]
    first += ["--method", method, "--seed", str(seed), "--split-column", "split"]
    first += ["--preset", "tiny", "--steps", str(STEPS), "--lr", str(LR)]
    if method != "seqf":
        first += ["--buffer-from", str(place / "pairs.parquet")]
    for number in range(1, 9):
        week = place / "weekly" / f"week{number}.parquet"
        options = first if number == 1 else []
        if number == LEAKING:
            yield number, "", update(state, week)
            yield number, "--drop-leaks", update(state, week, "--drop-leaks")
        elif number == STEEP:
            made = update(state, week, "--lr", str(LR * FACTOR))
            yield number, f"--lr x {FACTOR}", made
            yield number, "usual --lr", update(state, week, "--lr", str(LR)) if made.code else made
        else:
            yield number, "", update(state, week, *options)


def outcome(made: Made) -> str:
    """What became of a week: refused, rejected, kept, not resolved, or nothing new."""
    if made.code:
        return "refused" if made.code == REFUSED else "rejected"
    verdicts = made.said["verdicts"]
    if not verdicts:
        return "nothing new"
    return "not resolved" if any(one.get("is_resolved") is False for one in verdicts) else "kept"


def worst(made: Made) -> float | None:
    """The largest loss on the guard, against the start or since last week."""
    found = [
        one["value"]
        for one in made.said.get("verdicts", ())
        if one["metric"].partition(".")[0] in {"worst_drop", "step_drop"}
        and one["value"] is not None
    ]
    return max(found, default=None)


def table(made: Mapping[str, Mapping[tuple[int, str], Sequence[Made]]]) -> Iterator[str]:
    """The table: a line for each week and call, and for each method what its seeds say."""
    yield "| week | what is wrong | " + " | ".join(made) + " |"
    yield "|---|---|" + "---|" * len(made)
    for number, options in next(iter(made.values())):
        what = ", ".join(part for part in (WHAT.get(number, ""), options) if part)
        cells = [cell(of_method[number, options]) for of_method in made.values()]
        yield f"| {number} | {what} | " + " | ".join(cells) + " |"


def cell(seeds: Sequence[Made]) -> str:
    """How often each outcome was, the largest loss of each seed, and how many were tried twice."""
    outcomes = [outcome(one) for one in seeds]
    counts = [f"{outcomes.count(name)} {name}" for name in dict.fromkeys(outcomes)]
    losses = [f"{loss:.1f}" for one in seeds if (loss := worst(one)) is not None]
    again = sum(len(one.said.get("attempts", ())) > 1 for one in seeds)
    text = ", ".join(counts) + (f" ({', '.join(losses)})" if losses else "")
    return text + (f"; {again} trained twice" if again else "")


def main() -> None:
    """Run the streams and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("place", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", default=["ctp", "er", "seqf"])
    given = parser.parse_args()
    weekly = given.place / "weekly"
    weekly.mkdir(exist_ok=True)
    if not (weekly / "week8.parquet").exists():
        write_weeks(weekly, given.place / "pairs.parquet")
    made: dict[str, dict[tuple[int, str], list[Made]]] = {}
    for method in given.methods:
        of_method = made.setdefault(method, {})
        for seed in given.seeds:
            for number, options, one in stream(given.place, method, seed):
                of_method.setdefault((number, options), []).append(one)
                print(method, seed, number, options, outcome(one), worst(one), file=sys.stderr)
                if one.code:
                    print(f"    {one.last_line}", file=sys.stderr)
    print("\n".join(table(made)))


if __name__ == "__main__":
    main()

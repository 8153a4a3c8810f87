"""Eight weeks of updates, four of them with something wrong, judged by the default gates.

    bash recipes/production.sh --prepare --out DIR
    python recipes/weekly_stream.py DIR [--lr 1e-4] [--seeds 0 1 2] [--methods ctp er seqf]

The model of recipes/production.sh, which knows Emoji-9, gets eight weekly batches of OpenMoji, by
`vlcpctl update` with its default gates and the model's test set as the guard. Week 3 has its
captions shuffled, week 5 contains 20 pictures of the guard, week 6 has new views of week 2's
pictures, and week 7 is trained with a learning rate 20 times as high; if it is rejected, it is made
again with the usual one. The other weeks are harmless. All methods have 40 steps of 64 pairs a
week, and `ctp` and `er` replay a buffer. Streams run side by side, --jobs at once. The table goes
to stdout: docs/results/weekly.md. What was made stays in DIR/weekly-LR, and the same call
continues.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import production_weeks
import pyarrow as pa
import pyarrow.parquet as pq

from vlcpctl.data.emoji9.glyphs import Glyph

STEPS, FACTOR = 40, 20
LEAKED = 20
REJECTED, REFUSED, SAME = 7, 3, 4  # exit codes; SAME: the week was accepted with other settings
BAD, LEAKING, REPEATING, STEEP = 3, 5, 6, 7  # weeks
WHAT = {
    BAD: "captions shuffled",
    LEAKING: "20 guard pictures in it",
    REPEATING: "week 2 again, new views",
    STEEP: f"learning rate x {FACTOR}",
}


@dataclass(frozen=True)
class Made:
    """What an update said of a week; `options` are those that are not of every week."""

    number: int
    options: str
    code: int
    said: Mapping[str, Any]
    last_line: str


@dataclass(frozen=True)
class Stream:
    """The eight weeks with a method and a seed; `weekly` has their data, `start` the model."""

    weekly: Path
    start: Path
    method: str
    seed: int
    lr: float

    def run(self) -> list[Made]:
        """Run the weeks, and record each; those that are recorded are not run again."""
        log = self.weekly / f"{self.method}-{self.seed}.ndjson"
        lines = log.read_text().splitlines() if log.exists() else []
        made = [Made(**json.loads(line)) for line in lines]
        for number, words, options in self._calls(made):
            one = self._update(number, words, options)
            made.append(one)
            with log.open("a") as file:
                file.write(json.dumps(vars(one)) + "\n")
            print(self.method, self.seed, number, words, outcome(one), worst(one), file=sys.stderr)
        return made

    def _calls(self, made: Sequence[Made]) -> Iterator[tuple[int, str, list[str]]]:
        """The weeks that are still to be run, what is special about the call, and its options."""
        usual = ["--lr", str(self.lr)]
        calls: list[tuple[int, str, list[str]]] = []
        for number in range(1, 9):
            if number == LEAKING:
                calls += [(number, "", []), (number, "--drop-leaks", ["--drop-leaks"])]
            elif number == STEEP:
                calls += [
                    (number, f"--lr x {FACTOR}", ["--lr", str(self.lr * FACTOR)]),
                    (number, "usual --lr", usual),
                ]
            else:
                calls.append((number, "", self._first() if number == 1 else usual))
        yield from calls[len(made) :]

    def _first(self) -> list[str]:
        words = ["--init", str(self.start / "start")]
        words += ["--guard", str(self.start / "production/00-pairs")]
        words += ["--method", self.method, "--seed", str(self.seed), "--split-column", "split"]
        words += ["--preset", "tiny", "--steps", str(STEPS), "--lr", str(self.lr)]
        if self.method != "seqf":
            words += ["--buffer-from", str(self.start / "pairs.parquet")]
        return words

    def _update(self, number: int, special: str, options: Sequence[str]) -> Made:
        """Run `vlcpctl update` on a week."""
        state = self.weekly / f"{self.method}-{self.seed}"
        week = self.weekly / f"week{number}.parquet"
        words = [
            "vlcpctl",
            "update",
            str(week),
            "--state",
            str(state),
            "--wait",
            "--json",
            "-q",
            *options,
        ]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode not in {0, REJECTED, REFUSED, SAME}:
            sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}")
        lines = done.stderr.strip().splitlines()
        said = json.loads(done.stdout) if done.stdout.strip() else {}
        return Made(number, special, done.returncode, said, lines[-1] if lines else "")


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


def outcome(made: Made) -> str:
    """What became of a week: refused, rejected, accepted, not resolved, or nothing new."""
    if made.code == SAME:
        return "accepted before"
    if made.code:
        return "refused" if made.code == REFUSED else "rejected"
    verdicts = made.said["verdicts"]
    if not verdicts:
        return "nothing new"
    is_open = any(one.get("is_resolved") is False for one in verdicts)
    return "not resolved" if is_open else "accepted"


def worst(made: Made) -> float | None:
    """The largest loss on the guard, against the start or since last week."""
    found = [
        one["value"]
        for one in made.said.get("verdicts", ())
        if one["metric"].partition(".")[0] in {"worst_drop", "step_drop"}
        and one["value"] is not None
    ]
    return max(found, default=None)


def table(made: Mapping[str, Sequence[Sequence[Made]]]) -> Iterator[str]:
    """The table: a line for each week and call, and for each method what its seeds say."""
    yield "| week | what is wrong | " + " | ".join(made) + " |"
    yield "|---|---|" + "---|" * len(made)
    for place, one in enumerate(next(iter(made.values()))[0]):
        what = ", ".join(part for part in (WHAT.get(one.number, ""), one.options) if part)
        cells = [cell([seed[place] for seed in seeds]) for seeds in made.values()]
        yield f"| {one.number} | {what} | " + " | ".join(cells) + " |"


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
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args()
    weekly = given.place / f"weekly-{given.lr:g}"
    weekly.mkdir(exist_ok=True)
    if not (weekly / "week8.parquet").exists():
        write_weeks(weekly, given.place / "pairs.parquet")
    streams = [
        Stream(weekly, given.place, method, seed, given.lr)
        for method in given.methods
        for seed in given.seeds
    ]
    with ThreadPoolExecutor(given.jobs) as pool:
        found = list(pool.map(Stream.run, streams))
    made: dict[str, list[list[Made]]] = {}
    for stream, weeks in zip(streams, found, strict=True):
        made.setdefault(stream.method, []).append(weeks)
    print("\n".join(table(made)))


if __name__ == "__main__":
    main()

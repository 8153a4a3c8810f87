"""Every writer: --dry-run writes nothing, --json is one object, other settings are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.marks import mostly_slow
from support.program import check_refused, run_program
from support.writers import WRITERS, lines

from vlcpctl.commands import command_class
from vlcpctl.core.options import options_of

LIMIT = ("--limit 5", "other rows")
SHORT = ["split", "train-step", "eval-retrieval", "ranks", "forgetting-report", "export"]
# Of each writer, what to add to its line for another output, and the word that names it.
OTHER = {
    "sample": ("--seed 1", "seed was 0 and is now 1"),
    "split": ("--seed 1", "seed"),
    "buffer": ("--seed 1", "seed was 0 and is now 1"),
    "train-step": ("--lr 0.5", "settings.lr was"),
    "distill": ("--crop random", "crop"),
    "invert-texts": ("--seed 1", "seed was 0 and is now 1"),
    "merge": ("--rule ema", "rule"),
    "import-checkpoint": ("--run other", "run"),
    **dict.fromkeys(("eval-retrieval", "eval-zeroshot", "eval-probe", "spatial-report"), LIMIT),
    "embeddings": ("--limit 5", "limit"),
    "ranks": ("--limit 5", "limit was [None] and is now [5]"),
    "zero-shot ranks": ("--limit 5", "limit"),
    "forgetting-report": ("--metric rm", "settings"),
    "csv": ("--metric rm", "settings"),
    "latex": ("--metric rm", "settings"),
    "figures": ("--metric rm", "settings"),
    "export": ("--split test", "split"),
}


@pytest.mark.parametrize("writer", mostly_slow(OTHER, kept=SHORT))
def test_a_writer_plans_and_tells_and_refuses_other_settings(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], writer: str
) -> None:
    words, (change, said) = lines(place)[writer], OTHER[writer]
    options = options_of(command_class(str(words[0])))
    out = tmp_path / "out"
    if "dry_run" in options:
        plan = run_program(capfd, *words, out, "--dry-run")
        assert (plan.code, list(tmp_path.iterdir())) == (0, []), plan.err
    made = run_program(capfd, *words, out)
    assert made.code == 0, made.err
    other = run_program(capfd, *words, out, *change.split())
    check_refused(other, str(words[0]), 4, said, "--force")
    if "json" in options:
        (line,) = run_program(capfd, *words, out, "--json").out.splitlines()
        assert words[-1] != "-o" or str(out) in json.loads(line).values() or "schema" in line


def test_every_writer_is_tried() -> None:
    assert {*WRITERS} - OTHER.keys() == {"timings", "junit", "contact sheet"}

"""Every command that writes: a command line of each, for promises that all of them keep."""

from __future__ import annotations

from pathlib import Path

from support.eval_rows import own_rows, write_rows
from support.evaluators import EVALUATORS, evaluation
from support.marks import mostly_slow
from support.pair_files import rows, write_parquet
from support.program import TINY, make_inputs

Words = list[object]


def make_place(root: Path) -> Path:
    """What the commands read."""
    make_inputs(root)
    write_parquet(root / "pairs.parquet", rows(20))
    write_rows(root / "rows.ndjson", own_rows())
    return root


def lines(place: Path) -> dict[str, Words]:
    """A command line of each writer without its output; the last word is the output's option."""
    first, second = place / "stream" / "00-part-0", place / "stream" / "01-part-1"
    plain, buffer = place / "plain", place / "buffer"
    evaluate: Words = [second, "--checkpoint", plain, "-q"]
    models = (plain, place / "queued")
    report: Words = ["forgetting-report", place / "rows.ndjson", "-q"]
    return {
        "sample": ["sample", "emoji9", "--limit", 1, "--views", 1, "--size", 16, "-q", "-o"],
        "split": ["split", place / "pairs.parquet", "--by", "source", "-q", "-o"],
        "buffer": ["buffer", first, "--policy", "ring", "--size", 6, "-q", "-o"],
        "train-step": ["train-step", second, *TINY, "--previous", place / "queued", "-o"],
        "distill": ["distill", second, "--teacher", plain, "--preset", "tiny", "-q", "-o"],
        "invert-texts": [
            *("invert-texts", "--checkpoint", plain, "--buffer", buffer),
            *("--count", 2, "--iterations", 1, "-q", "-o"),
        ],
        "merge": ["merge", plain, place / "queued", "-q", "-o"],
        "import-checkpoint": ["import-checkpoint", plain, "-q", "-o"],
        **{name: [*evaluation(name, [second], models), "-q", "-o"] for name in EVALUATORS},
        "timings": ["eval-retrieval", *evaluate, "--timings"],
        "embeddings": ["eval-retrieval", *evaluate, "--save-embeddings"],
        "ranks": ["eval-retrieval", *evaluate, "--save-ranks"],
        "zero-shot ranks": ["eval-zeroshot", *evaluate, "--save-ranks"],
        "forgetting-report": [*report, "-o"],
        "csv": [*report, "--csv"],
        "latex": [*report, "--latex"],
        "figures": [*report, "--figures"],
        "junit": [*report, "--fail-if", "bwt_gem:lt:-100", "--undefined", "pass", "--junit"],
        "contact sheet": ["inspect", place / "pairs.parquet", "-q", "--pairs", "9", "--html"],
        "export": ["export", first, "--to", "hf", "-q", "-o"],
    }


WRITERS = tuple(lines(Path()))
SOME_WRITERS = mostly_slow(
    WRITERS, kept=["split", "train-step", "eval-retrieval", "ranks", "forgetting-report", "export"]
)
NO_FORCE = {"timings", "contact sheet"}

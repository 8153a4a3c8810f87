"""What a command does not need it does not import: a table of commands and modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.evaluators import EVALUATORS

TORCH = ("torch", "open_clip", "transformers", "timm", "webdataset")
COMPILER = ("torch._dynamo", "torch._inductor")
MODELS = ("transformers", "open_clip.factory", "open_clip.push_to_hf_hub")
TIMM = ("timm.models.resnet", "timm.data.loader")  # of timm, a fusion model needs two others
DUAL = (*COMPILER, *MODELS, "timm", "torchvision", "huggingface_hub", "webdataset")
FUSION = (*COMPILER, *MODELS, *TIMM, "webdataset")
SPLIT = "split pairs.parquet -o new --by iid --tasks 2"
ONE_STEP = ("--method", "seqf", "--preset", "tiny", "--steps", "1", "--model")

HEAVY = (*TORCH, "numpy", "pyarrow", "PIL", "rich", "pydantic")
PRINTING = ("--help", "--version", "train-step --help", "methods", "methods ctp", "forget --help")

DRY = [
    "train-step stream/00-part-0 -o new --method ctp --preset tiny --model micro --dry-run",
    *(
        f"{name} stream/00-part-0 -o new --checkpoint plain --checkpoint queued --dry-run"
        for name in EVALUATORS
    ),
]
REFUSED = {
    "train-step stream/00-part-0 -o new --method ctp --set ctp.keep_queu=true": 2,
    "train-step stream/01-part-1 -o new --method er --previous plain --buffer not-there": 3,
    "import-checkpoint not-there -o new": 3,
}
TABLE = [
    ("sample emoji9 -o new --views 1 --size 16 --limit 1", TORCH),
    (SPLIT, (*TORCH, "sympy", "faiss")),
    ("buffer stream/00-part-0 -o new --size 4", (*TORCH, "faiss")),
    ("check stream/00-part-0", TORCH),
    ("inspect stream/00-part-0", TORCH),
    ("forgetting-report rows.ndjson -o new", TORCH),
    *((words, HEAVY) for words in PRINTING),
    ("eval-retrieval stream/00-part-0 --checkpoint plain -o new", DUAL),
    ("spatial-report stream/00-part-0 --checkpoint plain --checkpoint queued -o new", DUAL),
    ("train-step stream/01-part-1 --previous plain -o new --method seqf --dry-run", TORCH),
    *((words, (*TORCH, "pydantic")) for words in (*DRY, *REFUSED)),
]
OFTEN = (SPLIT, "check stream/00-part-0", *PRINTING, DRY[0], *[*REFUSED][:1])
UNUSED = ("vlcpctl.evaluation", "vlcpctl.methods.ctp", "vlcpctl.models.fusion.build")
STEPS = [("micro", (*DUAL, *UNUSED)), pytest.param("albef-micro", FUSION, marks=pytest.mark.slow)]


def _imported(place: Path, words: str, code: int = 0) -> set[str]:
    program = f"""
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
sys.argv = ["vlcpctl", *{words.split()!r}]
from vlcpctl.cli import main
main()
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=place)
    assert ended.returncode == code, ended.stderr
    return set(ended.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("words", "unneeded"),
    [
        pytest.param(*one, id=one[0], marks=() if one[0] in OFTEN else pytest.mark.slow)
        for one in TABLE
    ],
)
def test_a_command_imports_no_more_than_it_needs(
    words: str, unneeded: tuple[str, ...], place: Path, tmp_path: Path
) -> None:
    given = words.replace(" new", f" {tmp_path / 'new'}")
    found = _imported(place, given, REFUSED.get(words, 0))
    assert sorted(found & set(unneeded)) == []


@pytest.mark.parametrize(("model", "unneeded"), STEPS)
def test_a_training_step_imports_no_more_than_it_needs(
    model: str, unneeded: tuple[str, ...], place: Path, tmp_path: Path
) -> None:
    words = f"train-step stream/00-part-0 -o {tmp_path / 'new'} {' '.join(ONE_STEP)} {model}"
    assert sorted(_imported(place, words) & set(unneeded)) == []

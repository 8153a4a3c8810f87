"""Snakemake and Slurm themselves run exported lines: the bytes of `batch`.

Slurm's daemons are started here, for two nodes; without Snakemake or Slurm its tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.slurm import Slurm, is_installed, slurm

from vlcpctl.testing.tiny_stream import make_stream

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
needs_snakemake = pytest.mark.skipif(not shutil.which("snakemake"), reason="needs Snakemake")
needs_slurm = pytest.mark.skipif(not is_installed(), reason="needs Slurm's daemons and munge")

TIMEOUT_S = 600
BATCH = (sys.executable, "-m", "vlcpctl", "batch", "b.txt")
LOCAL = ("snakemake", "--cores", "2")
HOW = "--method er --preset tiny --batch-size 4 --steps 2"
LINES = f"""
train-step stream/00-part-0 -o runs/00 {HOW} --model micro
buffer stream/00-part-0 -o 'a buffer' --policy ring --size 4
train-step stream/01-part-1 -o runs/01 {HOW} --previous runs/00 --buffer 'a buffer'
eval-retrieval stream/01-part-1 --checkpoint runs/00 --checkpoint runs/01 -o rows.ndjson -q
"""
TWO_NODES = f"""
train-step stream/00-part-0 -o run {HOW} --model micro --nproc 2  #: nodes=2 partition=both
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("s") / "s") as one:
        yield one


def run(where: Path, *words: object, cluster: Slurm | None = None) -> str:
    """What a program prints that finds this environment's vlcpctl, and the commands of a Slurm."""
    places = [Path(sys.executable).parent, *([cluster.bin] if cluster else []), os.environ["PATH"]]
    ended = subprocess.run(
        [*map(str, words)],
        cwd=where,
        env={**os.environ, "PATH": ":".join(map(str, places))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def exported(tmp_path: Path, lines: str, engine: str, name: str) -> Path:
    """A directory with lines for an engine; `batch` has run them in another, beside it."""
    for place in (tmp_path / "batch", tmp_path / "engine"):
        make_stream(place / "stream", tasks=2, n=8)
        (place / "b.txt").write_text(lines)
    run(tmp_path / "batch", *BATCH, "--jobs", "2", "-q")
    (tmp_path / "engine" / name).write_text(run(tmp_path / "engine", *BATCH, "--to", engine))
    return tmp_path / "engine"


def same_bytes_as_batch(where: Path) -> None:
    """Of all but manifests of checkpoints and buffers, which have times."""
    one, other = (
        {
            path.relative_to(root).as_posix(): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.suffix in {".ndjson", ".safetensors", ".parquet"} and path.is_file()
        }
        for root in (where.with_name("batch"), where)
    )
    assert [*other] == [*one]
    assert [name for name in one if other[name] != one[name]] == []


@needs_snakemake
def test_snakemake_makes_the_bytes_of_batch(tmp_path: Path) -> None:
    where = exported(tmp_path, LINES, "snakemake", "Snakefile")
    run(where, *LOCAL)
    assert "Nothing to be done" in run(where, *LOCAL)
    same_bytes_as_batch(where)


@needs_slurm
@pytest.mark.parametrize("lines", [LINES, TWO_NODES])
def test_sbatch_makes_the_bytes_of_batch(tmp_path: Path, cluster: Slurm, lines: str) -> None:
    where = exported(tmp_path, lines, "sbatch", "submit.sh")
    run(where, "bash", "submit.sh", cluster=cluster)
    cluster.wait_until_idle(TIMEOUT_S)
    same_bytes_as_batch(where)

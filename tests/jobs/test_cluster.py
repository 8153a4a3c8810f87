"""Snakemake and Slurm themselves run exported lines: the bytes of `batch`, whatever is killed.

Slurm's daemons are started here, for two nodes; without Snakemake or Slurm its tests are skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.method_files import write_method
from support.recipe_lines import RECIPES
from support.slurm import Slurm, is_installed, slurm

from vlcpctl.testing.tiny_stream import make_stream

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
needs_snakemake = pytest.mark.skipif(not shutil.which("snakemake"), reason="needs Snakemake")
needs_slurm = pytest.mark.skipif(not is_installed(), reason="needs Slurm's daemons and munge")

TIMEOUT_S = 600
STEPS = 300
LOCAL = ("snakemake", "--cores", "2")
# Without accounting, squeue alone knows what became of a job.
ON_SLURM = ("snakemake", "--executor", "slurm", "--jobs", "4", "--slurm-status-command", "squeue")
ON_SLURM = (*ON_SLURM, "--slurm-init-seconds-before-status-checks", "2")
HOW = f"--method mine --method-file mine.py --batch-size 4 --steps {STEPS}"
FAULTS = f"""
train-step stream/00-part-0 -o runs/00 {HOW} --model micro --save-every 5
train-step stream/01-part-1 -o runs/01 {HOW} --save-every 5 --previous runs/00
eval-retrieval stream/01-part-1 --checkpoint runs/00 --checkpoint runs/01 -o rows.ndjson -q
"""
COUNTS = 'run.slot("seen")["pairs"].add_(len(batch.keys))'
# A step takes as long as a file `slow` is there, so that something can be done to the training.
SLOWS = """
        import os
        import time

        time.sleep(0.5 * os.path.exists("slow"))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("s") / "s") as one:
        yield one


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pairs and the lines of the quickstart, with two of its tasks and two steps for each."""
    root = tmp_path_factory.mktemp("quickstart")
    recipe = (RECIPES / "quickstart.sh").read_text()
    short = {"steps=160": "steps=2", "Smileys.*Objects": "Activities,Flags"}
    for old, new in {**short, r"(?s)# --- Two weeks.*(?=# --- Four)": ""}.items():
        recipe = replaced(recipe, old, new)
    (root / "recipes").mkdir()
    (root / "recipes/quickstart.sh").write_text(recipe)
    (root / "recipes/environment.sh").write_text(
        "vlcpctl() {\n  case $1 in\n    batch) cat >b.txt ;;\n    forgetting-report) ;;\n"
        f'    *) {sys.executable} -m vlcpctl "$@" ;;\n  esac\n}}\n'
    )
    run(root, "bash", "recipes/quickstart.sh", "made")
    return root / "made"


def replaced(text: str, old: str, new: str) -> str:
    found, count = re.subn(old, new, text)
    assert count == 1
    return found


def run(where: Path, *words: object, cluster: Slurm | None = None) -> str:
    """What a program prints."""
    with start(where, *words, cluster=cluster) as process:
        shown, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, shown
    return str(shown)


def start(where: Path, *words: object, cluster: Slurm | None = None) -> subprocess.Popen[str]:
    """A program that finds this environment's vlcpctl, and the commands of a Slurm."""
    places = [Path(sys.executable).parent, *([cluster.bin] if cluster else []), os.environ["PATH"]]
    return subprocess.Popen(
        [*map(str, words)],
        cwd=where,
        env={**os.environ, "PATH": ":".join(map(str, places))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def export(where: Path, engine: str, name: str) -> None:
    """Write the lines of b.txt for an engine."""
    words = (sys.executable, "-m", "vlcpctl", "batch", "b.txt", "--to", engine)
    (where / name).write_text(run(where, *words))


def made(where: Path) -> dict[str, bytes]:
    """What the lines made, but manifests of checkpoints and buffers, which have times."""
    return {
        path.relative_to(where).as_posix(): path.read_bytes()
        for path in sorted(where.rglob("*"))
        if path.suffix in {".ndjson", ".safetensors", ".parquet", ".pt"} and path.is_file()
    }


def same_bytes_as_batch(expected: Path, found: Path) -> None:
    one, other = made(expected), made(found)
    assert [*other] == [*one]
    assert [name for name in one if other[name] != one[name]] == []


@pytest.fixture(scope="module")
def by_batch(quickstart: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("batch") / "b"
    shutil.copytree(quickstart, where)
    run(where, sys.executable, "-m", "vlcpctl", "batch", "b.txt", "--jobs", "2", "-q")
    assert len([name for name in made(where) if name.endswith("model.safetensors")]) == 7
    return where


@needs_snakemake
def test_snakemake_makes_the_bytes_of_batch(
    quickstart: Path, by_batch: Path, tmp_path: Path
) -> None:
    where = tmp_path / "w"
    shutil.copytree(quickstart, where)
    export(where, "snakemake", "Snakefile")
    run(where, *LOCAL)
    assert "Nothing to be done" in run(where, *LOCAL)
    same_bytes_as_batch(by_batch, where)


@needs_snakemake
@needs_slurm
def test_snakemake_on_slurm_makes_the_bytes_of_batch(
    quickstart: Path, by_batch: Path, tmp_path: Path, cluster: Slurm
) -> None:
    where = tmp_path / "w"
    shutil.copytree(quickstart, where)
    export(where, "snakemake", "Snakefile")
    run(where, *ON_SLURM, cluster=cluster)
    same_bytes_as_batch(by_batch, where)


@needs_slurm
def test_sbatch_makes_the_bytes_of_batch(
    quickstart: Path, by_batch: Path, tmp_path: Path, cluster: Slurm
) -> None:
    where = tmp_path / "w"
    shutil.copytree(quickstart, where)
    export(where, "sbatch", "submit.sh")
    run(where, "bash", "submit.sh", cluster=cluster)
    cluster.wait_until_idle(TIMEOUT_S)
    same_bytes_as_batch(by_batch, where)


@needs_slurm
def test_two_machines_of_slurm_train_as_two_processes_of_one(
    tmp_path: Path, cluster: Slurm
) -> None:
    line = "train-step stream/00-part-0 -o run --method seqf --preset tiny --model micro"
    line = f"{line} --batch-size 4 --steps 3 --nproc 2  #: nodes=2 partition=both"
    for name in ("batch", "sbatch"):
        make_stream(tmp_path / name / "stream", tasks=1, n=8)
        (tmp_path / name / "b.txt").write_text(line)
    run(tmp_path / "batch", sys.executable, "-m", "vlcpctl", "batch", "b.txt")
    export(tmp_path / "sbatch", "sbatch", "submit.sh")
    run(tmp_path / "sbatch", "bash", "submit.sh", "--wait", cluster=cluster)
    same_bytes_as_batch(tmp_path / "batch", tmp_path / "sbatch")


# What happens to jobs


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    """A directory with lines whose trainings are slow, while a file `slow` is there."""
    where = tmp_path / "faulty"
    where.mkdir()
    make_stream(where / "stream", tasks=2, n=8)
    write_method(where / "mine.py", **{COUNTS: COUNTS + SLOWS})
    (where / "b.txt").write_text(FAULTS)
    shutil.copytree(where, tmp_path / "batch")
    run(tmp_path / "batch", sys.executable, "-m", "vlcpctl", "batch", "b.txt", "-q")
    (where / "slow").touch()
    return where


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """A list of programs that are killed after a test that failed."""
    programs: list[subprocess.Popen[str]] = []
    yield programs
    for one in programs:
        if one.poll() is None:
            os.killpg(one.pid, signal.SIGKILL)
            one.communicate()


def wait_for(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 200
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.2)


def has_saved(run: Path) -> bool:
    return (run.parent / f".{run.name}.vlcpctl/partial/state.safetensors").exists()


def training(where: Path) -> list[int]:
    """The processes that train in a directory."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
            is_here = (place / "cwd").readlink() == where
        except OSError:  # it has ended
            continue
        if is_here and b"python" in words[0] and b"train-step" in words:
            found.append(int(place.name))
    return found


def kill_training(where: Path) -> None:
    (pid,) = training(where)
    os.kill(pid, signal.SIGKILL)


@needs_slurm
def test_jobs_of_sbatch_go_on_after_a_limit_a_kill_and_a_drained_node(
    faulty: Path, cluster: Slurm
) -> None:
    export(faulty, "sbatch", "submit.sh")
    submit, log = (faulty, "bash", "submit.sh"), faulty / "submit.sh.logs/line-2.log"
    run(*submit, cluster=cluster)
    first, *_ = cluster.jobs()
    wait_for(lambda: has_saved(faulty / "runs/00"), "a save")
    # The signal comes 120 s before the limit: now.
    cluster.ask("scontrol", "update", f"JobId={first}", "TimeLimit=1")
    wait_for(lambda: cluster.jobs()[first][1] == "PENDING", "the queue")
    assert len(cluster.jobs()) == 3  # the others wait
    # Slurm waits 120 s before it starts the job again: a node refuses a credential that is not
    # newer than the one that it has just revoked.
    wait_for(lambda: "idle" in cluster.ask("sinfo", "-h", "-p", "main", "-o", "%T"), "the node")
    cluster.ask("scontrol", "update", f"JobId={first}", "TimeLimit=60", "StartTime=now+10")
    wait_for(lambda: "resuming" in log.read_text(), "the second start")
    drain(cluster)
    kill_training(faulty)
    wait_for(lambda: not cluster.jobs(), "the end of all jobs")
    run(*submit, cluster=cluster)
    time.sleep(3)
    assert {state for _, state in cluster.jobs().values()} == {"PENDING"}
    resume(cluster)
    wait_for(lambda: training(faulty), "the third start")
    (faulty / "slow").unlink()
    cluster.wait_until_idle(TIMEOUT_S)
    assert log.read_text().count("resuming") == 2  # after the limit, and after the kill
    same_bytes_as_batch(faulty.parent / "batch", faulty)


def drain(cluster: Slurm) -> None:
    """Let a node start no more jobs."""
    cluster.ask("scontrol", "update", f"NodeName={cluster.node}", "State=DRAIN", "Reason=repair")


def resume(cluster: Slurm) -> None:
    """Let a node start jobs again."""
    cluster.ask("scontrol", "update", f"NodeName={cluster.node}", "State=RESUME")


@needs_snakemake
@needs_slurm
def test_jobs_of_snakemake_go_on_after_a_kill_of_either_and_a_limit(
    faulty: Path, cluster: Slurm, started: list[subprocess.Popen[str]]
) -> None:
    export(faulty, "snakemake", "Snakefile")
    engine = start(faulty, *ON_SLURM, cluster=cluster)
    started.append(engine)
    wait_for(lambda: has_saved(faulty / "runs/00"), "a save")
    kill_training(faulty)
    wait_for(lambda: not training(faulty), "the end of the training")
    wait_for(lambda: training(faulty), "another start by Snakemake")
    os.killpg(engine.pid, signal.SIGKILL)
    engine.communicate()
    (first,) = cluster.jobs()
    run(faulty, *ON_SLURM, "--unlock", cluster=cluster)
    engine = start(faulty, *ON_SLURM, cluster=cluster)
    started.append(engine)
    wait_for(lambda: len(training(faulty)) == 2, "a second job beside the first")
    time.sleep(3)
    assert first in cluster.jobs()  # neither has ended
    (faulty / "slow").unlink()
    wait_for((faulty / "runs/00").exists, "the first checkpoint")
    (faulty / "slow").touch()
    wait_for(lambda: has_saved(faulty / "runs/01"), "a save")
    drain(cluster)
    (job,) = cluster.jobs()
    cluster.ask("scontrol", "update", f"JobId={job}", "TimeLimit=1")
    wait_for(lambda: not training(faulty), "the limit")
    (log,) = (faulty / ".snakemake/slurm_logs").glob(f"*/{job}.log")
    wait_for(lambda: "DUE TO TIME LIMIT" in log.read_text(), "the reason")
    wait_for(lambda: {job} != {*cluster.jobs()} != set(), "another job by Snakemake")
    assert {state for _, state in cluster.jobs().values()} == {"PENDING"}
    (faulty / "slow").unlink()
    resume(cluster)
    shown, _ = engine.communicate(timeout=TIMEOUT_S)
    assert engine.returncode == 0, shown
    same_bytes_as_batch(faulty.parent / "batch", faulty)

"""--nproc and torchrun change the speed alone: the same bytes, one line for an error, no hang."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.evaluators import EVALUATORS, evaluation, files_besides
from support.marks import mostly_slow
from support.processes import exit_code_of, run_line, run_together, start_child, wait_until
from support.program import check_refused, run_program

from vlcpctl.core.errors import BadInput
from vlcpctl.distributed import peers
from vlcpctl.evaluation import embedding
from vlcpctl.precompute import distill_plan, pair_features

pytestmark = pytest.mark.dist

Words = list[object]
RETRIEVAL = "eval-retrieval"
REAL = embedding.image_vectors


@pytest.fixture(autouse=True)
def _small_items(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts and batches so small that there are more of them than processes."""
    monkeypatch.setattr(distill_plan, "PAIRS_OF_A_PART", 3)
    monkeypatch.setattr(pair_features, "BATCH", 5)


def lines(place: Path) -> dict[str, Words]:
    """Command lines that run a model, in batches of 3; the output is missing."""
    first, second = place / "stream" / "00-part-0", place / "stream" / "01-part-1"
    plain, queued, size = place / "plain", place / "queued", ["--batch-size", 3, "-q"]
    both = ["--checkpoint", plain, "--checkpoint", queued]
    return {
        **{
            name: [*evaluation(name, (first, second), (plain, queued)), *size]
            for name in EVALUATORS
        },
        "eval-retrieval": [
            *evaluation("eval-retrieval", (first, second), (plain, queued)),
            *("--gallery", "both", *size),
        ],
        "train": ["eval-retrieval", first, "--split", "train", *both, "--limit", 10, *size],
        "modx-probe": [
            *("eval-probe", first, "--checkpoint", plain, "--protocol", "modx", "--epochs", 2),
            *size,
        ],
        "distill": ["distill", second, "--teacher", plain, "--preset", "modx", *size],
        "invert": [
            *("invert-texts", "--checkpoint", plain, "--buffer", place / "buffer"),
            *("--count", 11, "--images", 3, "--iterations", 2, *size),
        ],
        "herding": ["buffer", second, "--policy", "herding", "--size", 4, *both[:2], "-q"],
        "stored": ["buffer", second, "--size", 9, "--store-features", *both[:2], "-q"],
    }


COMMANDS = tuple(lines(Path()))


def tree_bytes(path: Path) -> dict[str, bytes]:
    """The bytes of a file, or of every file in a directory, by its path there.

    Of a manifest, without its record of the command line and the time.
    """
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return {str(one.relative_to(path)): _bytes(one) for one in sorted(files)}


def _bytes(path: Path) -> bytes:
    if path.suffix != ".json":
        return path.read_bytes()
    found = json.loads(path.read_bytes())
    return json.dumps({**found, "made_by": None, "seal": None}).encode()


def outputs(words: Words, out: Path) -> Words:
    """The options for everything that a command can write."""
    out.mkdir()
    more = files_besides(str(words[0]), out) if words[0] in EVALUATORS else []
    return ["-o", out / "out", *more]


@pytest.mark.parametrize("command", mostly_slow(COMMANDS, kept=[RETRIEVAL, "distill", "herding"]))
def test_any_number_of_processes_gives_the_same_bytes(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    words, found = lines(place)[command], []
    for nproc in (1, 2, 3):
        out = tmp_path / str(nproc)
        ended = run_program(capfd, *words, *outputs(words, out), "--nproc", nproc)
        assert (ended.code, ended.err) == (0, ""), ended.err
        assert ended.out.splitlines()[-1] == str(out / "out")
        found.append(tree_bytes(out))
    assert found[0] == found[1] == found[2]
    assert found[0]
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(one, marks=[] if one in (RETRIEVAL, "distill") else pytest.mark.slow)
        for one in COMMANDS
    ],
)
def test_a_launcher_gives_the_same_bytes_and_only_rank_0_prints(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    words, one, many = lines(place)[command], tmp_path / "one", tmp_path / "many"
    assert run_program(capfd, *words, *outputs(words, one)).code == 0
    more = outputs(words, many)
    log = tmp_path / "log"
    launched = [*words, *more, "--device", "cpu"]
    codes = run_together(lambda rank: run_line(launched, Path(f"{log}-{rank}")), 3)
    assert codes == [0, 0, 0], Path(f"{log}-0.err").read_text()
    printed = [Path(f"{log}-{rank}.out").read_text() for rank in range(3)]
    assert printed[0].splitlines()[-1] == str(many / "out")
    assert printed[1:] == ["", ""]
    assert [Path(f"{log}-{rank}.err").read_text() for rank in range(3)] == [""] * 3
    assert tree_bytes(one) == tree_bytes(many)
    # What is finished already is found by rank 0, and the others end too.
    assert run_together(lambda rank: run_line(launched, Path(f"{log}-{rank}")), 3) == [0, 0, 0]


def _with_images(embed: Callable[[int], object]) -> None:
    """Let `embed`, given the process's id, run before a process's batches of images."""

    def observed(*given: object) -> object:
        embed(os.getpid())
        return REAL(*given)  # type: ignore[arg-type]

    embedding.image_vectors = observed  # type: ignore[assignment]


def test_every_process_embeds(place: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()

    def act(_: int) -> None:
        _with_images(lambda pid: (pids / str(pid)).touch())
        run_line([*lines(place)[RETRIEVAL], "--nproc", 2], tmp_path / "log")

    pid = start_child(act)
    assert exit_code_of(pid) == 0
    found = {path.name for path in pids.iterdir()}
    assert len(found) == 2
    assert str(pid) in found


def _failing(words: Words, log: Path, fail: Callable[[], object]) -> int:
    """The exit code of a command whose second process fails at its first batch."""

    def act(_: int) -> None:
        parent = os.getpid()
        _with_images(lambda pid: fail() if pid != parent else None)
        run_line(words, log)

    return exit_code_of(start_child(act))


def _broken() -> None:
    raise BadInput("a broken file")


class _OddError(Exception):
    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"odd {one}")


def _odd() -> None:
    raise _OddError(1, 2)


@pytest.mark.parametrize(
    ("fail", "code", "said"),
    [
        (_broken, 3, "a broken file"),
        (_odd, 1, "_OddError: odd 1"),
        (lambda: os._exit(9), 9, "process 1 exited with code 9"),
        (
            lambda: os.kill(os.getpid(), signal.SIGKILL),
            137,
            "process 1 was killed (SIGKILL); run the same command again",
        ),
    ],
)
def test_a_process_that_fails_is_one_line_and_its_code(
    place: Path, tmp_path: Path, fail: Callable[[], object], code: int, said: str
) -> None:
    words = [*lines(place)[RETRIEVAL], "-o", tmp_path / "out", "--nproc", 3]
    assert _failing(words, tmp_path / "log", fail) == code
    assert (tmp_path / "log.err").read_text() == f"vlcpctl eval-retrieval: {said}\n"
    assert (tmp_path / "log.out").read_text() == ""
    assert {path.name for path in tmp_path.iterdir()} == {"log.out", "log.err"}


def test_under_a_launcher_a_lost_process_ends_the_others(place: Path, tmp_path: Path) -> None:
    words = [*lines(place)["train"], "-o", tmp_path / "out"]

    def act(rank: int) -> None:
        if rank == 2:
            _with_images(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        run_line(words, tmp_path / f"log-{rank}")

    assert run_together(act, 3) == [1, 0, -signal.SIGKILL]
    (line,) = (tmp_path / "log-0.err").read_text().splitlines()
    assert line.startswith("vlcpctl eval-retrieval: another process of the run has ended (")
    assert not (tmp_path / "out").exists()


def test_under_a_launcher_an_error_of_rank_0_ends_the_others(place: Path, tmp_path: Path) -> None:
    words = [*lines(place)[RETRIEVAL], "--split", "none", "-o", tmp_path / "out"]
    codes = run_together(lambda rank: run_line(words, tmp_path / f"log-{rank}"), 3)
    assert codes == [3, 0, 0]
    said = [(tmp_path / f"log-{rank}.err").read_text() for rank in range(3)]
    assert said[0].count("\n") == 1
    assert said[1:] == ["", ""]


def _alive(pids: Path) -> list[int]:
    return [int(path.name) for path in pids.iterdir() if Path(f"/proc/{path.name}").exists()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_all_processes(place: Path, tmp_path: Path, number: int) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()

    def slow(pid: int) -> None:
        (pids / str(pid)).touch()
        time.sleep(1)

    def act(_: int) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _with_images(slow)
        run_line(
            [*lines(place)[RETRIEVAL], "-o", tmp_path / "out", "--nproc", 3],
            tmp_path / "log",
        )

    pid = start_child(act)
    wait_until(lambda: len(list(pids.iterdir())) == 2)  # of three batches, one is of texts
    os.kill(pid, number)
    assert exit_code_of(pid) == (-number if number == signal.SIGKILL else 128 + number)
    assert (tmp_path / "log.err").read_text() == ""
    wait_until(lambda: not _alive(pids))
    if number != signal.SIGKILL:
        assert {path.name for path in tmp_path.iterdir()} == {"pids", "log.out", "log.err"}


def test_a_killed_run_resumes_with_another_number_of_processes(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = lines(place)["distill"]
    assert run_program(capfd, *words, "-o", tmp_path / "whole").code == 0

    def act(_: int) -> None:
        from vlcpctl.files.parts import Parts

        keep = Parts.keep

        def dying(self: Parts, name: str, *given: Any) -> None:
            keep(self, name, *given)
            if name == "texts-000001":
                os.kill(os.getpid(), signal.SIGKILL)

        monkeypatch.setattr(Parts, "keep", dying)
        run_line([*words, "-o", tmp_path / "cut", "--nproc", 2], tmp_path / "log")

    assert exit_code_of(start_child(act)) == -signal.SIGKILL
    again = [word for word in words if word != "-q"]
    ended = run_program(capfd, *again, "-o", tmp_path / "cut", "--nproc", 3)
    assert f"resuming {tmp_path / 'cut'} at part 2 of 4" in ended.err
    assert tree_bytes(tmp_path / "cut") == tree_bytes(tmp_path / "whole")
    assert not (tmp_path / ".cut.vlcpctl").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_another_number_than_the_launchers_is_refused(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    words = [*lines(place)[command], "-o", tmp_path / "out", "--nproc", 2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANK", "0")
        patch.setenv("WORLD_SIZE", "3")
        ended = run_program(capfd, *words)
    said = "--nproc 2 differs from the 3 processes that a launcher has started"
    check_refused(ended, str(words[0]), 2, said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_spawned_processes_as_with_gpus_give_the_same_bytes(
    place: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [*lines(place)[RETRIEVAL], "--workers", 1]
    assert run_program(capfd, *words, "-o", tmp_path / "one").code == 0
    monkeypatch.setattr(peers, "start_method", lambda device: "spawn")
    ended = run_program(capfd, *words, "-o", tmp_path / "two", "--nproc", 3)
    assert (ended.code, ended.err) == (0, "")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.slow
def test_torchrun(place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = lines(place)[RETRIEVAL]
    assert run_program(capfd, *words, "-o", tmp_path / "one").code == 0
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    command = [*launcher, "2", "-m", "vlcpctl", *words, "-o", tmp_path / "two"]
    ended = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, timeout=250
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == f"{tmp_path / 'two'}\n"
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()

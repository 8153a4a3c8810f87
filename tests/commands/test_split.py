"""`vlcpctl split` and `check` as processes: exit codes, one line of error, nothing half-written."""

from __future__ import annotations

import json
import shlex
import signal
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest
from support.pair_files import img2dataset_members, rows, write_parquet, write_tar

COMMAND = [sys.executable, "-m", "vlcpctl"]


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, words)], capture_output=True, text=True, check=False)


def huge_png() -> bytes:
    chunk = b"IHDR" + struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    start = (
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    )
    return start + b"\0\0\0\0IEND\xaeB`\x82"


def broken_parquet(directory: Path, name: str, value: object) -> Path:
    pairs = rows(20)
    pairs[13] = {**pairs[13], name: value}
    return write_parquet(directory / "pairs.parquet", pairs)


def test_the_path_is_all_that_is_printed(tmp_path: Path) -> None:
    pairs = write_parquet(tmp_path / "pairs.parquet", rows(20))
    done = run("split", pairs, "-o", tmp_path / "out", "--by", "source")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'out'}\n")
    assert run("check", "--deep", tmp_path / "out").returncode == 0


def test_json_prints_one_object(tmp_path: Path) -> None:
    pairs = write_parquet(tmp_path / "pairs.parquet", rows(20))
    done = run("split", pairs, "-o", tmp_path / "out", "--by", "source", "--json")
    printed = json.loads(done.stdout)
    assert printed["path"] == str(tmp_path / "out")
    assert len(printed["tasks"]) == 1


def test_a_small_week_with_customers(tmp_path: Path) -> None:
    pairs = write_parquet(tmp_path / "week.parquet", rows(20))
    words = ("split", pairs, "-o", tmp_path / "out", "--by", "source", "--keep-columns", "id,date")
    most = ("--holdout-most", "10%")
    done = run(*words, *most)
    assert done.returncode == 2
    assert "vlcpctl split: --holdout-most has no effect: it limits a --holdout of N" in done.stderr
    done = run(*words, "--holdout", "test=500")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "has 20 images, fewer than the 500 of --holdout; --holdout-most 10%" in done.stderr
    plan = json.loads(run(*words, "--holdout", "test=500", *most, "--dry-run").stdout)
    assert (plan["holdout_most"], plan["kept_columns"]) == ("10%", ["id", "date"])
    done = run(*words, "--holdout", "test=500", *most, "--json")
    assert "holds out test=2 instead of test=500 (--holdout-most)" in done.stderr
    printed = json.loads(done.stdout)
    assert (done.returncode, printed["kept_columns"]) == (0, ["id", "date"])
    assert {name: part["images"] for name, part in printed["totals"].items()} == {
        "train": 18,
        "test": 2,
    }
    again = run(*words, "--holdout", "test=500", *most)
    assert (again.returncode, "is already finished" in again.stderr) == (0, True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["00-week", "stream.json"]


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("image", rows(1)[0]["image"][:60], 6),
        ("image", huge_png(), 6),
        ("caption", "", 6),
        ("image", None, 6),
    ],
)
def test_a_bad_sample_is_one_line_with_file_and_row(
    tmp_path: Path, name: str, value: object, code: int
) -> None:
    path = broken_parquet(tmp_path, name, value)
    done = run("split", path, "-o", tmp_path / "out", "--by", "source", "-q")
    assert done.returncode == code
    assert len(done.stderr.splitlines()) == 1
    assert "pairs.parquet, row 13" in done.stderr
    assert list(tmp_path.iterdir()) == [path]


def test_a_corrupt_tar_is_one_line_and_code_3(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", img2dataset_members(4))
    path.write_bytes(path.read_bytes()[:3000])
    done = run("split", path, "-o", tmp_path / "out", "--by", "source")
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    assert str(path) in done.stderr
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_line_and_nothing_is_left(tmp_path: Path) -> None:
    pairs = write_parquet(tmp_path / "pairs.parquet", rows(200))
    words = [*COMMAND, "split", str(pairs), "-o", str(tmp_path / "out"), "--by", "source"]
    limited = f"ulimit -f 20; trap '' XFSZ; exec {shlex.join(words)}"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [pairs]


@pytest.mark.skipif(not Path("/proc/sys").is_dir(), reason="a place that even root cannot write to")
def test_a_read_only_place_is_one_line(tmp_path: Path) -> None:
    pairs = write_parquet(tmp_path / "pairs.parquet", rows(5))
    done = run("split", pairs, "-o", "/proc/sys/out", "--by", "source")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


def test_killed_half_way_nothing_stands_and_the_next_run_succeeds(tmp_path: Path) -> None:
    pairs = write_parquet(tmp_path / "pairs.parquet", rows(3000))
    words = [
        *COMMAND,
        "split",
        str(pairs),
        "-o",
        str(tmp_path / "out"),
        "--by",
        "iid",
        "--tasks",
        "3",
    ]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    while not list(tmp_path.glob(".out.vlcpctl/writing-*/task-*/*.tar")) and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    assert run(*words[3:]).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "pairs.parquet"]


def test_check_prints_a_problem_per_line_and_ends_with_3(tmp_path: Path) -> None:
    pairs = write_parquet(tmp_path / "pairs.parquet", rows(20))
    run("split", pairs, "-o", tmp_path / "out", "--by", "source")
    shard = next((tmp_path / "out").rglob("train-*.tar"))
    shard.unlink()
    done = run("check", tmp_path / "out")
    problem, *warnings = done.stdout.splitlines()
    assert (done.returncode, problem) == (3, f"{shard}: is missing")
    assert all(line.startswith("warning: ") for line in warnings)


def test_inspect_shows_the_table_of_tasks(tmp_path: Path) -> None:
    pairs = write_parquet(tmp_path / "pairs.parquet", rows(20))
    run("split", pairs, "-o", tmp_path / "out", "--by", "column:group")
    done = run("inspect", tmp_path / "out")
    assert "01-travel-places" in done.stdout
    assert json.loads(run("inspect", tmp_path / "out", "--json").stdout)["kind"] == "stream"

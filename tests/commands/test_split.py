"""`vlcpctl split` of values at the ends of what a column or a text can hold."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.pair_files import rows
from support.program import run_program

from vlcpctl.testing.tiny_stream import make_image

Captured = pytest.CaptureFixture[str]


def split(capfd: Captured, source: Path, *words: object) -> Path:
    out = source.with_suffix(".stream")
    ended = run_program(capfd, "split", source, "-o", out, "-q", "--holdout", "none", *words)
    assert ended.code == 0, ended.err
    return out


@pytest.mark.parametrize("first", [0, 2**64 - 1])
def test_unsigned_integers_of_64_bits_are_ordered(
    capfd: Captured, tmp_path: Path, first: int
) -> None:
    path = tmp_path / "p.parquet"
    values = pa.array([first, *range(1, 9)], pa.uint64())
    pq.write_table(pa.Table.from_pylist(rows(9)).append_column("g", values), path)
    out = split(capfd, path, "--by", "time:g", "--tasks", 2)
    tasks = json.loads((out / "stream.json").read_text())["tasks"]
    assert tasks[1]["name"].endswith(f"to {max(first, 8)}")


def test_surrogates_are_listed_among_the_skipped(capfd: Captured, tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}.png").write_bytes(make_image(number, 8))
    records = {f"{n}": {"image": f"{n}.png", "title": f"t {n}"} for n in range(9)}
    records |= {"\ud800": {"title": "x"}, "9": {"image": "\ud800.png", "title": "y"}}
    path = tmp_path / "l.json"
    path.write_text(json.dumps(records))
    out = split(capfd, path, "--max-skip", 2, "--by", "iid", "--tasks", 1)
    lines = (out / "skipped.ndjson").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["place"] for line in lines} == {"member \ud800", "member 9"}

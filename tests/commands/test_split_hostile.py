"""`vlcpctl split` on sources that nobody can have meant: exit code, one line, no output."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from support.hostile import block, member, tar_file
from support.pair_files import rows, write_parquet
from support.program import ProgramResult, check_refused, run_program

from vlcpctl.testing.tiny_stream import make_image

Captured = pytest.CaptureFixture[str]


def split(capfd: Captured, source: Path, *more: object) -> ProgramResult:
    out = source.parent / "out"
    words = ("split", source, "-o", out, "-q", *more)
    done = run_program(capfd, *(words if "--by" in more else (*words, "--by", "iid", "--tasks", 1)))
    assert out.exists() == (done.code == 0)
    assert "Traceback" not in done.err
    return done


def test_a_tar_of_a_size_below_zero_does_not_hang(capfd: Captured, tmp_path: Path) -> None:
    path = tar_file(tmp_path / "a.tar", block(b"a.bin", b"-0000001000\0"))
    check_refused(split(capfd, path), "split", 3, path)


@pytest.mark.parametrize("rule", ["column:g", "time:g"])
def test_a_struct_as_group_or_time_is_refused(capfd: Captured, tmp_path: Path, rule: str) -> None:
    data = [{**row, "g": {"a": 1}} for row in rows(9)]
    path = write_parquet(tmp_path / "p.parquet", data)
    done = split(capfd, path, "--by", rule)
    check_refused(done, "split", 3, path, "column 'g' has no value")


def test_unsigned_integers_of_64_bits_are_ordered(capfd: Captured, tmp_path: Path) -> None:
    data = [{**row, "g": number} for number, row in enumerate(rows(9))]
    small = write_parquet(tmp_path / "p.parquet", data, g=pa.uint64())
    assert split(capfd, small, "--by", "time:g", "--tasks", 2, "--holdout", "none").code == 0
    data[0]["g"] = 2**64 - 1
    table = pa.Table.from_pylist(data[1:])
    kind = table.schema.set(table.schema.get_field_index("g"), pa.field("g", pa.uint64()))
    pa.parquet.write_table(pa.Table.from_pylist(data, schema=kind), tmp_path / "q.parquet")
    (tmp_path / "out").rename(tmp_path / "before")
    large = tmp_path / "q.parquet"
    assert split(capfd, large, "--by", "time:g", "--tasks", 2, "--holdout", "none").code == 0
    tasks = json.loads((tmp_path / "out/stream.json").read_text())["tasks"]
    assert tasks[1]["name"].endswith(f"to {2**64 - 1}")


def test_surrogates_are_listed_among_the_skipped(capfd: Captured, tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}.png").write_bytes(make_image(number, 8))
    products = {str(number): {"title": f"t {number}"} for number in range(9)}
    records = {**products, "\ud800": {"title": "x"}, "9": {"image": "\ud800.png", "title": "y"}}
    for number in range(9):
        records[str(number)] = {"image": f"{number}.png", "title": f"t {number}"}
    path = tmp_path / "l.json"
    path.write_text(json.dumps(records))
    done = split(capfd, path, "--max-skip", 2, "--holdout", "none")
    assert done.code == 0, done.err
    lines = (tmp_path / "out" / "skipped.ndjson").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["place"] for line in lines] == ["member \ud800", "member 9"]


def test_a_pair_beyond_a_limit_is_skipped(capfd: Captured, tmp_path: Path) -> None:
    data = rows(9)
    data[4]["caption"] = "x" * 1_000_001
    data[5]["label"] = "y" * 5000
    path = write_parquet(tmp_path / "p.parquet", data)
    done = split(capfd, path)
    check_refused(done, "split", 6, "too large 2", "characters in its captions")
    check_refused(split(capfd, path, "--by", "classes", "--tasks", 2), "split", 6, "too large 2")


def test_names_are_shown_without_escape_codes(capfd: Captured, tmp_path: Path) -> None:
    parts = member(b"\x1b[31mred.png", b"x"), member(b"\x1b[31mred.txt", b"c")
    path = tar_file(tmp_path / "a.tar", *parts)
    done = split(capfd, path)
    assert (done.code, done.out) == (6, "")
    assert "\x1b" not in done.err

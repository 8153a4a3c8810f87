"""A line of a batch file means what it means in a shell, or is an error."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlcpctl.core.errors import UsageError
from vlcpctl.jobs.script import CommandLine, expanded, parse


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("check a", ("check", "a")),
        ("  vlcpctl check a  ", ("check", "a")),
        ("check 'a b' \"c d\" e\\ f", ("check", "a b", "c d", "e f")),
        ("check a # and why", ("check", "a")),
        ("check exp#1 '#2'", ("check", "exp#1", "#2")),
        ("check '*.tar' 'a|b' '$x' \\*", ("check", "*.tar", "a|b", "$x", "*")),
        ("check a/*/'b*['?", ("check", "a/*/b[*][[]?")),
        ("check a \\\n  b", ("check", "a", "b")),
        ("check ''", ("check", "")),
        ("# data is in D:\\\ncheck a", ("check", "a")),
        *((f"check 'a{sign}b'", ("check", f"a{sign}b")) for sign in "\f\v\x1c\x85\u2028\u2029"),
    ],
)
def test_a_line_is_read_as_a_shell_reads_it(text: str, words: tuple[str, ...]) -> None:
    assert [line.words for line in parse(text)] == [words]


def test_lines_keep_their_numbers_past_comments_and_continuations() -> None:
    lines = parse("# why\n\ncheck a \\\n b\nwait\nvlcpctl\ncheck c\n")
    assert [(line.number, line.is_barrier) for line in lines] == [(3, False), (5, True), (7, False)]


@pytest.mark.parametrize("out", ["-o runs/a", "-oruns/a", "--out runs/a", "--out=./runs/a/"])
def test_a_line_reads_what_an_earlier_one_makes_however_out_is_written(out: str) -> None:
    made, reader, other = parse(f"buffer stream/00 {out}\ncheck runs/a/00\ncheck runs/ab")
    assert made.makes == os.path.realpath("runs/a")
    assert reader.reads([made.makes])
    assert not other.reads([made.makes])


def test_shards_of_an_output_do_not_wait_for_each_other() -> None:
    one = "distill stream/00 --teacher a --num-shards 2 --shard-index"
    first, second, again, reader = parse(
        f"{one} 0 -o t\n{one}=1 --out=t\nbuffer stream/00 -o t\ncheck t/images.npy"
    )
    assert not second.reads([first.makes])
    assert again.reads([first.makes])  # two writers of one output would collide
    assert reader.reads([first.makes])
    (teacher,) = parse(f"{one} 0 -o a --teacher t")
    assert teacher.reads([first.makes])


def test_a_line_waits_for_what_it_reads_by_another_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    paths = [shlex.quote(f"{Path.cwd()}/runs/a"), shlex.quote(f"{tmp_path}/link/../real/b")]
    made, absolute, linked = parse(f"buffer s -o runs/a\ncheck {paths[0]}\ncheck {paths[1]}")
    assert absolute.reads([made.makes])
    assert linked.reads([os.path.realpath(tmp_path / "link" / "b")])


@pytest.mark.parametrize(
    "line",
    ["check a | head", "check > f", "check a && check b", "check $HOME", "check `ls`", "check ~/a",
     "check [ab]", 'check "$HOME"', "check {0..3}", "check a; check b"],
)  # fmt: skip
def test_what_only_a_shell_can_do_is_refused_by_line(line: str) -> None:
    with pytest.raises(UsageError, match=r"^line 2: .* is shell syntax"):
        parse(f"check\n{line}")


def test_an_open_quote_is_refused_by_line() -> None:
    with pytest.raises(UsageError, match="line 1: no closing quotation"):
        parse("check 'a")


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"])), min_size=1))
def test_what_a_line_prints_reads_back_as_itself(words: list[str]) -> None:
    line = CommandLine(1, ("check", *words))
    assert parse(str(line)) == [line]


def test_a_glob_is_what_is_there_when_its_line_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made, elsewhere, line = parse("split p -o s/01\nsplit p -o t\ncheck s/0* 's/0*' none/?")
    assert line.reads([made.makes])
    assert not line.reads([elsewhere.makes])
    assert parse(str(line)) == [CommandLine(1, line.words)]
    for name in ("s/02", "s/01", "s/1"):
        (tmp_path / name).mkdir(parents=True)
    assert [*expanded(line.words)] == ["check", "s/01", "s/02", "s/0*", "none/?"]

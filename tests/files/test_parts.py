"""Parts of an output: found again after a kill, shared by commands, made again when damaged."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.processes import exit_code_of, start_child

from vlcpctl.core.errors import OutputExists
from vlcpctl.files.outputs import Output
from vlcpctl.files.parts import (
    SHARDS,
    MissingShard,
    Parts,
    Result,
    drop_parts,
    refuse_parts,
)

SETTINGS: tuple[dict[str, Any], dict[str, Any]] = ({"limit": None}, {"threads": 1})


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def written(text: str, path: Path) -> None:
    path.write_text(text)


def of_items(numbers: range) -> Iterator[Result]:
    for number in numbers:
        yield np.full(2, number), np.array(["x"] * number, dtype=np.str_)


def test_a_part_is_there_when_it_is_whole_and_damage_is_as_if_it_were_not(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = Parts(out)
    with parts.claimed(*SETTINGS):
        parts.keep("a", ".txt", partial(written, "one"))
        with pytest.raises(KeyboardInterrupt):
            parts.keep("b", ".txt", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    found, missing = parts.find(["a", "b"])
    assert (found is not None and found.read_text(), missing) == ("one", None)
    assert found is not None
    found.write_text("two")
    assert parts.find(["a"]) == [None]
    assert str(found) in capsys.readouterr().err
    assert not found.exists()


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_what_shards_keep_is_joined_in_the_order_of_the_items(out: Path, count: int) -> None:
    for index in reversed(range(count)):
        shard = Parts(out, count, index)
        with shard.claimed(*SETTINGS):
            shard.keep_arrays({"what": "x"}, 7, of_items)
            shard.keep_arrays({"what": "x"}, 7, lambda _: pytest.fail("it is there"))
            assert [shard.complete(), shard.complete()] == [False, True]
    join = Parts(out, count, None)
    join.check(*SETTINGS)
    found = list(join.arrays({"what": "x"}, 7))
    for one, expected in zip(found, of_items(range(7)), strict=True):
        assert [side.tolist() for side in one] == [side.tolist() for side in expected]


def test_what_some_shards_have_searched_is_not_searched_again(out: Path) -> None:
    asked: list[range] = []

    def find(rows: range) -> Result:
        asked.append(rows)
        return (np.arange(rows.start, rows.stop)[None],)

    for index in (0, 2):
        with Parts(out, 3, index).claimed(*SETTINGS):
            assert Parts(out, 3, index).shared({"what": "s"}, 10, find) is None
    for about, expected in (("s", [range(3, 6)]), ("other", [range(10)])):
        asked.clear()
        whole = Parts(out, 3, None).shared({"what": about}, 10, find)
        assert whole is not None
        assert whole[0].tolist() == [[*range(10)]]
        assert asked == expected


def test_a_missing_shard_is_named(out: Path) -> None:
    with Parts(out, 3, 1).claimed(*SETTINGS):
        Parts(out, 3, 1).complete()
    with pytest.raises(MissingShard, match=r"shard 0 of 3 .*, and 1 more; .* --shard-index 0"):
        Parts(out, 3, None).check(*SETTINGS)
    with pytest.raises(MissingShard, match="--shard-index 0"):
        Parts(out, 3, None).files({"what": "x"})


@pytest.mark.parametrize(
    ("parts", "settings"),
    [
        ((2, 0), ({"limit": 3}, {"threads": 1})),
        ((2, 0), ({"limit": None}, {"threads": 2})),
        ((3, 0), SETTINGS),
    ],
)
def test_parts_of_other_settings_are_refused_and_force_starts_over(
    out: Path, parts: tuple[int, int], settings: Any
) -> None:
    own, other = Parts(out, 2, 1), Parts(out, *parts)
    with own.claimed(*SETTINGS):
        own.keep("a", "", partial(written, "one"))
    with pytest.raises(OutputExists, match="--force"):
        other.claimed(*settings).__enter__()
    assert own.find(["a"]) != [None]
    with other.claimed(*settings, force=True):
        assert other.find(["a"]) == [None]


def test_parts_that_do_not_depend_on_it_may_change_the_number_of_shards(out: Path) -> None:
    for count in (1, 3):
        with Parts(out, count).claimed({}, {SHARDS: None}):
            pass


def test_killed_at_any_rename_it_resumes(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the settings, and of each of three parts."""
    rename = Path.rename

    def work(_: int = 0) -> None:
        shard = Parts(out, 1, 0)
        with shard.claimed(*SETTINGS):
            for name in "abc":
                if shard.find([name]) == [None]:
                    shard.keep(name, "", partial(written, name))

    def killed(last: int, _: int) -> None:
        renames = iter(range(last))

        def dying(self: Path, target: Path) -> Path:
            if next(renames, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", dying)
        monkeypatch.setattr(Path, "replace", dying)
        work()

    for last in (0, 1, 1, 1):
        assert exit_code_of(start_child(partial(killed, last))) == -signal.SIGKILL
    work()
    found = [file.read_text() for file in Parts(out).find(list("abc")) if file is not None]
    assert found == ["a", "b", "c"]


def test_what_is_no_parts_is_neither_refused_nor_dropped(out: Path) -> None:
    kept = Output(out).open_partial() / "identity.json"
    kept.write_text('{"run": "a training", "numeric": {"threads": 1}}')
    refuse_parts(out)
    drop_parts(out)
    assert kept.exists()
    kept.unlink()
    with Parts(out).claimed(*SETTINGS):
        pass
    with pytest.raises(OutputExists, match="--num-shards"):
        refuse_parts(out)
    drop_parts(out)
    assert not Output(out).hidden.exists()

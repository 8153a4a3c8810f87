"""`vlcpctl forget`: nothing of a pair is left, the rest stays what it was; a receipt says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.deletion_world import (
    copy_of,
    evicted_pair,
    held_pair,
    make_deletion_world,
    traces,
    tree_bytes,
    vectors_of,
)
from support.program import run_program

ARTIFACTS = ("stream", "buffers/00", "buffers/01", "buffers/02", "buffers/03", "other", "targets")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("made") / "world"


@pytest.fixture
def world(made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Path:
    if not made.exists():
        make_deletion_world(made, capfd)
    return copy_of(made, tmp_path / "world")


def forget(capfd: pytest.CaptureFixture[str], *words: object) -> dict[str, object]:
    ended = run_program(capfd, "forget", *words, "--json", "-q")
    assert ended.code == 0, ended.err
    return dict(json.loads(ended.out))


@pytest.mark.parametrize("which", [held_pair, evicted_pair])
def test_nothing_is_left(which, world: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pair = which(world)
    vectors = [one.tobytes() for one in vectors_of(world, pair)]
    print(traces(world, pair))
    receipt = forget(capfd, "--key", pair.key, world)
    print(json.dumps(receipt, indent=1)[:6000])
    assert traces(world, pair) == []
    assert not [name for name, data in tree_bytes(world).items() for one in vectors if one in data]
    for name in (*ARTIFACTS, "texts.parquet", "emb", "run/00", "run/01"):
        ended = run_program(capfd, "check", "--deep", world / name, "-q")
        assert ended.code == 0, ended.err + ended.out

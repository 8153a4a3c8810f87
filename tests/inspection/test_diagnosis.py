"""A path that is not an artifact: the message says what it is, and what to give instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.pair_files import rows, write_parquet

from vlcpctl.core.errors import BadInput
from vlcpctl.files.manifest import write_manifest
from vlcpctl.files.outputs import Output
from vlcpctl.inspection.check import check
from vlcpctl.inspection.lineage import describe
from vlcpctl.testing.tiny_stream import make_stream


def said(path: Path) -> str:
    """The same answer of `inspect` and `check`."""
    (problem,) = check(path, deep=True)
    with pytest.raises(BadInput) as error:
        describe(path)
    assert str(error.value) == problem
    assert problem.startswith(f"{path}: ")
    return problem.removeprefix(f"{path}: ")


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    assert said(tmp_path / "nope") == "does not exist"


def test_pairs_are_what_split_makes_a_stream_of(tmp_path: Path) -> None:
    text = said(write_parquet(tmp_path / "pairs.parquet", rows(3)))
    assert "if it contains image-text pairs, make a stream of them with 'vlcpctl split'" in text
    assert "invert-texts" not in text


def test_evaluation_rows_are_what_a_report_reads(tmp_path: Path) -> None:
    path = tmp_path / "rows.ndjson"
    path.write_text(json.dumps({"schema": "vlcpctl.eval/1", "run": "a"}) + "\n")
    assert said(path) == (
        f"contains evaluation rows; read them with 'vlcpctl forgetting-report {path}'"
    )


def test_any_other_file_is_no_artifact(tmp_path: Path) -> None:
    for number, data in enumerate((b"", b"text\n", b"[1]\n", b"\xff\x00")):
        path = tmp_path / str(number)
        path.write_bytes(data)
        assert said(path).startswith("is not an artifact, such as a stream")


def test_a_file_of_an_artifact_leads_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_stream(tmp_path / "stream", 1, 3) / "00-part-0"
    assert said(task / "train.parquet") == f"is part of the task {task}; give that path instead"
    assert said(task / "train-000000.tar") == f"is part of the task {task}; give that path instead"
    monkeypatch.chdir(task)
    assert said(Path("train.parquet")) == "is part of the task .; give that path instead"
    assert list(check(Path(), deep=True)) == []


@pytest.mark.parametrize(
    ("identity", "command"), [({"semantic": {}}, "train-step"), ({"seed": 0}, "command")]
)
def test_an_unfinished_run_is_resumed_by_its_command(
    tmp_path: Path, identity: dict[str, object], command: str
) -> None:
    partial = Output(tmp_path / "a.b").open_partial()
    (partial / "identity.json").write_text(json.dumps(identity))
    assert said(partial) == (
        f"is the state of an unfinished {command}; run the same command again "
        f"to finish {tmp_path / 'a.b'}"
    )


def test_a_folder_of_artifacts_names_them(tmp_path: Path) -> None:
    stream = make_stream(tmp_path / "all" / "stream", 2, 3)
    for name in ("task-0", "task-1"):
        checkpoint = tmp_path / "all" / "runs" / name
        checkpoint.mkdir(parents=True)
        write_manifest(checkpoint, "checkpoint", {}, "0" * 32, {"files": {}, "tasks": []})
    runs = tmp_path / "all" / "runs"
    names = f"{runs / 'task-0'} {runs / 'task-1'} {stream}"
    assert said(tmp_path / "all").endswith(
        f"has no manifest, so it is not an artifact; give one of: {names}"
    )


def test_a_folder_of_anything_else_has_no_manifest(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    assert said(tmp_path).startswith("has no manifest: it is unfinished, or not an artifact")

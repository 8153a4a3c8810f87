"""Reading rows: tolerant of what is new, strict about what is wrong."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from support.eval_rows import row, write_rows

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.core.rows import read_rows, write_row


def test_a_written_row_is_read_back(tmp_path: Path) -> None:
    stream = io.StringIO()
    fields = row(seed=3, metrics={"rm": 12.5})
    del fields["schema"]
    write_row(stream, fields)
    (tmp_path / "rows").write_text(stream.getvalue(), encoding="utf-8")
    (found,) = read_rows([str(tmp_path / "rows")])
    assert (found.seed, found.metrics, found.task) == (3, {"rm": 12.5}, "00-smileys")


def test_unknown_fields_are_ignored(tmp_path: Path) -> None:
    (found,) = read_rows([write_rows(tmp_path / "rows", [row(n_ties=3, invented="later")])])
    assert found.metrics == {"rm": 50.0}


def test_a_minor_version_is_read(tmp_path: Path) -> None:
    assert read_rows([write_rows(tmp_path / "rows", [row(schema="vlcpctl.eval/1.2")])])


def test_another_major_version_is_refused_with_its_place(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows", [row(), row(schema="vlcpctl.eval/2")])
    with pytest.raises(BadInput, match=rf"{path}:2 has schema 'vlcpctl.eval/2'"):
        read_rows([path])


@pytest.mark.parametrize("schema", [None, "vlcpctl.report/1", 1, "vlcpctl.eval/10x"])
def test_another_schema_is_refused(tmp_path: Path, schema: object) -> None:
    with pytest.raises(BadInput, match="is not an evaluation row"):
        read_rows([write_rows(tmp_path / "rows", [row(schema=schema)])])


def test_identical_repeats_collapse(tmp_path: Path) -> None:
    first = write_rows(tmp_path / "a", [row(), row(step=1), row()])
    second = write_rows(tmp_path / "b", [row(n_ties=7)])
    assert [found.step for found in read_rows([first, second])] == [0, 1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"metrics": {"rm": 51.0}}, "rm is 50.0 there and 51.0 here"),
        ({"metrics": {"rm": 50.0, "extra": 1}}, "extra is None there and 1.0 here"),
        ({"checkpoint": "other"}, "checkpoint is c0 there and other here"),
    ],
)
def test_a_contradiction_names_both_places(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    first = write_rows(tmp_path / "a", [row()])
    second = write_rows(tmp_path / "b", [row(step=1), row(**change)])
    with pytest.raises(BadInput) as caught:
        read_rows([first, second])
    assert f"{second}:2 contradicts {first}:1" in str(caught.value)
    assert said in str(caught.value)


def test_merged_galleries_of_different_tasks_do_not_contradict(tmp_path: Path) -> None:
    fields = {"gallery": "merged", "task": "merged", "task_step": None}
    rows = [row(**fields, tasks=["a"]), row(**fields, tasks=["a", "b"], metrics={"rm": 1})]
    assert len(read_rows([write_rows(tmp_path / "rows", rows)])) == 2


@pytest.mark.parametrize("line", ["{", "[1]", "nonsense", '{"rm": NaN}'])
def test_a_malformed_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "rows"
    path.write_text(json.dumps(row()) + "\n\n" + line + "\n", encoding="utf-8")
    with pytest.raises(BadInput, match=rf"{path}:3 is not a JSON object"):
        read_rows([str(path)])


@pytest.mark.parametrize(
    ("field", "value"),
    [("run", None), ("seed", "0"), ("seed", True), ("metrics", []), ("tasks", "a"), ("step", 1.5)],
)
def test_a_mistyped_field_is_named(tmp_path: Path, field: str, value: object) -> None:
    path = write_rows(tmp_path / "rows", [row(**{field: value})])
    with pytest.raises(BadInput, match=f":1: field '{field}' is"):
        read_rows([path])


@pytest.mark.parametrize("value", ["12", True, 1e999])
def test_a_metric_that_is_not_a_number_is_named(tmp_path: Path, value: object) -> None:
    path = tmp_path / "rows"
    path.write_text(json.dumps(row(metrics={"rm": value})), encoding="utf-8")
    with pytest.raises(BadInput, match="rows:1"):
        read_rows([str(path)])


def test_a_null_metric_was_not_measured(tmp_path: Path) -> None:
    (found,) = read_rows([write_rows(tmp_path / "rows", [row(metrics={"rm": None, "r": 1})])])
    assert found.metrics == {"r": 1.0}


def test_a_file_without_rows_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no rows"):
        read_rows([write_rows(tmp_path / "rows", [])])


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read .*nowhere: No such file"):
        read_rows([str(tmp_path / "nowhere")])


def test_a_binary_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="is not UTF-8 text"):
        read_rows([str(tmp_path / "rows")])


def test_a_dash_reads_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(row()) + "\n"))
    (found,) = read_rows(["-"])
    assert found.place == "<stdin>:1"


def test_a_dash_on_a_terminal_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    with pytest.raises(UsageError, match="pipe them in"):
        read_rows(["-"])

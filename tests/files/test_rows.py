"""Reading rows: tolerant of what is new, strict about what is wrong."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from support.eval_rows import row, write_rows

import vlcpctl.files.rows as rows_module
from vlcpctl.core.errors import BadInput
from vlcpctl.files.inputs import MOST_TASKS
from vlcpctl.files.rows import read_rows, write_row


def test_a_written_row_is_read_back(tmp_path: Path) -> None:
    stream = io.StringIO()
    fields = row(seed=3, metrics={"rm": 12.5})
    del fields["schema"]
    write_row(stream, fields)
    (tmp_path / "rows").write_text(stream.getvalue(), encoding="utf-8")
    (found,) = read_rows([str(tmp_path / "rows")])
    assert (found.seed, found.metrics, found.task) == (3, {"rm": 12.5}, "00-smileys")


def test_a_minor_version_is_read_and_its_unknown_fields_are_ignored(tmp_path: Path) -> None:
    (found,) = read_rows(
        [
            write_rows(
                tmp_path / "rows", [row(schema="vlcpctl.eval/1.2", n_ties=3, invented="later")]
            )
        ]
    )
    assert found.metrics == {"rm": 50.0}


def test_other_names_change_nothing_else(tmp_path: Path) -> None:
    (found,) = read_rows([write_rows(tmp_path / "rows", [row(n_images=3, metrics={"rm": 1.5})])])
    named = structs.replace(found, task="a", tasks=("a", "b"))
    expected = structs.asdict(named) | {"model_part": found.model_part}
    assert structs.asdict(found.with_names_of(named)) == expected


def test_identical_repeats_collapse(tmp_path: Path) -> None:
    first = write_rows(tmp_path / "a", [row(), row(step=1), row()])
    second = write_rows(tmp_path / "b", [row(n_ties=7)])
    assert [found.step for found in read_rows([first, second])] == [0, 1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"metrics": {"rm": 51.0}}, "rm is 50.0 there and 51.0 here"),
        ({"metrics": {"rm": 50.0, "extra": 1}}, "extra is None there and 1.0 here"),
        ({"checkpoint": "other"}, "checkpoint is 'c0' there and 'other' here"),
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


def test_a_null_metric_was_not_measured(tmp_path: Path) -> None:
    (found,) = read_rows([write_rows(tmp_path / "rows", [row(metrics={"rm": None, "r": 1})])])
    assert found.metrics == {"r": 1.0}


def test_a_dash_reads_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(row()) + "\n"))
    (found,) = read_rows(["-"])
    assert found.place == "<stdin>:1"


LINE = json.dumps(row(metrics={"rm": 50.5}))
WITH = {
    "$.options": {"options": None},
    "$.run": {"run": None},
    "$.seed": {"seed": "0"},
    "$.metrics": {"metrics": []},
    "$.tasks": {"tasks": "a"},
    "$.step": {"step": -5},
    "$.task_step": {"task_step": MOST_TASKS},
    "$.limit": {"limit": 1.5},
    "$.n_texts": {"n_texts": True},
    "$.metrics[...]": {"metrics": {"rm": "12"}},
    "$.split": {"split": "x" * 1001},
    "length <= 10000": {"tasks": ["t"] * (MOST_TASKS + 1), "data": "d"},
    "length <= 200": {"metrics": {f"m{n}": 1 for n in range(201)}},
    "key": {"metrics": {"x" * 1001: 1}},
    "$.config.id": {"config": {"id": 1}},
    "'vlcpctl.eval/1.1'": {"schema": "vlcpctl.eval/2"},
    "'vlcpctl.eval/1.0'": {"schema": "vlcpctl.eval/1.0"},
    "'vlcpctl.eval/1'": {"schema": "vlcpctl.eval/1"},
    "'vlcpctl.report/1'": {"schema": "vlcpctl.report/1"},
    "'vlcpctl.eval/10x'": {"schema": "vlcpctl.eval/10x"},
    "None": {"schema": None},
}
HOSTILE = {
    **{said: (json.dumps(row() | fields), said) for said, fields in WITH.items()},
    "a huge integer": (LINE.replace('"seed": 0', '"seed": 99999999999999999999'), "$.seed"),
    "5000 digits": (LINE.replace("50.5", "9" * 5000), "$.metrics[...]"),
    "an infinite number": (LINE.replace("50.5", "1e999"), "$.metrics[...]"),
    "an absurd number": (LINE.replace("50.5", "1e300"), "$.metrics[...]"),
    "NaN": (LINE.replace("50.5", "NaN"), "not readable JSON"),
    "a lone surrogate": (LINE.replace('"ctp"', '"\\ud800"'), "not readable JSON"),
    "a deep line": ("[" * 100_000, ""),
    "a deep field": (LINE.replace("50.5", "[" * 500 + "]" * 500), "$.metrics[...]"),
    "a deep unknown field": (LINE[:-1] + ', "x": ' + "[" * 100_000, "not readable JSON"),
    "a list": ("[1]", "object"),
    "words": ("nonsense", "not readable JSON"),
    "NUL bytes": ("\0" * 100, "not readable JSON"),
    "bytes": ("\udcff", "not UTF-8"),
    "a line of megabytes": ('"' + "x" * (1 << 20), "longer than 1048576 bytes"),
}


@pytest.mark.parametrize(("line", "said"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_line_is_one_error_with_its_place(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "rows"
    path.write_text(f"{LINE}\n\n{line}\n", encoding="utf-8", errors="surrogateescape")
    with pytest.raises(BadInput, match=f"^{path}:3.*{re.escape(said)}") as caught:
        read_rows([str(path)])
    assert len(str(caught.value)) < 400


def test_a_file_without_rows_and_none_are_errors(tmp_path: Path) -> None:
    for place in (Path(write_rows(tmp_path / "rows", [])), tmp_path / "nowhere", tmp_path):
        with pytest.raises(BadInput, match=str(place)):
            read_rows([str(place)])


def test_rows_come_through_a_pipe_of_the_shell(tmp_path: Path) -> None:
    end, other = os.pipe()
    with os.fdopen(other, "w") as stream:
        stream.write(LINE + "\n")
    assert len(read_rows([f"/dev/fd/{end}"])) == 1
    os.close(end)


def test_rows_without_end_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MOST_ROWS", 5)
    path = write_rows(tmp_path / "rows", [row(seed=seed) for seed in range(6)])
    with pytest.raises(BadInput, match=f"{path}:6: more than 5 rows"):
        read_rows([path])


@given(st.binary(max_size=400))
def test_any_bytes_are_rows_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    _read_or_refuse(tmp_path_factory, data)


@given(st.data())
def test_a_change_of_a_row_is_a_row_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    _read_or_refuse(tmp_path_factory, data.draw(_damaged_lines()))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@st.composite
def _damaged_lines(draw: st.DrawFn) -> bytes:
    """A row with a field replaced by any value, and bytes of its line by any others."""
    fields = row(data="d", limit=3, options={}, config={"id": "c", "values": {}}, n_images=3)
    fields[draw(st.sampled_from(sorted(fields)))] = draw(JSON)
    line = bytearray(json.dumps(fields).encode())
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(line)))
        line[start : start + draw(st.integers(0, 5))] = draw(st.binary(max_size=5))
    return bytes(line)


def _read_or_refuse(paths: pytest.TempPathFactory, data: bytes) -> None:
    path = paths.getbasetemp() / "fuzzed"
    path.write_bytes(data)
    with contextlib.suppress(BadInput):
        read_rows([str(path)])


@pytest.mark.parametrize("order", [1, -1])
def test_an_evaluation_of_rewritten_data_replaces_that_of_the_data_before(
    tmp_path: Path, order: int
) -> None:
    before = row(data="a", n_images=9, metrics={"rm": 50.0})
    after = row(data="a", data_content="a2", n_images=7, metrics={"rm": 51.0})
    (found,) = read_rows([write_rows(tmp_path / "r", [before, after][::order])])
    assert (found.data, found.data_content, found.metrics) == ("a", "a2", {"rm": 51.0})
    between = row(data="a", data_content="a1", n_images=8, metrics={"rm": 52.0})
    (found,) = read_rows([write_rows(tmp_path / "r", [between, after, before][::order])])
    assert found.data_content == "a2"
    # A copy without another pair, and other data.
    for other, what in (({"data_content": "a3"}, "a3"), ({"data": "b", "data_content": None}, "b")):
        rows = [after, after | other][::order]
        with pytest.raises(BadInput, match=f"data is .*{what}"):
            read_rows([write_rows(tmp_path / "r", rows)])

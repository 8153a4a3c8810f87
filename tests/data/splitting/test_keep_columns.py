"""`split --keep-columns`: a pair can be found by the value of any row that became it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.pair_files import img2dataset_members, rows, write_parquet, write_tar

from vlcpctl.core.errors import BadInput, OutputExists, TooManySkipped, UsageError
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import describe_plan, make_stream
from vlcpctl.data.tasks.index import SCHEMA
from vlcpctl.data.tasks.task import Task, open_stream
from vlcpctl.inspection.check import check
from vlcpctl.testing.tiny_stream import make_image

Split = Callable[..., list[Task]]


@pytest.fixture
def split(tmp_path: Path) -> Split:
    """Split a source by source, without a hold-out, and check the result; its tasks."""

    def run(source: Path, keep: str | None = "customer", **options: Any) -> list[Task]:
        given = {"by": "source", "holdout": "none", "keep_columns": keep, **options}
        make_stream(SplitOptions(sources=[str(source)], **given), tmp_path / "out", force=True)
        assert not list(check(tmp_path / "out", deep=True))
        return open_stream(tmp_path / "out")

    return run


def kept_by_caption(task: Task, column: str = "customer", part: str = "train") -> dict[str, Any]:
    """The kept values of each image, by its first caption."""
    found = task.split(part)
    captions = [found.captions(row)[0] for row in range(len(found))]
    return dict(zip(captions, found.column(column), strict=True))


def listed(values: Mapping[int, Any], first: int = 0) -> list[dict[str, Any]]:
    """Rows of pairs with a customer each; a row without one has none."""
    return [
        {"image": make_image(number, 8), "caption": f"c{number}", "group": "a", "customer": value}
        for number, value in enumerate(values.values(), start=first)
    ]


def members(described: Mapping[int, Any]) -> dict[str, bytes]:
    """Files of a folder or tar, with a .json for each image."""
    found = {}
    for number, value in described.items():
        found[f"{number}.jpg"] = make_image(number, 8, "JPEG")
        found[f"{number}.json"] = json.dumps({"caption": f"c{number}", **value}).encode()
    return found


@pytest.mark.parametrize("kind", ["parquet", "json", "csv", "tsv", "tar", "folder"])
def test_every_kind_of_source_keeps_its_columns(tmp_path: Path, split: Split, kind: str) -> None:
    values = {0: "ada", 1: "bob", 2: None}
    path = tmp_path / "in" / f"pairs.{kind}"
    path.parent.mkdir()
    texts = [{"image": f"{n}.png", "caption": f"c{n}", "customer": v} for n, v in values.items()]
    for number in values:
        (path.parent / f"{number}.png").write_bytes(make_image(number, 8))
    if kind == "parquet":
        write_parquet(path, listed(values))
    elif kind == "json":
        path.write_text(json.dumps(texts))
    elif kind in ("csv", "tsv"):
        mark = "," if kind == "csv" else "\t"
        lines = [mark.join(str(one or "") for one in row.values()) for row in texts]
        path.write_text("\n".join([mark.join(texts[0]), *lines]))
    else:
        parts = members({n: {"customer": v} for n, v in values.items()})
        if kind == "tar":
            write_tar(path, parts)
        else:
            path = tmp_path / "folder"
            path.mkdir()
            for name, data in parts.items():
                (path / name).write_bytes(data)
    (task,) = split(path)
    assert kept_by_caption(task) == {"c0": ["ada"], "c1": ["bob"], "c2": []}
    assert task.kept_columns == ("customer",)


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([42, 7, None]), [["42"], ["7"], []]),
        (pa.array([4.2e15, 0.5, float("nan")]), [["4200000000000000"], ["0.5"], []]),
        (pa.array([True, False, None]), [["true"], ["false"], []]),
        (pa.array([date(2026, 1, 5)] * 3), [["2026-01-05"]] * 3),
        (
            pa.array([1767596400] * 3, pa.timestamp("s")).cast(pa.timestamp("us")),
            [["2026-01-05 07:00:00"]] * 3,
        ),
        (
            pa.array([1767596400005] * 3, pa.timestamp("ms")),
            [["2026-01-05 07:00:00.005"]] * 3,
        ),
        (pa.array(["x", "", None]), [["x"], [], []]),
        (pa.array(["x", "y", None]).dictionary_encode(), [["x"], ["y"], []]),
        (pa.array([["b", "a", "b"], [], None]), [["a", "b"], [], []]),
        (pa.array([[1, 2, None], [3], None]), [["1", "2"], ["3"], []]),
        (pa.nulls(3), [[], [], []]),
    ],
    ids=str,
)
def test_values_are_kept_as_text(
    tmp_path: Path, split: Split, column: pa.Array, texts: list[list[str]]
) -> None:
    pairs = pa.Table.from_pylist(rows(3)).append_column("customer", column)
    path = tmp_path / "p.parquet"
    pa.parquet.write_table(pairs, path)
    (task,) = split(path)
    assert list(kept_by_caption(task).values()) == texts


def test_json_writes_the_same_texts_as_parquet(tmp_path: Path, split: Split) -> None:
    given = [42, 42.0, 0.5, True, "", None, ["b", "a", 1]]
    path = write_tar(tmp_path / "t.tar", members({n: {"customer": v} for n, v in enumerate(given)}))
    (task,) = split(path)
    expected = [["42"], ["42"], ["0.5"], ["true"], [], [], ["1", "a", "b"]]
    assert list(kept_by_caption(task).values()) == expected


def test_rows_with_one_image_keep_the_values_of_all(tmp_path: Path, split: Split) -> None:
    (tmp_path / "a.png").write_bytes(make_image(1, 8))
    given = [{"image": "a.png", "caption": f"c{n}", "customer": v} for n, v in enumerate("bab")]
    path = tmp_path / "list.json"
    path.write_text(json.dumps(given))
    (task,) = split(path)
    assert task.split("train").captions(0) == ["c0", "c1", "c2"]
    assert kept_by_caption(task) == {"c0": ["a", "b"]}


@pytest.mark.parametrize("by_split", [False, True])
def test_skipped_duplicates_give_their_values_to_the_first_in_any_task(
    tmp_path: Path, split: Split, by_split: bool
) -> None:
    first = listed({0: "1", 1: "2", 2: "3"})
    again = [{**row, "group": "b", "customer": "9"} for row in first[:2]]
    other = [{**row, "group": "b"} for row in listed({5: "2"}, first=5)]
    table = [{**row, "part": "train"} for row in [*first, *again, *other]]
    if by_split:  # the same pair in another split is a row of its own
        table.append({**first[2], "part": "test", "customer": "7"})
    path = write_parquet(tmp_path / "p.parquet", table)
    chosen = {"split_column": "part", "holdout": None} if by_split else {}
    a, b = split(path, by="column:group", max_skip="5", **chosen)
    assert kept_by_caption(a) == {"c0": ["1", "9"], "c1": ["2", "9"], "c2": ["3"]}
    assert kept_by_caption(b) == {"c5": ["2"]}
    if by_split:
        assert kept_by_caption(a, part="test") == {"c2": ["7"]}


def test_kept_columns_change_no_content_id_and_no_tar(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "p.parquet", rows(20) + rows(4))
    made = {}
    for name, keep in (("plain", None), ("kept", "date,id")):
        given = {"by": "column:group", "max_skip": "5", "keep_columns": keep}
        made[name] = make_stream(SplitOptions(sources=[str(path)], **given), tmp_path / name)
    assert made["plain"]["content"] == made["kept"]["content"]
    assert made["kept"]["kept_columns"] == ["date", "id"]
    assert "kept_columns" not in made["plain"]
    for tar in (tmp_path / "plain").rglob("*.tar"):
        same = tmp_path / "kept" / tar.relative_to(tmp_path / "plain")
        assert tar.read_bytes() == same.read_bytes()
    plain = open_stream(tmp_path / "plain")[0]
    assert plain.kept_columns == ()
    assert plain.split("train").table.schema.names == SCHEMA.names


def test_other_columns_are_another_stream(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "p.parquet", rows(20))
    given = {"sources": [str(path)], "by": "column:group"}
    make_stream(SplitOptions(**given, keep_columns="id"), tmp_path / "out")
    make_stream(SplitOptions(**given, keep_columns=" id "), tmp_path / "out")  # is finished
    for keep in (None, "id,date"):
        with pytest.raises(OutputExists, match="keep_columns"):
            make_stream(SplitOptions(**given, keep_columns=keep), tmp_path / "out")
    plan = describe_plan(SplitOptions(**given, keep_columns="id,date"), tmp_path / "new")
    assert plan["kept_columns"] == ["id", "date"]


def test_images_without_a_value_are_counted(
    tmp_path: Path, split: Split, capsys: pytest.CaptureFixture[str]
) -> None:
    table = listed({0: "x", 1: None, 2: None})
    path = write_parquet(tmp_path / "p.parquet", [*table, {**table[2], "customer": "late"}])
    split(path, max_skip="1")
    said = capsys.readouterr().err
    assert "column 'customer' has no value for 1 of 3 images; they cannot be found by it" in said
    split(write_tar(tmp_path / "t.tar", img2dataset_members(3)))
    assert "has no value for 3 of 3 images" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("keep", "why"),
    [
        ("label", "--keep-columns label: the index has a column of its own of that name"),
        ("date,rank", "--keep-columns rank: the index has a column"),
        ("date,,id", "each name once"),
        ("date,date", "each name once"),
        ("", "each name once"),
        (",".join(f"c{number}" for number in range(101)), "101 names, the limit is 100"),
        ("\udc80", "each name once"),
    ],
)
def test_names_that_cannot_be_are_refused(
    tmp_path: Path, split: Split, keep: str, why: str
) -> None:
    path = write_parquet(tmp_path / "p.parquet", rows(3))
    with pytest.raises(UsageError, match=why):
        split(path, keep=keep)


def test_a_column_of_objects_is_refused(tmp_path: Path, split: Split) -> None:
    path = write_parquet(tmp_path / "p.parquet", listed({0: {"name": "x"}}))
    with pytest.raises(BadInput, match="column 'customer' has no value to keep"):
        split(path)
    tar = write_tar(tmp_path / "t.tar", members({0: {"customer": {"name": "x"}}}))
    with pytest.raises(TooManySkipped, match="its 'customer' is an object or a nested list"):
        split(tar)


def test_limits_hold_for_kept_values(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    tar = write_tar(tmp_path / "t.tar", members({0: {"customer": "x" * 4097}}))
    with pytest.raises(TooManySkipped, match="4097 characters in a kept"):
        split(tar)
    row = listed({0: "x"})[0]
    again = [{**row, "customer": str(number)} for number in range(3)]
    path = write_parquet(tmp_path / "p.parquet", [row, *again])
    (task,) = split(path, max_skip="5")
    assert kept_by_caption(task) == {"c0": ["0", "1", "2", "x"]}
    monkeypatch.setattr("vlcpctl.data.sources.pairs.MOST_KEPT", 2)
    with pytest.raises(BadInput, match="3 values in a kept column"):
        split(path, max_skip="5")

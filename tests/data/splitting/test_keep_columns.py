"""`split --keep-columns`: a pair can be found by the value of any row that became it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.pair_files import rows, write_parquet

from vlcpctl.core.errors import BadInput, OutputExists, TooManySkipped
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import make_stream
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
    given = {"sources": [str(path)], "by": "column:group", "max_skip": "5"}
    make_stream(SplitOptions(**given, keep_columns=" date,id "), tmp_path / "kept")  # is finished
    with pytest.raises(OutputExists, match="keep_columns"):
        make_stream(SplitOptions(**given, keep_columns="id"), tmp_path / "kept")
    for tar in (tmp_path / "plain").rglob("*.tar"):
        same = tmp_path / "kept" / tar.relative_to(tmp_path / "plain")
        assert tar.read_bytes() == same.read_bytes()
    plain = open_stream(tmp_path / "plain")[0]
    assert plain.kept_columns == ()
    assert plain.split("train").table.schema.names == SCHEMA.names


def test_images_without_a_value_are_counted(
    tmp_path: Path, split: Split, capsys: pytest.CaptureFixture[str]
) -> None:
    table = listed({0: "x", 1: None, 2: None})
    path = write_parquet(tmp_path / "p.parquet", [*table, {**table[2], "customer": "late"}])
    split(path, max_skip="1")
    assert "'customer' has no value for 1 of 3 images" in capsys.readouterr().err


def test_limits_hold_for_kept_values(
    tmp_path: Path, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_parquet(tmp_path / "p.parquet", listed({0: "x" * 4097}))
    with pytest.raises(TooManySkipped, match="4097 characters in a kept"):
        split(path)
    row = listed({0: "x"})[0]
    again = [{**row, "customer": str(number)} for number in range(3)]
    path = write_parquet(tmp_path / "p.parquet", [row, *again])
    (task,) = split(path, max_skip="5")
    assert kept_by_caption(task) == {"c0": ["0", "1", "2", "x"]}
    monkeypatch.setattr("vlcpctl.data.sources.pairs.MOST_KEPT", 2)
    with pytest.raises(BadInput, match="3 values in a kept column"):
        split(path, max_skip="5")

"""What many rows have in common is read and compared once, and gives what row by row gives."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from support.eval_rows import MERGED, NAMES, OWN, current, merged_rows, own_rows, row

from vlcpctl.core.errors import BadInput
from vlcpctl.files.ids import canonical_json, content_id
from vlcpctl.files.rows import (
    PART_OF,
    SCHEMA,
    Row,
    _lacks_pairs_of,
    are_apart,
    differences,
    distinct,
    parse_row,
    read_rows,
)
from vlcpctl.report import comparability
from vlcpctl.report.comparability import FIELDS, Mixed, require_comparable
from vlcpctl.report.identity import identity
from vlcpctl.report.request import ReportRequest
from vlcpctl.report.scores.collect import collect
from vlcpctl.report.scores.joining import numbered_alike
from vlcpctl.report.scores.runs import START

CASES = range(40)
ODD: tuple[dict[str, Any], ...] = (
    {"metrics": {"t2i_r1": 3.0, "rm": 1e-7}},  # in another order, and a number with an exponent
    {"metrics": {"rm": None, "acc1": 1e12}},  # not measured
    {"metrics": {"rm": 50}},
    {"limit": 7},
    {"options": {"duplicates": "keep", "prompts": "p"}},
    {"options": {"seed": 3, "duplicates": "unite"}},
    {"data": "other"},
    {"data_content": "new", "n_images": 49},
    {"config": {"id": "config 0", "values": {"lr": 0.2}}},
    {"config": {"id": "z", "values": {"lr": 0.2}}},
    {"config": None},
    {"checkpoint": "odd", "parent": "p"},
    {"n_images": 3, "n_texts": 9},
    {"schema": "vlcpctl.eval/1.2", "later": [1, {"a": None}]},
    {"buffer": {"policy": "reservoir", "size": 5}},
    {"alpha": 0.5},
    {"since": {"run": "ctp", "step": 0, "checkpoint": "c0", "alpha": 0.25}, "degrees": {"i": [1]}},
    {"gallery_checkpoint": "g", "map_variant": "full"},
    {"seed": 2**62},
    {"run": "é\u2028\x1b", "task": '"'},
    {"step": None, "task_step": None, "task": "coco", "data": "coco", "tasks": ["coco"]},
)
# Each of its own, so that none is taken for another.
EVERY_FIELD: dict[str, Any] = {
    "limit": 11,
    "map_variant": "full",
    "preset": "tiny",
    "start": "S",
    "parent": "P",
    "n_images": 12,
    "n_texts": 13,
    "n_queries": 14,
    "n_gallery": 15,
    "n_train": 16,
    "n_distractor_images": 17,
    "data_content": "newer",
    "buffer": {"policy": "herding"},
}
OUTSIDE: dict[str, Any] = {"step": 2, "task_step": None, "task": "coco", "tasks": ["coco"]}


def _lines(case: int) -> list[str]:
    """Rows of two runs and seeds; some of them odd, twice, or of other fields, in any order."""
    draw = random.Random(case)
    rows = []
    for run, seed in product("ab", (0, 1)):
        found = [*own_rows(OWN), *merged_rows(MERGED)]
        found += [row(**OUTSIDE, data=data) for data in ("x", "y")]
        for one in current(found, **draw.choice(({}, EVERY_FIELD))):
            made = {"checkpoint": f"{run}{seed}{one['step']}", "run": run, "seed": seed}
            made["config"] = {"id": f"config {one['step'] // 2}", "values": {"lr": 0.1}}
            rows.append(one | made)
    for _ in range(draw.choice((0, 3, 25))):
        place = draw.randrange(len(rows))
        changed = rows[place] | draw.choice(ODD)
        if draw.random() < 0.5:
            rows[place] = changed
        else:
            rows.append(draw.choice((changed, rows[place])))
        if draw.random() < 0.2:
            del rows[draw.randrange(len(rows))]
    if draw.random() < 0.3:
        draw.shuffle(rows)
    return [
        json.dumps(
            dict(reversed(one.items())) if draw.random() < 0.1 else one,
            ensure_ascii=draw.random() < 0.5,
            separators=draw.choice(((",", ":"), (", ", ": "))),
        )
        for one in rows
    ]


def _one_by_one(lines: Sequence[str]) -> list[Row]:
    return [parse_row(line, f"rows:{number}") for number, line in enumerate(lines, start=1)]


def _shared(lines: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """All rows of a file, those of one evaluation too."""
    monkeypatch.chdir(tmp_path)
    Path("rows").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setattr("vlcpctl.files.rows.distinct", lambda rows, _allowed: list(rows))
    return read_rows(["rows"])


@pytest.mark.parametrize("case", CASES)
def test_rows_are_read_as_one_by_one(
    case: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = _lines(case)
    found, expected = _shared(lines, tmp_path, monkeypatch), _one_by_one(lines)
    assert [repr(_values(one)) for one in found] == [repr(_values(one)) for one in expected]


def test_fields_of_few_rows_are_read_where_others_are_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    since = {"run": "ctp", "step": 0, "checkpoint": "c0", "alpha": 0.25}
    rows = [
        row(alpha=alpha, checkpoint=f"c{alpha}", data=data, since=since, degrees={"i": [number]})
        for number, (alpha, data) in enumerate(product((0.5, 0.75), "xy"))
    ]
    lines = [json.dumps(one) for one in rows]
    found, expected = _shared(lines, tmp_path, monkeypatch), _one_by_one(lines)
    assert [repr(_values(one)) for one in found] == [repr(_values(one)) for one in expected]
    assert found[3].model_part is found[2].model_part
    assert found[3].data_part is found[1].data_part


@pytest.mark.parametrize("case", CASES)
def test_rows_that_share_a_part_are_equal_in_it(
    case: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = _shared(_lines(case), tmp_path, monkeypatch)
    assert len({one.model_part for one in rows}) < len(rows)
    assert len({one.data_part for one in rows}) < len(rows)
    changed = [structs.replace(one, run="z", data="z") for one in rows[::5]]
    numbered = [structs.replace(one, **_in_a_long_stream(one)) for one in rows[::5]]
    firsts: dict[tuple[object, str], object] = {}
    for one in numbered_alike([*rows, *changed, *numbered]):
        for name, part in PART_OF.items():
            value = getattr(one, name)
            assert firsts.setdefault((getattr(one, part), name), value) == value


def _in_a_long_stream(one: Row) -> dict[str, Any]:
    """Fields of a row whose name has three digits, so that those of others get as many."""
    names = {name: name.replace("00-", "000-") for name in (one.task, *one.tasks)}
    return {"task": names[one.task], "tasks": tuple(names[name] for name in one.tasks)}


def _values(one: Row) -> dict[str, Any]:
    """All that is read from a line, and its place."""
    names = [name for name in Row.__struct_fields__ if name not in {"model_part", "data_part"}]
    return {name: getattr(one, name) for name in names}


def test_rows_share_what_has_the_same_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = list(map(json.dumps, current(merged_rows(MERGED))))
    spaced = json.dumps(json.loads(lines[0]) | {"checkpoint": "x"}, separators=(" , ", " : "))
    one, *others = _shared([*lines, spaced], tmp_path, monkeypatch)
    assert all(other.options is one.options for other in others)
    assert others[-1].tasks is one.tasks
    assert others[-1].config is one.config


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tasks": ["a", 3]}, r"rows:4: .*tasks\[1\]`"),
        ({"options": []}, "rows:4: .*options`"),
        ({"schema": "vlcpctl.eval/2"}, "rows:4 has schema 'vlcpctl.eval/2'"),
        ({"step": -1}, "rows:4: .*step`"),
    ],
)
def test_a_mistake_in_a_later_row_is_named(
    fields: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = own_rows(OWN)
    rows[3] |= fields
    with pytest.raises(BadInput, match=said):
        _shared(list(map(json.dumps, rows)), tmp_path, monkeypatch)


@pytest.mark.parametrize("case", CASES)
def test_each_evaluation_counts_once_as_by_pairs(case: int) -> None:
    rows = _one_by_one(_lines(case))
    expected = _distinct_by_pairs(rows)
    if expected is None:
        with pytest.raises(BadInput, match="contradicts"):
            distinct(rows, FIELDS)
    else:
        assert [one.place for one in distinct(rows, FIELDS)] == [one.place for one in expected]


def _subject(one: Row) -> tuple[object, ...]:
    """What was evaluated, and on what."""
    since = (one.since.run, one.since.step) if one.since else None
    searched = one.searched if one.gallery_checkpoint else None
    track = one.evaluator, one.protocol, one.map_variant, one.split
    return (*track, one.run, one.seed, one.step, one.gallery, one.task, one.tasks, since, searched)


def _distinct_by_pairs(rows: Sequence[Row]) -> list[Row] | None:
    """The rows, each evaluation once, by comparing all pairs; None for a contradiction."""
    groups: list[list[Row]] = []
    for row_ in rows:
        group = next((one for one in groups if _subject(one[0]) == _subject(row_)), None)
        if group is None:
            groups.append([row_])
            continue
        same = next((n for n, one in enumerate(group) if not are_apart(one, row_)), None)
        if same is None:
            group.append(row_)
        elif _lacks_pairs_of(row_, group[same]):
            group[same] = row_
        elif not _lacks_pairs_of(group[same], row_):
            measured = (group[same].metrics, group[same].models)
            if measured != (row_.metrics, row_.models):
                return None
            assert differences(group[same], row_).keys() <= FIELDS.keys()
    return [one for group in groups for one in group]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("allowed", [(), tuple(FIELDS)])
def test_rows_are_compared_as_by_pairs(
    case: int, allowed: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = _shared(_lines(case), tmp_path, monkeypatch)
    expected = list(_differ_by_pairs(rows))
    if not expected or allowed:
        assert set(require_comparable(rows, allowed)) == {one for one, _ in expected}
        return
    one, (first, second) = expected[0]
    with pytest.raises(BadInput) as caught:
        require_comparable(rows)
    said = f"{first.place} and {second.place} cannot share {FIELDS[one.field]}: "
    assert str(caught.value).startswith(said)
    assert f"use --allow-mixed {one.field}" in str(caught.value)


def _differ_by_pairs(rows: Sequence[Row]) -> Iterator[tuple[Mixed, tuple[Row, Row]]]:
    """For each rule and group: the first of its rows, and the first that differs from it."""
    for rule in comparability._RULES:
        groups: dict[Any, list[Row]] = {}
        for one in rows:
            if (group := rule.group(one)) is not None:
                groups.setdefault(group, []).append(one)
        pairs = [(first, one) for first, *others in groups.values() for one in others]
        pairs.sort(key=lambda pair: int(pair[1].place.partition(":")[2]))
        seen: set[int] = set()
        for first, one in pairs:
            differs = {} if id(first) in seen else rule.differ(first, one)
            if differs:
                seen.add(id(first))
                words = comparability._words(differs)
                yield Mixed(rule.field, comparability._where(rule, one), words), (first, one)


@pytest.mark.parametrize("case", CASES)
def test_the_identity_is_that_of_the_sorted_rows(
    case: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = _shared(_lines(case), tmp_path, monkeypatch)
    texts = []
    for one in rows:
        known = _values(one) | {"since": asdict(one.since) if one.since else None}
        stored = {n: v for n, v in known.items() if n not in {"schema", "alpha", "place"}}
        texts.append(canonical_json({n: v for n, v in stored.items() if v not in (None, ())}))
    assert identity(rows, ReportRequest())["rows"] == content_id(sorted(texts))


def test_scores_are_those_of_cell_by_cell() -> None:
    """Rows with several metrics, of two galleries and the start, some without a metric."""
    draw = random.Random(0)
    keys = ("rm", "t2i_r1", "acc1")
    rows = []
    for step in (None, 0, 1, 2):
        for task in range(3):
            for gallery in ("own", "merged"):
                some = draw.sample(keys, draw.randint(0, 3))
                names = list(NAMES[: task + 1])
                about = {"step": step, "task_step": task, "checkpoint": f"c{step}"}
                about |= {"gallery": gallery, "tasks": names if gallery == "merged" else []}
                about |= {"task": NAMES[task] if gallery == "own" else "merged"}
                rows.append(row(**about, metrics={key: draw.uniform(0, 100) for key in some}))
    (track,) = collect(_one_by_one([json.dumps(one | {"schema": SCHEMA}) for one in rows]))
    (run,) = track.runs
    assert set(run.scores) == set(keys)
    for key, (scores,) in run.scores.items():
        expected = {name: np.full((3, 3), math.nan) for name in ("own", "merged")}
        start = np.full(3, math.nan)
        for one in rows:
            step, column = START if one["step"] is None else one["step"], one["task_step"]
            value = one["metrics"].get(key, math.nan)
            if step >= 0:
                expected[one["gallery"]][step, column] = value
            elif one["gallery"] == "own":
                start[column] = value
        np.testing.assert_array_equal(scores.own, expected["own"])
        np.testing.assert_array_equal(scores.merged, expected["merged"])
        np.testing.assert_array_equal(scores.start, start)

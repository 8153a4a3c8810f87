"""The roll-out: what an index loses that stays, grows or is built again, and its conditions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.collected import fact, reported
from support.eval_rows import current, own_rows, read_back, row
from support.rank_files import write_ranks

from vlcpctl.core.errors import BadInput, GateFailed
from vlcpctl.metrics.chance import critical_value
from vlcpctl.metrics.recall import recalls
from vlcpctl.report.gates import enforce
from vlcpctl.report.page import page
from vlcpctl.report.report import FIELDS, ReportRequest, facts_csv, identity
from vlcpctl.report.rollout import (
    ALL,
    CHOICES,
    KEEP,
    NEITHER,
    NEW,
    RollOut,
    roll_out_table,
    sentence,
)

Rows = list[dict[str, Any]]
PLAIN = {"duplicates": "unite"}
MORE = {**PLAIN, "distractors": ["week"]}
MIXED = {**MORE, "distractors_by": "query"}


def of(score: float, step: int | None = 0, name: str = "coco", **fields: Any) -> dict[str, Any]:
    """A row of the start S (step None), or of the run ctp, on data outside the stream."""
    (found,) = current(
        [row(task=name, task_step=None, step=step, metrics={"rm": score})], start="S"
    )
    if step is None:
        about = {"run": "production", "method": "imported", "checkpoint": "S", "start": None}
        found |= {**about, "config": None}
    if "distractors" in fields.get("options", ()):
        found["n_distractor_images"] = 40
    return found | fields


def trained(**fields: Any) -> Rows:
    return [
        one | {"metrics": {"rm": 9.0}} for one in current(own_rows([[60]], **fields), start="S")
    ]


def scores(today: float, keep: float, new: float, every: float, **fields: Any) -> Rows:
    """The rows of a guard and its index of S, with 40 further images in the gallery or without."""
    small = [of(today, None), of(every), of(keep, gallery_checkpoint="S")]
    of_index = ((today, None, MORE, "S"), (keep, 0, MORE, "S"), (new, 0, MIXED, "S"))
    of_index = (*of_index, (every, 0, MORE, "c0"))
    large = [
        of(score - 10, step, options=options, gallery_checkpoint=index)
        for score, step, options, index in of_index
    ]
    return [one | fields for one in (*trained(), *small, *large)]


def lost(one: RollOut) -> list[float | None]:
    losses = (one.loss(choice, "rm").drop for choice in CHOICES)
    return [None if loss is None else loss.mean for loss in losses]


def test_every_choice_is_compared_with_today_in_the_same_gallery(tmp_path: Path) -> None:
    small, large = reported(tmp_path, scores(80, 79, 70, 75)).roll_outs
    assert (small.data, large.data) == ("coco", "coco and 40 images")
    assert (small.index, lost(small), lost(large)) == ("production", [1, None, 5], [1, 10, 5])
    assert large.loss(KEEP, "rm", "new index").drop.mean == -4  # type: ignore[union-attr]
    table = roll_out_table([small, large], "rm")
    assert table
    assert [[cell.text for cell in line[:3]] for line in table.groups[1].rows] == [
        ["the old model on its index", "70.00", "-"],
        ["keep the index: all items by the old model", "69.00", "1.00"],
        ["embed only new items: the others by the old model", "60.00", "10.00"],
        ["embed all: all items by the new model", "65.00", "5.00"],
    ]
    assert [len(group.rows) for group in table.groups] == [3, 4]
    assert table.groups[1].name == "ctp on coco and 40 images, index by production"


def test_rows_on_an_index_are_in_no_other_number(tmp_path: Path) -> None:
    rows = scores(80, 1, 2, 75)
    usual = [one for one in rows if "gallery_checkpoint" not in one]
    with_index, without = (reported(tmp_path, one, baseline="production") for one in (rows, usual))
    found, usual_facts = ("".join(facts_csv(one)).splitlines() for one in (with_index, without))
    more = [line for line in found if line not in usual_facts]
    assert len(more) == len(found) - len(usual_facts)
    names = {line.split(",")[FIELDS.index("metric")].strip('"') for line in more}
    assert names == {"index_loss", "reembed_gain", "lost"}
    titles = [table.title for _, tables in without.sections() for table in tables]
    assert not any("Roll-out" in title for title in titles)
    assert "Roll-out: rm for items in the guards" in page(with_index)
    assert identity(read_back(tmp_path / "x", rows), ReportRequest()) != identity(
        read_back(tmp_path / "y", usual), ReportRequest()
    )


@pytest.mark.parametrize(
    ("values", "words", "losses"),
    [
        ((80, 79, 78, 60), "the index can stay; ", ["lose at most 1.00"]),
        (
            (80, 79, 70, 79),
            "the index can stay, but not with new items by the new model: ",
            ["lose at most 1.00", "lose at most 10.00"],
        ),
        ((80, 70, 70, 79), "re-embed before you ", ["lose at most 10.00", "lose at most 1.00"]),
        ((80, 65, 60, 28), f"{NEITHER}; ", ["lose at most 15.00", "lose at most 52.00"]),
        ((80, 82, 83, 84), "the index can stay; ", ["gain at least 2.00"]),
    ],
)
def test_words_say_which_choice_is_enough(
    tmp_path: Path, values: tuple[float, float, float, float], words: str, losses: list[str]
) -> None:
    said = sentence(reported(tmp_path, scores(*values)).roll_outs, "rm")
    assert said.startswith(f"ctp, index by production: {words}")
    assert re.findall(r"\w+ at \w+ [\d.]+", said.partition("; items in the guard ")[2]) == losses


def test_index_loss_and_reembed_gain_are_conditions(tmp_path: Path) -> None:
    gates = ["index_loss:gt:2", "reembed_gain.rm@data=coco:gt:4", "index_loss@data=*images:gt:9"]
    verdicts = reported(tmp_path, scores(80, 70, 60, 75), fail_if=gates).verdicts
    assert [(one.metric, one.data, one.value, one.holds) for one in verdicts] == [
        ("index_loss.rm", "coco", 10, True),
        ("index_loss.rm", "coco and 40 images", 10, True),
        ("reembed_gain.rm", "coco", 5, True),
        ("index_loss.rm", "coco and 40 images", 10, True),
    ]
    with pytest.raises(GateFailed, match=r"ctp: index_loss.rm on coco = 10.0000 > 2"):
        enforce(verdicts)
    usual = [one for one in scores(80, 70, 60, 75) if "gallery_checkpoint" not in one]
    (verdict,) = reported(tmp_path, usual, fail_if=gates[:1]).verdicts
    assert "--gallery-checkpoint" in str(verdict.undefined)
    assert not verdict.passes


def test_a_missing_side_is_named_and_undefined(tmp_path: Path) -> None:
    rows = [*trained(), of(75), of(70, gallery_checkpoint="S")]
    document = reported(tmp_path, rows, fail_if=["index_loss:gt:2"])
    (verdict,) = document.verdicts
    assert verdict.undefined == "the model of S on its index was not measured on coco"
    assert document.roll_outs[0].index == "S"
    (table,) = [roll_out_table(document.roll_outs, "rm")]
    assert table
    assert "it was not measured whether the index can stay" in table.notes[0]
    assert verdict.undefined in table.notes
    only = [of(70, gallery_checkpoint="S")]
    with pytest.raises(BadInput, match="all other rows have a gallery_checkpoint"):
        reported(tmp_path, only)


def test_seeds_are_paired_and_each_has_its_index(tmp_path: Path) -> None:
    rows = scores(80, 79, 70, 75)
    second = [*trained(seed=1), of(77, seed=1, checkpoint="c0-1")]
    second.append(of(76, seed=1, checkpoint="c0-1", gallery_checkpoint="S"))
    small, large = reported(tmp_path, [*rows, *second]).roll_outs
    assert small.loss(KEEP, "rm").drop.values == (1, 4)  # type: ignore[union-attr]
    assert large.loss(KEEP, "rm").drop is None  # the second seed was not measured there


def ranked(path: Path, hits: dict[str, float], count: int = 400) -> tuple[Rows, list[Path]]:
    """Rows of scores that come from queries, of which a share is found, and their ranks."""
    rows, files = trained(), []
    about = {"today": (None, {}), "keep": (0, {"gallery_checkpoint": "S"}), "all": (0, {})}
    for name, (step, more) in about.items():
        found = 1 + 20 * (np.arange(count) >= round(hits[name] * count))
        ranks = {f"{number:03d}": [int(rank)] for number, rank in enumerate(found)}
        ways = {"i2t": ranks, "t2i": ranks}
        known = of(0, step, **more)
        known["metrics"] = recalls(found, found)
        rows.append(known)
        known = {name: one for name, one in known.items() if name not in {"schema", "metrics"}}
        files.append(write_ranks(path / f"{name}.ranks", ways, **known))
    return rows, files


def test_losses_are_judged_against_chance_with_paired_intervals(tmp_path: Path) -> None:
    rows, files = ranked(tmp_path, {"today": 0.8, "keep": 0.775, "all": 0.7})
    gates = ["index_loss:gt:2"]
    document = reported(tmp_path, rows, files, fail_if=gates, metric="rm")
    (found,) = document.roll_outs
    keep, every = found.loss(KEEP, "rm"), found.loss(ALL, "rm")
    assert keep.drop
    assert keep.interval
    assert keep.interval.low < keep.drop.mean < keep.interval.high
    assert found.z == critical_value(2, 0.02)
    assert keep.drop.mean == pytest.approx(2.5)
    assert NEITHER in sentence([found], "rm")
    assert every.interval
    assert found.loss(KEEP, "rm", "new index").interval
    (verdict,) = document.verdicts
    assert verdict.comparisons == 1
    assert (verdict.low, verdict.against) == (keep.interval.low, "old index")
    assert document.notes == ()
    assert NEW not in {line[0].text for line in roll_out_table([found], "rm").groups[0].rows}  # type: ignore[union-attr]
    lost = [fact(document, f"lost, {choice}")["value"] for choice in CHOICES]
    assert (lost[0], lost[1]) == (pytest.approx(2.5), None)


def test_a_small_loss_that_chance_shows_does_not_count(tmp_path: Path) -> None:
    """Three points: chance alone reaches 3.5 on 100 images."""
    rows, files = ranked(tmp_path, {"today": 0.8, "keep": 0.77, "all": 0.8}, count=100)
    (found,) = reported(tmp_path, rows).roll_outs
    assert "re-embed" in sentence([found], "rm")
    (found,) = reported(tmp_path, rows, files).roll_outs
    assert sentence([found], "rm").startswith(
        "ctp, index by production: the index can stay, not resolved; items"
    )


def test_ranks_of_an_index_are_not_taken_for_those_of_the_model(tmp_path: Path) -> None:
    rows, files = ranked(tmp_path, {"today": 0.8, "keep": 0.7, "all": 0.7})
    (found,) = reported(tmp_path, rows, files[::-1]).roll_outs
    with_all = found.loss(KEEP, "rm").interval
    (found,) = reported(tmp_path, rows, files[:1] + files[2:]).roll_outs  # without "keep"
    assert with_all
    assert found.loss(KEEP, "rm").interval is None  # its scores are those of "all"
    assert found.loss(ALL, "rm").interval

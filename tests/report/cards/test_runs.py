"""Checkpoints are matched with the runs in the rows, by content id and by descent."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.eval_rows import own_rows, read_back
from support.run_checkpoints import log_lines, write_run, write_step

from vlcpctl.files.rows import Row
from vlcpctl.report.cards import runs
from vlcpctl.report.cards.runs import Cards, read_cards


def _rows(path: Path, steps: int = 3, **fields: object) -> list[Row]:
    rows = [one for one in own_rows(**fields) if one["step"] < steps]
    return read_back(path / "rows.ndjson", rows)


def _places(cards: Cards) -> list[tuple[str, int, int, str]]:
    return [
        (run.name, one.seed, one.step, one.manifest.content)
        for run in cards.runs
        for one in run.steps
    ]


def test_rows_name_their_checkpoints(tmp_path: Path) -> None:
    write_run(tmp_path / "ctp")
    cards = read_cards([tmp_path], _rows(tmp_path))
    assert _places(cards) == [("ctp", 0, 0, "c0"), ("ctp", 0, 1, "c1"), ("ctp", 0, 2, "c2")]
    assert cards.notes == ()
    assert all(one.log is not None for one in cards.runs[0].steps)
    assert read_cards([tmp_path], _rows(tmp_path), ["another"]).runs == ()


def test_models_before_the_evaluated_one_are_of_its_run(tmp_path: Path) -> None:
    write_run(tmp_path / "ctp")
    last = [one for one in _rows(tmp_path) if one.step == 2]
    assert [place[2] for place in _places(read_cards([tmp_path], last))] == [0, 1, 2]


def test_a_model_of_another_run_is_not_of_this_one(tmp_path: Path) -> None:
    write_step(tmp_path / "base", 0, run="base")
    write_step(tmp_path / "ctp", 1)
    last = [one for one in _rows(tmp_path) if one.step == 1]
    cards = read_cards([tmp_path], last)
    assert _places(cards) == [("ctp", 0, 1, "c1")]
    (note,) = cards.notes
    assert note == (
        "--checkpoint: 1 of 2 checkpoints is in no row and was left out, such as that of run "
        "'base', seed 0, step 0"
    )


def test_a_damaged_log_is_a_note_without_a_path(tmp_path: Path) -> None:
    run = write_run(tmp_path / "ctp")
    (run / "01-people" / "metrics.jsonl").write_text("x")
    cards = read_cards([tmp_path], _rows(tmp_path))
    (note,) = cards.notes
    assert note.startswith(
        "--checkpoint: the log of run 'ctp', seed 0, step 1 was left out: metrics.jsonl has changed"
    )
    assert [one.log is None for one in cards.runs[0].steps] == [False, True, False]


def test_many_damaged_logs_are_a_few_notes(tmp_path: Path) -> None:
    rows = read_back(tmp_path / "r", [one for seed in range(3) for one in own_rows(seed=seed)])
    for seed in range(3):
        for step in range(3):
            content = f"c{step}-{seed}" if seed else f"c{step}"
            write_step(tmp_path / f"{seed}{step}", step, "x\n", content=content, seed=seed)
    notes = read_cards([tmp_path], rows).notes
    assert len(notes) == 6
    assert notes[-1] == "the logs of 4 more checkpoints were left out as well"


def test_the_digest_depends_on_what_was_read_and_not_on_where(tmp_path: Path) -> None:
    rows = _rows(tmp_path)
    one = read_cards([write_run(tmp_path / "a")], rows)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a").rename(tmp_path / "elsewhere" / "b")
    assert read_cards([tmp_path / "elsewhere"], rows).digest == one.digest
    write_run(tmp_path / "c", train_seconds=9.0)
    assert read_cards([tmp_path / "c"], rows).digest != one.digest


def test_the_cost_of_a_step(tmp_path: Path) -> None:
    log = log_lines(range(2))
    peak = {"process": 5_000_000, "device": 7}
    write_step(tmp_path / "c", 0, log, slots=500, peak_memory=peak)
    (card,) = read_cards([tmp_path / "c"], _rows(tmp_path)).runs[0].steps
    assert (card.pairs_per_second, card.state_bytes, card.model_bytes) == (80.0, 500, 2000)
    assert (card.peak_bytes, card.peak_device_bytes) == (5_000_000, 7)


def test_joint_training_learns_several_tasks(tmp_path: Path) -> None:
    identity = {"tasks": ["t0", "t1", "t2"]}
    write_step(tmp_path / "c", 2, log_lines(range(2)), identity=identity, parent=None)
    (card,) = read_cards([tmp_path / "c"], _rows(tmp_path)).runs[0].steps
    assert (card.learned, card.first_step, card.step) == (3, 0, 2)


def test_the_rows_of_all_logs_together_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_ALL_ROWS", 12)
    write_run(tmp_path / "ctp")
    cards = read_cards([tmp_path], _rows(tmp_path))
    assert cards.most_rows == 4
    lengths = {
        len(curve.steps) for one in cards.runs[0].steps if one.log for curve in one.log.curves
    }
    assert lengths == {4}

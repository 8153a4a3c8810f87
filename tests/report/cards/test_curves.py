"""The lines of the loss terms: places, gaps and seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from support.eval_rows import own_rows, read_back
from support.run_checkpoints import log_lines, write_run, write_step

from vlcpctl.report.cards.curves import MOST_TERMS, term_panels
from vlcpctl.report.cards.runs import Cards, read_cards
from vlcpctl.report.charts import PanelLine


def _cards(path: Path, seeds: int = 1) -> Cards:
    rows = [one for seed in range(seeds) for one in own_rows(seed=seed)]
    return read_cards([path], read_back(path / "rows.ndjson", rows))


def _loss(cards: Cards) -> PanelLine:
    terms, _ = term_panels(cards)
    assert terms[0].name == "loss"
    return terms[0].lines[0]


def test_a_task_spans_one_unit(tmp_path: Path) -> None:
    write_run(tmp_path / "ctp")
    line = _loss(_cards(tmp_path))
    assert line.x[:2].tolist() == [0.05, 0.15]
    assert line.x[-1] == 2.95
    assert len(line.x) == 30
    assert np.isfinite(line.mean).all()


def test_a_single_training_counts_optimizer_steps(tmp_path: Path) -> None:
    write_step(tmp_path / "c", 0, log_lines(range(10)))
    assert _loss(_cards(tmp_path)).x.tolist() == list(range(10))


def test_a_missing_checkpoint_breaks_the_line(tmp_path: Path) -> None:
    write_run(tmp_path / "ctp", (0, 2))
    line = _loss(_cards(tmp_path))
    (gap,) = np.flatnonzero(np.isnan(line.mean))
    assert (line.x[gap - 1], line.x[gap], line.x[gap + 1]) == (0.95, 1.0, 2.05)


def test_joint_training_spans_its_tasks(tmp_path: Path) -> None:
    write_run(tmp_path / "ctp", (0, 1))
    identity = {"tasks": ["t0", "t1", "t2"]}
    write_step(tmp_path / "j", 2, log_lines(range(3)), identity=identity, run="joint", content="j")
    rows = own_rows() + own_rows(((), (), (1.0, 1.0, 1.0)), run="joint", checkpoint="j")
    cards = read_cards([tmp_path], read_back(tmp_path / "r", rows))
    lines = {one.run: one for one in term_panels(cards)[0][0].lines}
    assert lines["joint"].x.tolist() == [0.5, 1.5, 2.5]


def test_seeds_are_averaged_where_all_have_a_step(tmp_path: Path) -> None:
    write_step(tmp_path / "a", 0, log_lines(range(4)))
    higher = log_lines(range(4)).replace('"loss": 4', '"loss": 6')
    write_step(tmp_path / "b", 0, higher, seed=1, content="c0-1")
    line = _loss(_cards(tmp_path, seeds=2))
    assert (line.low[0], line.mean[0], line.high[0]) == (4.0, 5.0, 6.0)
    assert line.low[1] == line.high[1] == 3.9


def test_the_loss_is_first_and_the_learning_rate_last_and_many_are_cut(tmp_path: Path) -> None:
    terms = {f"ctp/{place:02}": 1.0 for place in range(MOST_TERMS)}
    write_step(tmp_path / "c", 0, log_lines(range(2), lr=0.1, contrastive=1.0, **terms))
    found, left_out = term_panels(_cards(tmp_path))
    assert [one.name for one in found[:3]] == ["loss", "contrastive", "ctp/00"]
    assert left_out == 3

"""What checkpoints record, as lines of losses, tables and JSON: places, gaps, seeds and costs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import write_checkpoint_manifest
from support.eval_rows import current, own_rows, read_back, row
from support.run_checkpoints import log_lines, write_run, write_step

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput
from vlcpctl.files.rows import Row
from vlcpctl.report.charts import Line, LineChart, styles
from vlcpctl.report.report import Files, ReportRequest, build, facts_csv, identity, read_facts
from vlcpctl.report.training import (
    Cards,
    Terms,
    loss_charts,
    read_cards,
    read_log,
    setting_texts,
    settings_by_run,
    settings_table,
    training_tables,
)
from vlcpctl.report.write import write_report


def _rows(path: Path, seeds: int = 1, **fields: Any) -> list[Row]:
    rows = [one for seed in range(seeds) for one in own_rows(seed=seed, **fields)]
    return read_back(path / "rows.ndjson", rows)


def _losses(cards: Cards) -> list[LineChart]:
    return loss_charts(cards, styles(cards.runs))


def _loss(cards: Cards) -> Line:
    first = _losses(cards)[0]
    assert first.name == "loss"
    return first.lines[0]


def _places(cards: Cards) -> list[tuple[str, int, int, str]]:
    return [
        (run, one.seed, one.step, one.manifest.content)
        for run, steps in cards.runs.items()
        for one in steps
    ]


def test_rows_and_descent_name_the_checkpoints_of_a_run(tmp_path: Path) -> None:
    write_run(tmp_path / "ctp")
    rows = _rows(tmp_path)
    cards = read_cards([tmp_path], rows)
    assert _places(cards) == [("ctp", 0, 0, "c0"), ("ctp", 0, 1, "c1"), ("ctp", 0, 2, "c2")]
    assert cards.notes == ()
    assert all(one.log is not None for one in cards.runs["ctp"])
    assert read_cards([tmp_path], rows, ["another"]).runs == {}
    last = [one for one in rows if one.step == 2]
    assert _places(read_cards([tmp_path], last)) == _places(cards), "models before the last one"
    write_step(tmp_path / "base", 0, run="base", content="b")
    write_step(tmp_path / "next", 1, parent="b", content="n")
    cards = read_cards([tmp_path / "base", tmp_path / "next"], _rows(tmp_path, checkpoint="n"))
    assert [*cards.runs] == ["ctp"]
    assert cards.notes == ("--checkpoint: 1 of 2 checkpoints are in no row: left out",)


def test_checkpoints_are_found_in_directories_and_what_has_none_is_refused(tmp_path: Path) -> None:
    write_step(tmp_path / "runs/a", 0)
    write_step(tmp_path.joinpath("runs", *["b"] * 6), 1)
    write_step(tmp_path / "runs/.a.vlcpctl/replaced/a", 2)
    rows = _rows(tmp_path)
    assert [one[3] for one in _places(read_cards([tmp_path / "runs"], rows))] == ["c0", "c1"]
    path = tmp_path / "runs/a/checkpoint.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pairs": 7}))
    with pytest.raises(BadInput, match="has changed"):
        read_cards([tmp_path / "runs"], rows)
    (tmp_path / "empty").mkdir()
    for name in ("none", "empty"):
        with pytest.raises(BadInput, match=f"{name} has no checkpoint"):
            read_cards([tmp_path / name], rows)


def test_the_digest_depends_on_what_was_read_and_not_on_where(tmp_path: Path) -> None:
    rows = _rows(tmp_path)
    one = read_cards([write_run(tmp_path / "a")], rows)
    (tmp_path / "a").rename(tmp_path / "b")
    assert read_cards([tmp_path / "b"], rows).digest == one.digest
    write_run(tmp_path / "c", train_seconds=9.0)
    assert read_cards([tmp_path / "c"], rows).digest != one.digest


def _read(path: Path, text: str, most: int = 200) -> Terms:
    directory = write_step(path / "c", 0, text)
    found = read_log(directory, CheckpointManifest.read(directory), most)
    assert found is not None
    return found


def test_every_term_is_a_curve_thinned_evenly_with_both_ends(tmp_path: Path) -> None:
    text = log_lines(range(1000), lr=0.5) + log_lines(range(2), phase="fisher", f=1.0)
    text += '{"phase": "train", "step": 1000, "loss": NaN}\n'
    for step in (9, 99, 999):
        text += f'{{"phase": "train", "step": {step}, "val_loss": 1.0}}\n'
    log = _read(tmp_path, text, most=4)
    assert [*log] == ["loss", "lr", "val_loss"]
    assert log["loss"][0].tolist() == [0, 333, 666, 1000]
    assert log["loss"][1, :2].tolist() == [4.0, pytest.approx(4 - 33.3)]
    assert np.isnan(log["loss"][1, -1])
    assert log["val_loss"][0].tolist() == [9, 99, 999]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (log_lines([3, 2]), "are not in order"),
        ('{"phase": "train", "step": 0, "loss": }\n', "not of a training log"),
        ('{"phase": "train"}\n', "not of a training log: 'step'"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        _read(tmp_path, text)


def test_a_log_that_has_changed_or_is_a_pipe_is_refused(tmp_path: Path) -> None:
    directory = write_step(tmp_path / "c", 0, log_lines(range(5)))
    made = CheckpointManifest.read(directory)
    (directory / "metrics.jsonl").write_text(log_lines(range(4)) + "x" * 50)
    with pytest.raises(BadInput, match="has changed since it was written"):
        read_log(directory, made, 200)
    piped = write_step(tmp_path / "p", 0)
    assert read_log(piped, CheckpointManifest.read(piped), 200) is None
    os.mkfifo(piped / "metrics.jsonl")
    with pytest.raises(BadInput, match="not a regular file"):
        read_log(piped, CheckpointManifest.read(piped), 200)


def test_the_rows_are_those_of_a_training(tmp_path: Path) -> None:
    """The reader relies on how `MetricsLog` writes the phase."""
    from vlcpctl.training.state import MetricsLog

    log = MetricsLog(tmp_path / "metrics.jsonl", 0)
    log.append({"phase": "train", "step": 0, "loss": 1.5, "lr": 0.1})
    log.close()
    text = (tmp_path / "metrics.jsonl").read_text()
    assert _read(tmp_path, text)["loss"].tolist() == [[0.0], [1.5]]


def test_a_task_spans_one_unit_and_a_missing_checkpoint_breaks_the_line(tmp_path: Path) -> None:
    write_run(tmp_path / "ctp")
    x, mean = _loss(read_cards([tmp_path / "ctp"], _rows(tmp_path))).points[:2]
    assert (x[0], x[1], x[-1], len(x)) == (0.05, 0.15, 2.95, 30)
    assert np.isfinite(mean).all()
    write_run(tmp_path / "gap", (0, 2))
    x, mean = _loss(read_cards([tmp_path / "gap"], _rows(tmp_path))).points[:2]
    (gap,) = np.flatnonzero(np.isnan(mean))
    assert (x[gap - 1], x[gap], x[gap + 1]) == (0.95, 1.0, 2.05)


def test_joint_training_spans_its_tasks(tmp_path: Path) -> None:
    write_run(tmp_path / "ctp", (0, 1))
    tasks = {"tasks": ["t0", "t1", "t2"]}
    write_step(tmp_path / "j", 2, log_lines(range(3)), identity=tasks, run="joint", content="j")
    rows = own_rows() + own_rows(((), (), (1.0, 1.0, 1.0)), run="joint", checkpoint="j")
    cards = read_cards([tmp_path], read_back(tmp_path / "r", rows))
    by_run = {one.name: one for one in _losses(cards)[0].lines}
    assert by_run["joint"].points[0].tolist() == [0.5, 1.5, 2.5]


def test_seeds_are_averaged_and_terms_are_in_order(tmp_path: Path) -> None:
    log = log_lines(range(4), **{"lr": 0.1, "ctp/m": 1.0, "contrastive": 1.0})
    write_step(tmp_path / "a", 0, log)
    higher = log_lines(range(4)).replace('"loss": 4', '"loss": 6')
    write_step(tmp_path / "b", 0, higher, seed=1, content="c0-1")
    charts = _losses(read_cards([tmp_path], _rows(tmp_path, seeds=2)))
    assert charts[0].lines[0].points[1:, 0].tolist() == [5.0, 4.0, 6.0]
    assert [one.name for one in charts] == ["loss", "contrastive", "ctp/m", "lr"]


def test_settings_as_texts_and_those_that_differ(tmp_path: Path) -> None:
    configs = {
        "a": {"method": "ewc", "settings": {"lr": 0.1, "flip": True}, "hyper": {"ewc": {"w": 1}}},
        "b": {"method": "ctp", "settings": {"lr": 0.2, "flip": True}, "hyper": {"ctp": {}}},
    }
    rows = [
        one
        for run, values in configs.items()
        for one in current(own_rows(run=run), config={"id": run, "values": values})
    ]
    found = settings_by_run(read_back(tmp_path / "r", rows), None)
    assert found["a"] == {"method": "ewc", "lr": "0.1", "flip": "true", "ewc.w": "1"}
    table = settings_table(found)
    assert table is not None
    shown = [[cell.text for cell in row] for row in table.groups[0].rows]
    assert shown == [["method", "ewc", "ctp"], ["lr", "0.1", "0.2"], ["ewc.w", "1", "-"]]
    wide = settings_table({"a": {"lr": "1"}, "b": {"lr": "2"}})
    assert wide is not None
    assert [column.name for column in wide.columns] == ["run", "lr"]
    assert settings_table({"a": {"lr": "1"}, "b": {"lr": "1"}}) is None
    changing = [
        one | {"config": {"id": str(one["step"]), "values": {"lr": 1 if one["step"] else 5}}}
        for one in current(own_rows())
    ]
    over_steps = settings_by_run(read_back(tmp_path / "r", changing), None)
    assert over_steps == {"ctp": {"lr": "5, then 1"}}
    values = {"betas": [0.9, 0.99], "none": None, "buffer": {"policy": "ring", "size": 8}}
    assert setting_texts(values) == {"betas": "0.9 0.99", "none": "none", "buffer": "ring, 8 pairs"}


# (seed, step, seconds, bytes of state, peak bytes)
STEPS = (
    (0, 0, 4.0, 500, 5_000_000),
    (0, 1, 4.0, 1500, 3_000_000),
    (1, 0, 6.0, 4500, 7_000_000),
    (1, 1, 6.0, 2500, 1_000_000),
)


@pytest.mark.parametrize(
    ("without", "peak"), [((), "6.0 MB"), ((1,), "")], ids=["whole", "a seed lacks it"]
)
def test_costs_are_sums_peaks_and_the_last_state_as_means_over_seeds(
    tmp_path: Path, without: tuple[int, ...], peak: str
) -> None:
    for seed, step, seconds, state, high in STEPS:
        content = f"c{step}-{seed}" if seed else f"c{step}"
        more: dict[str, Any] = {} if seed in without else {"peak_memory": {"process": high}}
        facts = {"seed": seed, "content": content, "slots": state, "train_seconds": seconds, **more}
        write_step(tmp_path / f"{seed}-{step}", step, log_lines(range(2)), **facts)
    rows = [one for seed in (0, 1) for one in own_rows(((60.0,), (50.0, 40.0)), seed=seed)]
    cards = read_cards([tmp_path], read_back(tmp_path / "rows.ndjson", rows))
    (table,) = training_tables(cards, {})
    ((line,),) = (group.rows for group in table.groups)
    names = [column.name for column in table.columns]
    found = {name: (cell.text, cell.sd) for name, cell in zip(names, line, strict=True)}
    assert found["tasks"] == ("2", "")
    assert found["seconds"] == ("10.00", "2.83")  # of 8 and 12
    assert found["state"] == ("2.0 kB", "")  # of 1500 and 2500
    assert found.get("peak memory", ("", "")) == (peak, "")  # of 5 and 7
    assert cards.costs("ctp")["seconds"].values == (8.0, 12.0)


def test_an_imported_model_has_no_cost_and_no_step(tmp_path: Path) -> None:
    facts: dict[str, Any] = {"run": "clip", "origin": {"name": "clip"}, "parent": None}
    (tmp_path / "clip").mkdir()
    write_checkpoint_manifest(tmp_path / "clip", "s", step=None, **facts)
    rows = [row(run="clip", step=None, task_step=None, checkpoint="s")]
    cards = read_cards([tmp_path], read_back(tmp_path / "rows.ndjson", rows))
    assert training_tables(cards, {}) == []
    assert cards.costs("clip") == {}


def _written(path: Path, rows: list[Row], *checkpoints: Path) -> dict[str, str]:
    cards = read_cards(checkpoints, rows) if checkpoints else None
    request, files = ReportRequest(allow_mixed=("checkpoint",)), Files(cards=cards)
    write_report(build(rows, request, files), identity(rows, request, files), path, force=True)
    return {one.name: one.read_text() for one in path.iterdir()}


def test_a_report_has_losses_costs_and_settings(tmp_path: Path) -> None:
    rows = read_back(tmp_path / "r", own_rows() + own_rows(run="other", checkpoint="x"))
    for step in range(3):
        facts: dict[str, Any] = {"run": "<script>|`"} if step == 2 else {}
        log = log_lines(range(10), **{"ctp/m": 1.0})
        write_step(tmp_path / f"runs/{step}", step, log, slots=1500, **facts)
    found = _written(tmp_path / "o", rows, tmp_path / "runs")
    page, text = found["report.html"], found["report.md"]
    for words in ("Cost of the training", "Loss terms over the steps"):
        assert words in page
    assert page.count("<script") == 1  # page.js
    assert "| ctp | 3 | 12.00 | 960 | 80 | 1.5 kB | 2.0 kB |" in text
    costs = [one for one in read_facts(found["facts.csv"]) if one["metric"] == "cost"]
    assert [one["value"] for one in costs] == [12.0, 960.0, 1500.0, 2000.0, 80.0]
    (tmp_path / "runs").rename(tmp_path / "moved")
    assert _written(tmp_path / "again", rows, tmp_path / "moved") == found
    assert "Training</h2>" not in _written(tmp_path / "without", rows)["report.html"]


def test_costs_are_rows_of_facts_csv_by_run_and_measure(tmp_path: Path) -> None:
    """Runs by their names, although all else has them by their scores."""
    rows = []
    for run, score in (("b", 10.0), ("a", 90.0)):  # the weakest is the first of the tables
        write_step(tmp_path / run, 0, log_lines(range(2)), slots=5, run=run, content=run)
        rows += own_rows(((score,),), run=run, checkpoint=run)
    found = read_back(tmp_path / "r", rows)
    document = build(found, ReportRequest(), Files(cards=read_cards([tmp_path], found)))
    assert document.names == ("b", "a")
    facts = read_facts("".join(facts_csv(document)))
    costs = [(one["run"], one["key"]) for one in facts if one["metric"] == "cost"]
    measures = ("seconds", "pairs", "state", "model", "pairs/s")
    assert costs == [(run, key) for run in ("a", "b") for key in measures]

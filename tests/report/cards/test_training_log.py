"""A training log becomes curves of few points, broken where it lacks something."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from support.run_checkpoints import log_lines, write_step

from vlcpctl.core.errors import BadInput
from vlcpctl.report.cards import training_log
from vlcpctl.report.cards.search import FoundCheckpoint, find_checkpoints
from vlcpctl.report.cards.training_log import TermCurve, TrainingLog, read_training_log


def _found(directory: Path) -> FoundCheckpoint:
    return next(iter(find_checkpoints([directory])[0].values()))


def _read(path: Path, text: str, most: int = 200) -> TrainingLog:
    found = read_training_log(_found(write_step(path / "c", 0, text)), most)
    assert found is not None
    return found


def _curve(log: TrainingLog, term: str = "loss") -> TermCurve:
    return next(one for one in log.curves if one.term == term)


def test_every_term_is_a_curve(tmp_path: Path) -> None:
    text = log_lines(range(3), lr=0.5) + log_lines(range(2), phase="fisher")
    log = _read(tmp_path, text)
    assert [one.term for one in log.curves] == ["loss", "lr", "fisher: loss"]
    assert log.steps == 3
    assert _curve(log).steps.tolist() == [0, 1, 2]
    assert _curve(log).values.tolist() == [4.0, 3.9, 3.8]


def test_a_long_log_is_thinned_evenly_with_both_ends(tmp_path: Path) -> None:
    log = _read(tmp_path, log_lines(range(1000)), most=4)
    assert _curve(log).steps.tolist() == [0, 333, 666, 999]
    assert log.steps == 1000


def test_validations_are_thinned_on_their_own(tmp_path: Path) -> None:
    rows = [
        line
        for step in range(100)
        for line in [
            log_lines([step]),
            *(
                [f'{{"phase": "train", "step": {step}, "val_loss": 1.0}}\n']
                if step % 10 == 9
                else []
            ),
        ]
    ]
    log = _read(tmp_path, "".join(rows), most=5)
    assert _curve(log, "val_loss").steps.tolist() == [9, 29, 49, 69, 99]
    assert np.isfinite(_curve(log, "val_loss").values).all()


def test_missing_steps_and_values_that_are_not_finite_break_the_line(tmp_path: Path) -> None:
    log = _read(tmp_path, log_lines([0, 1, 2, 6, 7]))
    assert _curve(log).steps.tolist() == [0, 1, 2, 4, 6, 7]
    assert np.isnan(_curve(log).values).tolist() == [False] * 3 + [True] + [False] * 2
    nan = _read(tmp_path / "nan", log_lines([0]) + '{"phase": "train", "step": 1, "loss": NaN}\n')
    assert np.isnan(_curve(nan).values).tolist() == [False, True]


def test_a_hole_between_rows_that_are_kept_breaks_the_line(tmp_path: Path) -> None:
    log = _read(tmp_path, log_lines([*range(100), *range(150, 300)]), most=4)
    assert np.isnan(_curve(log).values).sum() == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}\n", ":1 is not a row of a training log"),
        (log_lines([0]) + "torn", ":2 is not a row of a training log"),
        (log_lines([3, 2]), "the steps of phase 'train' are not in order"),
        ('{"phase": "train", "step": 0, "loss": }\n', "a row that is not readable JSON"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        _read(tmp_path, text)


def test_a_changed_missing_or_large_log_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = _found(write_step(tmp_path / "c", 0, log_lines(range(5))))
    log = checkpoint.path / "metrics.jsonl"
    monkeypatch.setattr(training_log, "MOST_BYTES", 20)
    with pytest.raises(BadInput, match="it has more than 20 bytes"):
        read_training_log(checkpoint, 200)
    log.write_text(log_lines(range(4)) + "x" * 50)
    with pytest.raises(BadInput, match=r"metrics\.jsonl has changed since it was written"):
        read_training_log(checkpoint, 200)
    log.unlink()
    with pytest.raises(BadInput, match=r"metrics\.jsonl is missing"):
        read_training_log(checkpoint, 200)


def test_a_checkpoint_without_a_log_has_none(tmp_path: Path) -> None:
    assert read_training_log(_found(write_step(tmp_path / "c", 0)), 200) is None


def test_a_pipe_in_place_of_a_log_does_not_block(tmp_path: Path) -> None:
    directory = write_step(tmp_path / "c", 0)
    os.mkfifo(directory / "metrics.jsonl")
    with pytest.raises(BadInput, match="it is not a regular file"):
        read_training_log(_found(directory), 200)


def test_the_rows_are_those_of_a_training(tmp_path: Path) -> None:
    """The reader relies on phase and step coming first, as `MetricsLog` writes them."""
    from vlcpctl.training.log import MetricsLog

    log = MetricsLog(tmp_path / "metrics.jsonl", 0)
    log.append({"phase": "train", "step": 0, "loss": 1.5, "lr": 0.1})
    log.close()
    text = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(text)["loss"] == 1.5
    assert _curve(_read(tmp_path, text)).values.tolist() == [1.5]

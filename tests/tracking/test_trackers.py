"""What --log takes; trackers may fail: the command goes on, and says so once."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from vlcpctl.core.errors import Diverged, UsageError
from vlcpctl.tracking.row_log import RowLog, row_values
from vlcpctl.tracking.trackers import TrackedRun, Trackers, destinations

WANDB = "vlcpctl.tracking.trackers.WandbTracker"
TENSORBOARD = "vlcpctl.tracking.trackers.TensorBoardTracker"
RUN = TrackedRun(run="a", seed=0, part="00-a", id="x")


class Recorder:
    """Remembers what it gets; a bad one fails when `at` is called."""

    def __init__(self, at: str = "") -> None:
        self.at = at
        self.found: list[object] = []

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._fail("log")
        self.found.append((dict(values), step))

    def close(self, code: int) -> None:
        self._fail("close")
        self.found.append(code)

    def _fail(self, where: str) -> None:
        if where == self.at:
            raise ConnectionError(f"no network\nat {where}")


@pytest.mark.parametrize("at", ["open", "log", "close"])
def test_a_failing_tracker_is_left_out_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], at: str
) -> None:
    good, bad = Recorder(), Recorder(at)

    def fail(place: str, run: TrackedRun) -> Recorder:
        bad._fail("open")
        return bad

    monkeypatch.setattr(TENSORBOARD, lambda place, run: good)
    monkeypatch.setattr(WANDB, fail)
    with Trackers.of(["wandb:bad", "tensorboard:good"], RUN) as trackers:
        for step in range(2):
            trackers.log({"phase": "train", "loss": step, "flag": True}, step)
    assert good.found == [({"loss": 0.0}, 0), ({"loss": 1.0}, 1), 0]
    assert capsys.readouterr().err == "warning: no more is logged to wandb:bad: no network\n"


@pytest.mark.parametrize(("error", "code"), [(Diverged("x"), 8), (KeyError(), 1)])
def test_trackers_get_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    tracker = Recorder()
    monkeypatch.setattr(WANDB, lambda place, run: tracker)
    with pytest.raises(type(error)), Trackers.of(["wandb:a"], RUN):
        raise error
    assert tracker.found == [code]


ROW = {
    "run": "ctp",
    "seed": 0,
    "step": 1,
    "evaluator": "retrieval",
    "protocol": "cross-modal",
    "gallery": "own",
    "task": "00-a",
    "task_step": 0,
    "split": "test",
    "metrics": {"rm": 1.0, "i2t_r1": None},
}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "retrieval/00-a/rm"),
        ({"split": "train"}, "retrieval/00-a.train/rm"),
        ({"gallery": "merged", "task": "merged", "task_step": 2}, "retrieval/merged.0-2/rm"),
        ({"protocol": "multi-modal", "map_variant": "ctp"}, "retrieval-multi-modal-ctp/00-a/rm"),
        ({"evaluator": "probe", "protocol": "modx"}, "probe-modx/00-a/rm"),
        ({"evaluator": "spatial", "since": {"step": 0}}, "spatial/00-a.since-00/rm"),
        ({"evaluator": "spatial", "since": {"step": None}}, "spatial/00-a.since-start/rm"),
    ],
)
def test_rows_have_a_name_for_each_thing_measured(fields: dict[str, object], name: str) -> None:
    assert row_values({**ROW, **fields}) == {name: 1.0}


def test_rows_of_each_run_and_seed_go_to_a_run_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: dict[str, Recorder] = {}
    monkeypatch.setattr(WANDB, lambda _, run: opened.setdefault(run.label, Recorder()))
    with RowLog.opened(["wandb:a"]) as log:
        for fields in ({}, {"seed": 1}, {"alpha": 0.5}, {"step": None}):
            log.log({**ROW, **fields})
    assert list(opened) == ["ctp", "ctp-seed1", "ctp alpha=0.5"]
    assert opened["ctp"].found == [
        ({"retrieval/00-a/rm": 1.0}, 1),
        ({"retrieval/00-a/rm": 1.0}, -1),
        0,
    ]


@pytest.mark.parametrize(
    "word", ["board", "mlflow:x", "tensorboard:", "wandb: ", "wandb:a/b/c", "wandb:/b"]
)
def test_another_form_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="tensorboard:DIR nor wandb:PROJECT"):
        destinations([word])


def fake_wandb(mode: str, key: str | None, token: str | None = None) -> SimpleNamespace:
    settings = SimpleNamespace(mode=mode, identity_token_file=token)
    return SimpleNamespace(
        api=SimpleNamespace(api_key=key), setup=lambda: SimpleNamespace(settings=settings)
    )


@pytest.mark.parametrize(
    ("mode", "key", "token"),
    [("online", "k", None), ("online", None, "file"), ("offline", None, None)],
)
def test_wandb_needs_a_key_unless_it_is_offline(
    monkeypatch: pytest.MonkeyPatch, mode: str, key: str | None, token: str | None
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "wandb", fake_wandb(mode, key, token))
    assert destinations(["wandb:team/project"]) == ("wandb:team/project",)
    monkeypatch.setitem(sys.modules, "wandb", fake_wandb("online", None))
    with pytest.raises(UsageError, match="WANDB_API_KEY"):
        destinations(["wandb:project"])

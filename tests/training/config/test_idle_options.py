"""Options that would have no effect are refused, with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlcpctl.core.errors import UsageError
from vlcpctl.training.checks import refuse_idle_inputs
from vlcpctl.training.methods import compose
from vlcpctl.training.presets import refuse_idle_settings, resolve
from vlcpctl.training.request import TrainRequest


@pytest.mark.parametrize(
    ("flags", "needed"),
    [
        ({"crop_scale": (0.5, 1.0)}, {"crop": "random"}),
        ({"patience": 3}, {"schedule": "plateau"}),
        ({"min_lr": 1e-5, "schedule": "constant"}, {"schedule": "cosine"}),
        ({"momentum": 0.5}, {"optimizer": "sgd"}),
        ({"betas": (0.9, 0.9), "optimizer": "sgd"}, {"optimizer": "lamb"}),
        ({"eps": 1e-6, "optimizer": "sgd"}, {"optimizer": "adam"}),
    ],
)
def test_a_setting_goes_with_another(flags: dict[str, object], needed: dict[str, object]) -> None:
    name = next(iter(flags)).replace("_", "-")
    with pytest.raises(UsageError, match=f"--{name} has no effect with --"):
        refuse_idle_settings(*resolve("tiny", flags, {}))
    refuse_idle_settings(*resolve("tiny", flags | needed, {}))


def test_a_decay_of_zero_is_not_divided_among_weights() -> None:
    with pytest.raises(UsageError, match="--decay has no effect with --weight-decay 0"):
        refuse_idle_settings(*resolve("tiny", {"decay": "all", "weight_decay": 0.0}, {}))
    refuse_idle_settings(*resolve("tiny", {"decay": "all"}, {}))


def test_steps_and_epochs_are_one_choice() -> None:
    with pytest.raises(UsageError, match="--epochs has no effect with --steps"):
        refuse_idle_settings(*resolve("tiny", {"epochs": 3, "steps": 5}, {}))
    refuse_idle_settings(*resolve("tiny", {"steps": 5}, {}))


def test_what_a_preset_says_is_no_flag() -> None:
    refuse_idle_settings(*resolve("dha", {"schedule": "cosine", "crop": "none"}, {}))


def _request(method: str, *values: str, **more: object) -> TrainRequest:
    settings, origins = resolve("tiny", {}, {})
    given = {"previous": Path("previous"), "origins": origins, **more}
    methods = compose(method, values)
    return TrainRequest(tasks=(), out=Path("out"), methods=methods, settings=settings, **given)  # type: ignore[arg-type]


TEACHER = {"teacher": Path("teacher")}


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (_request("seqf", **TEACHER), "--teacher has no effect with --method seqf"),
        (_request("dha", **TEACHER), "--teacher has no effect with --method dha"),
        (_request("ewc", **TEACHER), "--teacher has no effect with --method ewc"),
        (_request("modx", "modx.alpha=0", **TEACHER), "--teacher has no effect with"),
        (_request("lwf", "lwf.strength=0", **TEACHER), "--teacher has no effect with"),
        (_request("lucir", "lucir.strength=0", **TEACHER), "--teacher has no effect with"),
        (_request("lwf", origins={"replay": "flag"}), "--replay has no effect without --buffer"),
        (_request("lwf", previous=None, origins={"replay": "flag"}), "--replay has no effect with"),
        (
            _request("ewc", previous=None, fresh_state=True),
            "--fresh-state has no effect without --previous: a first task has no earlier state",
        ),
        (_request("seqf", fresh_state=True), "--fresh-state has no effect with --method seqf"),
        (_request("seqf", from_scratch=True), "--from-scratch has no effect with --previous"),
        (
            _request("ewc", origins={"blend_buffers": "flag"}),
            "--blend-buffers has no effect with --method ewc: it averages no weights",
        ),
        (_request("lwf", origins={"model": "flag"}), "--model has no effect with --previous: the"),
        (_request("lwf", origins={"heads": "flag"}), "--heads has no effect with --previous: the"),
    ],
)
def test_an_input_that_no_method_uses_is_refused(request_: TrainRequest, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        refuse_idle_inputs(request_)


@pytest.mark.parametrize(
    "request_",
    [
        _request("seqf+lwf", **TEACHER),
        _request("ewc", **TEACHER, previous=None),
        _request("incclip", "incclip.lambda_=0", **TEACHER, buffer=Path("buffer")),
        _request("lwf", origins={"replay": "flag"}, buffer=Path("buffer")),
        _request("lwf", origins={"temperature": "flag"}, previous=None),
        _request("ewc", fresh_state=True),
        _request("ctp", "ctp.keep_queue=true", fresh_state=True),
        _request("seqf", from_scratch=True, previous=None),
        _request("ctp", origins={"blend_buffers": "flag"}),
        _request("ema", origins={"blend_buffers": "flag"}, previous=None),
    ],
)
def test_an_input_that_a_method_uses_is_taken(request_: TrainRequest) -> None:
    refuse_idle_inputs(request_)

"""Settings: which source wins, what is refused, and what each value's origin is."""

from __future__ import annotations

import math
from types import UnionType
from typing import get_args, get_origin, get_type_hints

import pytest

from vlcpctl.core.errors import UsageError
from vlcpctl.core.method import lies_within
from vlcpctl.core.option_rules import option_rows
from vlcpctl.data.images.randaugment import MAX_MAGNITUDE, OPERATIONS
from vlcpctl.data.loading.replay import Replay
from vlcpctl.training.config.composition import compose
from vlcpctl.training.config.phases import plan_phases
from vlcpctl.training.config.presets import OURS, PRESETS
from vlcpctl.training.config.request import SaveEvery, save_every
from vlcpctl.training.config.resolution import parse_replay, resolve
from vlcpctl.training.config.run_options import RunOptions
from vlcpctl.training.config.settings import RANDAUGMENT_MOST, SETTINGS, Settings
from vlcpctl.training.loop.optim import learning_rate
from vlcpctl.training.loop.state import Plateau


def test_a_flag_wins_over_the_preset_and_says_so() -> None:
    settings, origins = resolve("dha", {"lr": 1e-3}, {"replay": "share=0.5"})
    assert (settings.lr, origins["lr"]) == (1e-3, "flag")
    assert (settings.optimizer, origins["optimizer"]) == ("adam", "preset dha")
    assert (settings.replay, origins["replay"]) == ("share=0.5", "method")
    assert origins["clip_norm"] == "default"


def test_values_that_no_paper_gives_are_marked() -> None:
    assert resolve("incclip", {}, {})[1]["temperature"] == "preset incclip, not in the paper"


@pytest.mark.parametrize("name", PRESETS)
def test_presets_set_only_settings_there_are(name: str) -> None:
    assert set(PRESETS[name]) <= set(SETTINGS)
    assert set(PRESETS[name]) >= OURS[name]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"optimizer": "adamm"}, "--optimizer 'adamm' is not one of"),
        (
            {"batch_size": 10, "micro_batch": 4},
            "--batch-size 10 is not divisible by --micro-batch 4",
        ),
        ({"lr": 0.0}, "--lr must be above 0"),
        ({"replay": "share=1.5"}, "--replay 'share=1.5'"),
        ({"keep": "best"}, "--keep 'best' is not one of"),
        ({"lr": math.nan}, "--lr must be above 0 and at most 1e30, not nan"),
        ({"lr": math.inf}, "--lr must be above 0 and at most 1e30, not inf"),
        ({"lr": -1.0}, "--lr must be above 0 and at most 1e30, not -1.0"),
        ({"min_lr": 1.0}, "--min-lr 1 is above --lr 0.001"),
        ({"min_lr": -1e-9}, "--min-lr must be at least 0"),
        ({"weight_decay": -0.1}, "--weight-decay must be at least 0"),
        ({"eps": 0.0}, "--eps must be above 0"),
        ({"momentum": 1.0}, "--momentum must be at least 0 and below 1, not 1.0"),
        ({"betas": (0.9, 1.0)}, "--betas must be at least 0 and below 1, not 1.0"),
        ({"clip_norm": 0.0}, "--clip-norm must be above 0, not 0.0"),
        ({"clip_norm": -1.0}, "--clip-norm must be above 0, not -1.0"),
        ({"warmup": 1.0}, "--warmup must be at least 0 and below 1, not 1.0"),
        ({"crop": "random", "crop_scale": (2.0, 3.0)}, "--crop-scale must be above 0 and at most"),
        ({"crop": "random", "crop_scale": (0.0, 1.0)}, "--crop-scale must be above 0 and at most"),
        ({"crop_scale": (0.9, 0.2)}, "--crop-scale 0.9,0.2: the first number is above the second"),
        ({"jpeg_decode": "fast"}, "--jpeg-decode 'fast' is not one of exact, scaled"),
        ({"randaugment": (999, 999)}, "--randaugment 999,999: N must be from 0 to 14, and M from"),
        ({"randaugment": (2, 11)}, "--randaugment 2,11: N must be"),
        ({"randaugment": (-1, 5)}, "--randaugment -1,5: N must be"),
        ({"temperature": "fixed:"}, "--temperature 'fixed:' is not fixed:X or learn:X"),
        ({"temperature": "0.07"}, "--temperature '0.07' is not fixed:X or learn:X"),
        ({"mask_share": 1.0}, "--mask-share must be at least 0 and below 1"),
        ({"steps": 0}, "--steps must be at least 1"),
        ({"epochs": 0}, "--epochs must be at least 1"),
        ({"batch_size": 0}, "--batch-size must be at least 2"),
    ],
)
def test_impossible_settings_are_refused(flags: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve("tiny", flags, {})


@pytest.mark.parametrize("kind", [Settings, RunOptions])
def test_a_default_fits_its_type_and_its_row(kind: type) -> None:
    """mypy cannot compare them: the function that makes a field returns Any."""
    hints = get_type_hints(kind)
    for name, row in option_rows(kind).items():
        default = getattr(kind, name)
        types = get_args(hints[name]) if isinstance(hints[name], UnionType) else (hints[name],)
        assert type(default) in {get_origin(one) or one for one in types}, name
        assert default is None or not row.choices or default in row.choices, name
        numbers = default if isinstance(default, tuple) else (default,)
        assert (
            default is None
            or not row.within
            or all(lies_within(one, row.within) for one in numbers)
        ), name


def test_randaugment_is_bounded_by_its_implementation() -> None:
    assert (len(OPERATIONS), MAX_MAGNITUDE) == RANDAUGMENT_MOST
    resolve("tiny", {"randaugment": RANDAUGMENT_MOST}, {})


def test_a_constant_schedule_never_falls_to_the_smallest_rate() -> None:
    resolve("ctp", {"schedule": "constant", "lr": 1e-9}, {})


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_possible(name: str) -> None:
    resolve(name, {}, {})


def test_more_phases_or_steps_than_a_run_can_have_are_refused() -> None:
    how = {"first": False, "epoch_steps": 2, "epochs": 10**18, "steps": None}
    for method in ("seqf", "afec"):
        with pytest.raises(UsageError, match="are too many: at most 9999999999 steps and 9999"):
            plan_phases(compose(method), **how)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="20000 steps in 30000 phases are too many"):
        plan_phases(compose("afec"), **{**how, "epochs": 10**4})  # type: ignore[arg-type]


def test_unknown_preset_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'tiny'"):
        resolve("tinny", {}, {})


def test_replay_is_read() -> None:
    assert parse_replay("share=0.25") == parse_replay("share=25%") == Replay(0.25)
    assert parse_replay("least=0.25") == Replay(0.25, is_least=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("20", SaveEvery(steps=20)), ("90s", SaveEvery(seconds=90)), ("2h", SaveEvery(seconds=7200))],
)
def test_save_every_takes_steps_and_times(text: str, expected: SaveEvery) -> None:
    assert save_every(text) == expected


@pytest.mark.parametrize("text", ["0", "-3", "ten", "0min", "1.5"])
def test_save_every_refuses_the_rest(text: str) -> None:
    with pytest.raises(UsageError, match="--save-every"):
        save_every(text)


def test_warm_up_rises_to_the_full_rate_and_cosine_falls_from_it() -> None:
    settings = Settings(lr=1.0, min_lr=0.1, warmup=0.2, schedule="cosine")
    rates = [learning_rate(settings, step, 10, 0) for step in range(10)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert rates[-1] > 0.1


def test_constant_stays() -> None:
    assert learning_rate(Settings(lr=0.3, schedule="constant"), 9, 10, 0) == 0.3


def test_plateau_drops_tenfold_after_patience_is_spent() -> None:
    state = Plateau()
    for loss in (1.0, 0.5, 0.5, 0.5, 0.4):
        state = state.after(loss, patience=1)
    assert (state.drops, state.stalled, state.best) == (1, 0, 0.4)
    assert learning_rate(Settings(lr=1.0, schedule="plateau"), 0, 10, state.drops) == pytest.approx(
        0.1
    )

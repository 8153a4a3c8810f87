"""Settings: which source wins, what is refused, and what each value's origin is."""

from __future__ import annotations

import math
from types import UnionType
from typing import get_args, get_origin, get_type_hints

import pytest

from vlcpctl.core.errors import UsageError
from vlcpctl.core.options import Options, Takes, lies_within, options_of
from vlcpctl.data.loading.replay import Replay
from vlcpctl.training.methods import compose
from vlcpctl.training.optimizers import learning_rate
from vlcpctl.training.phases import plan_phases
from vlcpctl.training.presets import names, parse_replay, resolve
from vlcpctl.training.settings import RunOptions, SaveEvery, Settings, save_every
from vlcpctl.training.state import Plateau

PRESET, METHOD, USER = "preset dha, not in the paper", "method", "flag"


@pytest.mark.parametrize(
    ("by_method", "by_user", "value", "origin"),
    [
        ({}, {}, "all", PRESET),
        ({"decay": "weights"}, {}, "weights", METHOD),
        ({}, {"decay": "weights"}, "weights", USER),
        ({"decay": "weights"}, {"decay": "all"}, "all", USER),
        ({"decay": "all"}, {"decay": "weights"}, "weights", USER),
        ({"decay": "all"}, {"decay": "all"}, "all", USER),
    ],
)
def test_the_user_wins_over_the_method_and_that_over_the_preset(
    by_method: dict[str, object], by_user: dict[str, object], value: object, origin: str
) -> None:
    settings, origins = resolve("dha", by_user, by_method)
    assert (settings.decay, origins["decay"]) == (value, origin)
    assert (settings.clip_norm, origins["clip_norm"]) == (None, "default")
    assert origins["optimizer"] == "preset dha"


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ({"optimizer": "adamm"}, "--optimizer"),
        ({"batch_size": 10, "micro_batch": 4}, "--micro-batch 4"),
        ({"lr": math.nan}, "--lr"),
        ({"min_lr": 1.0}, "--min-lr 1"),
        ({"replay": "share=1.5"}, "--replay"),
        ({"crop_scale": (0.9, 0.2)}, "--crop-scale 0.9,0.2"),
        ({"randaugment": (999, 999)}, "--randaugment"),
        ({"randaugment": (-1, 5)}, "--randaugment"),
        ({"temperature": "0.07"}, "--temperature"),
        ({"lora": "0"}, "--lora"),
        ({"scale_per_step": "0"}, "--scale-per-step"),
    ],
)
def test_impossible_settings_are_refused(flags: dict[str, object], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        resolve("tiny", flags, {})


@pytest.mark.parametrize("kind", [Settings, RunOptions])
def test_a_default_fits_its_type_and_its_row(kind: type[Options]) -> None:
    """mypy cannot compare them: the function that makes a field returns Any."""
    hints = get_type_hints(kind)
    for name, (row, _) in options_of(kind).items():
        default = getattr(kind, name)
        hint = get_args(hints[name])[0] if get_origin(hints[name]) is Takes else hints[name]
        types = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        assert type(default) in {get_origin(one) or one for one in types}, name
        assert default is None or not row.choices or default in row.choices, name
        numbers = default if isinstance(default, tuple) else (default,)
        assert (
            default is None
            or not row.within
            or all(lies_within(one, row.within) for one in numbers)
        ), name


def test_a_constant_schedule_never_falls_to_the_smallest_rate() -> None:
    resolve("ctp", {"schedule": "constant", "lr": 1e-9}, {})


@pytest.mark.parametrize("name", names())
def test_every_preset_is_possible(name: str) -> None:
    resolve(name, {}, {})


def test_more_phases_or_steps_than_a_run_can_have_are_refused() -> None:
    how = {"first": False, "epoch_steps": 2, "epochs": 10**18, "steps": None}
    for method in ("seqf", "afec"):
        with pytest.raises(UsageError, match="are too many: at most 9999999999 steps and 9999"):
            plan_phases(compose(method), **how)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="20000 steps in 30000 phases are too many"):
        plan_phases(compose("afec"), **{**how, "epochs": 10**4})  # type: ignore[arg-type]
    both = compose("afec+ewc")  # its six phases and three an epoch are just as many as can be
    assert plan_phases(both, first=False, epoch_steps=2, epochs=3331, steps=None)


def test_replay_is_read() -> None:
    assert parse_replay("share=0.25") == parse_replay("share=25%") == Replay(0.25)
    assert parse_replay("least=0.25") == Replay(0.25, is_least=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("20", SaveEvery(steps=20)), ("90s", SaveEvery(seconds=90)), ("2h", SaveEvery(seconds=7200))],
)
def test_save_every_takes_steps_and_times(text: str, expected: SaveEvery) -> None:
    assert save_every(text) == expected


def test_warm_up_rises_to_the_full_rate_and_cosine_falls_from_it() -> None:
    settings = Settings(lr=1.0, min_lr=0.1, warmup=0.2, schedule="cosine")
    rates = [learning_rate(settings, step, 10, 0) for step in range(10)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert rates[-1] > 0.1


def test_plateau_drops_tenfold_after_patience_is_spent() -> None:
    state = Plateau()
    for loss in (1.0, 0.5, 0.5, 0.5, 0.4):
        state = state.after(loss, patience=1)
    assert (state.drops, state.stalled, state.best) == (1, 0, 0.4)
    assert learning_rate(Settings(lr=1.0, schedule="plateau"), 0, 10, state.drops) == pytest.approx(
        0.1
    )


def test_phases_before_an_epoch_read_its_batches_and_end_nothing() -> None:
    plans = plan_phases(compose("afec"), first=False, epoch_steps=4, epochs=9, steps=6)
    before = ["afec/forward", "afec/forward-fisher", "train"]
    assert [plan.name for plan in plans[:6]] == 2 * before
    assert [(plan.start, plan.steps) for plan in plans[:6]] == 3 * [(0, 4)] + 3 * [(4, 2)]
    assert [plan.last for plan in plans[:6]] == 5 * [False] + [True]
    # A measuring phase counts from 0 in each epoch.
    assert [plan.offset for plan in plans[:6]] == [0, 0, 0, 4, 0, 4]

"""Numbers of the command line: what Python's float and int take beyond a person's is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from vlcpctl.commands.shared import wait_seconds, worker_number
from vlcpctl.core.errors import UsageError
from vlcpctl.data.buffer.policies import _share
from vlcpctl.data.splitting.holdout import parse_holdout, parse_most
from vlcpctl.data.tasks.samples import Tolerance
from vlcpctl.models.temperature import parse_temperature
from vlcpctl.production.settings import NEW, with_given
from vlcpctl.production.settings import Settings as WeekSettings
from vlcpctl.report.gates import parse_gate
from vlcpctl.training.methods import compose, parse_scale
from vlcpctl.training.presets import parse_replay
from vlcpctl.training.settings import Settings, save_every

COUNTED = parse_holdout("test=5")
PARSERS: dict[str, Callable[[str], object]] = {
    "--betas": lambda text: Settings(betas=f"0.9,{text}"),  # type: ignore[arg-type]
    "--fail-if": lambda text: parse_gate(f"bwt_gem:lt:{text}", ["rm"]),
    "--holdout": lambda text: parse_holdout(f"test={text}"),
    "--holdout-most": lambda text: parse_most(f"{text}%", COUNTED),
    "--max-skip": lambda text: Tolerance.parse(f"{text}%"),
    "--randaugment": lambda text: Settings(randaugment=f"2,{text}"),  # type: ignore[arg-type]
    "--replay": lambda text: parse_replay(f"share={text}"),
    "--save-every": lambda text: save_every(f"{text}min"),
    "--save-every, steps": save_every,
    "--scale-per-step": parse_scale,
    "--set, float": lambda text: compose("ctp", [f"ctp.m={text}"]),
    "--set, int": lambda text: compose("ctp", [f"ctp.queue={text}"]),
    "--size": lambda text: _share(f"{text}%"),
    "--temperature": lambda text: parse_temperature(f"fixed:{text}"),
    "--wait": wait_seconds,
    "--workers": worker_number,
}


@pytest.mark.parametrize("text", ["nan", "1_0", "0.1_0", "\u0661", "0x10", "infinity", ""])
@pytest.mark.parametrize("name", PARSERS)
def test_what_is_no_number_is_refused_in_one_line(name: str, text: str) -> None:
    with pytest.raises((UsageError, ValueError)) as caught:  # the maker makes one of the other
        PARSERS[name](text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["fixed:1e308", "learn:1e-300", "fixed:0", "fixed:inf"])
def test_a_temperature_beyond_any_softmax_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"with X from 0\.0001 to 10000"):
        parse_temperature(text)


@pytest.mark.parametrize("most", ["nan%", "-1%", "0x10%", "1_0%", "100%"])
def test_update_checks_how_much_of_a_week_it_may_hold_out(most: str) -> None:
    """Before anything is trained, as `split` does."""

    def check(holdout: str, most: str) -> None:
        split = {"holdout": holdout, "holdout-most": most}
        WeekSettings(with_given(NEW, {"split": split})).check()

    with pytest.raises(UsageError, match=r"--holdout-most .*write it as a percentage between"):
        check("test=5", most)
    with pytest.raises(UsageError, match="--holdout-most has no effect"):
        check("test=0.1", "10%")
    check("test=5", "10%")

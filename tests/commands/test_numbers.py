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

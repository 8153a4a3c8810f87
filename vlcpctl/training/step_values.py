"""The loss terms of optimizer steps, left on the device until several steps are read at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vlcpctl.core.batch import Terms
from vlcpctl.core.errors import Diverged
from vlcpctl.training.phases import PhasePlan

# Reading a value waits until the device has done all work so far. A GPU then has nothing to do
# while the host prepares the next step, so its values are read this many steps at a time.
STEPS_PER_READ = 16


def steps_per_read(device: torch.device) -> int:
    """After how many steps their values are read: every step on a CPU, which never waits."""
    return 1 if device.type == "cpu" else STEPS_PER_READ


@dataclass(frozen=True)
class StepValues:
    """The loss terms of one optimizer step, still on the device."""

    phase: PhasePlan
    step: int  # within the plan
    names: tuple[str, ...]  # of the terms over features
    token_names: tuple[str, ...]  # of the terms over tokens, summed over the global batch
    values: Tensor  # (1 + n + m,): the sum of the n terms over features, these, the m over tokens

    @classmethod
    def of(
        cls, at: tuple[PhasePlan, int], total: Tensor, terms: Terms, tokens: Terms
    ) -> StepValues:
        """The values of the step `at` (phase, step); `total` is the sum of `terms`, ()."""
        stacked = torch.stack([total, *terms.values()]).detach()
        if tokens:
            stacked = torch.cat([stacked, torch.stack([*tokens.values()]).detach()])
        return cls(*at, tuple(terms), tuple(tokens), stacked)

    def not_finite(self) -> Tensor:
        """1.0 if a term is NaN or infinite, else 0.0; a float32 scalar on the device."""
        return (~self.values[1:].isfinite().all()).float()

    def read(self) -> dict[str, float]:
        """Every loss term by name, and their sum as `loss`; waits for the device.

        Raises Diverged as `read_in_order` does.
        """
        return next(read_in_order([self]))

    def named(self, values: Sequence[float]) -> dict[str, float]:
        """The loss terms by name, from the numbers that `values` has on the device.

        Raises Diverged if one is not finite.
        """
        total, count = values[0], len(self.names)
        terms = dict(zip(self.names, values[1 : 1 + count], strict=True))
        tokens = dict(zip(self.token_names, values[1 + count :], strict=True))
        self._refuse_non_finite(terms)
        self._refuse_non_finite(tokens)
        return {"loss": total + sum(tokens.values()), **terms, **tokens}

    def _refuse_non_finite(self, values: Mapping[str, float]) -> None:
        bad = [f"{name} is {value}" for name, value in values.items() if not math.isfinite(value)]
        if bad:
            raise Diverged(f"{self.phase.place_of(self.step)}: {', '.join(bad)}")


def read_in_order(steps: Sequence[StepValues]) -> Iterator[dict[str, float]]:
    """The loss terms of each step by name, with their sum as `loss`; one transfer for all steps.

    Raises Diverged in the place of the first step with a term that is not finite.
    """
    values = torch.cat([one.values for one in steps]).tolist()
    first = 0
    for one in steps:
        last = first + len(one.values)
        yield one.named(values[first:last])
        first = last

"""What a finished train-step reports to people: its time, rate, last loss and validation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vlcpctl.core.words import counted, duration

_VALIDATED = b'"val_loss"'


@dataclass(frozen=True)
class Outcome:
    """The last loss in a journal, and each validation as (step, values); steps count from 0."""

    steps: int = 0  # that trained
    loss: float | None = None
    validations: tuple[tuple[int, dict[str, float]], ...] = field(default=())

    @classmethod
    def read(cls, journal: Path) -> Outcome:
        """The outcome in a complete metrics.jsonl, which need not exist."""
        steps, last, validations = 0, b"", []
        for line in _lines(journal):
            if _VALIDATED in line:
                row = json.loads(line)
                values = {name: row[name] for name in row if name.startswith("val_")}
                validations.append((int(row["step"]), values))
            elif line.startswith(b'{"phase": "train"'):
                steps, last = steps + 1, line
        loss = json.loads(last)["loss"] if last else None
        return cls(steps, loss, tuple(validations))

    def kept(self, keep: str) -> tuple[int, dict[str, float]] | None:
        """The step and values of the validation whose weights --keep `keep` wrote, if any.

        >>> found = Outcome(4, 2.0, ((1, {"val_loss": 3.0}), (3, {"val_loss": 3.5})))
        >>> found.kept("last"), found.kept("best:val_loss")
        ((3, {'val_loss': 3.5}), (1, {'val_loss': 3.0}))
        """
        if not self.validations:
            return None
        if keep == "last":
            return self.validations[-1]
        name = keep.removeprefix("best:")
        sign = 1.0 if name == "val_rmean" else -1.0
        return max(self.validations, key=lambda one: sign * one[1][name])

    def lines(self, seconds: float, pairs: int, rate: str, keep: str = "last") -> Iterator[str]:
        """One line about the training, and one about the validation if there was one.

        `rate` is text to add to the number of pairs, such as " (200 pairs/s)".
        """
        loss = "" if self.loss is None else f"; final loss {self.loss:.3f}"
        steps = counted(self.steps, "step")
        yield f"trained {steps} on {pairs} pairs in {duration(seconds)}{rate}{loss}"
        kept = self.kept(keep)
        if kept is not None:
            step, values = kept
            best = f", the best of {len(self.validations)}" if keep != "last" else ""
            recall = f", R@mean {values['val_rmean']:.2f}" if "val_rmean" in values else ""
            yield f"validation after step {step + 1}{best}: loss {values['val_loss']:.3f}{recall}"


def _lines(journal: Path) -> Iterator[bytes]:
    if journal.is_file():
        with journal.open("rb") as file:
            yield from file

"""The cards of the runs for summary.json: what each checkpoint records, with whole content ids."""

from __future__ import annotations

import math
from typing import Any

from vlcpctl.checkpoints.step_config import step_config
from vlcpctl.report.cards.runs import Cards, StepCard
from vlcpctl.report.cards.tables import command_line
from vlcpctl.report.scores.runs import START

_DIGITS = 6


def cards_json(cards: Cards) -> list[dict[str, Any]]:
    """A list with an object per run, each with its checkpoints in order of seed and step.

    The configuration of a run is that of its last checkpoint.
    """
    return [
        {
            "run": run.name,
            "config": step_config(run.last.manifest),
            "origins": dict(run.last.manifest.origins),
            "checkpoints": [_checkpoint(one) for one in run.steps],
        }
        for run in cards.runs
    ]


def _checkpoint(card: StepCard) -> dict[str, Any]:
    made = card.manifest
    return {
        "seed": card.seed,
        "step": None if card.step == START else card.step,
        "checkpoint": made.content,
        "method": made.method,
        "parents": card.parents,
        "tasks": list(made.tasks[-card.learned :]) if card.is_trained else [],
        "buffer": made.identity.get("buffer"),
        "version": made.made_by.get("version"),
        "time": made.made_by.get("time"),
        "command": command_line(made) or None,
        **(_cost(card) if card.is_trained else {}),
        "last_terms": _last_terms(card),
    }


def _cost(card: StepCard) -> dict[str, Any]:
    speed = card.pairs_per_second
    return {
        "seconds": card.manifest.train_seconds,
        "pairs": card.manifest.pairs,
        "pairs_per_second": None if speed is None else round(speed, _DIGITS),
        "peak_bytes": card.peak_bytes,
        "peak_device_bytes": card.peak_device_bytes,
        "state_bytes": card.state_bytes,
        "model_bytes": card.model_bytes,
    }


def _last_terms(card: StepCard) -> dict[str, float | None] | None:
    """The last value of each term of the log, null if it is not finite; None without a log."""
    if card.log is None:
        return None
    last = {one.term: float(one.values[-1]) for one in card.log.curves}
    return {
        term: round(value, _DIGITS) if math.isfinite(value) else None
        for term, value in last.items()
    }

"""The loss terms of all runs as lines: one value per place, the mean over seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vlcpctl.report.cards.runs import Cards, RunCard, StepCard
from vlcpctl.report.cards.training_log import TermCurve
from vlcpctl.report.charts import Floats, Panel, PanelLine

MOST_TERMS = 24  # that are drawn

# Drawn first and last; the terms of methods are between them.
_FIRST, _LAST = ("loss", "contrastive"), ("val_loss", "lr")


def has_several_tasks(cards: Cards) -> bool:
    """Whether x counts tasks: some run was trained in several steps. Else it counts updates."""
    return any(len({one.step for one in run.steps if one.log}) > 1 for run in cards.runs)


def term_panels(cards: Cards) -> tuple[list[Panel], int]:
    """The terms to draw, each with a line per run, and how many are left out.

    With several tasks, x is a task of the run plus the share of its training; else it is the
    optimizer step. Where a checkpoint or rows are missing, a NaN breaks the line.
    """
    by_tasks = has_several_tasks(cards)
    found: dict[str, list[PanelLine]] = {}
    for run in cards.runs:
        terms = dict.fromkeys(
            curve.term for one in run.steps if one.log for curve in one.log.curves
        )
        for term in terms:
            line = _run_line(run, term, by_tasks)
            if line is not None:
                found.setdefault(term, []).append(line)
    names = sorted(found, key=_rank)
    shown = [Panel(name, tuple(found[name])) for name in names[:MOST_TERMS]]
    return shown, len(names) - len(shown)


def _rank(term: str) -> tuple[int, str]:
    if term in _FIRST:
        return _FIRST.index(term), ""
    if term in _LAST:
        return 20 + _LAST.index(term), ""
    return (10 if ":" not in term else 30), term


def _run_line(run: RunCard, term: str, by_tasks: bool) -> PanelLine | None:
    pieces: list[Floats] = []
    last_end: float | None = None
    for step in sorted({one.step for one in run.steps}):
        members = [one for one in run.steps if one.step == step]
        curves = [(one, curve) for one in members if (curve := _curve(one, term)) is not None]
        if not curves:
            continue
        card = curves[0][0]
        piece = _over_seeds([curve for _, curve in curves])
        start, end = (float(card.first_step), card.step + 1.0) if by_tasks else (0.0, np.inf)
        if by_tasks:
            length = _length(card, curves[0][1])
            piece[0] = start + (piece[0] + 0.5) * (end - start) / length
        if last_end is not None and start > last_end:  # a checkpoint between them is missing
            pieces.append(np.array([[last_end], [np.nan], [np.nan], [np.nan]]))
        pieces.append(piece)
        last_end = end
    if not pieces:
        return None
    return PanelLine(run.name, *np.concatenate(pieces, axis=1))


def _length(card: StepCard, curve: TermCurve) -> float:
    """The optimizer steps of the training; of another phase, its own, which it counts from 0."""
    own = float(curve.steps[-1]) + 1
    return max(own, card.log.steps) if card.log and ":" not in curve.term else own


def _curve(card: StepCard, term: str) -> TermCurve | None:
    curves = card.log.curves if card.log else ()
    return next((one for one in curves if one.term == term), None)


def _over_seeds(curves: Sequence[TermCurve]) -> Floats:
    """(4, N): steps that all the seeds have, the mean, lowest and highest value at each."""
    steps = curves[0].steps
    for one in curves[1:]:
        steps = np.intersect1d(steps, one.steps)
    values = np.stack([one.values[np.searchsorted(one.steps, steps)] for one in curves])
    return np.stack([steps, values.mean(axis=0), values.min(axis=0), values.max(axis=0)])

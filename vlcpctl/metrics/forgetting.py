"""Forgetting on a matrix R of scores, R[t, j] = score on task j after training on task t.

Rows are steps, columns are tasks, NaN is a cell that was not evaluated. Papers disagree on what
"BWT" is, so every definition has a name of its own; `DEFINITIONS` has formulas and signs.
A function returns None where its definition does not apply: one task, or a missing cell.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

NOTHING = 1e-9  # percent: less than one hit in 10^11 queries; ratios to less overflow


def own_final(matrix: Matrix) -> float | None:
    """Mean over tasks of the last model's scores.

    >>> own_final(np.array([[60.0, np.nan], [40.0, 50.0]]))
    45.0
    """
    return defined_or_none(np.mean(learned_columns(matrix)[-1]))


def own_learned(matrix: Matrix) -> float | None:
    """Mean over tasks of the score just after learning the task.

    >>> own_learned(np.array([[60.0, np.nan], [40.0, 50.0]]))
    55.0
    """
    return defined_or_none(np.mean(learned_columns(matrix).diagonal()))


def bwt_gem(matrix: Matrix) -> float | None:
    """Backward transfer (Lopez-Paz and Ranzato, 2017); negative is forgetting.

    >>> bwt_gem(np.array([[60.0, np.nan], [40.0, 50.0]]))
    -20.0
    """
    seen = learned_columns(matrix)
    return None if len(seen) < 2 else defined_or_none(np.mean((seen[-1] - seen.diagonal())[:-1]))


def bwt_incclip(matrix: Matrix) -> float | None:
    """Backward transfer of IncCLIP: the change since a task was learned, averaged at every step.

    >>> bwt_incclip(np.array([[60.0, np.nan], [40.0, 50.0]]))  # 1/2 * (-20 + 0)
    -10.0
    """
    seen = learned_columns(matrix)
    steps = range(1, len(seen))
    if not steps:
        return None
    changes = [np.mean((seen[step] - seen.diagonal())[: step + 1]) for step in steps]
    return defined_or_none(np.mean(changes))


def forgetting_max(matrix: Matrix) -> float | None:
    """Drop from a task's best earlier score (Chaudhry et al., 2018); positive is forgetting.

    The best is taken over the steps from the task's own to the last but one, so that a task which
    the last step improves counts as negative forgetting.

    >>> forgetting_max(np.array([[60.0, np.nan], [40.0, 50.0]]))
    20.0
    """
    seen = learned_columns(matrix)
    if len(seen) < 2:
        return None
    drops = [seen[task:-1, task].max() - seen[-1, task] for task in range(len(seen) - 1)]
    return defined_or_none(np.mean(drops))


def fr_dha(matrix: Matrix) -> float | None:
    """Forgetting rate of DHA in percent of what was learned; positive is forgetting.

    >>> round(fr_dha(np.array([[60.0, np.nan], [40.0, 50.0]])), 2)
    33.33
    """
    seen = learned_columns(matrix)
    learned, final = seen.diagonal()[:-1], seen[-1, :-1]
    if len(seen) < 2 or not np.all(learned > NOTHING):
        return None  # a task of which nothing was learned: the ratio is undefined
    return defined_or_none(100 * np.mean((learned - final) / learned))


def bwt_ctp(merged: Matrix) -> float | None:
    """CTP's "BWT", on merged galleries: merged[t, i] = score of model t on tasks 0..i together.

    Positive is forgetting, unlike bwt_gem.

    >>> bwt_ctp(np.array([[60.0, np.nan], [45.0, 50.0]]))
    15.0
    """
    seen = learned_columns(merged)
    return None if len(seen) < 2 else defined_or_none(np.mean((seen.diagonal() - seen[-1])[:-1]))


def merged_final(merged: Matrix) -> float | None:
    """The last model's score on all tasks together.

    >>> merged_final(np.array([[60.0, np.nan], [np.nan, 50.0]]))
    50.0
    """
    return defined_or_none(learned_columns(merged)[-1, -1])


def fwt_gem(from_start: Matrix) -> float | None:
    """Forward transfer: the score on a task just before learning it, minus the initial model's.

    The first row of the matrix is the model before the first step, followed by one row per step.

    >>> fwt_gem(np.array([[10.0, 10.0], [60.0, 12.0], [40.0, 50.0]]))
    2.0
    """
    seen = from_start[:, : len(from_start) - 1]
    if len(seen) < 3:
        return None
    return defined_or_none(np.mean((seen[:-1].diagonal() - seen[0])[1:]))


def learned_columns(matrix: Matrix) -> Matrix:
    """(T, T) the columns of the tasks trained on so far, of which there are as many as steps."""
    steps, tasks = matrix.shape
    assert 0 < steps <= tasks, f"{steps} steps over {tasks} tasks"
    return matrix[:, :steps]


def defined_or_none(value: np.floating) -> float | None:
    """The number; None for NaN, which stands for a cell that was not evaluated."""
    return None if np.isnan(value) else float(value)

"""Summary numbers of newer benchmarks: ZSCL's MTIL and FoMo-in-Flux.

R[t, j] is the score on task j after training on task t, as in `forgetting`; unlike there, the
cells above the diagonal count: scores on tasks that were not learned yet. NaN is a cell that was
not evaluated. A function returns None where its definition does not apply.
"""

from __future__ import annotations

import numpy as np

from vlcpctl.metrics.forgetting import Matrix, defined_or_none, learned_columns, own_final


def transfer_zscl(matrix: Matrix) -> float | None:
    """ZSCL's Transfer: the score on tasks not learned yet, at every step before they are.

    The mean over tasks of each task's mean over the models trained before it. The model before the
    first task does not count (Zheng et al., 2023; `mtil/results.ipynb` of their code).

    >>> transfer_zscl(np.array([[60.0, 20.0, 10.0], [50.0, 40.0, 20.0], [40.0, 40.0, 30.0]]))
    17.5
    """
    learned = learned_columns(matrix)
    if len(learned) < 2:
        return None
    return defined_or_none(
        np.mean([np.mean(learned[:task, task]) for task in range(1, len(learned))])
    )


def avg_zscl(matrix: Matrix) -> float | None:
    """ZSCL's Avg.: the mean over all tasks, before and after they were learned, at every step.

    >>> avg_zscl(np.array([[60.0, 20.0], [40.0, 50.0]]))
    42.5
    """
    return defined_or_none(np.mean(learned_columns(matrix)))


def last_zscl(matrix: Matrix) -> float | None:
    """ZSCL's Last: the mean over tasks of the last model's scores, which is `own_final`.

    >>> last_zscl(np.array([[60.0, np.nan], [40.0, 50.0]]))
    45.0
    """
    return own_final(matrix)


def ka_fomo(matrix: Matrix) -> float | None:
    """Knowledge accumulation of FoMo-in-Flux: the mean over the tasks, of the last model.

    The benchmark takes the accuracy of tasks that are classification and R@5 of those that are
    retrieval, each task with the same weight (Roth et al., 2024).

    >>> ka_fomo(np.array([[60.0, np.nan], [40.0, 50.0]]))
    45.0
    """
    return own_final(matrix)


def zs_fomo(outside: Matrix) -> float | None:
    """Zero-shot retention of FoMo-in-Flux: the mean over data outside the stream.

    The last row of the matrix is the last model, its columns the data sets, each with the same
    weight (Roth et al., 2024).

    >>> zs_fomo(np.array([[70.0, 60.0], [60.0, 50.0]]))
    55.0
    """
    return None if not outside.size else defined_or_none(np.mean(outside[-1]))

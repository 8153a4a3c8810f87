"""Summary metrics of runs over their seeds: values, why one is undefined, which run is better."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from vlcpctl.core.errors import some_names
from vlcpctl.metrics.definitions import DEFINITIONS, Definition
from vlcpctl.metrics.forgetting import Matrix
from vlcpctl.report.scores.runs import RunScores

LEVEL = 0.05  # of the two-sided test: how often two equal runs are taken to differ
MIN_SEEDS = 3


@dataclass(frozen=True)
class Spread:
    """A number with one value per seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The arithmetic mean."""
        return math.fsum(self.values) / len(self.values)

    @property
    def sd(self) -> float | None:
        """The sample standard deviation; None for one seed.

        >>> Spread((1.0, 2.0, 3.0)).sd
        1.0
        """
        if len(self.values) < 2:
            return None
        squares = math.fsum((value - self.mean) ** 2 for value in self.values)
        return math.sqrt(squares / (len(self.values) - 1))


def over_seeds(values: Iterable[float | None]) -> Spread | None:
    """The values of all seeds; None without any, or if that of a seed is None or NaN.

    >>> over_seeds([1.0, 2.0]), over_seeds([1.0, None])
    (Spread(values=(1.0, 2.0)), None)
    """
    known = []
    for value in values:
        if value is None or math.isnan(value):
            return None
        known.append(value)
    return Spread(tuple(known)) if known else None


def summarise(run: RunScores, key: str, name: str) -> Spread | None:
    """One summary metric of a run; None if it is undefined for any seed."""
    if (key, name) not in run.summaries:  # tables, charts and summary.json show the same ones
        run.summaries[key, name] = _summary(run, key, DEFINITIONS[name])
    return run.summaries[key, name]


def _summary(run: RunScores, key: str, definition: Definition) -> Spread | None:
    if key not in run.scores or why_undefined(run, definition):
        return None  # the matrix may not even have the shape that the metric expects
    matrices = [run.matrix(scores, definition.gallery) for scores in run.scores[key]]
    return over_seeds(definition.value(matrix) for matrix in matrices)


def start_score(run: RunScores, key: str) -> Spread | None:
    """The mean over tasks of the model before the first task; None if it lacks one of them.

    The tasks are those the run has learned, or for a model that was not trained on a stream, all.
    One value stands for seeds that start from the same scores.
    """
    means = [float(np.mean(scores.start[run.counted])) for scores in run.scores.get(key, ())]
    return over_seeds(means[:1] if len(set(means)) == 1 else means)


def change_from_start(run: RunScores, key: str) -> Spread | None:
    """The final score minus that of the model before the first task, both means over the tasks.

    None if either lacks a task.
    """
    final = summarise(run, key, "own_final")
    if final is None:
        return None
    starts = (float(np.mean(scores.start[run.counted])) for scores in run.scores[key])
    return over_seeds(value - start for value, start in zip(final.values, starts, strict=True))


def why_undefined(run: RunScores, definition: Definition) -> str | None:
    """Why a summary metric is undefined for a run in any metric key; None if it can be defined."""
    if definition.gallery == "outside":
        return _why_undefined_outside(run)
    gallery = "own" if definition.gallery == "start" else definition.gallery
    if gallery not in run.galleries:
        return f"it has no rows on {gallery} galleries"
    if run.steps == 0:
        return "it has not been trained on the stream"
    if run.final_only and definition.compares_steps:
        return "it was evaluated at its last step only"
    return _why_undefined_for(run, definition)


def _why_undefined_for(run: RunScores, definition: Definition) -> str | None:
    """Which steps or cells a run that was trained lacks."""
    if needs_second_task(run, definition):
        needs = "it needs" if definition.looks_ahead else "forgetting needs"
        return f"it has one step, and {needs} two"
    if definition.looks_ahead and not run.looked_ahead:
        return (
            "it lacks rows of tasks before they were learned; evaluate every checkpoint on all "
            "tasks"
        )
    return None


def _why_undefined_outside(run: RunScores) -> str | None:
    if not run.outside:
        return "it was not evaluated on data outside the stream"
    if run.steps == 0:
        return "it has not been trained on the stream"
    columns = [one.outside for of_key in run.scores.values() for one in of_key if one.outside.size]
    if all(np.isnan(one).any() for one in columns):
        return (
            "its last model was not evaluated on all data outside the stream: "
            f"{some_names(run.outside)}"
        )
    return None


def needs_second_task(run: RunScores, definition: Definition) -> bool:
    """Whether a run of a single task so far lacks only another one for this summary metric."""
    has_rows = definition.gallery != "merged" or "merged" in run.galleries
    return len(run.counted) == 1 and run.steps > 0 and definition.least_tasks > 1 and has_rows


def mean_matrix(matrices: list[Matrix]) -> Matrix:
    """(steps, tasks) mean over seeds of each cell; NaN where a seed lacks the cell."""
    mean: Matrix = np.mean(np.stack(matrices), axis=0)
    return mean


def cell_spread(run: RunScores, key: str, gallery: str, cell: tuple[int, int]) -> Spread | None:
    """One cell of the own or merged matrix over seeds; None if a seed lacks it."""
    return over_seeds(float(scores.of(gallery)[cell]) for scores in run.scores.get(key, ()))


def is_ahead(best: Spread, other: Spread, *, are_paired: bool) -> bool:
    """Whether the means differ by Student's t, two-sided at `LEVEL`; never below `MIN_SEEDS`.

    Paired values, of the same seeds in the same order, are compared seed by seed; others by Welch's
    t (Biometrika 1947), which does not take the deviations to be equal. Without any deviation,
    every difference counts.

    >>> is_ahead(Spread((52.0, 42.0, 47.0)), Spread((50.0, 40.0, 45.0)), are_paired=True)
    True
    >>> is_ahead(Spread((52.0, 42.0, 47.0)), Spread((50.0, 40.0, 45.0)), are_paired=False)
    False
    """
    if min(len(best.values), len(other.values)) < MIN_SEEDS:
        return False
    difference = abs(best.mean - other.mean)
    if are_paired:
        pairs = zip(best.values, other.values, strict=True)
        samples = [Spread(tuple(one - another for one, another in pairs))]
    else:
        samples = [best, other]
    variances = [_variance_of_mean(sample) for sample in samples]
    variance = math.fsum(variances)
    if variance == 0.0:
        return difference > 0.0
    # Of one sample these are its values less one; of two, Welch's.
    freedom = variance**2 / math.fsum(
        part**2 / (len(sample.values) - 1) for part, sample in zip(variances, samples, strict=True)
    )
    return difference > _quantile(freedom) * math.sqrt(variance)


def seed_note(seeds: Sequence[int]) -> str:
    """What the numbers of runs with these numbers of seeds are; empty if all have one."""
    counts = set(seeds)
    if counts <= {1}:
        return ""
    if len(counts) > 1:
        return f"mean and sample standard deviation, {min(counts)} to {max(counts)} seeds"
    return f"mean and sample standard deviation, {counts.pop()} seeds"


def _variance_of_mean(sample: Spread) -> float:
    """The square of the standard error of the mean."""
    return 0.0 if sample.sd is None else sample.sd**2 / len(sample.values)


def _quantile(freedom: float) -> float:
    """Student's t that two equal runs exceed in either direction with a probability of `LEVEL`.

    >>> _quantile(2)
    4.30
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 1 - LEVEL / 2))

"""Simulated years of weekly updates, judged by three rules (docs/results/decisions.md).

    python recipes/weekly_decisions.py --years 400 --seed 0    prints Markdown
    python recipes/weekly_decisions.py --ranks RANKS.parquet --task NAME

The second line prints what weekly updates did to the samples of a guard, or of a week's test, from
the ranks that `eval-retrieval --save-ranks` has written of the start and of every week.

No model is trained. Each sample of a guard, or of an earlier week's test, has a log rank in both
directions: a fixed part, a part that every training redraws in part (churn, AR(1)), and what the
model has lost, times a weight of the sample that is exponential. Its score is the mean of R@1, R@5
and R@10 over both directions, in points. A model's true loss is that of its weeks and a training
noise, AR(1) over weeks. The loop is closed: a rejected week leaves the last accepted model.

A week is judged by vlcpctl/metrics/chance.py. The rules differ in what follows a rejection that is
not clear. Years that are simulated side by side are the first axis. Shapes: Y years, B baselines
(the start or when learned; the last accepted), G guards or earlier weeks, N samples.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from vlcpctl.metrics.chance import (
    WEEKS_A_YEAR,
    critical_value,
    few_samples_margin,
    margin_of,
    smallest_seen,
)
from vlcpctl.report.scores import FEWEST_IMAGES

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

CUTOFFS = np.log([1, 5, 10])  # of R@1, R@5, R@10, as log ranks
WORTH = 100 / (2 * len(CUTOFFS))  # points of one direction at one cutoff
BLOCK = 400_000  # samples that are simulated at once, for the processor's cache
RESAMPLES = 1000
SD_AT_FIRST = 15.0  # of a sample's loss, assumed where nothing is measured
NOISE_KEPT = 0.5  # correlation of the training noise of a model and the next


@dataclass(frozen=True)
class Population:
    """Where samples come from: log ranks, natural logarithm."""

    mean: float
    spread: float  # standard deviation of the fixed part
    offset: float  # standard deviation of the difference of the directions
    churn: float  # standard deviation of the part that trainings redraw
    kept: float  # its correlation from a model to the next


# Fitted to ranks of guards that weekly updates saved, by method: see decisions.md.
GUARDS = {
    "ctp": Population(mean=-0.64, spread=2.0, offset=2.7, churn=1.04, kept=0.82),
    "er": Population(mean=-0.14, spread=1.5, offset=1.8, churn=0.72, kept=0.50),
}
WEEK = Population(mean=2.45, spread=2.65, offset=0.7, churn=1.0, kept=0.7)


@cache
def _curve(population: Population) -> tuple[Floats, Floats]:
    """The points that a population loses at a shift of log ranks: both, rising."""
    shifts = np.linspace(-40, 40, 2001)
    weight_W, share_W = np.polynomial.laguerre.laggauss(40)
    spread = math.hypot(population.spread, population.offset / 2, population.churn)
    lost = np.zeros_like(shifts)
    for cutoff in CUTOFFS - population.mean:
        left = ndtr((cutoff - shifts[:, None] * weight_W) / spread) @ share_W
        lost += 2 * WORTH * (ndtr(cutoff / spread) - left)
    return lost, shifts


def shift_of(points: Floats, population: Population) -> Floats:
    """By how much log ranks rise, times a sample's weight, where a model has lost these points."""
    lost, shifts = _curve(population)
    return np.interp(points, lost, shifts)


@dataclass(frozen=True)
class World:
    """A year: what its weeks lose (points, by week) on the first test, or on all."""

    population: Population
    noise: float
    losses: tuple[float, ...] = (0.0,) * WEEKS_A_YEAR
    hits_all: bool = False
    learns: bool = False  # each accepted week has a test of its own

    @property
    def harm(self) -> int:
        """The first week that loses something; after the last if none does."""
        return next((n for n, one in enumerate(self.losses) if one > 0), len(self.losses))


@dataclass
class Models:
    """The model of each year, and its scores."""

    noise_YG: Floats  # points lost by chance of training
    lost_YG: Floats  # points lost in weeks
    churn_YGN: Floats
    score_YGN: Floats

    def put(self, where_Y: Bools, other: Models) -> None:
        """Take those of another in some years."""
        for name, values in vars(other).items():
            getattr(self, name)[where_Y, : values.shape[1]] = values[where_Y]


@dataclass(frozen=True)
class Drops:
    """Points lost (Y, B, G), -inf where nothing is known; B: since the start or learned, a week."""

    points_YBG: Floats
    error_YBG: Floats
    size: int


class Tests:
    """The samples of guards, or of weeks' tests, in each year, and the models that answer them."""

    def __init__(self, world: World, shape: tuple[int, int, int], rng: np.random.Generator) -> None:
        self.world, self.population, self.rng = world, world.population, rng
        fixed = self.population.mean + self.population.spread * self._normal(shape)
        half = self.population.offset / 2 * self._normal(shape)
        self.ranks = (fixed - half, fixed + half)
        self.weight_YGN = rng.standard_exponential(shape, dtype=np.float32)
        none, churn = np.zeros(shape[:2]), self.population.churn * self._normal(shape)
        self.current = self._scored(none, none.copy(), churn)
        self.base_YGN = self.current.score_YGN.copy()

    def _normal(self, shape: tuple[int, ...]) -> Floats:
        return self.rng.standard_normal(shape, dtype=np.float32)

    def _scored(self, noise_YG: Floats, lost_YG: Floats, churn_YGN: Floats) -> Models:
        count = churn_YGN.shape[1]
        shift_YG = shift_of(noise_YG + lost_YG, self.population)[:, :count].astype(np.float32)
        moved_YGN = shift_YG[..., None] * self.weight_YGN[:, :count] + churn_YGN
        found = np.zeros(moved_YGN.shape, dtype=np.int8)
        for ranks in self.ranks:
            now = ranks[:, :count] + moved_YGN
            for cutoff in CUTOFFS:
                found += now <= cutoff
        return Models(noise_YG, lost_YG, churn_YGN, found.astype(np.float32) * np.float32(WORTH))

    def train(self, loss_G: Floats, count: int) -> Models:
        """The models after a week in which these points are lost; the first `count` tests."""
        now, kept = self.current, self.population.kept
        churn = np.float32(kept) * now.churn_YGN[:, :count]
        churn += np.float32(math.sqrt(1 - kept**2) * self.population.churn) * self._normal(
            churn.shape
        )
        fresh = math.sqrt(1 - NOISE_KEPT**2) * self.world.noise
        noise = NOISE_KEPT * now.noise_YG
        noise += fresh * self.rng.standard_normal(noise.shape)
        return self._scored(noise, now.lost_YG + loss_G, churn)

    def drops(self, new: Models, is_known_YG: Bools) -> Drops:
        """What the new models have lost."""
        score = new.score_YGN
        count, size = score.shape[1:]
        points, errors = [], []
        for before in (self.base_YGN, self.current.score_YGN):
            loss = before[:, :count] - score
            mean = loss.mean(-1)
            square = np.einsum("ygn,ygn->yg", loss, loss) / size
            points.append(np.where(is_known_YG[:, :count], mean, -np.inf))
            errors.append(np.sqrt(np.maximum(square - mean**2, 0.0) / size))
        return Drops(np.stack(points, 1), np.stack(errors, 1), size)


@dataclass(frozen=True)
class Losses:
    """Losses that are judged: points, standard errors, the bound, and z standard errors."""

    points: Floats
    error: Floats
    bound: float
    z: Floats | float


@dataclass(frozen=True)
class Rule:
    """What follows a rejection that is not clear: nothing, or a second training with another seed.

    The second training is judged by its own losses, or by each sample's mean loss in both.
    """

    name: str
    trains_again: bool = True
    takes_mean: bool = False


ONCE = Rule("no second training", trains_again=False)
BOTH = Rule("both must fail")
MEAN = Rule("mean of both", takes_mean=True)
RULES = (ONCE, BOTH, MEAN)


def of_guards(drops: Drops) -> list[Losses]:
    """`worst_drop:gt:2` and `step_drop:gt:2`."""
    comparisons = drops.points_YBG.shape[1] * drops.points_YBG.shape[2]
    z = critical_value(comparisons, 1 / WEEKS_A_YEAR)
    return [Losses(drops.points_YBG, drops.error_YBG, 2.0, z)]


def of_weeks(drops: Drops) -> list[Losses]:
    """`bwt_gem:lt:-2` and, on tests that are large enough, `worst_week:gt:5`."""
    points, error = drops.points_YBG, drops.error_YBG
    is_known = np.isfinite(points[:, 0])
    number = is_known.sum(1)
    known = np.maximum(number, 1)
    mean = np.where(is_known, points[:, 0], 0.0).sum(1) / known
    mean_error = np.sqrt(np.where(is_known, error[:, 0] ** 2, 0.0).sum(1)) / known
    z = critical_value(1, 1 / WEEKS_A_YEAR)
    losses = [Losses(mean[:, None, None], mean_error[:, None, None], 2.0, z)]
    if drops.size >= FEWEST_IMAGES:
        values = [critical_value(2 * one, 1 / WEEKS_A_YEAR) for one in range(points.shape[2] + 1)]
        losses.append(Losses(points, error, 5.0, np.array(values)[number][:, None, None]))
    return losses


def judge(losses: Sequence[Losses]) -> tuple[Bools, Bools]:
    """In which years (Y,) the week is rejected, and in which one loss is clearly too large."""
    rejected, clear = [], []
    for one in losses:
        is_lost = (one.points > one.bound) & (one.points > one.z * one.error)
        rejected.append(is_lost.any((1, 2)))
        clear.append((one.points - margin_of(one.error) > one.bound).any((1, 2)))
    return np.any(rejected, 0), np.any(clear, 0)


@dataclass(frozen=True)
class Years:
    """What happened in each year (Y,)."""

    rejected: Floats  # weeks; in a harmful world up to the first that is found
    retrained: Floats
    found: Floats  # weeks from the first harmful one to the first rejection; inf if there is none
    lost: Floats  # true points that the weeks of the model kept then have lost on the first test
    deployed: Floats  # points that the model in use has truly lost there after the harmful week


@cache
def simulate(world: World, tests: int, size: int, rule: Rule, *, years: int, seed: int) -> Years:
    """Years of a world with so many tests of so many samples; `tests` is not used if it learns."""
    count = len(world.losses) if world.learns else tests
    key = f"{world} {count} {size}"
    rng = np.random.default_rng([seed, crc32(key.encode())])
    block = max(1, BLOCK // (count * size))
    parts = []
    for first in range(0, years, block):
        shape = (min(block, years - first), count, size)
        parts.append(_simulate(Tests(world, shape, rng), rule))
    return Years(
        *(np.concatenate([getattr(one, name) for one in parts]) for name in vars(parts[0]))
    )


def _simulate(tests: Tests, rule: Rule) -> Years:
    world = tests.world
    years, count = tests.current.lost_YG.shape
    is_known = np.full((years, count), not world.learns)
    rejections, retrained = np.zeros(years), np.zeros(years)
    found, lost, deployed = np.full(years, np.inf), np.zeros(years), np.zeros(years)
    is_hit = np.ones(count) if world.hits_all else np.eye(1, count)[0]
    for week, points in enumerate(world.losses):
        number = week + 1 if world.learns else count
        new, rejected, again = _train(tests, points * is_hit, is_known[:, :number], rule)
        is_open = np.isinf(found)
        rejections += rejected & is_open
        retrained += again & is_open
        tests.current.put(~rejected, new)
        now = tests.current
        if week == min(world.harm, len(world.losses) - 1):
            deployed = now.lost_YG[:, 0] + now.noise_YG[:, 0]
        if week >= world.harm:
            is_first = rejected & is_open
            found[is_first] = week - world.harm
            lost[is_first] = now.lost_YG[is_first, 0]
            if not np.isinf(found).any():
                break
        if world.learns:
            is_known[:, week] = ~rejected
            tests.base_YGN[:, week] = new.score_YGN[:, week]
    never = np.isinf(found)
    lost[never] = tests.current.lost_YG[never, 0]
    return Years(rejections, retrained, found, lost, deployed)


def _train(
    tests: Tests, loss_G: Floats, is_known_YG: Bools, rule: Rule
) -> tuple[Models, Bools, Bools]:
    """One week: models, which are rejected, which were trained again."""
    of = of_weeks if tests.world.learns else of_guards
    number = is_known_YG.shape[1]
    new = tests.train(loss_G, number)
    rejected, clear = judge(of(tests.drops(new, is_known_YG)))
    again = rejected & ~clear & rule.trains_again
    if again.any():
        other = tests.train(loss_G, number)
        judged = other
        if rule.takes_mean:
            judged = replace(other, score_YGN=(new.score_YGN + other.score_YGN) / 2)
        verdict, _ = judge(of(tests.drops(judged, is_known_YG)))
        new.put(again, other)
        rejected = np.where(again, verdict, rejected)
    return new, rejected, again


SIZES = (50, 100, 200, 500, 1000, 2000)
TESTS = (*((1, size) for size in SIZES), (5, 200), (5, 1000))  # guards, and samples of each
NOISES = (0.3, 0.6, 1.0)
TEST_SIZES = (16, 50, 100, 500)  # of an earlier week
POINTS = (1.0, 2.0, 3.0, 5.0)  # that a bad week loses
LOST = {"1 point": 1.0, "3 points": 3.0, "8 points": 8.0, "2 of 100 lose all": math.nan}
BAD_WEEK, COLLAPSE = 12, 25  # after so many others


def harmless(method: str, noise: float) -> World:
    """Nothing is lost."""
    return World(GUARDS[method], noise)


def bad_week(method: str, points: float) -> World:
    """One week loses something for good."""
    losses = (*(0.0,) * BAD_WEEK, points)
    return World(GUARDS[method], NOISES[0], losses)


def drift(method: str, points: float) -> World:
    """Every week loses a little."""
    return World(GUARDS[method], NOISES[0], (points,) * WEEKS_A_YEAR)


def collapse(points: float, *, hits_all: bool = False) -> World:
    """After 25 weeks, the next loses something of the first of them, or of all."""
    losses = (*(0.0,) * COLLAPSE, points)
    return World(WEEK, NOISES[0], losses, hits_all, learns=True)


@dataclass(frozen=True)
class Simulation:
    """How many years of each case, and from which random numbers."""

    years: int
    seed: int

    def of(self, world: World, number: int, size: int, rule: Rule) -> Years:
        """Years of guards, or of earlier weeks' own tests, whose number is that of the weeks."""
        return simulate(world, number, size, rule, years=self.years, seed=self.seed)


Table = list[str]


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A Markdown table."""
    lines = [f"| {' | '.join(line)} |" for line in (columns, *rows)]
    return [lines[0], "|---" * len(columns) + "|", *lines[1:]]


def guards_of(number: int, size: int) -> str:
    """How a row is called.

    >>> guards_of(1, 50), guards_of(5, 1000)
    ('one of 50', 'five of 1,000')
    """
    return f"{'one' if number == 1 else 'five'} of {size:,}"


def of_guards_and_rules(cell: Callable[[str, int, int, Rule], str]) -> Table:
    """A row for each number and size of guards, a cell for each method and rule."""
    columns = [f"`{method}`: {rule.name}" for method in GUARDS for rule in RULES]
    rows = [
        [guards_of(*test), *(cell(method, *test, rule) for method in GUARDS for rule in RULES)]
        for test in TESTS
    ]
    return table(["guards", *columns], rows)


def false_rejections(run: Simulation) -> Table:
    """False rejections a year at the three training noises."""

    def cell(method: str, number: int, size: int, rule: Rule) -> str:
        years = [run.of(harmless(method, noise), number, size, rule) for noise in NOISES]
        return " / ".join(f"{one.rejected.mean():.2f}" for one in years)

    return of_guards_and_rules(cell)


def second_trainings(run: Simulation) -> Table:
    """Second trainings in a harmless year at the three noises."""
    rows = []
    for test in TESTS:
        row = [guards_of(*test)]
        for method in GUARDS:
            years = [run.of(harmless(method, noise), *test, MEAN) for noise in NOISES]
            row.append(" / ".join(f"{one.retrained.mean():.1f}" for one in years))
        rows.append(row)
    return table(["guards", *(f"`{method}`" for method in GUARDS)], rows)


def found_at_once(run: Simulation) -> Table:
    """The share of bad weeks that are rejected themselves, in percent."""

    def cell(method: str, number: int, size: int, rule: Rule) -> str:
        years = [run.of(bad_week(method, points), number, size, rule) for points in POINTS]
        return " / ".join(f"{100 * np.mean(one.found == 0):.0f}" for one in years)

    return of_guards_and_rules(cell)


def deployed(run: Simulation) -> Table:
    """Points that the model in use after a bad week has truly lost."""

    def cell(method: str, number: int, size: int, rule: Rule) -> str:
        years = [run.of(bad_week(method, points), number, size, rule) for points in POINTS]
        return " / ".join(f"{one.deployed.mean():.1f}" for one in years)

    return of_guards_and_rules(cell)


def found_drift(run: Simulation) -> Table:
    """Weeks until a drift of 0.1, then 0.3 points a week is found, and points lost by then."""

    def cell(method: str, number: int, size: int, rule: Rule) -> str:
        years = [run.of(drift(method, points), number, size, rule) for points in (0.1, 0.3)]
        return " / ".join(
            f"{np.minimum(one.found, WEEKS_A_YEAR).mean():.0f} ({one.lost.mean():.1f})"
            for one in years
        )

    return of_guards_and_rules(cell)


def smallest_loss(run: Simulation) -> Table:
    """What `smallest_seen` says of guards, and how often such a loss is found at once."""
    rows = []
    for number, size in TESTS:
        z = critical_value(2 * number, 1 / WEEKS_A_YEAR)
        loss = round(smallest_seen(2.0, SD_AT_FIRST / math.sqrt(size), z), 2)
        years = [run.of(bad_week(method, loss), number, size, MEAN) for method in GUARDS]
        shares = [f"{100 * np.mean(one.found == 0):.0f}" for one in years]
        rows.append([guards_of(number, size), f"{loss:.1f}", *shares])
    return table(["guards", "smallest loss seen", *(f"`{method}`" for method in GUARDS)], rows)


def earlier_weeks(run: Simulation) -> Table:
    """Earlier weeks' own tests: false rejections a year, and the share of losses found at once."""
    worlds = (collapse(25.0), collapse(10.0), collapse(3.0, hits_all=True))
    rows = []
    for size in TEST_SIZES:
        for rule in RULES:
            calm = [run.of(World(WEEK, noise, learns=True), 0, size, rule) for noise in NOISES]
            false = " / ".join(f"{one.rejected.mean():.2f}" for one in calm)
            years = [run.of(one, 0, size, rule) for one in worlds]
            found = [f"{100 * np.mean(one.found == 0):.0f}" for one in years]
            rows.append([str(size), rule.name, false, *found])
    columns = ["images", "rule", "false rejections", "one loses 25", "one loses 10", "all lose 3"]
    return table(columns, rows)


def coverage(run: Simulation) -> Table:
    """How often the printed interval has the true loss, by samples: percentiles / few samples."""
    rows = []
    for size in (5, 20, 50, 200):
        cells, widths = [], []
        for name, points in LOST.items():
            rng = np.random.default_rng([run.seed, size, crc32(name.encode())])
            loss_DN, truth = sample_losses(points, size, 4 * run.years, rng)
            ends = [intervals_of(loss_N, rng) for loss_N in loss_DN]
            low_DI, high_DI = np.moveaxis(np.array(ends), -1, 0)
            covered_I = ((low_DI <= truth) & (truth <= high_DI)).mean(0)
            cells.append(" / ".join(f"{100 * one:.0f}" for one in covered_I))
            widths.append(" / ".join(f"{one:.1f}" for one in (high_DI - low_DI).mean(0)))
        rows.append([str(size), *cells, widths[0]])
    return table(["samples", *LOST, f"width, {next(iter(LOST))}"], rows)


def sample_losses(
    points: float, size: int, draws: int, rng: np.random.Generator
) -> tuple[Floats, float]:
    """Losses (draws, size) of samples in a week, and the true loss; nan: 2 of 100 lose all."""
    world = World(GUARDS["ctp"], 0.0)
    tests = Tests(world, (draws, 1, size), rng)
    some = math.isnan(points)
    new = tests.train(np.array([0.0 if some else points]), 1)
    before, after = tests.base_YGN[:, 0], new.score_YGN[:, 0]
    if not some:
        return before - after, points
    of = world.population
    spread = math.hypot(of.spread, of.offset / 2, of.churn)
    level = 2 * WORTH * float(ndtr((CUTOFFS - of.mean) / spread).sum())
    return np.where(rng.random(after.shape) < 0.02, before, before - after), 0.02 * level


def intervals_of(loss_N: Floats, rng: np.random.Generator) -> list[tuple[float, float]]:
    """95 % intervals of the mean: percentiles of resamples, and that of few samples."""
    values, counts = np.unique(loss_N, return_counts=True)
    size = len(loss_N)
    mean_R = rng.multinomial(size, counts / size, RESAMPLES) @ values / size
    low, high = np.percentile(mean_R, (2.5, 97.5))
    mean, margin = float(loss_N.mean()), few_samples_margin(loss_N.astype(np.float64))
    return [(float(low), float(high)), (mean - margin, mean + margin)]


def fit(run: Simulation) -> Table:
    """Figures of the simulation, in the columns of those that `measured` prints of saved ranks."""
    worlds = {
        "`ctp`": World(GUARDS["ctp"], 0.0, (0.9,) * 4),
        "`er`": World(GUARDS["er"], 0.0, (1.2,) * 4),
        "earlier week": World(WEEK, 0.0, (0.0,) * 4),
    }
    rows = []
    for name, world in worlds.items():
        tests = Tests(world, (1, 1, 200_000), np.random.default_rng(run.seed))
        scores = [tests.base_YGN.ravel()]
        for points in world.losses:
            tests.current = tests.train(np.array([points]), 1)
            scores.append(tests.current.score_YGN.ravel())
        rows.append([name, *as_cells(figures_of(np.array(scores)))])
    return table(["of", *FIGURES], rows)


FIGURES = ("start", "sd in a week", "sd in all weeks", "moved in a week, %", "correlation")


def as_cells(figures: Sequence[float]) -> list[str]:
    """Of a row of FIGURES."""
    return [f"{one:.{digits}f}" for one, digits in zip(figures, (1, 1, 1, 0, 2), strict=True)]


def figures_of(scores_MN: Floats) -> list[float]:
    """What the weeks did to samples whose scores (models, N) are those of the start and of weeks.

    The score of the start; the standard deviation of a sample's change in a week, and in all; how
    many samples moved; and how what a sample has changed so far goes with its next change.
    """
    steps = np.diff(scores_MN, axis=0)
    gone = scores_MN[1:-1] - scores_MN[0]
    back = [np.corrcoef(*pair)[0, 1] for pair in zip(gone, steps[1:], strict=True)]
    return [
        float(scores_MN[0].mean()),
        float(steps.std(axis=1).mean()),
        float((scores_MN[-1] - scores_MN[0]).std()),
        100 * float((steps != 0).mean()),
        float(np.mean(back)),
    ]


def measured(ranks: Path, task: str) -> Table:
    """What the weeks of each run did to the samples of `task`: means over its weeks and seeds."""
    import pandas as pd

    of_task = [("task", "==", task), ("gallery", "==", "own")]
    read = pd.read_parquet(ranks, filters=of_task)
    read["score"] = sum((read["rank"] <= cutoff) * (100 / 3) for cutoff in (1, 5, 10))
    of_sample = ["run", "seed", "step", "query"]
    by_side = read.groupby([*of_sample, "direction"], dropna=False)["score"].mean()
    scores = by_side.groupby(of_sample, dropna=False).mean().unstack("query")
    steps = scores.index.get_level_values("step")
    start = scores[steps.isna()].to_numpy()[:1]
    rows = []
    for run, models in scores[steps.notna()].groupby(level="run"):
        found = [
            figures_of(np.vstack([start, weeks.to_numpy()]))
            for _seed, weeks in models.groupby(level="seed")
        ]
        rows.append([f"`{run}`", *as_cells(np.mean(found, axis=0).tolist())])
    return table(["of", *FIGURES], rows)


TABLES: dict[str, Callable[[Simulation], Table]] = {
    "fit": fit,
    "false rejections": false_rejections,
    "second trainings": second_trainings,
    "found at once": found_at_once,
    "deployed": deployed,
    "drift": found_drift,
    "smallest loss seen": smallest_loss,
    "earlier weeks": earlier_weeks,
    "coverage": coverage,
}


def main() -> None:
    """Print the tables, each between marks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--years", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ranks", type=Path, help="of eval-retrieval --save-ranks")
    parser.add_argument("--task", default="00-pairs", help="of the ranks, whose samples are meant")
    given = parser.parse_args()
    if given.ranks is not None:
        print(*measured(given.ranks, given.task), sep="\n")
        return
    for name, make in TABLES.items():
        print(f"<!-- {name} -->", *make(Simulation(given.years, given.seed)), sep="\n")
        print("<!-- end -->\n", flush=True)


if __name__ == "__main__":
    main()

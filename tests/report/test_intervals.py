"""Intervals of drops: they cover the true drop, and an image moves with its captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from vlcpctl.evaluation.rank_files import GalleryRanks, QueryRanks, SavedRanks
from vlcpctl.metrics.accuracy import accuracies, tally
from vlcpctl.metrics.recall import recalls
from vlcpctl.report import intervals as module
from vlcpctl.report.intervals import Pair, intervals

TRIALS = 150
DRAWS = 1500


@pytest.fixture
def has_percentiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals of few samples are percentiles, as those of many are."""
    monkeypatch.setattr(module, "FEWEST_SAMPLES", 0)


def _ends(pairs: Sequence[Pair], key: str = "rm") -> tuple[float, float]:
    found = intervals(pairs)[key]
    return found.low, found.high


def _ranks(
    ways: Mapping[str, tuple[Sequence[int], Sequence[int]]], labels: Sequence[str] | None = None
) -> GalleryRanks:
    """Ranks from, for each direction, the sample of every query and its rank."""
    found = {}
    for way, (samples, rank) in ways.items():
        keys = pa.array([f"{sample:06d}" for sample in samples])
        captions = np.arange(len(keys)) if way == "t2i" else np.full(len(keys), -1)
        classes = None if labels is None else pa.array(labels)
        found[way] = QueryRanks(keys, captions, classes, np.asarray(rank, dtype=np.int64))
    return GalleryRanks(SavedRanks(Path("r"), "", {}), "c", "d", "test", found)


def _retrieval(i2t: Sequence[int], t2i: Sequence[int], captions: int = 1) -> GalleryRanks:
    images = range(len(i2t))
    texts = [image for image in images for _ in range(captions)]
    return _ranks({"i2t": (list(images), i2t), "t2i": (texts, t2i)})


def _naive(one: GalleryRanks, other: GalleryRanks) -> dict[str, tuple[float, float, float]]:
    """The bootstrap as a book has it: draw samples, compute both scores from them, subtract."""
    rng = np.random.default_rng(5)
    samples = sorted({key for way in one.ways.values() for key in way.keys.to_pylist()})
    of = [{way: _by_sample(ranks) for way, ranks in side.ways.items()} for side in (one, other)]
    drops: dict[str, list[float]] = {}
    for _ in range(DRAWS):
        drawn = rng.choice(samples, len(samples)).tolist()
        scores = [_scores(side, drawn) for side in of]
        for key in scores[0]:
            drops.setdefault(key, []).append(scores[0][key] - scores[1][key])
    return {
        key: (*np.percentile(found, (2.5, 97.5)).tolist(), float(np.std(found)))
        for key, found in drops.items()
    }


def _by_sample(ranks: QueryRanks) -> dict[str, list[tuple[int, str]]]:
    """The rank and the class of every query of a sample."""
    labels = [""] * len(ranks.rank) if ranks.labels is None else ranks.labels.to_pylist()
    found: dict[str, list[tuple[int, str]]] = {}
    for key, rank, label in zip(ranks.keys.to_pylist(), ranks.rank.tolist(), labels, strict=True):
        found.setdefault(key, []).append((rank, label))
    return found


def _scores(
    of: dict[str, dict[str, list[tuple[int, str]]]], drawn: Sequence[str]
) -> dict[str, float]:
    queries = {way: [one for key in drawn for one in found[key]] for way, found in of.items()}
    if "i2c" not in queries:
        i2t, t2i = (np.array([rank for rank, _ in queries[way]]) for way in ("i2t", "t2i"))
        return recalls(i2t, t2i)
    rank, label = (list(found) for found in zip(*queries["i2c"], strict=True))
    codes = np.array([int(name.removeprefix("class ")) for name in label])
    return accuracies(tally(np.array(rank), codes, 8))


def _random(rng: np.random.Generator, samples: int, captions: int) -> GalleryRanks:
    hard = rng.integers(1, 12, samples)
    t2i = np.repeat(hard, captions) + rng.integers(0, 4, samples * captions)
    return _retrieval(hard.tolist(), t2i.tolist(), captions)


@pytest.mark.usefixtures("has_percentiles")
@pytest.mark.parametrize("is_retrieval", [True, False])
def test_the_resamples_are_those_of_a_naive_bootstrap_of_samples(is_retrieval: bool) -> None:
    rng = np.random.default_rng(1)
    labels = [f"class {number % 7}" for number in range(60)]
    one, other = (
        _random(rng, 30, 3)
        if is_retrieval
        else _ranks({"i2c": (list(range(60)), rng.integers(1, 9, 60).tolist())}, labels)
        for _ in range(2)
    )
    found, naive = intervals([(one, other)]), _naive(one, other)
    assert found.keys() == naive.keys()
    assert is_retrieval or found.keys() == {"acc1", "acc5", "mean_per_class_recall"}
    for key in naive:
        ends, error = (found[key].low, found[key].high), found[key].error
        np.testing.assert_allclose((*ends, error), naive[key], atol=3.5)


def _hits(rng: np.random.Generator, easy: np.ndarray, chance: float) -> list[int]:
    """Ranks of 1 with this chance, shifted by how easy each sample is; else 20."""
    return np.where(rng.random(len(easy)) < np.clip(chance + easy, 0, 1), 1, 20).tolist()


def test_the_interval_covers_the_true_drop_in_95_percent_of_repetitions() -> None:
    rng = np.random.default_rng(3)
    samples, captions, covered = 100, 8, 0
    for _ in range(TRIALS):
        # The captions of an image are lost together: resampling texts would be far too certain.
        easy = np.zeros(samples)
        lost = np.where(rng.random(samples) < 0.2, 0.5, 0.0)  # 10 points in the mean
        of_texts, lost_texts = np.repeat(easy, captions), np.repeat(lost, captions)
        baseline = _retrieval(_hits(rng, easy, 0.75), _hits(rng, of_texts, 0.75), captions)
        last = _retrieval(
            _hits(rng, easy - lost, 0.75), _hits(rng, of_texts - lost_texts, 0.75), captions
        )
        low, high = _ends([(baseline, last)], "t2i_r1")
        covered += low <= 10 <= high
    # Three standard deviations of a share of 0.95 in so few repetitions.
    assert abs(covered / TRIALS - 0.95) < 3 * (0.95 * 0.05 / TRIALS) ** 0.5


@pytest.mark.parametrize(("samples", "width"), [(5, 55.4), (20, 13.9), (200, 0.0)])
def test_equal_models_have_a_width_if_samples_are_few(samples: int, width: float) -> None:
    """Of 5 samples of which none moved, one that was not drawn may have lost everything."""
    one = _random(np.random.default_rng(4), samples, 2)
    half = pytest.approx(width / 2, abs=0.06)
    for found in intervals([(one, one)]).values():
        assert (-found.low, found.high, found.error, found.samples) == (half, half, 0.0, samples)


def test_what_few_samples_lost_is_in_the_middle_and_widens_the_interval() -> None:
    before, after = [1] * 20, [20] * 4 + [1] * 16  # 4 of 20 lose all
    found = intervals([(_retrieval(before, before), _retrieval(after, after))])["rm"]
    margin = 1.96 * (4 * 80**2 + 16 * 20**2 + 2 * 50**2) ** 0.5 / 20
    assert (found.low, found.high) == pytest.approx((20 - margin, 20 + margin), abs=0.01)


def test_classes_that_count_alike_have_samples_that_do_not() -> None:
    """The mean over classes of 2 and of 18 images: what each of them lost is not the same."""
    labels = ["rare"] * 2 + ["usual"] * 18
    before, after = (
        _ranks({"i2c": (list(range(20)), rank)}, labels) for rank in ([1] * 20, [9] + [1] * 19)
    )
    found = intervals([(before, after)])["mean_per_class_recall"]
    assert (found.low + found.high) / 2 == pytest.approx(25.0)  # half of the rare class
    assert found.high - found.low > 2 * 1.96 * (2 * 50**2) ** 0.5 / 20


@pytest.mark.filterwarnings("error")
def test_a_single_image_of_a_single_class_is_no_warning() -> None:
    one = _ranks({"i2c": ([0], [1])}, ["only"])
    assert intervals([(one, one)]).keys() <= {"acc1", "acc5", "mean_per_class_recall"}


def test_seeds_share_their_resamples() -> None:
    """Two seeds with one outcome are as uncertain as one: the queries are the same."""
    rng = np.random.default_rng(6)
    pair = _random(rng, 30, 2), _random(rng, 30, 2)
    assert intervals([pair, pair]) == intervals([pair])


def test_seeds_with_other_queries_are_resampled_apart() -> None:
    rng = np.random.default_rng(7)
    pairs = [(_random(rng, size, 2), _random(rng, size, 2)) for size in (100, 90)]
    both, first = intervals(pairs)["rm"], intervals(pairs[:1])["rm"]
    assert both.high - both.low < first.high - first.low
    assert both.error < first.error
    assert both.samples == 90

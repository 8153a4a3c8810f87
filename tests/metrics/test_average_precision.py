"""Average precision against its definition, against the authors' code, and laws of all variants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlcpctl.metrics.average_precision import (
    VARIANTS,
    RankedHits,
    ctp,
    eq11,
    mean_average_precisions,
)
from vlcpctl.metrics.recall import CUTOFFS

ARRAYS = np.load(Path(__file__).parent / "data" / "average_precision.npz")
APS = sorted({name.split("/")[1] for name in ARRAYS.files if name.startswith("ap/")})
GALLERIES = sorted({name.split("/")[1] for name in ARRAYS.files if name.startswith("map/")})
LEFT = {
    "hand_ties_first_index_wins": "a tie of all scores, where theirs takes the first: 100",
    "hand_query_class_not_in_gallery": "theirs ends with a KeyError",
}

every_variant = pytest.mark.parametrize("variant", VARIANTS)


@st.composite
def one_list(draw: st.DrawFn, places: int = 12) -> RankedHits:
    """One query's first twelve places, some right answers perhaps further down."""
    hits = draw(st.lists(st.booleans(), min_size=places, max_size=places))
    more, is_inside = draw(st.integers(0, 30)), draw(st.booleans())
    return RankedHits(np.array([hits]), np.array([sum(hits) + more]), np.array([is_inside]))


def ranked_of(*lists: list[int], right: int | None = None, is_inside: bool = False) -> RankedHits:
    hits = np.array(lists, dtype=bool)
    counts = hits.sum(axis=1) if right is None else np.full(len(hits), right)
    return RankedHits(hits, counts, np.full(len(hits), is_inside))


def naive(hits: list[bool], right: int, is_inside: bool, cutoff: int, variant: str) -> float:
    """By definition, one place after another."""
    if variant == "ctp":
        # The ten best with the query among them, of which it is dropped.
        shown = hits[: 9 if is_inside else 10]
        hits = shown[: min(cutoff, right + is_inside)]
    found, total = 0, 0.0
    for place, is_hit in enumerate(hits[:cutoff], start=1):
        if is_hit:
            found += 1
            total += found / place
    divisor = min(right, cutoff) if variant == "min-rn" else found
    return total / divisor if divisor else 0.0


def list_of_the_authors(name: str) -> RankedHits:
    """One entry of the `map` goldens: the query dropped by its id, the rest sorted by score."""
    scores, labels = ARRAYS[f"map/{name}/scores"], ARRAYS[f"map/{name}/gallery_labels"]
    ids = ARRAYS[f"map/{name}/gallery_ids"]
    hits, rights, insides = [], [], []
    for query, label, row in zip(
        ARRAYS[f"map/{name}/query_ids"], ARRAYS[f"map/{name}/query_labels"], scores, strict=True
    ):
        order = [place for place in np.argsort(-row) if ids[place] != query]
        found = (labels[order] == label).tolist()
        hits.append((found + [False] * 10)[:10])
        rights.append(sum(found))
        insides.append(query in ids)
    return RankedHits(np.array(hits), np.array(rights), np.array(insides))


@every_variant
@given(one_list(), st.sampled_from(CUTOFFS))
def test_precisions_are_those_of_the_definition(
    variant: str, ranked: RankedHits, cutoff: int
) -> None:
    wanted = naive(
        ranked.hit_QK[0].tolist(),
        int(ranked.right_Q[0]),
        bool(ranked.is_inside_Q[0]),
        cutoff,
        variant,
    )
    assert VARIANTS[variant](ranked, cutoff)[0] == pytest.approx(wanted, abs=1e-12)


@pytest.mark.golden
@pytest.mark.parametrize("number", APS)
def test_one_list_scores_as_in_the_authors_code(number: str) -> None:
    ids, right = ARRAYS[f"ap/{number}/rank_list"], ARRAYS[f"ap/{number}/pos_set"]
    ranked = ranked_of(np.isin(ids, right).tolist())
    # Their function cuts nothing but the list: eq. 11 on what it is given.
    found = eq11(ranked, int(ARRAYS[f"ap/{number}/topk"]))[0]
    assert found == pytest.approx(float(ARRAYS[f"ap/{number}/value"]), abs=1e-12)


@pytest.mark.golden
@pytest.mark.parametrize("name", [name for name in GALLERIES if name not in LEFT])
def test_a_gallery_scores_as_in_the_authors_code(name: str) -> None:
    found = mean_average_precisions(list_of_the_authors(name), "ctp")
    assert list(found.values()) == pytest.approx(ARRAYS[f"map/{name}/mAP_1_5_10"].tolist())


@pytest.mark.golden
def test_the_lists_that_are_left_out_are_the_ones_with_a_tie_or_an_error() -> None:
    assert set(LEFT) < set(GALLERIES)
    assert np.ptp(ARRAYS["map/hand_ties_first_index_wins/scores"]) == 0
    assert ARRAYS["map/hand_query_class_not_in_gallery/error"] == "KeyError"


@pytest.mark.golden
def test_the_authors_cut_offs_are_what_sets_ctp_apart() -> None:
    small = list_of_the_authors("hand_class_smaller_than_k")
    assert (ctp(small, 5)[0], eq11(small, 5)[0]) == (1.0, 0.75)
    assert mean_average_precisions(list_of_the_authors("hand_query_class_not_in_gallery")) == {
        "map_1": 0.0,
        "map_5": 0.0,
        "map_10": 0.0,
    }


def test_the_authors_count_the_query_in_its_class_and_among_the_ten() -> None:
    second = [0, 1] + [0] * 8
    assert ctp(ranked_of(second, right=1, is_inside=True), 5).tolist() == [0.5]
    assert ctp(ranked_of(second, right=1, is_inside=False), 5).tolist() == [0.0]
    tenth = [0] * 9 + [1]
    assert ctp(ranked_of(tenth, right=20, is_inside=True), 10).tolist() == [0.0]
    assert ctp(ranked_of(tenth, right=20, is_inside=False), 10).tolist() == [0.1]


@every_variant
def test_every_place_right_is_1_and_none_is_0(variant: str) -> None:
    precision = VARIANTS[variant]
    for cutoff in CUTOFFS:
        all_right = ranked_of([1] * 10, right=20, is_inside=True)
        assert precision(all_right, cutoff).tolist() == [1.0]
        assert precision(ranked_of([0] * 10, right=3), cutoff).tolist() == [0.0]
        assert precision(ranked_of([0] * 10, right=0), cutoff).tolist() == [0.0]


@given(one_list())
def test_all_variants_are_the_first_hit_at_1(ranked: RankedHits) -> None:
    first = float(ranked.hit_QK[0, 0])
    assert [of(ranked, 1)[0] for of in VARIANTS.values()] == [first] * len(VARIANTS)

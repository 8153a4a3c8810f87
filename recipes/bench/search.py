"""CPU time of the count behind ranks and hits, against a bare product of queries and gallery.

python recipes/bench/search.py [--queries 4000 --gallery 4000 --width 512 --rounds 7]

Each query has one right answer near it, among rows drawn at random. Growing galleries are those of
the first 1, 2, ... parts of 25 pairs; hits are those of 1,000 classes in ten parts. The product is
torch's, in one thread, of all queries and the whole gallery.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch
from turns import in_turns, show

from vlcpctl.core.console import emit
from vlcpctl.evaluation.search.count import exact_ranks, hits, ranks
from vlcpctl.evaluation.search.galleries import (
    SEPARATE,
    Captioned,
    ClassSearch,
    Embeddings,
    Search,
    gather,
)
from vlcpctl.evaluation.search.vectors import Ids, Vectors

RIVAL = "a bare product"
TOP, PART, CLASSES = 10, 25, 1000


def main() -> None:
    """Print CPU and wall seconds of each search and of the product, and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in (("queries", 4000), ("gallery", 4000), ("width", 512), ("rounds", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    torch.set_num_threads(1)
    draw = np.random.default_rng(0)
    gallery = _unit(draw.standard_normal((args.gallery, args.width)))
    right = np.arange(args.queries) % args.gallery
    for noise in (2.0, 60.0):  # of a good model, and of one without skill
        spread = noise / args.width**0.5 * draw.standard_normal((args.queries, args.width))
        emit(f"{args.queries} queries in {args.gallery} rows of {args.width}, noise {noise:g}")
        contenders = _contenders(_unit(gallery[right] + spread), gallery, right)
        show(in_turns(contenders, rounds=args.rounds), RIVAL)


def _contenders(query: Vectors, gallery: Vectors, right: Ids) -> dict[str, Callable[[], object]]:
    """What is compared: growing galleries and hits only where each row is one query's answer."""
    whole = Search.of(query, gallery, np.stack([np.arange(len(query)), right], axis=1))
    found: dict[str, Callable[[], object]] = {
        RIVAL: lambda: torch.from_numpy(query) @ torch.from_numpy(gallery).T,
        f"ranks up to {TOP}": lambda: ranks(whole, "cpu", TOP),
        "exact ranks and best wrong answers": lambda: exact_ranks(whole, "cpu"),
    }
    if len(query) == len(gallery):
        growing, classes, every = _growing(query, gallery), _classes(query), range(len(query))
        found["growing galleries, ranks"] = lambda: ranks(growing, "cpu", TOP)
        found["growing galleries, exact ranks"] = lambda: exact_ranks(growing, "cpu")
        found[f"hits of {CLASSES} classes"] = lambda: hits(classes, "cpu", TOP, every)
    return found


def _unit(vectors: np.ndarray) -> Vectors:
    unit: Vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit


def _growing(query: Vectors, gallery: Vectors) -> Search:
    """The search for texts in galleries of the first parts of `PART` pairs."""
    names = np.arange(len(query))
    ends = [*range(PART, len(query), PART), len(query)]
    own = [names[max(0, end - PART) : end].tolist() for end in ends]
    pairs = gather(
        [Captioned.of(map(str, one), [[str(row)] for row in one]) for one in own], SEPARATE
    )
    both = pairs.vectors([Embeddings(query[one], gallery[one]) for one in own])
    return pairs.searches(both, both)["i2t"]


def _classes(vectors: Vectors) -> ClassSearch:
    names, ends = (
        np.arange(len(vectors)) % CLASSES,
        np.linspace(0, len(vectors), 11)[1:].astype(int),
    )
    return ClassSearch(vectors, vectors, names, names, np.arange(len(vectors)), ends, ends)


if __name__ == "__main__":
    main()

"""The merged galleries of tasks 0, 0..1, ... of a stream, against the gallery of all tasks alone.

python recipes/bench/galleries.py [--tasks 8 64 256 --images 40 --captions 1 --dimensions 512]

Every task has as many images, so the last gallery grows with the number of tasks. The cost of all
galleries over the cost of the last should not: with a search for each gallery it grows with the
number of tasks (measured too, up to `--most` tasks). Recalls are checked to be the same.
"""

from __future__ import annotations

import argparse

import numpy as np
from turns import in_turns, show

from vlcpctl.core.console import emit
from vlcpctl.evaluation.retrieval.cross_modal import cross_modal, result, search
from vlcpctl.evaluation.retrieval.multi_modal import result as result_of_items
from vlcpctl.evaluation.search.backends import choose
from vlcpctl.evaluation.search.gallery import GATHER_GROWING, Embeddings, lay_out
from vlcpctl.evaluation.search.hits import HitSearch
from vlcpctl.evaluation.search.index import Vectors
from vlcpctl.evaluation.search.items import (
    GATHER_ITEMS,
    FusedFeatures,
    GrowingItems,
    lay_out_items,
)
from vlcpctl.evaluation.search.queries import growing_ways
from vlcpctl.metrics.recall import CUTOFFS

NOISE = 5.0  # of captions against their image, so that recalls are neither 0 nor 100
CLASSES = 4  # of a task
TOP = max(CUTOFFS)


def main() -> None:
    """Measure both protocols at each number of tasks."""
    args = _arguments()
    backend = choose(args.backend, "cpu")
    for tasks in args.tasks:
        _cross_modal(args, tasks, backend)
        _multi_modal(args, tasks, backend)


def _cross_modal(args: argparse.Namespace, tasks: int, backend) -> None:
    growing = GATHER_GROWING["unite"](_pairs(args, tasks))

    def all_galleries() -> list[object]:
        found = search(growing_ways(growing), backend)
        return [result(found, number) for number in range(1, tasks + 1)]

    def each_by_itself() -> list[object]:
        galleries = (growing.first(number) for number in range(1, tasks + 1))
        return [cross_modal(gallery, backend) for gallery in galleries]

    contenders = {
        "all galleries": all_galleries,
        "the last gallery alone": lambda: cross_modal(growing.whole, backend),
    }
    emit("")
    emit(f"{tasks} tasks, {len(growing.whole.image_ID)} images: cross-modal")
    _turns(args, tasks, contenders, each_by_itself)


def _multi_modal(args: argparse.Namespace, tasks: int, backend) -> None:
    parts = _items(args, tasks)
    growing = GATHER_ITEMS["unite"](parts, parts)

    def all_galleries() -> list[object]:
        found = HitSearch.of(growing, backend, TOP)
        return [result_of_items(found, one) for one in range(1, tasks + 1)]

    def alone(parts: int) -> object:
        return result_of_items(HitSearch.of(GrowingItems.of(growing.first(parts)), backend, TOP))

    def each_by_itself() -> list[object]:
        return [alone(one) for one in range(1, tasks + 1)]

    contenders = {
        "all galleries": all_galleries,
        "the last gallery alone": lambda: alone(tasks),
    }
    emit("")
    emit(f"{tasks} tasks, {len(growing.whole.class_G)} pairs: multi-modal")
    _turns(args, tasks, contenders, each_by_itself)


def _turns(args: argparse.Namespace, tasks: int, contenders, each_by_itself) -> None:
    if tasks <= args.most:
        assert contenders["all galleries"]() == each_by_itself()
        contenders["each gallery by itself"] = each_by_itself
    assert contenders["all galleries"]()[-1] == contenders["the last gallery alone"]()
    found = in_turns(contenders, rounds=args.rounds, warm_up=0)
    show(found, "the last gallery alone")


def _pairs(args: argparse.Namespace, tasks: int) -> list[Embeddings]:
    random = np.random.default_rng(0)
    found = []
    for task in range(tasks):
        images = random.standard_normal((args.images, args.dimensions), dtype=np.float32)
        near = np.repeat(images, args.captions, axis=0)
        texts = near + NOISE * random.standard_normal(near.shape, dtype=np.float32)
        names = [f"{task} {number}" for number in range(args.images)]
        captions = [[f"{name} {one}" for one in range(args.captions)] for name in names]
        found.append(Embeddings(lay_out(names, captions), _unit(images), _unit(texts)))
    return found


def _items(args: argparse.Namespace, tasks: int) -> list[FusedFeatures]:
    random = np.random.default_rng(0)
    found = []
    for task in range(tasks):
        centres = random.standard_normal((CLASSES, args.dimensions))
        class_N = random.integers(0, CLASSES, args.images)
        vectors = centres[class_N] + NOISE * random.standard_normal((args.images, args.dimensions))
        names = [f"{task} {number}" for number in range(args.images)]
        items = lay_out_items(names, names, [f"{task} {one}" for one in class_N.tolist()])
        found.append(FusedFeatures(items, _unit(vectors.astype(np.float32))))
    return found


def _unit(vectors: np.ndarray) -> Vectors:
    unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, nargs="+", default=[8, 64, 256])
    parser.add_argument("--images", type=int, default=40, help="of each task")
    parser.add_argument("--captions", type=int, default=1)
    parser.add_argument("--dimensions", type=int, default=512)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--most", type=int, default=8, help="tasks searched gallery by gallery")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""The merged galleries of tasks 0, 0..1, ... of a stream, against the gallery of all tasks alone.

python recipes/bench/galleries.py [--tasks 8 64 256 --images 40 --captions 1 --dimensions 512]

Every task has as many images, so the last gallery grows with the number of tasks. The cost of all
galleries over the cost of the last should not: with a search for each gallery it grows with the
number of tasks (measured too, up to `--most` tasks). Recalls are checked to be the same.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from turns import in_turns, show

from vlcpctl.core.console import emit
from vlcpctl.evaluation.retrieval.cross_modal import Found
from vlcpctl.evaluation.retrieval.multi_modal import measured
from vlcpctl.evaluation.search.count import hits, ranks
from vlcpctl.evaluation.search.galleries import (
    Captioned,
    Classified,
    Distinct,
    Embeddings,
    gather,
    gather_classes,
    ids,
)
from vlcpctl.evaluation.search.vectors import Vectors
from vlcpctl.metrics.recall import CUTOFFS

NOISE = 5.0  # of captions against their image, so that recalls are neither 0 nor 100
CLASSES = 4  # of a task
TOP = max(CUTOFFS)


def main() -> None:
    """Measure both protocols at each number of tasks."""
    args = _arguments()
    for tasks in args.tasks:
        _cross_modal(args, tasks)
        _multi_modal(args, tasks)


def _cross_modal(args: argparse.Namespace, tasks: int) -> None:
    parts = _pairs(args, tasks)

    def galleries(some: int) -> list[object]:
        gallery = gather([part for part, _ in parts[:some]], "unite")
        vectors = gallery.vectors([one for _, one in parts[:some]])
        searches = gallery.searches(vectors, vectors)
        found = Found(searches, {way: ranks(one, "cpu", TOP) for way, one in searches.items()})
        return [found.measured(number) for number in range(1, some + 1)]

    def alone(some: int) -> object:
        gallery = gather([part for part, _ in parts[:some]], "unite")
        vectors = gallery.vectors([one for _, one in parts[:some]])
        searches = gallery.in_one_part().searches(vectors, vectors)
        arrays = {way: ranks(one, "cpu", TOP) for way, one in searches.items()}
        return Found(searches, arrays).measured()

    emit("")
    emit(f"{tasks} tasks, {tasks * args.images} images: cross-modal")
    _turns(args, tasks, galleries, alone)


def _multi_modal(args: argparse.Namespace, tasks: int) -> None:
    parts = _items(args, tasks)
    whole = gather_classes(parts, parts, "unite")

    def galleries(some: int) -> list[object]:
        found = hits(whole, "cpu", TOP, range(len(whole.class_Q)))
        return [measured(whole, found, number) for number in range(1, some + 1)]

    def alone(some: int) -> object:
        own = gather_classes(parts[:some], parts[:some], "unite")
        empty = ids([])
        one = replace(own, query_ends=empty, ends_M=empty)  # one part
        return measured(one, hits(one, "cpu", TOP, range(len(one.class_Q))))

    emit("")
    emit(f"{tasks} tasks, {len(whole.class_G)} pairs: multi-modal")
    _turns(args, tasks, galleries, alone)


def _turns(args: argparse.Namespace, tasks: int, galleries, alone) -> None:
    contenders = {
        "all galleries": lambda: galleries(tasks),
        "the last gallery alone": lambda: alone(tasks),
    }
    if tasks <= args.most:
        each = "each gallery by itself"
        contenders[each] = lambda: [alone(one) for one in range(1, tasks + 1)]
        assert galleries(tasks) == contenders[each]()
    assert galleries(tasks)[-1] == alone(tasks)
    found = in_turns(contenders, rounds=args.rounds, warm_up=0)
    show(found, "the last gallery alone")


def _pairs(args: argparse.Namespace, tasks: int) -> list[tuple[Captioned, Embeddings]]:
    random = np.random.default_rng(0)
    found = []
    for task in range(tasks):
        images = random.standard_normal((args.images, args.dimensions), dtype=np.float32)
        near = np.repeat(images, args.captions, axis=0)
        texts = near + NOISE * random.standard_normal(near.shape, dtype=np.float32)
        names = [f"{task} {number}" for number in range(args.images)]
        captions = [[f"{name} {one}" for one in range(args.captions)] for name in names]
        part = Captioned.of(names, captions)
        found.append((part, Embeddings(_unit(images), _unit(texts))))
    return found


def _items(args: argparse.Namespace, tasks: int) -> list[tuple[Classified, Vectors]]:
    random = np.random.default_rng(0)
    found = []
    for task in range(tasks):
        centres = random.standard_normal((CLASSES, args.dimensions))
        class_N = random.integers(0, CLASSES, args.images)
        vectors = centres[class_N] + NOISE * random.standard_normal((args.images, args.dimensions))
        names = [f"{task} {number}" for number in range(args.images)]
        classes = [f"{task} {one}" for one in class_N.tolist()]
        found.append((Classified(Distinct.of(names), classes), _unit(vectors.astype(np.float32))))
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
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--most", type=int, default=8, help="tasks searched gallery by gallery")
    return parser.parse_args()


if __name__ == "__main__":
    main()

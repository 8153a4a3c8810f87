"""Time and memory of our retrieval against bare FAISS, a full matrix with topk, and a full sort.

python recipes/bench/retrieval.py [--images 5000 --captions 5 --dimensions 512 --rounds 5]

Times are taken in turns, with one thread. The rival is bare FAISS: two searches of an IndexFlatIP
for the ten best, and recalls from them. Memory is what a process of its own gains at its peak. All
are given the same embeddings, and their recalls differ by ties alone: the others break them by
chance.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import faiss
import numpy as np
import torch
from turns import in_turns, show

from vlcpctl.core.console import emit
from vlcpctl.evaluation.retrieval.cross_modal import cross_modal
from vlcpctl.evaluation.search.backends import choose
from vlcpctl.evaluation.search.gallery import Gallery
from vlcpctl.evaluation.search.index import Vectors
from vlcpctl.metrics.recall import recalls

NOISE = 5.0  # of captions against their image, so that recalls are neither 0 nor 100
TOP = 10


def main() -> None:
    """Print the recalls and memory of every contender, then the times in turns."""
    args = _arguments()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    if args.only:
        emit(json.dumps(measure(CONTENDERS[args.only], _gallery(args))))
        return
    names = [name for name in CONTENDERS if args.all or name not in SLOW]
    found = {name: _in_own_process(name) for name in names}
    for name, row in found.items():
        emit(f"{name:22} {row['peak_mb']:8.0f} MB   rm {row['rm']:.4f}")
    recalls_found = [row["rm"] for row in found.values()]
    assert max(recalls_found) - min(recalls_found) < 0.02, recalls_found
    gallery = _gallery(args)
    contenders = {name: partial(CONTENDERS[name], gallery) for name in names}
    show(in_turns(contenders, rounds=args.rounds), BARE)


def measure(search: Callable[[Gallery], float], gallery: Gallery) -> dict[str, float]:
    """The gain of resident memory at its peak, and the mean recall."""
    search(_head(gallery, 50))  # imports and first calls
    watch = PeakMemory()
    rm = search(gallery)
    return {"peak_mb": watch.stop() / 2**20, "rm": rm}


class PeakMemory:
    """Samples resident memory, since the kernel's own high-water mark cannot be set back."""

    def __init__(self) -> None:
        self.before = self.peak = _resident()
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()

    def stop(self) -> int:
        """Bytes gained at the peak."""
        self.is_over.set()
        self.thread.join()
        return self.peak - self.before

    def _watch(self) -> None:
        while not self.is_over.wait(0.002):
            self.peak = max(self.peak, _resident())


def with_vlcpctl(backend: str) -> Callable[[Gallery], float]:
    """Our evaluation, both directions, tie rule included."""
    return lambda gallery: cross_modal(gallery, choose(backend, "cpu")).metrics["rm"]


def with_bare_faiss(gallery: Gallery) -> float:
    """What one would write with FAISS: an index, its ten best, and recalls of them."""
    images, texts, image_of = gallery.image_ID, gallery.text_TD, gallery.pairs_P2[:, 0]
    found = []
    for queries, entries in ((images, texts), (texts, images)):
        index = faiss.IndexFlatIP(entries.shape[1])
        index.add(entries)
        found.append(index.search(queries, TOP)[1])
    hits_i2t = image_of[found[0]] == np.arange(len(images))[:, None]
    hits_t2i = found[1] == image_of[:, None]
    return recalls(_first_hit(hits_i2t), _first_hit(hits_t2i))["rm"]


def with_topk(gallery: Gallery) -> float:
    """The usual short way: one matrix, topk along both of its sides."""
    images, texts = torch.from_numpy(gallery.image_ID), torch.from_numpy(gallery.text_TD)
    scores = images @ texts.T
    image_of = torch.from_numpy(gallery.pairs_P2[:, 0])
    hits_i2t = image_of[scores.topk(TOP, dim=1).indices] == torch.arange(len(images))[:, None]
    hits_t2i = scores.T.topk(TOP, dim=1).indices == image_of[:, None]
    return recalls(_first_hit(hits_i2t.numpy()), _first_hit(hits_t2i.numpy()))["rm"]


def with_full_sort(gallery: Gallery) -> float:
    """As open_clip evaluates during training: the whole matrix sorted, then the place looked up."""
    images, texts = torch.from_numpy(gallery.image_ID), torch.from_numpy(gallery.text_TD)
    scores = images @ texts.T
    image_of = torch.from_numpy(gallery.pairs_P2[:, 0])
    place_i2t = (
        image_of[torch.argsort(scores, descending=True)] == torch.arange(len(images))[:, None]
    )
    place_t2i = torch.argsort(scores.T, descending=True) == image_of[:, None]
    return recalls(_first_hit(place_i2t.numpy()), _first_hit(place_t2i.numpy()))["rm"]


BARE = "bare FAISS"
SLOW = ("full sort",)
CONTENDERS: dict[str, Callable[[Gallery], float]] = {
    BARE: with_bare_faiss,
    "vlcpctl (faiss)": with_vlcpctl("faiss"),
    "vlcpctl (torch)": with_vlcpctl("torch"),
    "torch matrix + topk": with_topk,
    "full sort": with_full_sort,
}


def _first_hit(is_hit: np.ndarray) -> np.ndarray:
    return np.where(is_hit.any(axis=1), 1 + is_hit.argmax(axis=1), TOP + 1)


def _gallery(args: argparse.Namespace) -> Gallery:
    random = np.random.default_rng(0)
    images = random.standard_normal((args.images, args.dimensions), dtype=np.float32)
    image_of = np.repeat(np.arange(args.images), args.captions)
    noise = random.standard_normal((len(image_of), args.dimensions), dtype=np.float32)
    pairs = np.stack([image_of, np.arange(len(image_of))], axis=1)
    return Gallery(_unit(images), _unit(images[image_of] + NOISE * noise), pairs)


def _unit(vectors: Vectors) -> Vectors:
    unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def _head(gallery: Gallery, images: int) -> Gallery:
    pairs = gallery.pairs_P2[gallery.pairs_P2[:, 0] < images]
    return Gallery(gallery.image_ID[:images], gallery.text_TD[: len(pairs)], pairs)


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def _in_own_process(name: str) -> dict[str, float]:
    line = [sys.executable, __file__, *sys.argv[1:], "--only", name]
    row: dict[str, float] = json.loads(subprocess.run(line, check=True, capture_output=True).stdout)
    return row


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--captions", type=int, default=5)
    parser.add_argument("--dimensions", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--all", action="store_true", help="the full sort, too, which is slow")
    parser.add_argument("--only", choices=CONTENDERS, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()

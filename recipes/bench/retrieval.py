"""Time and memory of our retrieval against bare FAISS, a full matrix with topk, and a full sort.

python recipes/bench/retrieval.py [--images 5000 --captions 5 --dimensions 512 --rounds 5]
python recipes/bench/retrieval.py --device cuda --images 200000 [--rounds 3]

Embeddings are mapped from files, as those of shards are. Times are taken in turns, with one thread.
The rival is bare FAISS: two searches of an IndexFlatIP for the ten best, and recalls from them;
with --device cuda the index is on the first GPU, for which faiss-gpu must be installed, and what
holds a whole matrix is left out. Memory is the anonymous memory that a process of its own gains at
its peak, and with cuda what the GPU gains. All are given the same embeddings, and their recalls
differ by ties alone: the others break them by chance. Ranks of bare FAISS that are not among those
of our ties are counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import faiss
import numpy as np
import torch
from turns import in_turns, show

from vlcpctl.core.console import emit
from vlcpctl.evaluation.retrieval.cross_modal import Found, cross_modal
from vlcpctl.evaluation.search.count import exact_ranks, ranks
from vlcpctl.evaluation.search.galleries import Embeddings, Search
from vlcpctl.evaluation.search.galleries import Gallery as Entries
from vlcpctl.evaluation.search.vectors import Vectors
from vlcpctl.metrics.recall import recalls

NOISE = 5.0  # of captions against their image, so that recalls are neither 0 nor 100
TOP = 10
ROWS = 4096  # made at once
CUDA = "cuda:0"


class Gallery(NamedTuple):
    """Images (I, D), texts (T, D), and the rows of those that match."""

    image_ID: Vectors
    text_TD: Vectors
    pairs_P2: np.ndarray


Contender = Callable[[Gallery], float]


def main() -> None:
    """Print the recalls and memory of every contender, ranks that differ, and times in turns."""
    args = _arguments()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    contenders = contenders_on(args.device, with_all=args.all, queries=args.queries)
    if args.only:
        emit(json.dumps(measure(contenders[args.only], _gallery(args), args.device)))
        return
    if args.device == CUDA and not hasattr(faiss, "StandardGpuResources"):
        sys.exit("retrieval.py: --device cuda needs faiss-gpu, and FAISS here has no GPU support")
    found = {name: _in_own_process(name) for name in contenders}
    for name, row in found.items():
        emit(f"{name:24} {row['peak_mb']:8.0f} MB   rm {row['rm']:.4f}")
    recalls_found = [row["rm"] for row in found.values()]
    assert max(recalls_found) - min(recalls_found) < 0.02, recalls_found
    gallery = _gallery(args)
    say_ranks(gallery, args.device)
    in_place = {name: partial(contender, gallery) for name, contender in contenders.items()}
    show(in_turns(in_place, rounds=args.rounds), BARE)


def say_ranks(gallery: Gallery, device: str) -> None:
    """Print how many ranks of bare FAISS are neither ours nor between those of our ties."""
    ours = both_ways(gallery)
    for (way, search), bare in zip(ours.items(), bare_ranks(gallery, device), strict=True):
        worst, best = (1 + one[0].astype(int) for one in ranks(search, device, TOP))
        other = int(np.sum((bare < best) | (bare > worst)))
        tied = int(np.sum(best != worst))
        emit(f"{way}: {other} of {len(bare)} ranks of {BARE} differ from ours; {tied} are ties")


def both_ways(gallery: Gallery) -> dict[str, Search]:
    """The searches of both directions."""
    entries = Entries.of(gallery.pairs_P2, (len(gallery.image_ID), len(gallery.text_TD)))
    return entries.searches(*[Embeddings(gallery.image_ID, gallery.text_TD)] * 2)


def measure(search_all: Contender, gallery: Gallery, device: str) -> dict[str, float]:
    """The gain of memory at its peak, and the mean recall."""
    search_all(_head(gallery, 50))  # imports and first calls
    watch = PeakMemory(_anonymous if device == "cpu" else _in_use_on_gpu)
    rm = search_all(gallery)
    return {"peak_mb": watch.stop() / 2**20, "rm": rm}


class PeakMemory:
    """Samples memory, since the kernel's own high-water mark cannot be set back."""

    def __init__(self, in_use: Callable[[], int]) -> None:
        self.in_use = in_use
        self.before = self.peak = in_use()
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
            self.peak = max(self.peak, self.in_use())


def with_vlcpctl(device: str) -> Contender:
    """Our evaluation, both directions, tie rule included."""
    return lambda gallery: cross_modal(*gallery, device)["metrics"]["rm"]


def with_exact_ranks(device: str, queries: int | None) -> Contender:
    """What --save-ranks needs: exact ranks and best wrong answers, of all queries or the first."""

    def search_all(gallery: Gallery) -> float:
        ways = both_ways(gallery)
        if queries is not None:
            ways = {
                way: one.of_rows(np.arange(min(queries, len(one)))) for way, one in ways.items()
            }
        found = Found(ways, {way: exact_ranks(one, device) for way, one in ways.items()})
        return found.measured()["metrics"]["rm"]

    return search_all


def with_bare_faiss(device: str) -> Contender:
    """What one would write with FAISS: an index, its ten best, and recalls of them."""
    return lambda gallery: recalls(*bare_ranks(gallery, device))["rm"]


def bare_ranks(gallery: Gallery, device: str) -> tuple[np.ndarray, np.ndarray]:
    """The ranks of images and of texts by bare FAISS, up to TOP + 1."""
    images, texts, image_of = gallery.image_ID, gallery.text_TD, gallery.pairs_P2[:, 0]
    found = []
    for queries, entries in ((images, texts), (texts, images)):
        index = faiss.IndexFlatIP(entries.shape[1])
        if device != "cpu":
            resources = faiss.StandardGpuResources()
            index = faiss.index_cpu_to_gpu(resources, 0, index)
        index.add(entries)
        found.append(index.search(queries, TOP)[1])
    hits_i2t = image_of[found[0]] == np.arange(len(images))[:, None]
    hits_t2i = found[1] == image_of[:, None]
    return _first_hit(hits_i2t), _first_hit(hits_t2i)


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
EXACT = "vlcpctl (exact ranks)"


def contenders_on(
    device: str, *, with_all: bool = False, queries: int | None = None
) -> dict[str, Contender]:
    """The contenders on a device, by name; the slowest only `with_all`.

    Exact ranks are of the first `queries` of each direction (None: of all).
    """
    found = {
        BARE: with_bare_faiss(device),
        "vlcpctl": with_vlcpctl(device),
        EXACT: with_exact_ranks(device, queries),
    }
    if device == "cpu":
        found["torch matrix + topk"] = with_topk
    if with_all:
        found["full sort"] = with_full_sort
    return found


def _first_hit(is_hit: np.ndarray) -> np.ndarray:
    return np.where(is_hit.any(axis=1), 1 + is_hit.argmax(axis=1), TOP + 1)


def _gallery(args: argparse.Namespace) -> Gallery:
    random = np.random.default_rng(0)
    width, count = args.dimensions, args.images * args.captions
    image_of = np.repeat(np.arange(args.images), args.captions)
    images, texts = _mapped(args.images, width), _mapped(count, width)
    for rows in _blocks(args.images):
        images[rows] = random.standard_normal((rows.stop - rows.start, width), dtype=np.float32)
    for rows in _blocks(count):
        noise = random.standard_normal((rows.stop - rows.start, width), dtype=np.float32)
        texts[rows] = _unit(images[image_of[rows]] + NOISE * noise)
    for rows in _blocks(args.images):
        images[rows] = _unit(images[rows])
    return Gallery(images, texts, np.stack([image_of, np.arange(count)], axis=1))


def _mapped(rows: int, width: int) -> Vectors:
    """(rows, width) of a new file without a name."""
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, np.float32, "w+", shape=(rows, width))


def _blocks(rows: int) -> list[slice]:
    return [slice(start, min(start + ROWS, rows)) for start in range(0, rows, ROWS)]


def _unit(vectors: Vectors) -> Vectors:
    unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def _head(gallery: Gallery, images: int) -> Gallery:
    pairs = gallery.pairs_P2[gallery.pairs_P2[:, 0] < images]
    return Gallery(gallery.image_ID[:images], gallery.text_TD[: len(pairs)], pairs)


def _anonymous() -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def _in_use_on_gpu() -> int:
    free, total = torch.cuda.mem_get_info(CUDA)
    return total - free


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
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--all", action="store_true", help="the full sort, too, which is slow")
    parser.add_argument("--queries", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.device = CUDA if args.device == "cuda" else "cpu"
    return args


if __name__ == "__main__":
    main()

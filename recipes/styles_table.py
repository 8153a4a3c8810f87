"""The cells and the table of Emoji by style, from the rows that recipes/styles.sh has made.

    python recipes/styles_table.py DIR -o cells.tsv [--before CELLS.tsv]    prints Markdown

DIR is the recipe's directory. cells.tsv has a line for each row of the board and seed; those of
--before that DIR lacks are kept, so that a board can be measured in several evenings. `rm` is that
of the last model on the merged gallery of the unseen style; `names`, `seen` and `far` are that of
the unseen names, of pictures that were trained on and of the far style; `learned` and `final` are
the mean over tasks of rm on each task's own gallery, just learned and at the end. The pixel floor,
a nearest neighbour without learning, is computed here.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

GALLERIES = {"rm": "test", "names": "query", "seen": "gallery", "far": "val"}
COLUMNS = ("row", "seed", *GALLERIES, "learned", "final")
TITLES = {
    "rm": "unseen style",
    "names": "unseen names",
    "seen": "seen pictures",
    "far": "far style",
}
SIDE = 16  # pixels of a side of what the nearest neighbour compares

Cells = dict[tuple[str, int], dict[str, float]]


def read_rows(directory: Path) -> Iterator[dict[str, Any]]:
    """The evaluation rows of the board."""
    for path in sorted(directory.glob("board-runs/seed*/*.ndjson")):
        for line in path.read_text().splitlines():
            yield json.loads(line)


def cells_of(rows: Iterable[Mapping[str, Any]]) -> tuple[Cells, dict[str, int]]:
    """The cells by row of the board and seed, and the number of images of each merged gallery."""
    own: dict[tuple[str, int], dict[tuple[int, int], float]] = {}
    cells: Cells = {}
    sizes = {}
    names = {split: name for name, split in GALLERIES.items()}
    for row in rows:
        key = row["run"].partition(" alpha=")[0], row["seed"]  # the share of an average
        score = row["metrics"]["rm"]
        if row["gallery"] == "own" and row["split"] == "test":
            own.setdefault(key, {})[row["step"], row["task_step"]] = score
        elif row["gallery"] == "merged" and row["task_step"] == max(3, row["step"]):
            cells.setdefault(key, {})[names[row["split"]]] = score
            sizes[names[row["split"]]] = row["n_images"]
    for key, matrix in own.items():
        last = max(step for step, _ in matrix)
        cells[key]["final"] = mean(score for (step, _), score in matrix.items() if step == last)
        learned = [matrix[step, step] for step in range(last + 1) if (step, step) in matrix]
        if last and len(learned) == last + 1:
            cells[key]["learned"] = mean(learned)
    return cells, sizes


def read_cells(path: Path) -> Cells:
    """Cells that were written before."""
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (line.pop("row"), int(line.pop("seed"))): {
                name: float(value) for name, value in line.items() if value
            }
            for line in csv.DictReader(file, delimiter="\t")
        }


def write_cells(path: Path, cells: Cells) -> None:
    """Write the cells, rows in the order of their mean, the best first."""
    lines = ["\t".join(COLUMNS)]
    for row in order_of(cells):
        for (name, seed), found in sorted(cells.items()):
            if name == row:
                values = (f"{found[one]:.4f}" if one in found else "" for one in COLUMNS[2:])
                lines.append("\t".join([row, str(seed), *values]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def order_of(cells: Cells) -> list[str]:
    """The rows of the board, the best mean on the unseen style first."""
    names = dict.fromkeys(name for name, _ in cells)
    return sorted(names, key=lambda name: -mean(_values(cells, name, "rm")))


def _values(cells: Cells, row: str, column: str) -> list[float]:
    return [
        found[column]
        for (name, _), found in sorted(cells.items())
        if name == row and column in found
    ]


def chance(images: int) -> float:
    """rm, in percent, of a model that guesses: mean of R@1, 5 and 10 with one right answer.

    >>> round(chance(1325), 2)
    0.4
    """
    return 100 * mean(min(1.0, rank / images) for rank in (1, 5, 10))


def table(cells: Cells, sizes: Mapping[str, int]) -> Iterator[str]:
    """Lines of Markdown: a line for each row; scores on other galleries as times chance."""
    heads = [f"{TITLES[name]}, x chance" for name in GALLERIES if name != "rm"]
    yield (
        "| row | unseen style | of each seed | x chance | "
        + " | ".join([*heads, "own, just learned", "own, last model"])
        + " |"
    )
    yield "|---" * (len(heads) + 6) + "|"
    for row in order_of(cells):
        scores = _values(cells, row, "rm")
        parts = [
            f"`{row}`",
            with_deviation(scores),
            ", ".join(f"{one:.2f}" for one in scores),
            *(times(_values(cells, row, name), sizes[name]) for name in GALLERIES),
            *(with_deviation(_values(cells, row, name)) for name in ("learned", "final")),
        ]
        yield f"| {' | '.join(parts)} |"


def times(scores: Sequence[float], images: int) -> str:
    """The mean as a multiple of chance."""
    return f"{mean(scores) / chance(images):.1f}" if scores else "-"


def with_deviation(scores: Sequence[float]) -> str:
    """The mean and, of several seeds, the standard deviation."""
    if not scores:
        return "-"
    return f"{mean(scores):.2f}" + (f" ({stdev(scores):.2f})" if len(scores) > 1 else "")


def pixel_floor(pairs: Path) -> float:
    """Image-to-text rm of the nearest training picture in pixels, on the unseen style."""
    found = pq.read_table(pairs, columns=["image", "captions", "split"]).to_pylist()
    train = [one for one in found if one["split"] == "train"]
    test = [one for one in found if one["split"] == "test"]
    similar = vectors(test) @ vectors(train).T
    names = sorted({one["captions"][0] for one in test})
    place = {name: number for number, name in enumerate(names)}
    best = np.full((len(test), len(names)), -np.inf, np.float32)  # over the pictures of each name
    for column, one in enumerate(train):
        if one["captions"][0] in place:
            at = place[one["captions"][0]]
            best[:, at] = np.maximum(best[:, at], similar[:, column])
    right = np.array([best[row, place[one["captions"][0]]] for row, one in enumerate(test)])
    ranks = 1 + (best > right[:, None]).sum(1)
    return 100 * float(np.mean([(ranks <= rank).mean() for rank in (1, 5, 10)]))


def vectors(pairs: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """(N, SIDE * SIDE * 3) float32: small pictures with mean 0 and length 1."""
    images = [
        np.asarray(Image.open(io.BytesIO(one["image"])).convert("RGB").resize((SIDE, SIDE)))
        for one in pairs
    ]
    flat = np.stack(images).reshape(len(images), -1).astype(np.float32)
    flat -= flat.mean(1, keepdims=True)
    return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-6)


def main() -> None:
    """Write the cells and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("-o", "--out", required=True, type=Path)
    parser.add_argument("--before", type=Path, help="cells that were measured before")
    given = parser.parse_args()
    cells, sizes = cells_of(read_rows(given.directory))
    if not cells:
        sys.exit(f"styles_table.py: {given.directory} has no rows of the board")
    if given.before is not None:
        cells = read_cells(given.before) | cells
    write_cells(given.out, cells)
    print("\n".join(table(cells, sizes)))
    floor = pixel_floor(given.directory / "board.parquet")
    galleries = ", ".join(
        f"{TITLES[name]} {size} ({chance(size):.2f})" for name, size in sizes.items()
    )
    print(f"\nImages of the galleries, and chance: {galleries}.")
    print(f"Nearest neighbour in pixels, image to text, unseen style: {floor:.1f}.")


if __name__ == "__main__":
    main()

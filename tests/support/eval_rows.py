"""Evaluation rows made from small matrices, as an evaluator would write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vlcpctl.files.rows import SCHEMA, Row, read_rows

NAMES = ("00-smileys", "01-people", "02-animals", "03-food")
# Three steps: the first task loses 20, the second gains 2.
OWN = ((60.0,), (50.0, 40.0), (40.0, 42.0, 30.0))
# Model t on tasks 0..i together; the last row is complete, as bwt_ctp needs.
MERGED = ((60.0,), (None, 44.0), (45.0, 40.0, 35.0))


def row(**fields: Any) -> dict[str, Any]:
    """One row as JSON, with the fields that a test does not care for."""
    step, task = fields.get("step", 0), fields.get("task_step", 0)
    name = fields.get("task") or (NAMES[task] if task is not None else "coco")
    seed = fields.get("seed", 0)  # another seed is another checkpoint
    return {
        "schema": SCHEMA,
        "run": "ctp",
        "method": "ctp",
        "seed": 0,
        "buffer": None,
        "step": step,
        "task_step": task,
        "stream": "s",
        "evaluator": "retrieval",
        "protocol": "cross-modal",
        "gallery": "own",
        "task": name,
        "tasks": [],
        "split": "test",
        "data": "data of " + "+".join(fields.get("tasks") or [name]),
        "options": {},
        "metrics": {"rm": 50.0},
        "checkpoint": f"c{step}-{seed}" if seed else f"c{step}",
    } | fields


def own_rows(matrix: Sequence[Sequence[float | None]] = OWN, **fields: Any) -> list[dict[str, Any]]:
    """Rows of each task alone; None leaves a row out."""
    return [
        row(step=step, task_step=task, metrics={"rm": value, "t2i_r1": value / 2}, **fields)
        for step, line in enumerate(matrix)
        for task, value in enumerate(line)
        if value is not None
    ]


def merged_rows(
    matrix: Sequence[Sequence[float | None]] = MERGED, **fields: Any
) -> list[dict[str, Any]]:
    """Rows of tasks 0..i together."""
    return [
        row(
            step=step,
            task_step=task,
            gallery="merged",
            task="merged",
            tasks=list(NAMES[: task + 1]),
            metrics={"rm": value, "t2i_r1": value / 2},
            **fields,
        )
        for step, line in enumerate(matrix)
        for task, value in enumerate(line)
        if value is not None
    ]


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> str:
    """The rows as a file."""
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    return str(path)


def rows_in(path: Path) -> list[dict[str, Any]]:
    """The rows of a file as they were written."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_back(path: Path, rows: Iterable[dict[str, Any]]) -> list[Row]:
    """The rows after a trip through a file."""
    return read_rows([write_rows(path, rows)])


def current(rows: Iterable[dict[str, Any]], **fields: Any) -> list[dict[str, Any]]:
    """The rows with options, settings and counts, as an evaluator writes them."""
    found = []
    for one in rows:
        said = {
            "limit": None,
            "options": {"duplicates": "unite"},
            "config": {"id": f"config {one['step']}", "values": {"lr": 0.1}},
            "start": None,
            "parent": None,
            "n_images": 50,
        }
        found.append(one | said | fields)
    return found


def outside_rows(
    scores: Sequence[float], name: str = "coco", **fields: Any
) -> list[dict[str, Any]]:
    """Rows of a run that starts from S, after every step on data outside its stream."""
    return [
        one
        for step, score in enumerate(scores)
        for one in current(
            [row(task=name, task_step=None, step=step, metrics={"rm": score}, **fields)], start="S"
        )
    ]


def start_rows(scores: Mapping[str, float], **fields: Any) -> list[dict[str, Any]]:
    """Rows of the imported model S, evaluated alone: it knows nothing of a stream."""
    about = {"run": "production", "method": "imported", "checkpoint": "S", "step": None, **fields}
    return [
        one | about | {"config": None}
        for name, score in scores.items()
        for one in current([row(task=name, task_step=None, metrics={"rm": score})])
    ]

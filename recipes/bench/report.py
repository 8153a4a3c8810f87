"""What `forgetting-report` costs, by tasks and by rows, beside pandas' load of the same rows.

python recipes/bench/report.py [--tasks 8,64,256 --rows 38000 --run-tasks 64 --rounds 5
    --python python]

Each stream has a full lower-triangular matrix on own and on merged galleries: at 256 tasks, 65,792
rows of nine metrics. The growth between two sizes is the exponent of the number of tasks; cells,
and so rows, grow with its square, and the names of tasks in merged rows with its cube. pandas only
loads the rows (`read_json(lines=True)`); it computes nothing. It is left out if it is missing, and
--python names an interpreter that has it.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from turns import Seconds, in_turns, machine, ratios

from vlcpctl.core.console import emit
from vlcpctl.files.ids import content_id
from vlcpctl.files.rows import SCHEMA

METRICS = ("i2t_r1", "i2t_r5", "i2t_r10", "i2t_rmean", "t2i_r1", "t2i_r5", "t2i_r10", "t2i_rmean")
STREAM = content_id("stream")
LOAD = "import sys, pandas; pandas.read_json(sys.argv[1], lines=True)"
SETTINGS = {"model": "ViT-B-32", "lr": 1e-5, "betas": [0.9, 0.98], "steps": 1000, "epochs": None}


def main() -> None:
    """Print CPU and wall seconds of each size, the ratio to pandas, and the exponents."""
    args = _arguments()
    has_pandas = not subprocess.run(
        [args.python, "-c", "import pandas"], capture_output=True, check=False
    ).returncode
    emit(machine())
    if not has_pandas:
        emit(f"without the rival: {args.python} has no pandas")
    heads = ("rows", "MB", "CPU s", "least", "wall s", "pandas", "ratio")
    emit(f"{'':22}{''.join(f'{head:>8}' for head in heads)}")
    rival = [args.python, "-c", LOAD] if has_pandas else []
    with tempfile.TemporaryDirectory() as directory:
        seconds = {}
        for tasks in map(int, args.tasks.split(",")):
            file = Path(directory) / f"{tasks}.ndjson"
            seconds[tasks] = _measure(f"{tasks} tasks", file, tasks, 1, args.rounds, rival)
        tasks = args.run_tasks
        runs = max(1, round(args.rows / (tasks * (tasks + 1))))
        file = Path(directory) / "rows.ndjson"
        _measure(f"{runs} runs of {tasks} tasks", file, tasks, runs, args.rounds, rival)
    for (few, before), (many, after) in pairwise(seconds.items()):
        emit(f"{few} to {many} tasks: T^{math.log(after / before) / math.log(many / few):.2f}")


def _measure(what: str, file: Path, tasks: int, runs: int, rounds: int, rival: list[str]) -> float:
    """Print one line; the median CPU seconds of the report are returned."""
    rows = 0
    with file.open("w", encoding="utf-8") as stream:
        for row in _rows(tasks, runs):
            stream.write(json.dumps(row) + "\n")
            rows += 1
    ours = [sys.executable, "-m", "vlcpctl", "forgetting-report", str(file), "--quiet", "--force"]
    contenders = {"report": [*ours, "-o", str(file.with_suffix(""))]}
    if rival:
        contenders["pandas"] = [*rival, str(file)]
    found = in_turns(contenders, rounds=rounds)
    _show(what, rows, file.stat().st_size / 1e6, found)
    return median(found["report"].cpu)


def _show(what: str, rows: int, megabytes: float, found: dict[str, Seconds]) -> None:
    report, pandas = found["report"], found.get("pandas")
    line = f"{what:22}{rows:8}{megabytes:8.1f}{median(report.cpu):8.2f}{min(report.cpu):8.2f}"
    line += f"{median(report.wall):8.2f}"
    if pandas is not None:
        line += f"{median(pandas.cpu):8.2f}{median(ratios(report.cpu, pandas.cpu)):8.2f}"
    emit(line)


def _rows(tasks: int, runs: int) -> Iterator[dict[str, Any]]:
    """The rows of a complete evaluation after each step, as `eval-retrieval` writes them."""
    names = [f"{task:02d}-week" for task in range(tasks)]
    data = [content_id(f"task {task}") for task in range(tasks)]
    merged = [content_id(data[: task + 1]) for task in range(tasks)]
    for run in range(runs):
        made = [content_id(f"run {run} step {step}") for step in range(tasks)]
        for step in range(tasks):
            for task in range(step + 1):
                facts = {"run": f"run-{run}", "step": step, "task_step": task}
                models = {"checkpoint": made[step], "parent": made[step - 1] if step else None}
                for gallery in ("own", "merged"):
                    is_own = gallery == "own"
                    yield {
                        **_row(facts, step - task + 10 * run + (0 if is_own else 20)),
                        **models,
                        "gallery": gallery,
                        "task": names[task] if is_own else gallery,
                        "tasks": [names[task]] if is_own else names[: task + 1],
                        "data": data[task] if is_own else merged[task],
                        "n_images": 1000 if is_own else 1000 * (task + 1),
                    }


def _row(facts: dict[str, Any], age: int) -> dict[str, Any]:
    """The fields of a row that do not depend on its gallery; scores fall with the age."""
    scores = {key: 90 / (1 + 0.01 * age) - 3.7 * place for place, key in enumerate(METRICS)}
    settings = {"method": "seqf", "settings": SETTINGS, "from_scratch": False, "limit": None}
    return {
        "schema": SCHEMA,
        **facts,
        "method": "seqf",
        "seed": 0,
        "buffer": None,
        "stream": STREAM,
        "evaluator": "retrieval",
        "protocol": "cross-modal",
        "split": "test",
        "limit": None,
        "options": {"duplicates": "unite"},
        "metrics": {**scores, "rm": sum(scores.values()) / len(scores)},
        "n_ties": 0,
        "start": None,
        "config": {"id": content_id(settings), "values": settings},
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", default="8,64,256")
    parser.add_argument("--rows", type=int, default=38_000, help="of several runs")
    parser.add_argument("--run-tasks", type=int, default=64, help="tasks of each of these runs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", default=sys.executable, help="an interpreter with pandas")
    return parser.parse_args()


if __name__ == "__main__":
    main()

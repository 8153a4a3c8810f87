"""Runs the lines of a week without a model: it is not trained, and scores are drawn.

Splits, buffers, rows and their files, reports and pages are real.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from vlcpctl import cli
from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core import console
from vlcpctl.data.tasks.facts import read_stream, read_task
from vlcpctl.evaluation.evaluator import Evaluator, Session
from vlcpctl.evaluation.rank_files import Named
from vlcpctl.evaluation.retrieval.evaluator import Retrieval
from vlcpctl.evaluation.rows import Row
from vlcpctl.files.digests import digests_of, file_sha256
from vlcpctl.jobs.script import CommandLine
from vlcpctl.production import week
from vlcpctl.production.lines import Report, value_of
from vlcpctl.production.page import report_of

RIGHT = 0.8  # of the queries, by a model that is not bad


class Stub:
    """A runner in place of `run_line`; `like` is a trained checkpoint.

    With `is_short`, a report is of the rows of its own week, and weeks have no page: those of all
    weeks take seconds each.
    """

    def __init__(self, like: Path, *, is_short: bool = False) -> None:
        self.like, self.is_short = like, is_short

    def __call__(self, line: CommandLine) -> int:
        if self.is_short:
            week.report_of = lambda report: report_of(_shortened(report))
            week.write_page = lambda *_: []
        try:
            (self._train if line.words[0] == "train-step" else _run)(line.words)
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    def _train(self, words: Sequence[str]) -> None:
        """Write a checkpoint; the first draw of a week with --lr is bad."""
        out, task = Path(value_of(words, "-o")), read_task(Path(words[1]))
        if out.exists():
            return
        before = CheckpointManifest.read(Path(value_of(words, "--previous")))
        is_bad = "--lr" in words and "--attempt" not in words
        made = replace(CheckpointManifest.read(self.like), run=value_of(words, "--run"))
        step, buffer = len(before.tasks), read_task(Path(value_of(words, "--buffer")))
        names = ("--attempt", "--steps", "--lr")
        of_line = {name: value_of(words, name) for name in names if name in words}
        made = replace(
            made,
            step=step,
            stream_step=0,
            task_steps=(*range(step + 1),),
            tasks=(*before.tasks, task.id),
            task_names=(*before.task_names, task.name),
            stream=read_stream(Path(words[1]).parent).id,
            parent=before.content,
            identity=made.identity
            | {"tasks": [task.id], "previous": before.content, "buffer": buffer.id, **of_line},
        )
        making = out.with_name(f".{out.name}.tmp-stub")
        shutil.rmtree(making, ignore_errors=True)
        shutil.copytree(self.like, making)
        (making / "checkpoint.json").unlink()
        (making / "right").write_text("0.3" if is_bad else str(RIGHT))
        digests = digests_of(making)
        made.write(making, {name: file_sha256(making / name) for name in digests}, digests)
        making.rename(out)


def _shortened(report: Report) -> Report:
    """A report of the rows of its own week alone."""
    own = str(report.out.parent.parent)
    rows, ranks = ([x for x in found if own in x] for found in (report.rows, report.ranks))
    how = replace(report.request, allow_missing=True)
    return replace(report, rows=rows, ranks=ranks, request=how)


def _run(words: Sequence[str]) -> None:
    """Be the program, whose evaluations load no model; what it sets for its messages is undone."""
    with (
        patch.object(sys, "argv", ["vlcpctl", *words]),
        patch.object(console, "_state", console._State()),
        patch.object(Evaluator, "started", _started),
        patch.object(Retrieval, "measure", _measure),
    ):
        cli.main()


@contextmanager
def _started(_self: Evaluator) -> Iterator[None]:
    yield


def _measure(self: Retrieval, session: Session, row: Row) -> dict[str, Any]:
    """As many right answers as the checkpoint says; which ones depends on both."""
    (number,) = row.tasks
    keys = pa.array(self.tasks[number].split("test", self.sample).keys)
    path = session.checkpoint / "right"
    right = float(path.read_text()) if path.exists() else RIGHT
    drawn = [sha256(f"{session.manifest.content}{key}".encode()).digest()[0] for key in keys]
    rank = np.full(len(keys), len(keys))
    rank[np.argsort(drawn)[: round(right * len(keys))]] = 1
    nothing = np.full(len(rank), -1, dtype=np.int64)
    for way in ("i2t", "t2i") if self.ranks is not None else ():
        captions = pa.array([0] * len(keys), pa.int32()) if way == "t2i" else None
        named = Named(keys, captions)
        self.ranks.add(row, way, (named, named), (rank, nothing, nothing), None)
    names = [f"{way}_{key}" for way in ("i2t", "t2i") for key in ("r1", "r5", "r10", "rmean")]
    metrics = dict.fromkeys([*names, "rm"], 100 * float((rank == 1).mean()))
    found: dict[str, Any] = {"metrics": metrics, "n_ties": 0}
    return {name: found.get(name, len(keys)) for name in row.measured}

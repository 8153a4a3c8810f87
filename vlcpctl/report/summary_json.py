"""summary.json: every number of a report, for scripts."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from vlcpctl.core.number_lists import Numbers, as_lists, indented_json, rounded
from vlcpctl.metrics.definitions import DEFINITIONS, LEGEND
from vlcpctl.report.document import Document
from vlcpctl.report.published.records import table_json
from vlcpctl.report.scores.drops import Drop
from vlcpctl.report.scores.intervals import LEVEL, RESAMPLES, SEED, Interval
from vlcpctl.report.scores.roll_out import CHOICES
from vlcpctl.report.scores.runs import START, RunScores, Track, TransferScores
from vlcpctl.report.scores.summary import Spread, summarise
from vlcpctl.report.tables.angles import SpatialTrack
from vlcpctl.report.tables.comparison import ordered_runs
from vlcpctl.report.tables.matrices import (
    has_start,
    own_means,
    shown_steps,
    shown_tasks,
    start_means,
)
from vlcpctl.report.tables.per_task import MEASURES, direction_keys, losses

SCHEMA = "vlcpctl.report/1"

_DECIMALS = 6
_INTERVALS = {
    "method": "paired bootstrap over samples, percentiles; below 200 samples, as if one more had "
    "lost 50 points and one gained as many",
    "level": LEVEL,
    "resamples": RESAMPLES,
    "seed": SEED,
}
# Control characters that JSON does not escape, and marks that reverse the direction of text.
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def as_json(document: Document, identity: dict[str, Any]) -> dict[str, Any]:
    """The content of summary.json; the same rows and options give the same bytes."""
    found: dict[str, Any] = _with_lists(_content(document, identity))
    return found


def as_text(document: Document, identity: dict[str, Any]) -> str:
    """The text of summary.json."""
    return indented_json(_content(document, identity)) + "\n"


def _content(document: Document, identity: dict[str, Any]) -> dict[str, Any]:
    """What `as_json` has, with the numbers of matrices in arrays, NaN for null."""
    mixed = [asdict(one) for one in document.mixed]
    groups = {name: list(runs) for name, runs in sorted(document.groups.items())}
    best = [one.as_json() for one in document.choices]
    models = {one.run.name: list(one.run.models) for one in document.curves if one.run.models}
    guards: dict[int, set[str]] = {}  # by the identity of a track, whose matrices cannot be hashed
    for one in document.drops:
        if one.is_guard:
            guards.setdefault(id(one.track), set()).add(one.data)
    return {
        "schema": SCHEMA,
        "content": identity["rows"],
        "identity": identity,
        "definitions": {
            name: {
                "formula": d.formula,
                "reading": d.reading,
                "source": d.source,
                "higher_is_better": d.higher_is_better,
            }
            for name, d in DEFINITIONS.items()
        },
        "legend": LEGEND,
        "notes": list(document.notes),
        **({"mixed": mixed} if mixed else {}),
        **({"groups": groups} if groups else {}),
        **({"best": best} if best else {}),
        "tracks": [_track_json(track, document.key(track)) for track in document.tracks],
        "spatial": [_spatial_json(spatial_track) for spatial_track in document.spatial_tracks],
        # As it was given (null: each run's start), and its models for each run.
        "baseline": {"given": document.baseline, "runs": dict(sorted(models.items()))},
        "guards": [
            {**_track_names(track), "data": names}
            for track in document.tracks
            if (names := sorted(guards.get(id(track), ())))
        ],
        "drops": [_drop_json(one) for one in document.drops if one.is_guard or one.drop],
        **({"roll_out": list(_roll_out_json(document))} if document.roll_outs else {}),
        **({"intervals": _INTERVALS} if document.has_ranks else {}),
        **({"forgotten": document.forgotten.as_json()} if document.forgotten else {}),
        **({"checkpoints": document.cards.as_json()} if document.cards else {}),
        "gates": [verdict.as_json() for verdict in document.verdicts],
        **({"tables": list(map(table_json, document.published))} if document.published else {}),
    }


def as_line(document: Document, identity: dict[str, Any]) -> str:
    """The content of summary.json on one line, safe for a terminal."""
    text = json.dumps(as_json(document, identity), ensure_ascii=False, allow_nan=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _track_json(track: Track, key: str) -> dict[str, Any]:
    outside = [_outside_json(run) for run in track.outside_runs]
    return {
        **_track_names(track),
        "metric": key,
        "runs": [_run_json(run, direction_keys(track, key)) for run in ordered_runs(track, key)],
        "transfer": [_transfer_json(transfer) for transfer in track.transfers],
        **({"outside_runs": outside} if outside else {}),
    }


def _track_names(track: Track) -> dict[str, Any]:
    return {
        "evaluator": track.evaluator,
        "protocol": track.protocol,
        "map_variant": track.map_variant,
        "split": track.split,
    }


def _drop_json(drop: Drop) -> dict[str, Any]:
    ends = None if drop.interval is None else [drop.interval.low, drop.interval.high]
    return {
        **_track_names(drop.track),
        "run": drop.run,
        "data": drop.data,
        "is_guard": drop.is_guard,
        "metric": drop.key,
        "baseline": _spread_json(drop.baseline),
        "last": _spread_json(drop.last),
        "drop": _spread_json(drop.drop),
        "interval": _rounded(ends),
        **({} if drop.interval is None else _of_samples(drop.interval)),
        "undefined": drop.undefined,
    }


def _roll_out_json(document: Document) -> Iterator[dict[str, Any]]:
    """What users lose by each choice for an index, in every metric."""
    for one in document.roll_outs:
        for key in one.curve.track.keys:
            for choice in CHOICES:
                found = _drop_json(one.loss(choice, key))
                about = {"index": one.index, "choice": choice, "is_lost": one.is_lost(choice, key)}
                yield {**found, **about}


def _of_samples(interval: Interval) -> dict[str, Any]:
    return {"se": _rounded(interval.error), "samples": interval.samples}


def _spatial_json(spatial_track: SpatialTrack) -> dict[str, Any]:
    pairs = [
        {
            "run": pair.run,
            "steps": pair.steps,
            "metrics": {key: _spread_json(Spread(found)) for key, found in pair.metrics.items()},
            "degrees": {key: counts.tolist() for key, counts in pair.degrees.items()},
        }
        for pair in spatial_track.pairs
    ]
    return {"task": spatial_track.task, "split": spatial_track.split, "turns": pairs}


def _run_json(run: RunScores, keys: Sequence[str]) -> dict[str, Any]:
    steps, tasks = shown_steps(run), shown_tasks(run)
    is_cut = len(steps) < run.steps or len(tasks) < len(run.tasks)
    at_start = {key: _rounded_array(start_means(run, key)) for key in run.scores}
    return {
        "run": run.name,
        "method": run.method,
        "buffer": run.buffer,
        "group": run.group,
        "seeds": list(run.seeds),
        "tasks": list(run.tasks),
        "steps": run.steps,
        "final_only": run.final_only,
        "summary": _summary_json(run, DEFINITIONS),
        "matrices": {
            gallery: {
                key: _rounded_array(own_means(run, key, gallery)[np.ix_(steps, tasks)])
                for key in run.scores
            }
            for gallery in sorted(run.galleries)
        },
        **({"matrix_steps": steps, "matrix_tasks": tasks} if is_cut else {}),
        **({"start": {"runs": list(run.starts), "own": at_start}} if has_start(run) else {}),
        **({"per_task": per_task} if (per_task := _per_task_json(run, keys)) else {}),
    }


def _outside_json(run: RunScores) -> dict[str, Any]:
    """A run without rows on its stream in this track: its means over data outside of it."""
    names = [name for name, one in DEFINITIONS.items() if one.gallery == "outside"]
    about = {"run": run.name, "method": run.method, "seeds": list(run.seeds)}
    return {**about, "summary": _summary_json(run, names)}


def _summary_json(run: RunScores, names: Iterable[str]) -> dict[str, Any]:
    return {
        name: {key: _spread_json(summarise(run, key, name)) for key in run.scores} for name in names
    }


def _per_task_json(run: RunScores, keys: Sequence[str]) -> dict[str, Any]:
    """What each task that has a later one lost, by metric key: means over seeds."""
    tasks = [task for task in shown_tasks(run) if task < run.steps]
    found = {}
    for key in keys if run.steps > 1 and not run.final_only else ():
        if (lost := losses(run, key)) is not None:
            found[key] = {
                name: _rounded_array(lost.of(name)[:, tasks].mean(axis=0)) for name in MEASURES
            }
    return found


def _spread_json(spread: Spread | None) -> dict[str, Any] | None:
    if spread is None:
        return None
    return {
        "mean": _rounded(spread.mean),
        "sd": _rounded(spread.sd),
        "values": _rounded(list(spread.values)),
    }


def _transfer_json(transfer: TransferScores) -> dict[str, Any]:
    scores = {
        key: [
            {
                "start" if step == START else str(step): _rounded(value)
                for step, value in sorted(by_step.items())
            }
            for by_step in seeds
        ]
        for key, seeds in transfer.scores.items()
    }
    return {"run": transfer.run, "data": transfer.task, "scores": scores}


def _with_lists(value: Any) -> Any:
    """The value with lists in place of arrays, at any depth."""
    if isinstance(value, dict):
        return {key: _with_lists(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_lists(one) for one in value]
    return as_lists(value) if isinstance(value, np.ndarray) else value


def _rounded_array(values: Numbers) -> Numbers:
    return rounded(values, _DECIMALS)


def _rounded(value: Any) -> Any:
    """Floats at six decimals, NaN as null, alone or in a list."""
    if isinstance(value, list):
        return [_rounded_number(item) for item in value]
    return _rounded_number(value)


def _rounded_number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, _DECIMALS)

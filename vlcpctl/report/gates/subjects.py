"""What a condition is applied to: the runs, galleries and data sets that its selectors match."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from glob import escape

from vlcpctl.core.errors import nearest, some_names
from vlcpctl.metrics.definitions import DEFINITIONS
from vlcpctl.report.gates.grammar import FIELDS, Gate
from vlcpctl.report.scores.drops import Drop
from vlcpctl.report.scores.runs import RunScores, Track
from vlcpctl.report.scores.summary import needs_second_task, summarise, why_undefined

_GALLERY_SUMMARIES = {"own": "own_final", "merged": "merged_final"}
_LACKS_ROWS = "it lacks rows that the metric needs"
_NO_RANKS = "give --ranks with files of --save-ranks of the baseline and of the last checkpoint"
_OTHER_RUNS = "use --run or @run=GLOB to select other runs"


@dataclass(frozen=True)
class Measured:
    """The value of a metric, or why it is undefined and what to do about it.

    `is_early` if it is undefined only because the run has learned a single task so far.
    """

    value: float | None
    undefined: str | None = None
    advice: str | None = None
    is_early: bool = False


@dataclass(frozen=True)
class Subject:
    """One thing that a condition can be applied to; `data` is None for a mean over tasks."""

    track: Track
    run: str
    gallery: str
    data: str | None
    metric: str
    measure: Callable[[], Measured]

    def name(self, field: str) -> str:
        """The name that a selector of this field is matched with."""
        names = {
            "evaluator": self.track.evaluator,
            "run": self.run,
            "gallery": self.gallery,
            "data": self.data or "",
        }
        return names[field]


@dataclass(frozen=True)
class Unmatched:
    """Why a condition applies to nothing, and what to do about it."""

    undefined: str
    advice: str | None


def matched(
    gate: Gate, tracks: Sequence[Track], drops: Sequence[Drop], key: Callable[[Track], str]
) -> list[Subject] | Unmatched:
    """The subjects of a condition, in order, or why there are none.

    `key` gives the main metric of a track, which counts where the condition names none.
    """
    if gate.is_about_data:
        subjects = _of_data(gate, drops, key)
    else:
        subjects = [
            one for track in tracks for one in _of_track(gate, track, gate.key or key(track))
        ]
    if not subjects:
        return _nothing(gate, drops)
    for field in FIELDS:
        left = [one for one in subjects if gate.selects(field, one.name(field))]
        if not left:
            return _no_match(field, gate.glob(field) or "", {one.name(field) for one in subjects})
        subjects = left
    return subjects


def _of_data(gate: Gate, drops: Sequence[Drop], key: Callable[[Track], str]) -> list[Subject]:
    """Data outside the stream, or with a data selector any; in the metric key of the gate."""
    main: dict[int, str] = {}  # by the identity of a track, whose matrices cannot be hashed
    found = []
    for drop in drops:
        if id(drop.track) not in main:
            main[id(drop.track)] = key(drop.track)
        if drop.key == (gate.key or main[id(drop.track)]):
            metric = f"{gate.summary}.{drop.key}" if gate.summary else drop.key
            if drop.is_guard or gate.glob("data") is not None:
                found.append(_subject_of_data(gate, drop, metric))
    return found


def _subject_of_data(gate: Gate, drop: Drop, metric: str) -> Subject:
    return Subject(
        drop.track, drop.run, "own", drop.data, metric, lambda: _measured_on_data(gate, drop)
    )


def _measured_on_data(gate: Gate, drop: Drop) -> Measured:
    if gate.summary is None:
        return Measured(drop.last.mean) if drop.last else _not_measured(drop, needs_baseline=False)
    if drop.drop is None:
        return _not_measured(drop, needs_baseline=True)
    if gate.summary in ("drop", "worst_drop"):
        return Measured(drop.drop.mean)
    if drop.interval is None:
        return Measured(None, "it has no interval", _NO_RANKS)
    return Measured(drop.interval.low if gate.summary == "drop_low" else drop.interval.high)


def _not_measured(drop: Drop, *, needs_baseline: bool) -> Measured:
    """What is lacking: rows of the baseline, of the last checkpoint, or of both."""
    lacks_baseline = needs_baseline and drop.baseline is None
    models = " and ".join(
        name
        for name, is_lacking in (
            ("its baseline", lacks_baseline),
            ("its last checkpoint", drop.last is None),
        )
        if is_lacking
    )
    if not models:
        return Measured(None, drop.undefined or _LACKS_ROWS)
    known = drop.undefined if needs_baseline else None
    advice = f"evaluate {models.replace('its', 'the')} on these data and add the rows"
    if lacks_baseline:
        advice += ", or name another model with --baseline"
    return Measured(None, known or f"it lacks rows of {models} on {drop.data}", advice)


def _of_track(gate: Gate, track: Track, key: str) -> list[Subject]:
    """The runs of a track that has this metric key."""
    if key not in track.keys:
        return []
    return [
        _subject_of_run(track, run, key, name)
        for run in track.runs_with(_gallery_of(gate.summary))
        for name in ([gate.summary] if gate.summary else _final_summaries(gate, run))
    ]


def _final_summaries(gate: Gate, run: RunScores) -> list[str]:
    """Where a bare metric key is looked up: merged if there is such a gallery, unless selected."""
    if gate.glob("gallery") is None:
        return ["merged_final" if "merged" in run.galleries else "own_final"]
    return [name for gallery, name in _GALLERY_SUMMARIES.items() if gallery in run.galleries]


def _gallery_of(summary: str | None) -> str:
    return "own" if summary is None else DEFINITIONS[summary].gallery


def _subject_of_run(track: Track, run: RunScores, key: str, name: str) -> Subject:
    gallery = "merged" if _gallery_of(name) == "merged" else "own"
    return Subject(
        track,
        run.name,
        gallery,
        None,
        f"{name}.{key}",
        lambda: _measured_over_tasks(run, key, name),
    )


def _measured_over_tasks(run: RunScores, key: str, name: str) -> Measured:
    spread = summarise(run, key, name)
    if spread is not None:
        return Measured(spread.mean)
    why = why_undefined(run, DEFINITIONS[name])
    if why and needs_second_task(run, DEFINITIONS[name]):
        advice = "--undefined pass lets it pass until a second task is learned"
        return Measured(None, why, advice, is_early=True)
    return Measured(None, why or _LACKS_ROWS, _OTHER_RUNS)


def _nothing(gate: Gate, drops: Sequence[Drop]) -> Unmatched:
    if not gate.is_about_data:
        advice = f"use {gate.metric}@data=GLOB for other data" if gate.key and drops else None
        return Unmatched("no run has rows on tasks of its stream", advice)
    with_key = f" in {gate.key}" if gate.key else ""
    if gate.glob("data") is not None or not drops:
        return Unmatched(f"no trained run was evaluated on any data{with_key}", None)
    return Unmatched(
        f"no data outside the stream were evaluated{with_key}",
        "evaluate the run and its baseline on a guard set and add the rows, or select tasks of the "
        f"stream with {gate.metric}@data=GLOB",
    )


def _no_match(field: str, glob: str, known: set[str]) -> Unmatched:
    names = sorted(known)
    # A name with a [ is not matched by itself.
    near = escape(glob).replace(",", "[,]") if glob in known else nearest(glob, names)
    known_names = f"known: {some_names(names)}"
    advice = f"did you mean {near!r}? ({known_names})" if near is not None else known_names
    return Unmatched(f"no {field} matches {glob!r}", advice)

"""The best setting on the validation split (--best), the only one that is then reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vlcpctl.core.errors import BadInput, UsageError, some_names
from vlcpctl.files.rows import Row
from vlcpctl.metrics.definitions import DEFINITIONS
from vlcpctl.report.facts.language import Metric, parse
from vlcpctl.report.facts.table import Fact, Facts, Unmatched
from vlcpctl.report.scores.collect import collect
from vlcpctl.report.scores.missing import require_complete
from vlcpctl.report.scores.runs import Track

VALIDATION = "val"


@dataclass(frozen=True)
class Choice:
    """The setting that was chosen for a method, and the metric of all of them, the best first."""

    of: str
    metric: str
    values: tuple[tuple[str, float], ...]

    @property
    def run(self) -> str:
        """The name of the setting that was chosen."""
        return self.values[0][0]

    def sentence(self) -> str:
        """Such as "ctp, lr=0.1 was chosen among 2 settings of ctp by ..."."""
        values = some_names([f"{value:.2f} ({run})" for run, value in self.values])
        return (
            f"{self.run} was chosen among {len(self.values)} settings of {self.of} by "
            f"{self.metric} on the validation split: {values}"
        )

    def as_json(self) -> dict[str, Any]:
        """The fields, with the settings as objects."""
        settings = [{"run": run, "value": round(value, 6)} for run, value in self.values]
        return {"of": self.of, "chosen": self.run, "metric": self.metric, "settings": settings}


def best_settings(
    rows: Sequence[Row],
    text: str,
    first: Mapping[str, str],
    key: Callable[[Track], str],
    *,
    allow_missing: bool,
) -> tuple[list[Row], tuple[Choice, ...]]:
    """The rows of the best setting of every method, without those of the validation split.

    `text` is METRIC[@FIELD=GLOB,...]; `first` has the value of the first field of --group-by for
    each run, instead of its method; `key` gives a track's main metric. A run that is the only one
    of its method is kept in any case. Raises UsageError for a metric that is unknown or that a run
    has more than once, and BadInput if validation rows are missing or it is undefined for a run.
    """
    trained = sorted((row.step, row.run, row.method) for row in rows if row.step is not None)
    methods = {run: method for _, run, method in trained}  # those of the last step
    of = {run: first.get(run, method) for run, method in methods.items()}
    if not any(_is_validation(row) for row in rows):
        raise BadInput(
            f"--best {text}: the rows have none of the validation split; evaluate the runs with "
            "--split val and add the rows"
        )
    values, metric = _values([row for row in rows if _is_validation(row)], text, key, allow_missing)
    choices = []
    for name in sorted(set(of.values())):
        runs = [run for run in sorted(of) if of[run] == name]
        if len(runs) > 1:
            choices.append(_choice(name, text, runs, values, metric))
    lost = {run for one in choices for run, _ in one.values[1:]}
    kept = [row for row in rows if row.split != VALIDATION and row.run not in lost]
    if not any(row.run in of for row in kept):
        raise BadInput(
            f"--best {text}: the rows have only the validation split; evaluate the chosen runs "
            "with --split test and add the rows"
        )
    return kept, tuple(choices)


def _is_validation(row: Row) -> bool:
    return row.split == VALIDATION and row.since is None


def _values(
    rows: Sequence[Row], text: str, key: Callable[[Track], str], allow_missing: bool
) -> tuple[dict[str, Fact], Metric]:
    """What the metric is measured on, by run."""
    tracks = collect(rows)
    if not allow_missing:
        for track in tracks:
            require_complete(track)
    keys = dict.fromkeys(key for one in tracks for key in one.keys)
    metric, selectors = parse(text, f"--best {text}", keys)
    if metric.kind == "drop" or "data" in dict(selectors):
        raise UsageError(f"--best {text}: it takes a metric over the tasks of a run, without data=")
    facts = Facts(tracks, key).of_runs(metric, selectors)
    if isinstance(facts, Unmatched):
        advice = f"; {facts.advice}" if facts.advice else ""
        raise BadInput(f"--best {text}: {facts.undefined} on the validation split{advice}")
    found: dict[str, Fact] = {}
    for one in facts:
        other = found.setdefault(one.run, one)
        if other is not one:
            places = some_names([f"{o.metric} ({o.title})" for o in (other, one)])
            raise UsageError(
                f"--best {text}: run {one.run!r} has it more than once: {places}; choose with "
                "@evaluator=GLOB or @gallery=GLOB"
            )
    return found, metric


def _choice(
    of: str, text: str, runs: Sequence[str], found: Mapping[str, Fact], metric: Metric
) -> Choice:
    values = {}
    for run in runs:
        if run not in found:
            raise BadInput(
                f"--best {text}: run {run!r} has no rows of the validation split with it; evaluate "
                "it with --split val and add the rows, or leave it out with --run"
            )
        measured = found[run].measure()
        if measured.number is None:
            raise BadInput(
                f"--best {text}: {found[run].metric} of run {run!r} is undefined on the validation "
                f"split: {measured.undefined}"
            )
        values[run] = measured.number
    higher = metric.name is None or DEFINITIONS[metric.name].higher_is_better
    ordered = sorted(values.items(), key=lambda pair: (-pair[1] if higher else pair[1], pair[0]))
    return Choice(of, found[ordered[0][0]].metric, tuple(ordered))

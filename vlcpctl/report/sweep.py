"""Sweeps: runs grouped by their settings (--group-by), and the best of a method (--best)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from vlcpctl.core.errors import BadInput, UsageError, some_names
from vlcpctl.files.rows import Row
from vlcpctl.metrics.definitions import DEFINITIONS
from vlcpctl.report.comparable import different_values, setting_of, setting_text
from vlcpctl.report.facts import Fact, Facts, Metric, parse
from vlcpctl.report.joined import lineages
from vlcpctl.report.scores import Track, require_complete, step_of, tracks_of

VALIDATION = "val"
METHOD, PRESET, BUFFER = "method", "preset", "buffer"

Chain = tuple[str, int]  # a run and a seed


@dataclass(frozen=True)
class Grouped:
    """Rows whose runs are named after their settings.

    `runs` are the new names of those that --run selects; `members` has, by new name, the runs that
    it stands for, and `first` the value of the first field.
    """

    rows: Sequence[Row]
    runs: tuple[str, ...]
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    first: Mapping[str, str] = field(default_factory=dict)


def parse_group_by(texts: Iterable[str]) -> tuple[str, ...]:
    """The fields of --group-by FIELD,... , each once. Raises UsageError for an empty one.

    >>> parse_group_by(["method,lr", "lr"])
    ('method', 'lr')
    """
    names = [name.strip() for text in texts for name in text.split(",")]
    if "" in names:
        raise UsageError("--group-by: a field is empty; give names such as method,lr")
    return tuple(dict.fromkeys(names))


def grouped_by(rows: Sequence[Row], fields: Sequence[str], runs: Sequence[str]) -> Grouped:
    """The rows of trained runs under the values of these fields; other rows as they are.

    Only the `runs` are grouped; without any, all. Raises UsageError for a field that no run
    records, and BadInput if runs of one line have a seed in common. Whether those of other seeds
    have the same settings is left to `require_comparable`.
    """
    if not fields:
        return Grouped(rows, tuple(runs))
    trained = (row for row in rows if row.step is not None and (not runs or row.run in runs))
    # A row of the last model records the settings that a run is named after.
    last: dict[Chain, Row] = {}
    for row in trained:
        if step_of(row) >= step_of(last.setdefault((row.run, row.seed), row)):
            last[row.run, row.seed] = row
    for name in fields:
        known = (setting_of(row.config, name) for row in last.values())
        if name not in {METHOD, PRESET, BUFFER} and all(value is None for value in known):
            raise UsageError(f"--group-by: no run has a value of {name!r}")
    labels = {chain: _label(last[chain], fields) for chain in sorted(last)}
    members: dict[str, dict[str, None]] = {}
    of_seed: dict[tuple[str, int], Row] = {}
    for (run, seed), label in labels.items():
        members.setdefault(label, {})[run] = None
        one, other = of_seed.setdefault((label, seed), last[run, seed]), last[run, seed]
        if one.run != run:
            values = (each.config["values"] if each.config else {} for each in (one, other))
            paths = (path.removeprefix("settings.") for path in different_values(*values))
            raise BadInput(
                f"--group-by {','.join(fields)}: runs {one.run!r} and {run!r} are one line, both "
                f"with seed {seed}, and differ in {some_names(list(paths)) or 'no setting'}; add "
                "a setting to --group-by, or select one of them with --run"
            )
    grouped_runs = {run for run, _ in labels}
    others = [run for run in runs if run not in grouped_runs]
    return Grouped(
        # A run that was not selected must not get into a line that happens to have its name.
        [
            _renamed(row, labels)
            for row in rows
            if (row.run, row.seed) in labels or row.step is None or row.run not in members
        ],
        (*members, *others) if runs else (),
        {label: tuple(found) for label, found in members.items()},
        {labels[chain]: _text(row, fields[0]) for chain, row in last.items()},
    )


def _label(row: Row, fields: Sequence[str]) -> str:
    """Such as "ctp, lr=0.0001"."""
    parts = [(name, _text(row, name)) for name in fields]
    return ", ".join(text if name == METHOD else f"{name}={text}" for name, text in parts)


def _text(row: Row, name: str) -> str:
    if name == METHOD:
        return row.method
    if name == PRESET:
        return row.preset or setting_text(None)
    if name == BUFFER:
        parts = ((row.buffer or {}).get(part) for part in ("policy", "size"))
        return " ".join(str(part) for part in parts if part is not None) or setting_text(None)
    return setting_text(setting_of(row.config, name))


def _renamed(row: Row, labels: Mapping[Chain, str]) -> Row:
    label = labels.get((row.run, row.seed)) if row.step is not None else None
    since = row.since
    if since is not None and (since.run, row.seed) in labels:
        since = replace(since, run=labels[since.run, row.seed])
    if label is None and since is row.since:
        return row
    return structs.replace(row, run=row.run if label is None else label, since=since)


@dataclass(frozen=True)
class Choice:
    """The setting that was chosen for a method, and the metric of all of them, the best first."""

    of: str
    metric: str
    values: tuple[tuple[str, float], ...]

    def sentence(self) -> str:
        """Such as "ctp, lr=0.1 was chosen among 2 settings of ctp by ..."."""
        values = some_names([f"{value:.2f} ({run})" for run, value in self.values])
        return (
            f"{self.values[0][0]} was chosen among {len(self.values)} settings of {self.of} by "
            f"{self.metric} on the validation split: {values}"
        )

    def as_json(self) -> dict[str, Any]:
        """The fields, with the settings as objects."""
        settings = [{"run": run, "value": round(value, 6)} for run, value in self.values]
        chosen = self.values[0][0]
        return {"of": self.of, "chosen": chosen, "metric": self.metric, "settings": settings}


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
    validated = [row for row in rows if row.split == VALIDATION and row.since is None]
    if not validated:
        raise BadInput(
            f"--best {text}: the rows have none of the validation split; evaluate the runs with "
            "--split val and add the rows"
        )
    found, metric = _values(validated, text, key, allow_missing)
    is_higher_better = not metric.name or DEFINITIONS[metric.name].higher_is_better
    choices = []
    for name in sorted(set(of.values())):
        runs = [run for run in sorted(of) if of[run] == name]
        if len(runs) < 2:
            continue
        values = []
        for run in runs:
            if (one := found.get(run)) is None:
                raise BadInput(
                    f"--best {text}: run {run!r} has no rows of the validation split with it; "
                    "evaluate it with --split val and add the rows, or leave it out with --run"
                )
            if one.number is None:
                raise BadInput(
                    f"--best {text}: {one.metric} of run {run!r} is undefined on the validation "
                    f"split: {one.undefined}"
                )
            values.append((run, one.number))
        values.sort(key=lambda pair: (-pair[1] if is_higher_better else pair[1], pair[0]))
        choices.append(Choice(name, found[values[0][0]].metric, tuple(values)))
    lost = {run for one in choices for run, _ in one.values[1:]}
    kept = [row for row in rows if row.split != VALIDATION and row.run not in lost]
    if not any(row.run in of for row in kept):
        raise BadInput(
            f"--best {text}: the rows have only the validation split; evaluate the chosen runs "
            "with --split test and add the rows"
        )
    return kept, tuple(choices)


def _values(
    rows: Sequence[Row], text: str, key: Callable[[Track], str], allow_missing: bool
) -> tuple[dict[str, Fact], Metric]:
    """What the metric is measured on, by run."""
    tracks = tracks_of(rows, lineages(rows, {}, None))
    for track in tracks if not allow_missing else ():
        require_complete(track)
    keys = dict.fromkeys(key for one in tracks for key in one.keys)
    metric, selectors = parse(text, f"--best {text}", keys)
    if metric.kind not in {"summary", "key"} or "data" in dict(selectors):
        raise UsageError(f"--best {text}: it takes a metric over the tasks of a run, without data=")
    facts = Facts(tracks, key, rows).of_runs(metric, selectors)
    if isinstance(facts, str):
        raise BadInput(f"--best {text}: {facts} on the validation split")
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

"""Runs grouped by settings (--group-by): those with the same values are one line."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from vlcpctl.core.errors import BadInput, UsageError, unknown_name
from vlcpctl.files.rows import Row
from vlcpctl.report.comparability import different_values
from vlcpctl.report.scores.runs import step_of
from vlcpctl.report.scores.settings import setting_of, setting_text

METHOD, PRESET, BUFFER = "method", "preset", "buffer"

Chain = tuple[str, int]  # a run and a seed
_SHOWN = 3  # settings named in a message


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

    def notes(self, fields: Sequence[str]) -> list[str]:
        """A note about how many runs became how many lines; empty if none was joined."""
        runs = {run for members in self.members.values() for run in members}
        if len(runs) <= len(self.members):
            return []
        return [f"--group-by {','.join(fields)}: {len(runs)} runs in {len(self.members)} lines"]


def parse_group_by(texts: Iterable[str]) -> tuple[str, ...]:
    """The fields of --group-by FIELD,... , each once. Raises UsageError for an empty one.

    >>> parse_group_by(["method,lr", "lr"])
    ('method', 'lr')
    """
    names = [name.strip() for text in texts for name in text.split(",")]
    if "" in names:
        raise UsageError("--group-by: a field is empty; give names such as method,lr")
    return tuple(dict.fromkeys(names))


def grouped(
    rows: Sequence[Row], fields: Sequence[str], runs: Sequence[str], allow_mixed: Collection[str]
) -> Grouped:
    """The rows of trained runs under the values of these fields; other rows as they are.

    Only the `runs` are grouped; without any, all. Raises UsageError for a field that no row
    records, and BadInput if runs of one line differ in another setting (unless `allow_mixed` has
    "config") or have a seed in common, or if a row does not record its settings.
    """
    if not fields:
        return Grouped(rows, tuple(runs))
    chains = _by_chain(
        row for row in rows if row.step is not None and (not runs or row.run in runs)
    )
    _check_fields(fields, [row for members in chains.values() for row in members])
    labels = {chain: _label(members, fields) for chain, members in chains.items()}
    if "config" not in allow_mixed:
        _refuse_other_settings(fields, chains, labels)
    _refuse_shared_seeds(fields, labels)
    names = set(labels.values())
    members: dict[str, dict[str, None]] = {}
    for (run, _), label in sorted(labels.items()):
        members.setdefault(label, {})[run] = None
    untrained = {row.run for row in rows if row.step is None and row.run in runs}
    unknown = [run for run in runs if run not in {row.run for row in rows}]
    return Grouped(
        # A run that was not selected must not get into a line that happens to have its name.
        [
            _renamed(row, labels)
            for row in rows
            if (row.run, row.seed) in labels or row.step is None or row.run not in names
        ],
        (*sorted(names), *sorted(untrained), *unknown) if runs else (),
        {label: tuple(found) for label, found in members.items()},
        {
            labels[chain]: _text(_last(found), fields[0])
            for chain, found in sorted(chains.items(), key=lambda pair: pair[0])
        },
    )


def _by_chain(rows: Iterable[Row]) -> dict[Chain, list[Row]]:
    chains: dict[Chain, list[Row]] = {}
    for row in rows:
        chains.setdefault((row.run, row.seed), []).append(row)
    return chains


def _last(rows: Iterable[Row]) -> Row:
    """A row of the last model, which records the settings that a run is named after."""
    return max(rows, key=step_of)


def _check_fields(fields: Sequence[str], rows: Sequence[Row]) -> None:
    known = {METHOD, PRESET, BUFFER}
    configs = {id(row.config): row.config for row in rows if row.config}
    for config in configs.values():
        values = config["values"]
        hyper = values.get("hyper")
        parts = [values.get("settings"), *(hyper.values() if isinstance(hyper, Mapping) else ())]
        known |= {name for part in parts if isinstance(part, Mapping) for name in part}
        known |= {name for name in values if name not in {"settings", "hyper"}}
    for name in fields:
        if name not in known and all(setting_of(one, name) is None for one in configs.values()):
            raise UsageError(f"--group-by: {unknown_name('field', name, known)}")


def _label(rows: Sequence[Row], fields: Sequence[str]) -> str:
    """Such as "ctp, lr=0.0001"."""
    row = _last(rows)
    if row.config is None and not {METHOD, BUFFER}.issuperset(fields):
        name = next(one for one in fields if one not in {METHOD, BUFFER})
        raise BadInput(
            f"--group-by {name}: {row.place} of run {row.run!r} has no settings: its checkpoint "
            "was not trained by train-step; select the other runs with --run"
        )
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


def _refuse_other_settings(
    fields: Sequence[str], chains: Mapping[Chain, list[Row]], labels: Mapping[Chain, str]
) -> None:
    """Raise BadInput, naming the settings, if models of one line and step differ in them."""
    first: dict[tuple[str, int | None], Row] = {}
    for chain, members in sorted(chains.items(), key=lambda pair: pair[0]):
        for row in members:
            known = first.setdefault((labels[chain], row.step), row)
            if known.run == row.run or known.config is None or row.config is None:
                continue  # seeds of one run are compared with the rest of its rows
            if known.config["id"] == row.config["id"]:
                continue
            pairs = different_values(known.config["values"], row.config["values"])
            if METHOD in pairs:  # which has hyper-parameters of its own
                pairs = {METHOD: pairs[METHOD]}
            named = dict.fromkeys(_field_of(path) for path in pairs)
            texts = [
                f"{_path(path)} is {_value(one)} in one and {_value(other)} in the other"
                for path, (one, other) in list(pairs.items())[:_SHOWN]
            ]
            more = f" and {len(pairs) - _SHOWN} more differences" if len(pairs) > _SHOWN else ""
            raise BadInput(
                f"--group-by {','.join(fields)}: runs {known.run!r} and {row.run!r} are one line, "
                f"but {', '.join(texts)}{more}; add {','.join(list(named)[:_SHOWN])} to "
                "--group-by, select runs with --run, or use --allow-mixed config"
            )


def _path(path: str) -> str:
    """The setting as a user knows it: "ewc.strength", not "hyper.ewc.strength"."""
    return path.removeprefix("settings.").removeprefix("hyper.")


def _field_of(path: str) -> str:
    """The field that tells two values of a setting apart."""
    return BUFFER if path.split(".", maxsplit=1)[0] == BUFFER else _path(path)


def _value(value: object) -> str:
    return "not set" if value is None else f"{value!s:.80}"


def _refuse_shared_seeds(fields: Sequence[str], labels: Mapping[Chain, str]) -> None:
    found: dict[tuple[str, int], str] = {}
    for (run, seed), label in sorted(labels.items()):
        other = found.setdefault((label, seed), run)
        if other != run:
            raise BadInput(
                f"--group-by {','.join(fields)}: runs {other!r} and {run!r} are one line with the "
                f"same settings, and both have seed {seed}; select one of them with --run"
            )


def _renamed(row: Row, labels: Mapping[Chain, str]) -> Row:
    label = labels.get((row.run, row.seed)) if row.step is not None else None
    since = row.since
    if since is not None and (since.run, row.seed) in labels:
        since = replace(since, run=labels[since.run, row.seed])
    if label is None and since is row.since:
        return row
    return structs.replace(row, run=row.run if label is None else label, since=since)

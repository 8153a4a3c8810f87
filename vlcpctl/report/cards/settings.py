"""The settings of each run as texts, and those in which the runs differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vlcpctl.files.ids import canonical_json
from vlcpctl.files.rows import Row
from vlcpctl.report.cards.runs import Cards, settings_of
from vlcpctl.report.scores import START

ABSENT = "-"  # a run does not have the setting

# Where a run starts is part of its provenance, not a setting of train-step.
_LEFT_OUT = frozenset({"start"})
_MOST_CHARACTERS = 200

Values = Mapping[str, Any]  # settings as rows record them
SettingTexts = dict[str, str]


def settings_by_run(rows: Iterable[Row], cards: Cards | None) -> dict[str, SettingTexts]:
    """For each run, its settings by name, as one text each; runs without settings are left out.

    A setting that changes over the steps lists each of its values with the steps. Rows have the
    settings of their checkpoint; `cards` those of further checkpoints.
    """
    found: dict[str, dict[int, Values]] = {}
    for row in rows:
        if row.config is not None and row.step is not None and row.since is None:
            found.setdefault(row.run, {}).setdefault(row.step, row.config["values"])
    for run in cards.runs if cards else ():
        for card in run.steps:
            values = settings_of(card)
            if values is not None and card.step != START:
                found.setdefault(run.name, {}).setdefault(card.step, values)
    return {run: _texts(by_step) for run, by_step in sorted(found.items())}


def differing(settings: Mapping[str, SettingTexts]) -> list[str]:
    """The names of the settings that are not the same in all of the runs, in their order.

    >>> differing({"a": {"lr": "0.1", "epochs": "1"}, "b": {"lr": "0.2", "epochs": "1"}})
    ['lr']
    """
    names = dict.fromkeys(name for texts in settings.values() for name in texts)
    found = {name: {texts.get(name, ABSENT) for texts in settings.values()} for name in names}
    return [name for name in names if len(found[name]) > 1]


def _texts(by_step: Mapping[int, Values]) -> SettingTexts:
    known: dict[int, SettingTexts] = {}  # rows share equal settings, so each is read once
    for values in by_step.values():
        if id(values) not in known:
            known[id(values)] = flattened(values)
    by_step = {step: known[id(by_step[step])] for step in sorted(by_step)}
    names = dict.fromkeys(name for texts in by_step.values() for name in texts)
    return {
        name: _over_steps({step: texts.get(name, ABSENT) for step, texts in by_step.items()})
        for name in names
    }


def _over_steps(texts: Mapping[int, str]) -> str:
    """The text of a setting, or of each of its values with the steps that have it."""
    by_text: dict[str, list[int]] = {}
    for step, text in texts.items():
        by_text.setdefault(text, []).append(step)
    if len(by_text) == 1:
        return next(iter(by_text))
    return "; ".join(f"{text} at {steps_text(steps)}" for text, steps in by_text.items())


def steps_text(steps: Sequence[int]) -> str:
    """Steps in words.

    >>> steps_text([0]), steps_text([1, 2, 3]), steps_text([0, 2])
    ('step 0', 'steps 1 to 3', 'steps 0 and 2')
    """
    if len(steps) == 1:
        return f"step {steps[0]}"
    if list(steps) == list(range(steps[0], steps[-1] + 1)) and len(steps) > 2:
        return f"steps {steps[0]} to {steps[-1]}"
    return f"steps {', '.join(map(str, steps[:-1]))} and {steps[-1]}"


def flattened(values: Values) -> SettingTexts:
    """The settings by name; those of a method are METHOD.NAME.

    >>> flattened({"method": "ewc", "settings": {"lr": 0.1}, "hyper": {"ewc": {"lambda": 2}}})
    {'method': 'ewc', 'lr': '0.1', 'ewc.lambda': '2'}
    """
    found: SettingTexts = {}
    for name, value in values.items():
        if name in {"settings", "hyper"} and isinstance(value, Mapping):
            found |= _leaves(value, "")
        elif name == "buffer" and isinstance(value, Mapping):
            found[name] = f"{value.get('policy')}, {value.get('size')} pairs"
        elif name not in _LEFT_OUT:
            found |= _leaves({name: value}, "")
    return found


def _leaves(values: Values, under: str) -> SettingTexts:
    found: SettingTexts = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _leaves(value, f"{under}{name}.")
        else:
            found[f"{under}{name}"] = _text(value)
    return found


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple) and all(isinstance(one, str | int | float) for one in value):
        text = ", ".join(map(_text, value)) or "none"
    else:
        text = value if isinstance(value, str) else canonical_json(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."

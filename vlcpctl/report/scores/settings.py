"""A setting of the train-step that made a checkpoint, as its rows record it, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def setting_of(config: Mapping[str, Any] | None, name: str) -> Any:
    """The value of a setting, such as "lr", "ewc.strength" or "strength"; None without one.

    A hyper-parameter of a method may be named with the method or without it. One value of a list
    is named with its place, from 0.

    >>> config = {"values": {"hyper": {"ewc": {"strength": 2.0}}, "settings": {"lr": 0.1}}}
    >>> [setting_of(config, name) for name in ("lr", "ewc.strength", "strength", "momentum")]
    [0.1, 2.0, 2.0, None]
    >>> setting_of({"values": {"settings": {"betas": [0.9, 0.99]}}}, "betas.1")
    0.99
    """
    values = (config or {}).get("values", {})
    if not isinstance(values, Mapping):
        return None
    hyper = _mapping(values.get("hyper"))
    method, _, rest = name.partition(".")
    places = (
        (_mapping(values.get("settings")), name),
        (_mapping(hyper.get(method)), rest),
        *((_mapping(of_method), name) for of_method in hyper.values()),
        (values, name),
    )
    found = next((one[key] for one, key in places if key in one), None)
    if found is None and rest.isdecimal():
        several = setting_of(config, method)
        is_list = isinstance(several, list) and int(rest) < len(several)
        return several[int(rest)] if is_list else None
    return found


def setting_text(value: object) -> str:
    """The value as text that a pattern can match: a number as short as it can be read back.

    >>> setting_text(0.001), setting_text(True), setting_text([0.9, 0.999]), setting_text(None)
    ('0.001', 'true', '0.9 0.999', 'none')
    """
    if isinstance(value, list | tuple):
        return " ".join(map(setting_text, value))
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}

"""The text of update.toml: values are changed in their lines, and what people wrote stays."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vlcpctl.files.outputs import new_part

_HEAD = """\
# The settings of 'vlcpctl update': the options of the command that a section is named after.
# Options given with a week are written here once it is accepted. Paths are relative to this file.
# false-alarms of 0.0192308 is one rejection in 52 weeks because of chance alone.
"""
_Given = Mapping[str, Mapping[str, Any]]


def write_settings(path: Path, given: _Given) -> None:
    """Let a file have the given values, by section; None removes one.

    Where that is not one line for each value, all of the file is written again.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else _HEAD
    wanted = tomllib.loads(text)
    for section, values in given.items():
        found = wanted.setdefault(section, {})
        for name, value in values.items():
            found.pop(name, None)
            if value is not None:
                found[name] = value
    edited = _edited(text, given)
    try:
        is_right = tomllib.loads(edited) == wanted
    except tomllib.TOMLDecodeError:
        is_right = False
    if not is_right:
        edited = _HEAD + "".join(_section(name, values) for name, values in wanted.items())
    with new_part(path) as temporary:
        temporary.write_text(edited, encoding="utf-8")


def _edited(text: str, given: _Given) -> str:
    """The text with the values in their lines, or in new lines at the end of their sections."""
    left = {section: dict(values) for section, values in given.items()}
    lines, section = list[str](), ""
    for line in text.splitlines():
        name = line.partition("=")[0].strip()
        if line.startswith("["):
            _append(lines, left.pop(section, {}))
            section = line.strip("[] ")
        elif name in left.get(section, {}):
            lines += _lines({name: left[section].pop(name)})
            continue
        lines.append(line)
    _append(lines, left.pop(section, {}))
    text = "\n".join(lines) + "\n"
    return text + "".join(_section(one, values) for one, values in left.items())


def _append(lines: list[str], values: Mapping[str, Any]) -> None:
    """Add values at the end of a section, before the empty lines that divide it from the next."""
    end = max((number for number, line in enumerate(lines, 1) if line.strip()), default=0)
    lines[end:end] = _lines(values)


def _section(name: str, values: Mapping[str, Any]) -> str:
    return "\n".join(["", f"[{name}]", *_lines(values), ""])


def _lines(values: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {_value(one)}" for name, one in values.items() if one is not None]


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, bool | str):  # as in JSON, but for one character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)

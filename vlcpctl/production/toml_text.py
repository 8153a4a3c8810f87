"""The text of update.toml: values are changed in their lines, and what people wrote stays."""

from __future__ import annotations

import json
import re
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
        found |= values
        for name in [name for name, value in found.items() if value is None]:
            del found[name]
    edited = _edited(text, given)
    try:
        is_right = tomllib.loads(edited) == wanted
    except tomllib.TOMLDecodeError:
        is_right = False
    with new_part(path) as temporary:
        temporary.write_text(edited if is_right else _edited(_HEAD, wanted), encoding="utf-8")


def _edited(text: str, given: _Given) -> str:
    """The text with the values in their lines, or in new ones at the end of their sections."""
    head, *blocks = re.split(r"^(?=\[)", text.removesuffix("\n") + "\n", flags=re.MULTILINE)
    found = {block.partition("]")[0].strip("[ "): block for block in blocks}
    for section, values in given.items():
        block = found.get(section, f"\n[{section}]\n")
        for name, value in values.items():
            line = "" if value is None else f"{name} = {_value(value)}\n"
            own = re.compile(rf"^[ \t]*{name}[ \t]*=.*\n", re.MULTILINE)
            if own.search(block):
                block = own.sub(lambda _, line=line: line, block, count=1)
            else:  # before the empty lines that divide it from the next section
                whole = block.rstrip("\n") + "\n"
                block = whole + line + block[len(whole) :]
        found[section] = block
    return head + "".join(found.values())


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, bool | str):  # as in JSON, but for one character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)

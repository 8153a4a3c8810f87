"""The file that `vlcpctl methods --new` writes: a method that trains, to be changed."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template

from vlcpctl.core.errors import OutputExists, UsageError
from vlcpctl.files.outputs import new_file
from vlcpctl.methods import TABLE

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_TEMPLATE = Path(__file__).with_name("skeleton.txt")


def write_skeleton(path: Path) -> str:
    """Write the file of a new method, which has the name of the file; returns the name.

    Raises UsageError for a name that a method cannot have, and OutputExists if there is a file.
    """
    name = path.stem
    if path.suffix != ".py" or not _NAME.fullmatch(name):
        raise UsageError(
            f"--new {path}: write NAME.py, with letters, digits, - and _ in the name of the method"
        )
    if name in TABLE:
        raise UsageError(f"--new {path}: {name} is a built-in method; choose another name")
    if path.exists():
        raise OutputExists(f"{path} exists; choose another name, or remove it first")
    class_name = "".join(part[:1].upper() + part[1:] for part in re.split("[-_]", name))
    text = Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        {"name": name, "class": class_name}
    )
    with new_file(path, is_ours=lambda _: False) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return name

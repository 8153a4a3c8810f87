"""What the package imports it declares, and what it declares it imports."""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAMES = {
    "pillow": "PIL",
    "pyyaml": "yaml",
    "open_clip_torch": "open_clip",
    "onnx-ir": "onnx_ir",
}
NAMES |= {"faiss-cpu": "faiss", "faiss-gpu": "faiss"}
# models/imports.py imports it by name, with stand-ins for what is not needed.
BY_NAME = {"open_clip"}
# Who wants a DataFrame has it; the error of load_rows names it.
OPTIONAL = {"pandas"}
EXTRAS = ("cpu", "gpu", "tensorboard", "wandb", "check", "figures", "onnx", "testing")


def modules_of(requirements: list[str]) -> set[str]:
    names = [re.split(r"[<>=;\[ ]", one)[0] for one in requirements]
    return {NAMES.get(name, name) for name in names}


@functools.cache
def imported() -> set[str]:
    """Packages that an import statement of the package names, wherever it is."""
    found: set[str] = set()
    for path in (ROOT / "vlcpctl").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(str(node.module).split(".")[0])
    return found - sys.stdlib_module_names - {"vlcpctl", "__future__"}


def test_every_dependency_is_imported() -> None:
    assert modules_of(PROJECT["dependencies"]) - imported() == BY_NAME
    source = (ROOT / "vlcpctl" / "models" / "imports.py").read_text(encoding="utf-8")
    assert all(f'"{name}' in source for name in BY_NAME)


def test_every_import_is_declared() -> None:
    extras = [one for name in EXTRAS for one in PROJECT["optional-dependencies"][name]]
    assert imported() - modules_of([*PROJECT["dependencies"], *extras]) == OPTIONAL

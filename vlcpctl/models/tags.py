"""The tags of open_clip's pretrained weights, read from its source: importing it takes seconds."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

_TABLE = "_PRETRAINED"
_QUICK = "-quickgelu"  # the models for which open_clip lists the tags with this activation again


def known_tags(model: str) -> list[str] | None:
    """The tags of a model, none for a model without; None if the table has another form."""
    spec = find_spec("open_clip")
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        return None
    try:
        tree = ast.parse(Path(folders[0], "pretrained.py").read_text(encoding="utf-8"))
        return _tags(tree, model)
    except (OSError, SyntaxError, KeyError, AttributeError, TypeError):
        return None


def _tags(tree: ast.Module, model: str) -> list[str]:
    values = {
        one.targets[0].id: one.value
        for one in tree.body
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name)
    }
    table = _items(values[_TABLE])
    found = table.get(model)
    if found is not None:
        return list(_of(found, values))
    plain = table.get(model.removesuffix(_QUICK))
    if plain is None or not model.endswith(_QUICK):
        return []
    return [tag for tag, made in _of(plain, values).items() if _is_quick(made)]


def _of(found: ast.expr, values: Mapping[str, ast.expr]) -> dict[str, ast.expr]:
    """The tags of an entry, which is a dictionary or the name of one."""
    return _items(values[found.id] if isinstance(found, ast.Name) else found)


def _items(made: ast.expr) -> dict[str, ast.expr]:
    """The entries of {"key": value} or dict(key=value). Raises TypeError for other forms."""
    if isinstance(made, ast.Call):
        return {str(one.arg): one.value for one in made.keywords}
    if not isinstance(made, ast.Dict):
        raise TypeError
    keys = [ast.literal_eval(key) if key else None for key in made.keys]
    return dict(zip(map(str, keys), made.values, strict=True))


def _is_quick(made: ast.expr) -> bool:
    named = made.keywords if isinstance(made, ast.Call) else []
    return any(one.arg == "quick_gelu" and ast.literal_eval(one.value) for one in named)

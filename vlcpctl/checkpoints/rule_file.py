"""Rules to merge by that are defined in a file of the user's, given with --rule-file.

Loading such a file runs its code; its mistakes become one line.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from vlcpctl.checkpoints.merge_rules import TABLE, MergeRule
from vlcpctl.core.batch import Weights
from vlcpctl.core.errors import BadInput, Incompatible, UsageError
from vlcpctl.methods.plugins.checks import check_declaration, in_one_line, start_of
from vlcpctl.methods.plugins.method_file import digest_of, imported, own_classes, read_code

_DECLARES = {"name": '"mine"'}


def load_rule(path: Path, name: str) -> type[MergeRule]:
    """Run the code of a file and find the rule of this name.

    Raises BadInput if the file cannot be read or imported, or one of its rules is not as it should
    be, and UsageError if it does not define this one.
    """
    code = read_code(path, "--rule-file")
    rules = own_classes(imported(path, code), MergeRule)
    for rule in rules:
        check_declaration(rule, str(path), _DECLARES)
        if rule.name in TABLE:
            raise BadInput(f"{path}: rule {rule.name!r} is built in; give yours another name")
    found = [rule for rule in rules if rule.name == name]
    if len(found) != 1:
        names = ", ".join(rule.name for rule in rules) or "none"
        raise UsageError(
            f"--rule-file {path} does not define one rule {name!r}; its classes that derive from "
            f"vlcpctl.checkpoints.merge_rules.MergeRule: {names}"
        )
    (rule,) = found
    rule.code = digest_of(code)
    _guard(rule)
    return rule


def _guard(rule: type[MergeRule]) -> None:
    """Wrap `merged` of a class, so that each of its mistakes is one line."""
    function = inspect.unwrap(rule.merged)
    shown = f"{rule.__qualname__}.merged"
    called, place = in_one_line(rule.merged, function, shown), f"{start_of(function)}: {shown}"

    @functools.wraps(rule.merged)
    def merged(self: MergeRule, models: Sequence[Weights], base: Weights) -> Weights:
        given = [tensor for weights in (*models, base) for tensor in weights.values()]
        before = [tensor._version for tensor in given]  # noqa: SLF001 torch's count of changes
        found = called(self, models, base)
        if before != [tensor._version for tensor in given]:  # noqa: SLF001
            raise BadInput(f"{place} changes the weights that it is given; work on copies")
        _require_weights(place, found, models[0])
        return cast("Weights", found)

    setattr(rule, "merged", merged)  # noqa: B010 mypy refuses the assignment to a method


def _require_weights(place: str, found: Any, wanted: Weights) -> None:
    """Raise BadInput unless a rule returned the tensors of a model."""
    # With torch, which loading a rule lacks.
    from torch import Tensor

    from vlcpctl.files.tensors import require_same_names

    if not isinstance(found, Mapping):
        raise BadInput(f"{place} must return the weights by name, not a {type(found).__name__}")
    for name, value in found.items():
        if not isinstance(value, Tensor):
            raise BadInput(f"{place}: {name!r} must be a tensor, not a {type(value).__name__}")
        if not value.is_floating_point():  # it would lose fractions, or its imaginary part
            raise BadInput(f"{place}: {name!r} must be of floats, not {value.dtype}")
    try:
        require_same_names(found, wanted, f"{place}: what it returns")
    except Incompatible as error:
        raise BadInput(str(error)) from error

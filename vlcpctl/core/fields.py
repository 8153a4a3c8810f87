"""Fields of a JSON object that another program, or an editor, may have written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any

from vlcpctl.core.errors import BadInput

_REQUIRED = object()
_KINDS: dict[type | UnionType, str] = {
    str: "text",
    bool: "true or false",
    int: "an integer",
    int | float: "a number",
    dict: "an object",
    list: "a list",
}


@dataclass(frozen=True)
class Fields:
    """Takes fields of one object by name; `place` (a file, or FILE:LINE) is used in messages."""

    value: Mapping[str, Any]
    place: object

    def __call__(self, name: str, kind: type | UnionType, default: object = _REQUIRED) -> Any:
        """The value of a field; `default` if one is given and the field is missing or null.

        Raises BadInput if the field is missing without a default, or is not of this kind: one of
        str, bool, int, int | float, dict, list.
        """
        found = self.value.get(name)
        if found is None and default is not _REQUIRED:
            return default
        is_bool = isinstance(found, bool)
        if not isinstance(found, kind) or is_bool != (kind is bool):
            raise BadInput(f"{self.place}: field {name!r} is {found!r:.80}, not {_KINDS[kind]}")
        return found

    def texts(self, name: str, default: object = _REQUIRED) -> list[str]:
        """The value of a field that is a list of text. Raises as a call does."""
        found: list[Any] = self(name, list, default)
        for one in found or ():
            if not isinstance(one, str):
                raise BadInput(f"{self.place}: field {name!r} contains {one!r:.80}, not only text")
        return found

"""Values of the columns that --keep-columns names, as text: what a deletion request asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vlcpctl.data.tasks.kept_columns import distinct
from vlcpctl.data.tasks.samples import KeptValues

_WHOLE = 2**53  # up to here, a float stands for exactly one whole number


def kept_of_record(
    record: Mapping[str, Any], names: Sequence[str]
) -> tuple[KeptValues, str | None]:
    """The values of the kept columns of a JSON object or table row, and None.

    If one is an object or a list of lists, which has no plain text: (), and the reason.
    """
    kept = []
    for name in names:
        value = record.get(name)
        values = value if isinstance(value, list) else [value]
        if any(isinstance(one, dict | list) for one in values):
            return (), f"its {name!r:.80} is an object or a nested list, which cannot be kept"
        kept.append(distinct(map(kept_text, values)))
    return tuple(kept), None


def kept_text(value: object) -> str | None:
    """A scalar as text, the same for every kind of source; None if it is missing, NaN or empty.

    >>> kept_text(42), kept_text(42.0), kept_text(0.5), kept_text(True), kept_text("")
    ('42', '42', '0.5', 'true', None)
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return str(int(value)) if value.is_integer() and abs(value) < _WHOLE else repr(value)
    return None if value is None else str(value) or None

"""Options that have an effect only together with others: rules as rows of a table, and one check.

Rules that need opened data are not here: they are checked where the data is.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vlcpctl.core.errors import UsageError


@dataclass(frozen=True)
class GoesWith:
    """A row: `option` has an effect only with one of `values` of the option `other`.

    With `values` None it goes with any value of `other`, and with () only if `other` has none.
    Options are written as parameters are, such as `batch_size`.
    """

    option: str
    other: str
    values: tuple[str, ...] | None = None
    because: str = ""

    def fits(self, value: object) -> bool:
        """Whether the option has an effect with this value of `other`; None if it has none."""
        return value is not None if self.values is None else value in (self.values or (None,))


def refuse_idle(
    rows: Iterable[GoesWith], options: Mapping[str, Any], given: Container[str] | None = None
) -> None:
    """Raise UsageError for an option that is given and has no effect with the other ones.

    `options` has the values by name, None for an option without one. Given are the options in
    `given`, by default those with a value.
    """
    for row in rows:
        is_given = options.get(row.option) is not None if given is None else row.option in given
        value = options.get(row.other)
        if not is_given or row.fits(value):
            continue
        option, other = (f"--{name.replace('_', '-')}" for name in (row.option, row.other))
        at = f"without {other}" if value is None else f"with {other}"
        only = f"it applies only to {other} {', '.join(row.values)}" if row.values else ""
        why = row.because or only
        said = f"{at} {value}" if row.values and value is not None else at
        raise UsageError(f"{option} has no effect {said}{why and ': '}{why}")

"""Names of the files that a report writes for its tables and charts."""

from __future__ import annotations

import re

_OTHER = re.compile(r"[^a-z0-9]+")
_LONGEST = 100  # characters


def free_name(text: str, taken: dict[str, None]) -> str:
    """A name of letters, digits and dashes that is not taken; it then is.

    >>> taken = {}
    >>> free_name("Last model: rm", taken), free_name("last model (rm)", taken)
    ('last-model-rm', 'last-model-rm-2')
    """
    name = _OTHER.sub("-", text.lower()).strip("-")[:_LONGEST] or "unnamed"
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    taken[free] = None
    return free

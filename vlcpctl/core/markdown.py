"""Text of unknown origin, such as names in data of others, as Markdown shows it literally."""

from __future__ import annotations

import re
from functools import lru_cache

from vlcpctl.core.printable import printable

# What Markdown (and GitHub, which also links bare addresses and sets $x$ as mathematics) would not
# show as it is.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#&~$]|(?<=\w):(?=//)|(?<=\bwww)\.)")


@lru_cache(maxsize=10_000)  # cells repeat
def escaped(text: str) -> str:
    r"""The text on one line, escaped so that Markdown shows it literally and nothing is a link.

    >>> escaped("a|b <i>_c_")
    'a\\|b \\<i\\>\\_c\\_'
    """
    return _SPECIAL.sub(r"\\\1", " ".join(printable(text).split()))

"""Labels of classes that a classifier numbers: two classes of one name are still two.

ImageNet has two classes `missile` and two `sunglasses` in OpenAI's names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_NUMBERED = re.compile(r"(.*) \[class [0-9]+\]", re.DOTALL)


def distinct_labels(names: Sequence[str]) -> tuple[str, ...]:
    """A label for each class: its name, with its number if another class has the same name.

    >>> distinct_labels(["crane", "dog", "crane"])
    ('crane [class 0]', 'dog', 'crane [class 2]')
    """
    counts = Counter(names)
    return tuple(
        name if counts[name] == 1 else f"{name} [class {number}]"
        for number, name in enumerate(names)
    )


def name_of(label: str) -> str:
    """The name of the class with this label, as a prompt has it.

    >>> name_of("crane [class 2]"), name_of("dog")
    ('crane', 'dog')
    """
    found = _NUMBERED.fullmatch(label)
    return label if found is None else found[1]

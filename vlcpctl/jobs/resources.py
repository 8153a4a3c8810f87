"""What a line of a batch file asks of a cluster, in a comment: `#: gpus=8 mem=64GB time=12h`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from vlcpctl.core.errors import UsageError, unknown_name

MARK = "#:"
_MEGABYTES = {"MB": 1, "GB": 1000, "TB": 1_000_000}
_MINUTES = {"min": 1, "h": 60, "d": 1440}
_NAME = re.compile(r"[\w.:@-]+")
_LARGEST = 10**6


@dataclass(frozen=True)
class Resources:
    """What each machine of a job must have, and where the job runs; 0 or "": not said."""

    gpus: int = 0  # of each machine
    cpus: int = 0  # likewise
    mem: int = 0  # likewise, in MB
    time: int = 0  # minutes
    nodes: int = 1  # machines
    partition: str = ""
    account: str = ""


NOTHING: Final = Resources()


def parse_resources(text: str, others: Resources) -> Resources:
    """The resources of the text after `#:`, and the `others` for what it does not name.

    Raises UsageError for another name, or a value that is none.

    >>> parse_resources("gpus=8 mem=64GB time=12h", Resources(nodes=2))
    Resources(gpus=8, cpus=0, mem=64000, time=720, nodes=2, partition='', account='')
    """
    found: dict[str, Any] = dict(_values(text))
    return replace(others, **found)


def _values(text: str) -> Iterator[tuple[str, int | str]]:
    for word in text.split():
        name, _, value = word.partition("=")
        if name not in Resources.__dataclass_fields__:
            known = Resources.__dataclass_fields__
            raise UsageError(f"{MARK} {unknown_name('resource', name, known)}")
        if name in {"partition", "account"}:
            if not _NAME.fullmatch(value):
                raise UsageError(f"{MARK} {word}: {name} must be a name")
            yield name, value
        elif name == "mem":
            yield name, _amount(word, value, _MEGABYTES, "a size such as 64GB")
        elif name == "time":
            yield name, _amount(word, value, _MINUTES, "a time such as 90min, 12h or 2d")
        else:
            yield name, _amount(word, value, {"": 1}, "a whole number from 1 on")


def _amount(word: str, value: str, units: dict[str, int], wanted: str) -> int:
    match = re.fullmatch(r"([0-9]{1,7})([A-Za-z]*)", value)
    if match is None or match[2] not in units or not 1 <= int(match[1]) <= _LARGEST:
        raise UsageError(f"{MARK} {word} must be {wanted}")
    return int(match[1]) * units[match[2]]

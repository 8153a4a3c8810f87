"""All methods by the name that `--method` takes. Importing this table does not import torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

from vlcpctl.core.method import Method


class _Table(Mapping[str, type[Method]]):
    """Each method by its name, which its module has too; imported when it is looked up."""

    _names = (
        *("seqf", "joint", "er", "lwf", "icarl", "lucir"),
        *("ewc", "mas", "si", "rwalk", "afec"),
        *("der", "derpp", "co2l", "geodl", "ema"),
        *("zscl", "snd", "gift", "gnsp"),
        *("ctp", "incclip", "modx", "dha"),
        "bct",
    )

    def __getitem__(self, name: str) -> type[Method]:
        if name not in self._names:
            raise KeyError(name)
        found = vars(import_module(f"{__name__}.{name}"))
        method: type[Method] = found[name.capitalize()]
        return method

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names


TABLE: Final = _Table()

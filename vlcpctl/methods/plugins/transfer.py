"""Methods on their way to another process, which has not loaded the file that defines them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vlcpctl.core.method import Method
from vlcpctl.methods.plugins.method_file import file_of, load_method_code
from vlcpctl.methods.plugins.source import MethodSource, record_source, source_of


@dataclasses.dataclass(frozen=True)
class PackedMethod:
    """A method of a --method-file: the code that was read, its name and its hyper-parameters."""

    path: Path
    code: bytes
    name: str
    values: dict[str, Any]

    def unpacked(self) -> Method:
        """The method, after its code ran in this process, too."""
        return load_method_code(self.path, self.code).methods[self.name](**self.values)


@dataclasses.dataclass(frozen=True)
class SourcedMethod:
    """A method that can be imported by name, with the source that its registry recorded."""

    method: Method
    source: MethodSource

    def unpacked(self) -> Method:
        """The method, with its source known in this process, too."""
        record_source(type(self.method), self.source)
        return self.method


Packed = PackedMethod | SourcedMethod | Method


def packed(methods: Iterable[Method]) -> tuple[Packed, ...]:
    """The methods in a form that another process can unpickle."""
    return tuple(map(_packed, methods))


def unpacked(methods: Iterable[Packed]) -> tuple[Method, ...]:
    """The methods that `packed` was given."""
    return tuple(one if isinstance(one, Method) else one.unpacked() for one in methods)


def _packed(method: Method) -> Packed:
    file, source = file_of(type(method)), source_of(type(method))
    if file is not None:
        # The bytes, not the path: the file may be edited while the processes start.
        return PackedMethod(file.path, file.code, method.name, dataclasses.asdict(method))
    return method if source is None else SourcedMethod(method, source)

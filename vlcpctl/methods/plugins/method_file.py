"""Methods defined in a file of the user's, given with --method-file. Torch-free, unless it is not.

Loading such a file runs its code. Nothing but --method-file names a file to load: a checkpoint
records the digest of the code, and a state of `update` where it was, never the code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.abc import SourceLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from vlcpctl.core.errors import BadInput, first_line, missing, unreadable
from vlcpctl.core.method import Method
from vlcpctl.files.inputs import open_regular
from vlcpctl.methods.plugins.checks import check_declaration, guard_hooks
from vlcpctl.methods.plugins.registry import MethodSource, record_source, source_of


@dataclass(frozen=True)
class MethodFile:
    """A loaded file: its path, its bytes, their digest, and the methods it defines, by name."""

    path: Path
    code: bytes
    digest: str
    methods: dict[str, type[Method]]


# By digest: the same bytes are loaded once, so that a method stays one class in a process.
_LOADED: dict[str, MethodFile] = {}


def load_method_file(path: Path) -> MethodFile:
    """Run the code of a file and find its methods.

    Raises BadInput if the file cannot be read or imported, defines no method, two of one name, or
    one that lacks what every method declares.
    """
    return load_method_code(path, read_code(path, "--method-file"))


def read_code(path: Path, option: str) -> bytes:
    """The bytes of a file that an option names. Raises BadInput if it cannot be read."""
    if not path.exists():
        raise BadInput(f"{option} {missing(path)}")
    try:
        with open_regular(path) as file:
            return file.read()
    except OSError as error:
        raise BadInput(unreadable(path, error)) from error


def digest_of(code: bytes) -> str:
    """The digest by which identities name the code of a file."""
    return f"sha256:{hashlib.sha256(code).hexdigest()}"


def load_method_code(path: Path, code: bytes) -> MethodFile:
    """As `load_method_file`, for code that was read before: another process of the same run."""
    digest = digest_of(code)
    known = _LOADED.get(digest)
    methods = known.methods if known else _methods_of(imported(path, code), path)
    for method in methods.values():
        record_source(method, MethodSource(str(path), {"file": digest}))
    _LOADED[digest] = MethodFile(path, code, digest, methods)
    return _LOADED[digest]


def loaded_file(digest: str) -> MethodFile | None:
    """The file with this digest, if this process has loaded it."""
    return _LOADED.get(digest)


def file_of(method: type[Method]) -> MethodFile | None:
    """The file that defines a method; None if no loaded one does."""
    found = (file for file in _LOADED.values() if file.methods.get(method.name) is method)
    return next(found, None)


class _Loader(SourceLoader):
    """Imports bytes that were read before, and writes no compiled copy beside their file."""

    def __init__(self, path: Path, code: bytes) -> None:
        self._path, self._code = path, code

    def get_filename(self, fullname: str) -> str:
        return str(self._path)

    def get_data(self, path: str | bytes) -> bytes:
        return self._code


def imported(path: Path, code: bytes) -> ModuleType:
    """The module that the code of a file makes. Raises BadInput, in one line, if it fails."""
    name = f"vlcpctl_method_file_{digest_of(code).removeprefix('sha256:')[:16]}"
    loader = _Loader(path, code)
    spec = spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    # Dataclasses look up the module of a class while it is being defined.
    sys.modules[name] = module
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for results
            loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise BadInput(f"cannot import {path}: {_reason(error, path)}") from error
    return module


def _reason(error: BaseException, path: Path) -> str:
    """The kind and message of an error, with the line of the file that it comes from."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == str(path)]
    line = frames[-1].lineno if frames else None
    text = first_line(error)
    if isinstance(error, SyntaxError):
        line, text = error.lineno, error.msg
    place = f"line {line}: " if line is not None else ""
    kind = type(error).__name__
    return f"{place}{kind}" if text == kind else f"{place}{kind}: {text}"


def own_classes(module: ModuleType, base: type) -> list[type[Any]]:
    """The classes that a module defines and that derive from `base`, in their order."""
    found = [one for one in vars(module).values() if isinstance(one, type)]
    own = (one for one in found if one.__module__ == module.__name__)
    return [one for one in dict.fromkeys(own) if issubclass(one, base)]


def _methods_of(module: ModuleType, path: Path) -> dict[str, type[Method]]:
    """The methods that a module defines, by name, checked."""
    classes = own_classes(module, Method)
    found: dict[str, type[Method]] = {}
    for one in classes:
        is_base = not hasattr(one, "name") and any(
            issubclass(other, one) for other in classes if other is not one
        )
        if is_base:
            continue
        check_declaration(one, str(path))
        guard_hooks(one)
        if one.name in found:
            raise BadInput(
                f"{path}: classes {found[one.name].__qualname__} and {one.__qualname__} are both "
                f"named {one.name!r}; give each method a name of its own"
            )
        found[one.name] = one
    if not found:
        raise BadInput(
            f"{path} defines no method: it has no class that derives from "
            "vlcpctl.core.method.Method"
        )
    return found


@dataclass(frozen=True)
class PackedMethod:
    """A method of a --method-file: the code that was read, its name and its hyper-parameters."""

    path: Path
    code: bytes
    name: str
    values: dict[str, Any]

    def unpacked(self) -> Method:
        """The method, after its code ran in this process, too."""
        return load_method_code(self.path, self.code).methods[self.name](**self.values)


@dataclass(frozen=True)
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

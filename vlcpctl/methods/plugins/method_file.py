"""Methods defined in a file of the user's, given with --method-file. Torch-free, unless it is not.

Loading such a file runs its code. Nothing but --method-file, or the settings that `update` has
recorded of it, names a file to load: a checkpoint records the digest of the code, never the code.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import traceback
from dataclasses import dataclass
from importlib.abc import SourceLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from vlcpctl.core.errors import BadInput, first_line, missing, unreadable
from vlcpctl.core.input_files import open_regular
from vlcpctl.core.method import Method
from vlcpctl.methods.plugins.declaration import check_declaration
from vlcpctl.methods.plugins.guarding import guard_hooks
from vlcpctl.methods.plugins.source import MethodSource, record_source


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
    if not path.exists():
        raise BadInput(f"--method-file {missing(path)}")
    try:
        with open_regular(path) as file:
            code = file.read()
    except OSError as error:
        raise BadInput(unreadable(path, error)) from error
    return load_method_code(path, code)


def load_method_code(path: Path, code: bytes) -> MethodFile:
    """As `load_method_file`, for code that was read before: another process of the same run."""
    digest = f"sha256:{hashlib.sha256(code).hexdigest()}"
    known = _LOADED.get(digest)
    methods = known.methods if known else _methods_of(_imported(path, code, digest), path)
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


def _imported(path: Path, code: bytes, digest: str) -> ModuleType:
    """The module that the code makes."""
    name = f"vlcpctl_method_file_{digest.removeprefix('sha256:')[:16]}"
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


def _methods_of(module: ModuleType, path: Path) -> dict[str, type[Method]]:
    """The methods that a module defines, by name, checked."""
    classes = [
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Method) and one.__module__ == module.__name__
    ]
    found: dict[str, type[Method]] = {}
    for one in dict.fromkeys(classes):
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

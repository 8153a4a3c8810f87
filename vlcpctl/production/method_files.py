"""The files of --method-file of an update: recorded with their digest, unchanged whenever used."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.core.input_files import open_regular
from vlcpctl.methods.plugins.method_file import load_method_code, load_method_file
from vlcpctl.production.layout import relative_to_root, shown_path
from vlcpctl.production.settings import MethodCode


def record_method_files(root: Path, paths: Sequence[Path]) -> tuple[MethodCode, ...]:
    """The files at these paths, which are loaded, as the state records them.

    Raises BadInput as `load_method_file` does.
    """
    files = [load_method_file(path) for path in paths]
    return tuple(
        MethodCode(relative_to_root(root, path), file.digest, tuple(file.methods))
        for path, file in zip(paths, files, strict=True)
    )


def load_recorded(root: Path, recorded: Sequence[MethodCode]) -> None:
    """Load the files that the state has recorded, so that their methods can be composed.

    Raises BadInput if one is missing, or its code is not what it was when it was given: changed
    code is never run unseen.
    """
    for file in recorded:
        path = shown_path(root, file.path)
        if not path.exists():
            raise BadInput(f"the method file {path} does not exist; --method-file gives its place")
        try:
            with open_regular(path) as opened:
                code = opened.read()
        except OSError as error:
            raise BadInput(unreadable(path, error)) from error
        digest = f"sha256:{hashlib.sha256(code).hexdigest()}"
        if digest != file.digest:
            raise BadInput(
                f"the method file {path} has changed: its digest was {file.digest} and is now "
                f"{digest}; restore it, or give it again with --method-file to use it as it is now"
            )
        load_method_code(path, code)

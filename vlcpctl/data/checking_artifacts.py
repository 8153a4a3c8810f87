"""Check an artifact of whatever kind it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vlcpctl.core.artifacts import kind_of, read_manifest
from vlcpctl.core.errors import BadInput
from vlcpctl.data.checking import check_stream, check_task
from vlcpctl.data.checking_checkpoints import check_checkpoint
from vlcpctl.data.checking_pseudo_texts import check_pseudo_texts
from vlcpctl.data.checking_targets import check_targets

_CHECKS = {
    "stream": check_stream,
    "task": check_task,
    "checkpoint": check_checkpoint,
    "targets": check_targets,
    "file of pseudo texts": check_pseudo_texts,
}


def check(path: Path, *, deep: bool) -> Iterator[str]:
    """Every problem of the artifact at a path, a line each."""
    kind = "file of pseudo texts" if path.is_file() else kind_of(path)
    if kind is None:
        there = (
            "has no manifest: it is unfinished, or not an artifact"
            if path.exists()
            else "there is no such path"
        )
        yield f"{path}: {there}"
        return
    try:
        if kind in _CHECKS:
            yield from _CHECKS[kind](path, deep=deep)
        else:
            read_manifest(path, kind)
    except BadInput as error:
        yield str(error)
    except (KeyError, TypeError, AttributeError) as error:
        yield f"{path}: its manifest lacks what a {kind} has ({error})"

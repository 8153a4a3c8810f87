"""Check an artifact of any kind for damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vlcpctl.checkpoints.check import check_checkpoint
from vlcpctl.core.errors import BadInput
from vlcpctl.core.manifest import kind_of, read_manifest
from vlcpctl.data.precomputed.pseudo_texts import check_pseudo_texts
from vlcpctl.data.precomputed.teacher_targets import check_targets
from vlcpctl.inspection.check_tasks import check_stream, check_task
from vlcpctl.inspection.diagnosis import why_no_artifact

_CHECKS = {
    "stream": check_stream,
    "task": check_task,
    "checkpoint": check_checkpoint,
    "targets": check_targets,
    "file of pseudo texts": check_pseudo_texts,
}


def check(path: Path, *, deep: bool) -> Iterator[str]:
    """Yield a line for each problem of the artifact at `path`; raises nothing for damage.

    `deep` reads and hashes every byte. A path that is not an artifact is a problem, too.
    """
    why_not = why_no_artifact(path)
    if why_not is not None:
        yield f"{path}: {why_not}"
        return
    kind = kind_of(path) or "file of pseudo texts"
    try:
        if kind in _CHECKS:
            yield from _CHECKS[kind](path, deep=deep)
        else:
            read_manifest(path, kind)
    except BadInput as error:
        yield str(error)
    except (KeyError, TypeError, AttributeError) as error:
        yield f"{path}: its manifest lacks an entry that a {kind} needs ({error})"

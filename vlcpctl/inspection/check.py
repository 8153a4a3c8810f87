"""Check artifacts for damage, and data for flaws that make results less meaningful."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from vlcpctl.checkpoints.check import check_checkpoint
from vlcpctl.core.errors import BadInput, first_line
from vlcpctl.files.digests import FileDigest, changed_files
from vlcpctl.files.inputs import converted
from vlcpctl.files.manifest import MANIFESTS, kind_of, read_manifest
from vlcpctl.inspection.check_tasks import check_stream, check_task
from vlcpctl.inspection.diagnosis import why_no_artifact
from vlcpctl.inspection.fairness import fairness
from vlcpctl.inspection.findings import Finding, splits_of
from vlcpctl.inspection.leaks import TrainingImages, leaks, near_duplicates

_CHECKS = {
    "stream": check_stream,
    "task": check_task,
    "checkpoint": check_checkpoint,
}
# Errors that an unforeseen change of a file may cause.
_DAMAGE = (ValueError, ArithmeticError, RecursionError, MemoryError, pa.ArrowException)


def check(path: Path, *, deep: bool) -> Iterator[str]:
    """Yield a line for each problem of the artifact at `path`; raises nothing for damage.

    `deep` reads and hashes every byte. A path that is not an artifact is a problem, too.
    """
    try:
        yield from _problems(path, deep=deep)
    except BadInput as error:
        yield str(error)
    except OSError as error:
        yield f"{error.filename or path}: {error.strerror or first_line(error)}"
    except (LookupError, TypeError, AttributeError) as error:
        kind = kind_of(path)
        yield f"{path}: its manifest lacks an entry that a {kind} needs ({first_line(error)})"
    except _DAMAGE as error:
        found = f"{type(error).__name__}: {first_line(error)}"
        yield f"{path} is damaged in a way that stops the check ({found})"


def _problems(path: Path, *, deep: bool) -> Iterator[str]:
    why_not = why_no_artifact(path)
    if why_not is not None:
        yield f"{path}: {why_not}"
        return
    kind = kind_of(path)
    assert kind is not None, "it is an artifact"
    if kind in _CHECKS:
        yield from _CHECKS[kind](path, deep=deep)
    else:
        yield from _check_recorded(path, kind, deep=deep)


def _check_recorded(path: Path, kind: str, *, deep: bool) -> Iterator[str]:
    """Yield a line for each file that is not what was recorded, if the manifest lists files."""
    manifest = read_manifest(path, kind)
    place = f"{path / MANIFESTS[kind]}, digests"
    recorded = converted(manifest.get("digests") or {}, dict[str, FileDigest], place)
    yield from changed_files(path, recorded, use_cache=not deep)


def findings(paths: Sequence[Path], *, near_bits: int | None = None) -> Iterator[Finding]:
    """Yield flaws that make training on these artifacts, or results on them, less meaningful.

    All of them are taken together: an image of the test split of one is looked for in the training
    data of all. Damaged splits are left out, as `check` reports them. `near_bits` are those within
    which perceptual hashes may differ (None: not compared).
    """
    splits = splits_of(paths)
    known = TrainingImages(splits)
    yield from leaks(known)
    if near_bits is not None:
        yield from near_duplicates(known, near_bits)
    yield from fairness(splits)

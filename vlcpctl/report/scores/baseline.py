"""The model given with --baseline: a checkpoint for each seed, found in the rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput, UsageError, some_names, unknown_name
from vlcpctl.files.rows import Row
from vlcpctl.report.scores.runs import START, step_of

_PREFIX = re.compile(r"[0-9a-f]{6,}")
_DIGITS_SHOWN = 12
_MOST_SHOWN = 200  # characters of an unknown name


@dataclass(frozen=True)
class Baseline:
    """A model by the content ids of its checkpoints; `text` is how the user named it."""

    text: str
    by_seed: Mapping[int, str]

    def of(self, seed: int) -> str | None:
        """The checkpoint to compare a seed with: that of this seed, or the only one."""
        if seed in self.by_seed:
            return self.by_seed[seed]
        only = set(self.by_seed.values())
        return only.pop() if len(only) == 1 else None


def find_baseline(text: str, rows: Sequence[Row]) -> Baseline:
    """The baseline named by a run in the rows, a checkpoint's directory or a prefix of its id.

    Raises UsageError if the name is unknown or ambiguous, and BadInput if the rows have none of
    the checkpoint.
    """
    of_run = [row for row in rows if row.run == text and row.since is None]
    if of_run:
        return Baseline(text, _last_checkpoints(text, of_run))
    content = _content(text) or _with_prefix(text, rows)
    seeds = sorted({row.seed for row in rows if row.checkpoint == content})
    if not seeds:
        raise BadInput(
            f"--baseline: the rows have none of the checkpoint {text} "
            f"({content[:_DIGITS_SHOWN]}); evaluate it on the same data"
        )
    return Baseline(text, dict.fromkeys(seeds[:1], content))


def _last_checkpoints(run: str, rows: Sequence[Row]) -> dict[int, str]:
    found: dict[int, tuple[int, str]] = {}
    for row in rows:
        step = step_of(row)
        if row.checkpoint is None:
            raise BadInput(f"--baseline: {row.place} does not record the checkpoint of run {run!r}")
        if step >= found.get(row.seed, (START, ""))[0]:
            found[row.seed] = step, row.checkpoint
    return {seed: checkpoint for seed, (_, checkpoint) in sorted(found.items())}


def _content(text: str) -> str | None:
    """The content id of a checkpoint's directory; None if there is no such path."""
    path = Path(text)
    try:
        if not path.exists():
            return None
    except (OSError, ValueError):  # too long for a path, or with a NUL
        return None
    return CheckpointManifest.read(path).content


def _with_prefix(text: str, rows: Sequence[Row]) -> str:
    known = {row.checkpoint for row in rows}
    found = sorted(one for one in known if one.startswith(text)) if _PREFIX.fullmatch(text) else []
    if len(found) > 1:
        ids = some_names([one[: len(text) + _DIGITS_SHOWN] for one in found])
        raise UsageError(f"--baseline: {text} is the start of {len(found)} ids: {ids}")
    if not found:
        unknown = unknown_name("run", text[:_MOST_SHOWN], {row.run for row in rows})
        raise UsageError(
            f"--baseline: {unknown}; or give the directory of a checkpoint, or at least 6 digits "
            "of its content id"
        )
    return found[0]

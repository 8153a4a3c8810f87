"""The checkpoints of each run in the rows, with what they record."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.step_config import step_config
from vlcpctl.core.errors import BadInput
from vlcpctl.files.ids import content_id
from vlcpctl.files.rows import Row, run_label
from vlcpctl.models.checkpoint_files import LOG, WEIGHT_SUFFIXES, is_slot
from vlcpctl.report.cards.search import FoundCheckpoint, find_checkpoints
from vlcpctl.report.cards.training_log import TrainingLog, read_training_log
from vlcpctl.report.scores import START

_MOST_ROWS = 200  # kept of each phase of a log
_ALL_ROWS = 10_000  # kept of one phase of all logs together, unless that is fewer than _LEAST_ROWS
_LEAST_ROWS = 2
_MOST_LOG_NOTES = 5
_DIGITS = 6  # of a number in summary.json

_Place = tuple[str, int, int]  # run, seed, and step or START


@dataclass(frozen=True)
class StepCard:
    """One checkpoint of a run: its seed, its step (or START) and what it records."""

    seed: int
    step: int
    manifest: CheckpointManifest
    log: TrainingLog | None

    @property
    def parents(self) -> list[str]:
        """The content ids of what it was trained from or averages; empty if that is not known."""
        found = self.manifest.parents or (self.manifest.parent,)
        return [content for content in found if content is not None]

    @property
    def is_trained(self) -> bool:
        """Whether a train-step made it: merged and imported models have no cost."""
        return not self.manifest.is_merged and self.manifest.origin is None

    @property
    def learned(self) -> int:
        """How many of its last tasks this train-step learned: several in joint training."""
        return max(1, len(self.manifest.identity.get("tasks") or ()))

    @property
    def first_step(self) -> int:
        """The step of the first task that this train-step learned, or START."""
        steps = self.manifest.task_steps[-self.learned :]
        known = [step for step in steps if step is not None]
        return min(known, default=self.step)

    @property
    def pairs_per_second(self) -> float | None:
        """Pairs seen per second of training; None if it was not timed."""
        seconds = self.manifest.train_seconds
        return self.manifest.pairs / seconds if seconds and self.is_trained else None

    @property
    def state_bytes(self) -> int | None:
        """Bytes of the files that the methods carry from task to task; None if not recorded."""
        return self._bytes_of(is_slot)

    @property
    def model_bytes(self) -> int | None:
        """Bytes of the model's files of weights; None if they were not recorded."""
        return self._bytes_of(
            lambda name: not is_slot(name) and PurePosixPath(name).suffix in WEIGHT_SUFFIXES
        )

    @property
    def peak_bytes(self) -> int | None:
        """Peak memory of the process that wrote it; None if it was not recorded."""
        found = (self.manifest.peak_memory or {}).get("process")
        return found if isinstance(found, int) else None

    @property
    def peak_device_bytes(self) -> int | None:
        """Peak memory of that process on its GPU; None if it had none, or was not recorded."""
        found = (self.manifest.peak_memory or {}).get("device")
        return found if isinstance(found, int) else None

    @property
    def command(self) -> str:
        """The command that wrote it, as one types it; empty if it was not recorded."""
        words = self.manifest.made_by.get("argv")
        if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
            return ""
        program = PurePath(words[0]).name
        return shlex.join(["vlcpctl" if program == "__main__.py" else program, *words[1:]])

    def as_json(self) -> dict[str, Any]:
        """The form that summary.json has, with whole content ids.

        `last_terms` has the last value of each term of the log, null if it is not finite.
        """
        made, speed = self.manifest, self.pairs_per_second
        cost = {
            "seconds": made.train_seconds,
            "pairs": made.pairs,
            "pairs_per_second": None if speed is None else round(speed, _DIGITS),
            "peak_bytes": self.peak_bytes,
            "peak_device_bytes": self.peak_device_bytes,
            "state_bytes": self.state_bytes,
            "model_bytes": self.model_bytes,
        }
        terms = {one.term: float(one.values[-1]) for one in self.log.curves} if self.log else {}
        last = {
            term: round(value, _DIGITS) if math.isfinite(value) else None
            for term, value in terms.items()
        }
        return {
            "seed": self.seed,
            "step": None if self.step == START else self.step,
            "checkpoint": made.content,
            "method": made.method,
            "parents": self.parents,
            "tasks": list(made.tasks[-self.learned :]) if self.is_trained else [],
            "buffer": made.identity.get("buffer"),
            "version": made.made_by.get("version"),
            "time": made.made_by.get("time"),
            "command": self.command or None,
            **(cost if self.is_trained else {}),
            "last_terms": None if self.log is None else last,
        }

    def _bytes_of(self, is_wanted: Callable[[str], bool]) -> int | None:
        digests = self.manifest.digests
        if not digests:  # of an earlier version
            return None
        entries = [entry for name, entry in digests.items() if is_wanted(name)]
        sizes = [entry.get("bytes") for entry in entries if isinstance(entry, dict)]
        return sum(size for size in sizes if isinstance(size, int))


@dataclass(frozen=True)
class RunCard:
    """One run: its checkpoints, ordered by seed and step."""

    name: str
    steps: tuple[StepCard, ...]

    @property
    def seeds(self) -> list[int]:
        """The seeds, in order."""
        return sorted({one.seed for one in self.steps})

    @property
    def last(self) -> StepCard:
        """The last checkpoint of the first seed."""
        return max(
            (one for one in self.steps if one.seed == self.seeds[0]), key=lambda one: one.step
        )

    def as_json(self) -> dict[str, Any]:
        """The form that summary.json has; the configuration is that of its last checkpoint."""
        return {
            "run": self.name,
            "config": step_config(self.last.manifest),
            "origins": dict(self.last.manifest.origins),
            "checkpoints": [one.as_json() for one in self.steps],
        }


@dataclass(frozen=True)
class Cards:
    """The cards of all runs that have checkpoints, and notes about what was left out."""

    runs: tuple[RunCard, ...]
    notes: tuple[str, ...]
    most_rows: int  # that were kept of each phase of a log

    @property
    def digest(self) -> str:
        """An id of all that was read, wherever it was."""
        read = [
            {
                "place": [run.name, one.seed, one.step],
                "content": one.manifest.content,
                "manifest": one.manifest.body(),
                "made_by": one.manifest.made_by,
                "log": one.manifest.digests.get(LOG) if one.log else None,
            }
            for run in self.runs
            for one in run.steps
        ]
        return content_id([read, list(self.notes)])

    def as_json(self) -> list[dict[str, Any]]:
        """An object for each run, for summary.json."""
        return [run.as_json() for run in self.runs]


def read_cards(paths: Sequence[Path], rows: Iterable[Row], runs: Collection[str] = ()) -> Cards:
    """The cards of the runs in these rows, or only of `runs`, from checkpoints at these paths.

    A checkpoint belongs to a run if a row of the run has its content id, or if it is of the same
    run and seed and one of these was trained from it. Raises as `find_checkpoints` does.
    """
    found, notes = find_checkpoints(paths)
    places = _places(rows, runs, found)
    used = set(places.values())
    left = sorted({_name_of(one.manifest) for id_, one in found.items() if id_ not in used})
    most = min(_MOST_ROWS, max(_LEAST_ROWS, _ALL_ROWS // max(len(used), 1)))
    cards: dict[str, list[StepCard]] = {}
    log_notes: list[str] = []
    for (run, seed, step), content in sorted(places.items()):
        checkpoint, log = found[content], None
        try:
            log = read_training_log(checkpoint, most)
        except BadInput as error:
            reason = str(error).replace(f"{checkpoint.path}/", "")
            whose = f"run {run!r}, seed {seed}, {_when(step)}"
            log_notes.append(f"--checkpoint: the log of {whose} was left out: {reason}")
        cards.setdefault(run, []).append(StepCard(seed, step, checkpoint.manifest, log))
    notes += log_notes[:_MOST_LOG_NOTES]
    more = len(log_notes) - _MOST_LOG_NOTES
    if more > 0:
        notes.append(f"the logs of {more} more checkpoints were left out as well")
    if left:
        count = len(found) - len(used)
        were = "is in no row and was" if count == 1 else "are in no row and were"
        notes.append(
            f"--checkpoint: {count} of {len(found)} checkpoints {were} left out, such as that of "
            f"{left[0]}"
        )
    made = tuple(RunCard(name, tuple(members)) for name, members in cards.items())
    return Cards(made, tuple(notes), most)


def _places(
    rows: Iterable[Row], runs: Collection[str], found: Mapping[str, FoundCheckpoint]
) -> dict[_Place, str]:
    """The content id of the checkpoint at each place of the runs."""
    places: dict[_Place, str] = {}
    for row in rows:
        if row.checkpoint in found and (not runs or row.run in runs):
            step = START if row.step is None else row.step
            places.setdefault((row.run, row.seed, step), row.checkpoint)
    # Rows are often of the last model only, which was trained from the models before it.
    for (run, seed, _), content in list(places.items()):
        for ancestor in _ancestors(found, content):
            made = found[ancestor].manifest
            step = START if made.step is None else made.step
            if (run_label(made.run, made.alpha), made.seed) != (run, seed):
                break
            places.setdefault((run, seed, step), ancestor)
    return places


def _ancestors(found: Mapping[str, FoundCheckpoint], content: str) -> Iterator[str]:
    """The checkpoint that a checkpoint was trained from, that one's, and so on while found."""
    seen = {content}
    parent = found[content].manifest.parent
    while parent is not None and parent in found and parent not in seen:
        seen.add(parent)
        yield parent
        parent = found[parent].manifest.parent


def _name_of(made: CheckpointManifest) -> str:
    step = START if made.step is None else made.step
    return f"run {run_label(made.run, made.alpha)!r}, seed {made.seed}, {_when(step)}"


def _when(step: int) -> str:
    return "not trained on a stream" if step == START else f"step {step}"


def settings_of(card: StepCard) -> Mapping[str, Any] | None:
    """The settings of a checkpoint as rows record them; None if it was imported."""
    config = step_config(card.manifest)
    return None if config is None else config["values"]

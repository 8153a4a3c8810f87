"""week.json and verdict.json: what the week being made was asked for, and how it was judged."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput
from vlcpctl.core.words import printable
from vlcpctl.data.tasks.facts import read_stream
from vlcpctl.files.inputs import converted
from vlcpctl.files.manifest import read_manifest
from vlcpctl.production.layout import TRAINED, Layout
from vlcpctl.production.left_out import left_out_of
from vlcpctl.production.records import (
    VERDICT,
    WEEK,
    as_json,
    read_record,
    sealed_record,
    write_record,
)
from vlcpctl.production.settings import Settings
from vlcpctl.production.state import Week
from vlcpctl.report.gates import Verdict, in_words

_WEEK, VERDICT_FILE = "week.json", "verdict.json"


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training of a week, and how it was judged."""

    attempt: int  # of train-step
    accepted: bool
    verdicts: tuple[dict[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What decides a week: its number, the checkpoint it continues, its data and its settings."""

    number: int
    parent: str  # the content id of the last accepted checkpoint
    data: str
    sources: tuple[str, ...]
    settings: Settings
    fresh_state: bool
    measured: tuple[str, ...]  # guards on which the start is evaluated in this week
    deleted: tuple[str, ...] = ()  # content ids of the stop lists whose pairs are left out
    readmitted: tuple[str, ...] = ()  # deletions whose pairs are taken in again (--readmit)
    accept_inexact: bool = False  # its training may have gone on where results are not bit-exact
    rejected: tuple[Training, ...] = ()  # earlier trainings, in whose place this one is
    reason: str | None = None  # --reason of the last call

    @classmethod
    def read(cls, directory: Path) -> Self:
        """The attempt in a directory. Raises BadInput if it cannot be read."""
        if not (directory / _WEEK).exists():
            raise BadInput(f"{directory / _WEEK} is missing; restore it from a backup")
        return read_record(directory / _WEEK, WEEK, cls)

    def write(self, directory: Path) -> None:
        """Write week.json."""
        body = as_json(self)
        if self.reason is None:
            del body["reason"]  # earlier versions can read it
        write_record(directory / _WEEK, WEEK, body)

    def differences(self, other: Attempt) -> list[str]:
        """A phrase for each difference that makes another training; `other` is the new one."""
        found = []
        if self.number != other.number or self.parent != other.parent:
            found.append("it continues another checkpoint")
        if self.data != other.data:
            before, now = (printable(", ".join(one.sources)) for one in (self, other))
            found.append(f"its data was {before} and is now {now}")
        if self.fresh_state != other.fresh_state:
            found.append("--fresh-state differs")
        for name, (was, is_now) in self.settings.different_training(other.settings).items():
            found.append(f"{name} was {_shown(was)} and is now {_shown(is_now)}")
        return found

    def accepted(self, directory: Path, verdicts: Sequence[dict[str, Any]]) -> Week:
        """The entry of state.json for this week, once it was accepted."""
        totals = read_stream(directory / "stream").totals
        return Week(
            number=self.number,
            data=self.data,
            sources=self.sources,
            pairs=sum(split.images for split in totals.values()),
            checkpoint=CheckpointManifest.read(directory / "checkpoint").content,
            verdicts=tuple(verdicts),
            measured=self.measured,
            left_out=left_out_of(directory)[0],
        )


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """How the gates judged a week. `warnings` are about what no gate rejects."""

    accepted: bool
    gates: tuple[str, ...]
    undefined: str
    verdicts: tuple[dict[str, Any], ...]
    attempts: tuple[Training, ...] = ()  # all trainings of the week, of which the last counts
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, directory: Path, attempt: Attempt, *, accepted: bool) -> Self:
        """The judgement of the report in a directory. Raises BadInput if there is no report."""
        path = directory / "report"
        found = read_manifest(path, "report")["verdicts"]
        verdicts = converted(found, tuple[dict[str, Any], ...], f"{path}, verdicts")
        last = Training(attempt=len(attempt.rejected), accepted=accepted, verdicts=verdicts)
        return cls(
            accepted=accepted,
            gates=attempt.settings.gates,
            undefined=attempt.settings.undefined_gates,
            verdicts=verdicts,
            attempts=(*attempt.rejected, last),
        )

    @classmethod
    def recorded(cls, week: Week) -> Self:
        """The judgement that state.json has of an accepted week, without the conditions."""
        return cls(accepted=True, gates=(), undefined="", verdicts=week.verdicts)

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """The judgement in a directory; None if there is none. Raises BadInput if unreadable."""
        if not (directory / VERDICT_FILE).exists():
            return None
        return read_record(directory / VERDICT_FILE, VERDICT, cls)

    def write(self, directory: Path) -> None:
        """Write verdict.json."""
        write_record(directory / VERDICT_FILE, VERDICT, as_json(self))

    @property
    def outcome(self) -> str:
        """The verdict on the week, as `in_words` has it."""
        return in_words(verdicts_of(self.verdicts, Path(VERDICT_FILE)), accepted=self.accepted)

    @property
    def is_clear(self) -> bool:
        """Whether a loss is above its bound even at 1.96 standard errors less."""
        return any(one.get("holds") and one.get("is_clear") for one in self.verdicts)

    @property
    def against(self) -> list[str]:
        """A phrase for each condition that rejected the week, with the value that was found."""
        return [_phrase(one) for one in self.verdicts if one.get("holds") is True]

    @property
    def unresolved(self) -> list[str]:
        """A phrase for each loss that no condition rejects, but which may be above its bound."""
        found = {  # in the first week the start is the last accepted model, too
            (one.get("data"), one.get("value")): _phrase(one)
            for one in reversed(self.verdicts)
            if one.get("is_resolved") is False and one.get("holds") is False
        }
        return [*reversed(found.values())]


def read_attempt(directory: Path) -> Attempt | None:
    """The attempt in a directory; None if there is none, or too little to be worth keeping."""
    if not (directory / _WEEK).exists():
        return None
    return Attempt.read(directory)


def trained_in(directory: Path) -> Path:
    """The checkpoint of a week, or of the start, as it was trained: what is deployed if not merged.

    Raises BadInput if week.json cannot be read.
    """
    attempt = read_attempt(directory)  # the start has none
    is_merged = attempt is not None and attempt.settings.merges
    return directory / (TRAINED if is_merged else "checkpoint")


def judged_at(directory: Path) -> str:
    """When the week in a directory was judged. Raises BadInput if its verdict cannot be read."""
    path = directory / VERDICT_FILE
    made_by = converted(sealed_record(path, VERDICT).get("made_by"), dict[str, Any], path)
    return str(made_by.get("time", ""))


def require_judged(directory: Path, number: int, parent: str) -> tuple[Attempt, Judgement]:
    """The attempt and judgement of a week that was moved to the accepted ones.

    Raises BadInput if either is missing, it was not accepted, or it is not the week of this number
    that continues the checkpoint with the content id `parent`.
    """
    attempt, judged = read_attempt(directory), Judgement.read(directory)
    if attempt is None or judged is None or not judged.accepted:
        found = "is not in state.json and was not accepted by 'update'"
        raise BadInput(f"{directory} {found}{_away(directory)}")
    if (attempt.number, attempt.parent) != (number, parent):
        raise BadInput(
            f"{directory} is not in state.json, and was made as week {attempt.number} after "
            f"checkpoint {attempt.parent[:12]}, not as week {number} after {parent[:12]}"
            f"{_away(directory)}"
        )
    return attempt, judged


def refuse_other_weeks(place: Layout, last: int) -> None:
    """Raise BadInput for a week that is not in state.json and would be in the way of a later one.

    `last` is the number of the last week that is, or will be, in it.
    """
    weeks = place.week(1).parent
    found = sorted(weeks.glob("[0-9]" * 4)) if weeks.is_dir() else []
    for one in found:
        if int(one.name) > last:
            raise BadInput(f"{one} is not in state.json{_away(one)}")


def _away(week: Path) -> str:
    """What to do about a directory that is no accepted week."""
    state = week.parent.parent
    repair = shlex.join(["mv", str(week), str(state / f"{week.name}.old")])
    return f"; move it away with '{repair}', and run the same command again"


def verdicts_of(verdicts: Sequence[dict[str, Any]], file: Path) -> list[Verdict]:
    """The verdicts that a file has recorded, as the report had them.

    Raises BadInput if one lacks a field or has one of another type.
    """
    return [Verdict.read(one, file) for one in verdicts]


def _phrase(verdict: Mapping[str, Any]) -> str:
    value, data = verdict.get("value"), verdict.get("data")
    shown = f" is {value:.2f}" if isinstance(value, int | float) else ""
    on_data = f" on {data}" if data else ""
    chance, low, high = (verdict.get(name) for name in ("chance", "low", "high"))
    by_chance = ""
    if isinstance(chance, int | float):
        shown += f" (95 % {low:.1f} to {high:.1f})"
        by_chance = f"; chance alone reaches {chance:.1f}"
    return f"{verdict.get('metric')}{on_data}{shown} ({verdict.get('condition')}{by_chance})"


def _shown(value: object) -> str:
    return "not set" if value is None else repr(value)

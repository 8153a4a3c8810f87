"""week.json and verdict.json: what the week being made was asked for, and how it was judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput
from vlcpctl.core.fields import Fields
from vlcpctl.core.manifest import read_manifest
from vlcpctl.core.printable import printable
from vlcpctl.data.tasks.facts import read_stream
from vlcpctl.production.left_out import left_out_of
from vlcpctl.production.records import VERDICT, WEEK, objects, read_record, write_record
from vlcpctl.production.settings import Settings
from vlcpctl.production.state import Week
from vlcpctl.report.gates.verdicts import Verdict

_WEEK, _VERDICT = "week.json", "verdict.json"


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

    @classmethod
    def read(cls, directory: Path) -> Self:
        """The attempt in a directory. Raises BadInput if it cannot be read."""
        take = read_record(directory / _WEEK, WEEK)
        return cls(
            number=take("number", int),
            parent=take("parent", str),
            data=take("data", str),
            sources=tuple(take.texts("sources")),
            settings=Settings.read(Fields(take("settings", dict), take.place)),
            fresh_state=take("fresh_state", bool),
            measured=tuple(take.texts("measured")),
            deleted=tuple(take.texts("deleted", [])),
            readmitted=tuple(take.texts("readmitted", [])),
        )

    def write(self, directory: Path) -> None:
        """Write week.json."""
        body = {**vars(self), "settings": self.settings.as_json()}
        for name in ("deleted", "readmitted"):  # as earlier versions recorded it
            if not body[name]:
                del body[name]
        write_record(directory / _WEEK, WEEK, body)

    def differences(self, other: Attempt) -> list[str]:
        """A phrase for each difference that makes another training; `other` is the new one."""
        found = []
        if self.number != other.number or self.parent != other.parent:
            found.append("it continues another checkpoint")
        if self.data != other.data:
            found.append(f"its data was {_names(self.sources)} and is now {_names(other.sources)}")
        if self.fresh_state != other.fresh_state:
            found.append("--fresh-state differs")
        for name, (before, now) in self.settings.different_training(other.settings).items():
            found.append(f"{name} was {_shown(before)} and is now {_shown(now)}")
        return found

    def accepted(self, directory: Path, verdicts: Sequence[dict[str, Any]]) -> Week:
        """The entry of state.json for this week, once it was accepted."""
        totals = read_stream(directory / "stream")["totals"]
        return Week(
            number=self.number,
            data=self.data,
            sources=self.sources,
            pairs=sum(int(split["images"]) for split in totals.values()),
            checkpoint=CheckpointManifest.read(directory / "checkpoint").content,
            verdicts=tuple(verdicts),
            measured=self.measured,
            left_out=left_out_of(directory)[0],
        )


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """How the gates judged a week."""

    accepted: bool
    gates: tuple[str, ...]
    undefined: str
    verdicts: tuple[dict[str, Any], ...]
    time: str = ""

    @classmethod
    def of(cls, directory: Path, settings: Settings, *, accepted: bool) -> Self:
        """The judgement of the report in a directory. Raises BadInput if there is no report."""
        take = Fields(read_manifest(directory / "report", "report"), directory / "report")
        found = tuple(dict(one.value) for one in objects(take, "gates"))
        return cls(
            accepted=accepted,
            gates=settings.gates,
            undefined=settings.undefined_gates,
            verdicts=found,
        )

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """The judgement in a directory; None if there is none. Raises BadInput if unreadable."""
        if not (directory / _VERDICT).exists():
            return None
        take = read_record(directory / _VERDICT, VERDICT)
        made_by = Fields(take("made_by", dict), take.place)
        return cls(
            accepted=take("accepted", bool),
            gates=tuple(take.texts("gates")),
            undefined=take("undefined", str),
            verdicts=tuple(dict(one.value) for one in objects(take, "verdicts")),
            time=made_by("time", str, ""),
        )

    def write(self, directory: Path) -> None:
        """Write verdict.json."""
        body = {name: value for name, value in vars(self).items() if name != "time"}
        write_record(directory / _VERDICT, VERDICT, body)

    @property
    def against(self) -> list[str]:
        """A phrase for each condition that rejected the week, with the value that was found."""
        return [_phrase(one) for one in self.verdicts if one.get("holds") is True]


def read_attempt(directory: Path) -> Attempt | None:
    """The attempt in a directory; None if there is none, or too little to be worth keeping."""
    if not (directory / _WEEK).exists():
        return None
    return Attempt.read(directory)


def require_judged(directory: Path) -> tuple[Attempt, Judgement]:
    """The attempt and judgement of a week that was moved to the accepted ones.

    Raises BadInput if either is missing, or it was not accepted.
    """
    attempt, judged = read_attempt(directory), Judgement.read(directory)
    if attempt is None or judged is None or not judged.accepted:
        raise BadInput(
            f"{directory} is not in state.json and was not accepted by 'update'; move it away"
        )
    return attempt, judged


def verdicts_of(judged: Judgement, directory: Path) -> list[Verdict]:
    """The verdicts of a judgement as the report had them; `directory` is named in messages.

    Raises BadInput if one lacks a field or has one of another type.
    """
    return [Verdict.read(Fields(one, directory / _VERDICT)) for one in judged.verdicts]


def _phrase(verdict: Mapping[str, Any]) -> str:
    value, data = verdict.get("value"), verdict.get("data")
    shown = f" is {value:.2f}" if isinstance(value, int | float) else ""
    on_data = f" on {data}" if data else ""
    return f"{verdict.get('metric')}{on_data}{shown} ({verdict.get('condition')})"


def _names(sources: Sequence[str]) -> str:
    return printable(", ".join(sources))


def _shown(value: object) -> str:
    return "not set" if value is None else repr(value)

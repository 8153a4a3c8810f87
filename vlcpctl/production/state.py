"""state.json: the start of a model in production, the settings, and the weeks accepted so far."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from vlcpctl.core.errors import BadInput, missing
from vlcpctl.data.splitting.leaving_out import Counts
from vlcpctl.files.stores import protocol_of
from vlcpctl.production.layout import MOST_WEEKS, Layout
from vlcpctl.production.records import STATE, as_json, read_record, write_record
from vlcpctl.production.settings import Guard, Settings

_RETIRED = frozenset({"rejections"})  # a field of an unpublished version; the ledger has them


@dataclass(frozen=True, kw_only=True)
class Start:
    """What the first week continues: a checkpoint, and a buffer of the data behind it, if given.

    `source` is the content id of the checkpoint that was given, or the words that name a pretrained
    model; `ready` is whether everything of the start is made.
    """

    given: str
    source: str
    buffer_from: tuple[str, ...]
    settings: Settings
    ready: bool = False
    checkpoint: str = ""  # the content id; empty until it is ready
    measured: tuple[str, ...] = ()  # guards that the start was evaluated on, by `guard_ids`

    def urls(self) -> list[tuple[str, str]]:
        """What of the start's data is in an object store: the option, and the URL."""
        return [("buffer-from", one) for one in self.buffer_from if protocol_of(one) is not None]


@dataclass(frozen=True, kw_only=True)
class Week:
    """An accepted week."""

    number: int
    data: str  # the id of what was given as NEW_DATA
    sources: tuple[str, ...]  # its names
    pairs: int  # images, those held out included
    checkpoint: str  # its content id
    verdicts: tuple[dict[str, Any], ...]
    measured: tuple[str, ...] = ()  # guards that the start was first evaluated on in this week
    left_out: Counts = field(default_factory=dict)  # pairs by reason and list


@dataclass(frozen=True, kw_only=True)
class State:
    """The content of state.json.

    `rolling_back` are weeks that are still to be moved away, `redone` those of `weeks` that are
    still to be moved to the place of others.
    """

    start: Start
    settings: Settings
    weeks: tuple[Week, ...] = ()
    rolling_back: tuple[int, ...] = ()
    redone: tuple[int, ...] = ()

    @property
    def last(self) -> int:
        """The number of the last accepted week; 0 is the start."""
        return len(self.weeks)

    def weeks_of_current(self, place: Layout) -> list[int]:
        """The weeks that `current` may be a link to: the last one, and what a kill can leave."""
        moved = [self.last + 1] if place.week(self.last + 1).exists() else []
        replaced = place.numbers_from(self.redone[0]) if self.redone else []
        return [self.last, *moved, *self.rolling_back, *replaced]

    @property
    def checkpoint(self) -> str:
        """The content id of the last accepted checkpoint."""
        return self.weeks[-1].checkpoint if self.weeks else self.start.checkpoint

    @property
    def measured(self) -> set[str]:
        """The guards on which the start was evaluated, or will be as it is made, by `guard_ids`."""
        if not self.start.ready:
            return set(guard_ids(self.start.settings))
        return {*self.start.measured, *(one for week in self.weeks for one in week.measured)}

    def week_of(self, data: str) -> Week | None:
        """The accepted week that was made from this data, if there is one."""
        return next((week for week in self.weeks if week.data == data), None)

    def write(self, place: Layout) -> None:
        """Write state.json."""
        body = as_json(self)
        if not self.redone:
            del body["redone"]  # earlier versions can read it
        write_record(place.state, STATE, body)


def read_state(place: Layout) -> State:
    """The state in a state directory.

    Raises BadInput if there is none, it cannot be read, or it has changed since it was written.
    """
    if not place.state.is_file():
        if not place.root.exists():
            said = missing(place.root)
            raise BadInput(f"{said}{' ' if said.endswith('?') else '; '}--init starts a state")
        raise BadInput(
            f"{place.root} is not a state directory: it has no state.json; --init starts one"
        )
    state = read_record(place.state, STATE, State, retired=_RETIRED)
    numbers = [week.number for week in state.weeks]
    if len(numbers) > MOST_WEEKS or numbers != list(range(1, len(numbers) + 1)):
        raise BadInput(f"{place.state}: the weeks are not numbered from 1 to at most {MOST_WEEKS}")
    if not all(state.last < one <= MOST_WEEKS for one in state.rolling_back):
        raise BadInput(f"{place.state}: field 'rolling_back' has a number that is not a later week")
    return state


def guard_ids(settings: Settings) -> list[str]:
    """An id for each guard: the content id of a task; the path or name of a set of classes.

    That of a task has what was added to its gallery.
    """
    tasks = (_task_id(guard, settings) for guard in settings.guards)
    return [*tasks, *map(_class_id, settings.classes)]


def unmeasured(state: State, settings: Settings) -> Settings:
    """The settings with only those guards that the start was not evaluated on yet."""
    known = state.measured
    return replace(
        settings,
        guards=tuple(one for one in settings.guards if _task_id(one, settings) not in known),
        classes=tuple(one for one in settings.classes if _class_id(one) not in known),
    )


def _task_id(guard: Guard, settings: Settings) -> str:
    return "+".join([guard.content, *sorted(one.content for one in settings.distractors)])


def _class_id(word: str) -> str:
    return f"classes:{word}"

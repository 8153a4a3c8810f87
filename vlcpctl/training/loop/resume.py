"""The saved state of an unfinished train-step, from which it resumes exactly.

.CKPT.vlcpctl/partial/identity.json          the settings; a run with others is refused
.CKPT.vlcpctl/partial/metrics.jsonl          the log, cut back to the saved position on resume
.CKPT.vlcpctl/partial/at-PPPP-SSSSSSSSSS/    one complete state
    state.json       written last: size and digest of all its other files, of identity.json, and of
                     the part of metrics.jsonl that belongs to it
    position.json    the position and counters
    *.safetensors    the weights, optimizers and slots

A resumed run ends with the same bytes as one that was never stopped. Whatever is missing, changed
or added in a state is an error that names the file, and never a fresh start of what it contained.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from torch import Tensor

from vlcpctl.core.atomic import new_part, refuse_unfinished
from vlcpctl.core.digests import (
    FileDigest,
    changed_prefix,
    digests_of,
    unlisted_files,
    verify_files,
)
from vlcpctl.core.errors import BadInput, Incompatible
from vlcpctl.core.manifest import identity_differences
from vlcpctl.core.safe_json import read_json_object
from vlcpctl.core.staging import Staging, sync
from vlcpctl.core.structs import converted, fields_beyond
from vlcpctl.core.tensors import read_tensors, write_tensors
from vlcpctl.training.loop.metrics_log import FILE_NAME
from vlcpctl.training.loop.optim import Plateau

SCHEMA = "vlcpctl.state/1"
IDENTITY, STATE, POSITION = "identity.json", "state.json", "position.json"
START_OVER = "; --force starts over"

_Kind = TypeVar("_Kind", bound=msgspec.Struct)
_STATE_NAME = re.compile(r"at-(\d{4,})-(\d{10,})")


class SavedProgress(msgspec.Struct):
    """The position and counters of a saved state; its tensors are stored beside them."""

    phase: int = 0
    step: int = 0
    journal_bytes: int = 0
    train_seconds: float = 0.0
    inverting_seconds: float = 0.0  # of train_seconds, spent on pseudo texts
    pairs: int = 0
    plateau: Plateau = msgspec.field(default_factory=Plateau)
    best: float | None = None
    scaler: dict[str, Any] = {}


class _Identity(msgspec.Struct, frozen=True):
    """identity.json: what decides the results of the run, and what decides their last bits."""

    semantic: dict[str, Any]
    numeric: dict[str, Any]


class _State(msgspec.Struct, frozen=True):
    """state.json: size and digest of the other files of a state."""

    schema: str
    journal: FileDigest = msgspec.field(name=FILE_NAME)
    identity: FileDigest = msgspec.field(name=IDENTITY)
    files: Mapping[str, FileDigest]


class ResumeDirectory:
    """The state of an unfinished run, in the staging directory of its checkpoint."""

    def __init__(self, out: Path) -> None:
        self.out, self.staging = out, Staging(out)
        self.path = self.staging.partial
        self.journal = self.path / FILE_NAME

    def claim(
        self,
        semantic: dict[str, Any],
        numeric: dict[str, Any],
        *,
        force: bool,
        accept_inexact: bool,
    ) -> None:
        """Create the directory, or accept an existing one to resume from.

        Raises OutputExists if it belongs to a run with other settings (`semantic`), and
        Incompatible if the machine or library differs (`numeric`) without `accept_inexact`, or if
        a file of the saved state is missing, changed or added.
        """
        newest = None if force else self.newest()
        # Without a complete state nothing would be lost: such a directory is simply reused.
        if newest is not None:
            state = _read_state(newest)
            _verify(self.path, {IDENTITY: state.identity})
            found = _read(self.path / IDENTITY, _Identity)
            refuse_unfinished(self.path, found.semantic, semantic)
            inexact = identity_differences(found.numeric, numeric)
            if inexact and not accept_inexact:
                raise Incompatible(
                    f"{self.path} was started on a different setup and would not resume "
                    f"bit-exactly: {'; '.join(inexact)}; --accept-inexact resumes anyway"
                )
            self._verify_state(newest, state)
            return
        if force and self.path.exists():
            self.staging.keep(self.path)
        self.staging.open_partial()
        identity = json.dumps({"semantic": semantic, "numeric": numeric}, indent=1)
        with new_part(self.path / IDENTITY) as temporary:  # killed here: no half of a file
            temporary.write_text(identity)

    def save(
        self, saved: SavedProgress, tensors: dict[str, dict[str, Tensor]], journal: FileDigest
    ) -> None:
        """Write a complete state, with `tensors` by file and name, then remove older states.

        `journal` is size and digest of metrics.jsonl up to the saved position.
        """
        final = self.path / f"at-{saved.phase:04d}-{saved.step:010d}"
        temporary = self.path / "writing"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        for name, values in tensors.items():
            write_tensors(temporary / f"{name}.safetensors", values)
        (temporary / POSITION).write_text(json.dumps(msgspec.to_builtins(saved)))
        identity = digests_of(self.path, [IDENTITY])[IDENTITY]
        state = _State(SCHEMA, journal, identity, digests_of(temporary))
        (temporary / STATE).write_text(json.dumps(msgspec.to_builtins(state), indent=1))
        # On disk before the rename: after a power cut, the new name could otherwise hold empty
        # files while the older state is gone.
        for path in temporary.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        self._remove_states(final)
        temporary.rename(final)
        sync(self.path)
        self._remove_states(*(old for old in self._states() if old != final))

    def load(self) -> tuple[SavedProgress, dict[str, dict[str, Tensor]]] | None:
        """The newest complete state, as `claim` verified it, and its tensors by file and name.

        None if there is none. Raises Incompatible if it cannot be read.
        """
        newest = self.newest()
        if newest is None:
            return None
        saved = _read(newest / POSITION, SavedProgress)
        if _position_of(newest) != (saved.phase, saved.step):
            raise Incompatible(f"{newest} has the position of another state{START_OVER}")
        tensors = {
            str(path.relative_to(newest).with_suffix("")): read_tensors(path)
            for path in sorted(newest.rglob("*.safetensors"))
        }
        return saved, tensors

    def newest(self) -> Path | None:
        """The directory of the newest complete state, or None."""
        return next(reversed(self._states()), None)

    def remove(self) -> None:
        """Delete the state, once the run is finished."""
        self.staging.drop_partial()

    def _states(self) -> list[Path]:
        """The directories of states, by position: each got its name when it was complete."""
        found = {path: _position_of(path) for path in self.path.glob("at-*")}
        states = {path: position for path, position in found.items() if position is not None}
        return sorted(states, key=lambda path: states[path])

    def _remove_states(self, *states: Path) -> None:
        # Renamed first: a process killed in between must not leave half a state under its name.
        for state in states:
            removing = self.path / "removing"
            shutil.rmtree(removing, ignore_errors=True)
            if state.exists():
                state.rename(removing)
                shutil.rmtree(removing)

    def _verify_state(self, directory: Path, state: _State) -> None:
        """Refuse a state unless its files are those that were written, and no others."""
        _verify(directory, state.files)
        for name in unlisted_files(directory, {*state.files, STATE}):
            raise Incompatible(f"{directory / name} is not part of the saved state{START_OVER}")
        if POSITION not in state.files:
            raise Incompatible(f"{directory} has no {POSITION}{START_OVER}")
        changed = changed_prefix(self.journal, state.journal)
        if changed:
            raise Incompatible(f"{changed}{START_OVER}")


def _position_of(state: Path) -> tuple[int, int] | None:
    """Phase and step by the name of a state's directory; None if it is not one."""
    found = _STATE_NAME.fullmatch(state.name)
    return (int(found[1]), int(found[2])) if found and state.is_dir() else None


def _read_state(directory: Path) -> _State:
    """The content of a state.json. Raises Incompatible if it is missing or not one."""
    path = directory / STATE
    if not path.exists():
        raise Incompatible(
            f"{directory} has changed since it was saved: it has no {STATE}{START_OVER}"
        )
    state = _read(path, _State)
    if state.schema != SCHEMA:
        raise Incompatible(f"{path} has schema {state.schema!r:.80}, not {SCHEMA!r}{START_OVER}")
    return state


def _read(path: Path, kind: type[_Kind]) -> _Kind:
    """A JSON file of a state. Raises Incompatible if it cannot be read or has other fields."""
    try:
        found = read_json_object(path)
        state = converted(found, kind, path)
        known = msgspec.to_builtins(state)
        others = [*fields_beyond(found, known), *fields_beyond(known, found)]
        if others:
            names = ", ".join(others)
            raise BadInput(f"{path} lacks fields, or has fields of another version: {names}")
        return state
    except BadInput as error:
        raise Incompatible(f"{error}{START_OVER}") from error


def _verify(directory: Path, recorded: Mapping[str, FileDigest]) -> None:
    # Without the cache: a state is read once, and small states would only fill it.
    verify_files(directory, recorded, error=Incompatible, advice=START_OVER, use_cache=False)

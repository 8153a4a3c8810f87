"""The files of an unfinished train-step, from which it resumes exactly. Imports torch when read.

.CKPT.vlcpctl/partial/identity.json        the settings; a run with others is refused
.CKPT.vlcpctl/partial/metrics.jsonl        every loss term of each step; cut back to the saved
                                           position on resume
.CKPT.vlcpctl/partial/state.safetensors    weights, optimizers and slots; its metadata has the
                                           position, and digests of all that is in these three files
.CKPT.vlcpctl/partial/progress.json        what the process will do and when it began, for `inspect`

A new state takes the place of the one before in one rename. A resumed run ends with the same bytes
as one that was never stopped; whatever was changed in a state is an error, never a fresh start.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import xxhash

from vlcpctl.core.errors import BadInput, Incompatible, VlcpError
from vlcpctl.core.words import counted, duration
from vlcpctl.files.digests import ALGORITHM, FileDigest, changed_prefix, digests_of, verify_files
from vlcpctl.files.finished import UNFINISHED, refuse_other
from vlcpctl.files.inputs import converted, parse_json, read_json_object, reading
from vlcpctl.files.manifest import identity_differences
from vlcpctl.files.outputs import Output, new_part
from vlcpctl.files.tensors import writing_tensors

if TYPE_CHECKING:
    from torch import Tensor

JOURNAL, STATE = "metrics.jsonl", "state.safetensors"
IDENTITY, PROGRESS = "identity.json", "progress.json"
START_OVER = "; --force starts over"
_FACTS = "vlcpctl"  # the name of the metadata
FLUSH_S = 0.5  # after which others can read the rows of metrics.jsonl, such as `inspect`


class Plateau(msgspec.Struct, frozen=True):
    """Counts validations without a lower loss; one more than the patience is a drop."""

    best: float | None = None
    stalled: int = 0
    drops: int = 0

    def after(self, loss: float, patience: int) -> Plateau:
        """The state after one more validation, with this loss.

        >>> state = Plateau().after(1.0, 1).after(1.0, 1).after(1.0, 1)
        >>> state.drops
        1
        """
        if self.best is None or loss < self.best:
            return msgspec.structs.replace(self, best=loss, stalled=0)
        if self.stalled < patience:
            return msgspec.structs.replace(self, stalled=self.stalled + 1)
        return msgspec.structs.replace(self, stalled=0, drops=self.drops + 1)


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


class _Facts(msgspec.Struct, frozen=True):
    """The metadata of a state."""

    schema: Literal["vlcpctl.state/2"]
    saved: SavedProgress
    journal: FileDigest
    identity: FileDigest


class ResumeDirectory:
    """The directory of an unfinished run, in the hidden directory of its checkpoint."""

    def __init__(self, out: Path) -> None:
        self.output = Output(out)
        self.path = self.output.partial
        self.journal, self.state = self.path / JOURNAL, self.path / STATE

    def claim(
        self,
        semantic: dict[str, Any],
        numeric: dict[str, Any],
        *,
        force: bool,
        accept_inexact: bool,
    ) -> None:
        """Create the directory, or accept an existing one to resume from.

        Raises OutputExists if it belongs to a run with other settings or data (`semantic`), and
        Incompatible if the machine or library differs (`numeric`) without `accept_inexact`, or if
        the state cannot be resumed.
        """
        if force and self.path.exists():
            self.output.drop_partial(keeps=True)
        if any(self.path.glob("at-*")):
            raise Incompatible(f"{self.path} was saved by vlcpctl 0.3 or before it{START_OVER}")
        # Without a state nothing would be lost: such a directory is simply reused.
        if self.newest() is None:
            self.output.open_partial()
            identity = json.dumps({"semantic": semantic, "numeric": numeric}, indent=1)
            with new_part(self.path / IDENTITY) as temporary:  # killed here: no half of a file
                temporary.write_text(identity)
            return
        facts, _ = self._read(whole=False)
        recorded = {IDENTITY: facts.identity}
        verify_files(self.path, recorded, error=Incompatible, advice=START_OVER, use_cache=False)
        found = read_json_object(self.path / IDENTITY)
        refuse_other(self.path, found["semantic"], semantic, UNFINISHED)
        inexact = identity_differences(found["numeric"], numeric)
        if inexact and not accept_inexact:
            raise Incompatible(
                f"{self.path} was started on a different setup and would not resume "
                f"bit-exactly: {'; '.join(inexact)}; --accept-inexact resumes anyway"
            )
        if changed := changed_prefix(self.journal, facts.journal):
            raise Incompatible(f"{changed}{START_OVER}")

    def save(
        self, saved: SavedProgress, tensors: Mapping[str, Tensor], journal: FileDigest
    ) -> None:
        """Write a state in place of the one before.

        `journal` is size and digest of metrics.jsonl up to the saved position. Tensors may share
        memory: each name has its own values in the file.
        """
        from safetensors.torch import save_file

        from vlcpctl.files.tensors import on_cpu

        identity = digests_of(self.path, [IDENTITY])[IDENTITY]
        facts = _Facts("vlcpctl.state/2", saved, journal, identity)
        text = json.dumps(msgspec.to_builtins(facts))
        flat = on_cpu(tensors)
        with new_part(self.state) as temporary, writing_tensors(temporary):
            save_file(flat, temporary, {_FACTS: text, ALGORITHM: _digest(text, flat)})

    def load(self) -> tuple[SavedProgress, dict[str, Tensor]] | None:
        """The saved position and the tensors by name; None if there is no state.

        The tensors are mapped to the file. Raises Incompatible if it is not what was written.
        """
        if self.newest() is None:
            return None
        facts, tensors = self._read(whole=True)
        return facts.saved, tensors

    def newest(self) -> Path | None:
        """The file of the state, or None."""
        return self.state if os.path.lexists(self.state) else None

    def remove(self) -> None:
        """Delete the state, once the run is finished."""
        self.output.drop_partial()

    def _read(self, *, whole: bool) -> tuple[_Facts, dict[str, Tensor]]:
        """The facts of the state and, if it is read `whole`, its verified tensors."""
        from safetensors import safe_open

        try:
            with reading(self.state), safe_open(self.state, "pt") as file:
                metadata = file.metadata() or {}
                text = metadata.get(_FACTS, "")
                tensors = file.get_tensors() if whole else {}
                facts = converted(parse_json(text), _Facts, self.state)
        except BadInput as error:
            raise Incompatible(f"{error}{START_OVER}") from error
        if whole and metadata.get(ALGORITHM) != _digest(text, tensors):
            raise Incompatible(f"{self.state} has changed since it was written{START_OVER}")
        return facts, tensors


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """The xxh3_128 of the facts and of all tensors, with names, types and shapes."""
    import torch

    digest = xxhash.xxh3_128(text.encode())
    for name in sorted(tensors):
        one = tensors[name]
        digest.update(f"\n{name} {one.dtype} {list(one.shape)}\n".encode())
        digest.update(one.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@dataclass(frozen=True)
class PhaseSteps:
    """A phase as rows of metrics.jsonl name it: its steps are `offset`, ..., offset + steps - 1."""

    name: str
    offset: int
    steps: int


@dataclass(frozen=True)
class Ended:
    """The exit code and the message of an error."""

    code: int
    message: str


@dataclass(frozen=True, kw_only=True)
class ProgressFile:
    """What this process will do, where and when it started, and how it ended, if it failed.

    Rows of metrics.jsonl have no times and do not say how many steps will come. `first` is the
    number of steps, of all phases, that earlier processes did.
    """

    run: str
    method: str
    tasks: tuple[str, ...]
    batch_size: int
    epoch_steps: int
    phases: tuple[PhaseSteps, ...]
    first: int
    started: float = field(default_factory=time.time)  # in seconds since 1970
    pid: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)
    ended: Ended | None = None
    schema: Literal["vlcpctl.progress/1"] = "vlcpctl.progress/1"

    @classmethod
    def read(cls, directory: Path) -> ProgressFile:
        """The file in a directory. Raises BadInput if it is missing or not one."""
        path = directory / PROGRESS
        return converted(read_json_object(path), cls, path)

    def write(self, directory: Path) -> None:
        """Write the file; errors of the operating system are ignored: only `inspect` lacks it."""
        with suppress(OSError), new_part(directory / PROGRESS) as temporary:
            temporary.write_text(json.dumps(asdict(self), indent=1))

    @contextmanager
    def kept_in(self, directory: Path) -> Iterator[None]:
        """Within the block, the file is in the directory; an error that ends it is recorded."""
        self.write(directory)
        try:
            yield
        except VlcpError as error:
            replace(self, ended=Ended(error.exit_code, str(error))).write(directory)
            raise


class MetricsLog:
    """Appends rows to metrics.jsonl, after cutting the file back to `keep_bytes`.

    Rows after the saved position belong to steps that a resumed run repeats. Only rank 0 writes;
    the other processes pass no path.
    """

    def __init__(self, path: Path | None, keep_bytes: int) -> None:
        self._file = path.open("a+b") if path else None
        self._bytes, self._digest = keep_bytes, xxhash.xxh3_128()
        self._flushed = time.monotonic()
        if self._file:
            self._file.truncate(keep_bytes)
            self._file.seek(0)
            self._digest.update(self._file.read())

    def append(self, row: dict[str, Any]) -> None:
        """Add one row. It has no times: equal runs must have equal journals."""
        if self._file:
            line = (json.dumps(row) + "\n").encode()
            self._file.write(line)
            self._bytes += len(line)
            self._digest.update(line)
            if time.monotonic() - self._flushed > FLUSH_S:
                self._file.flush()
                self._flushed = time.monotonic()

    def sync(self) -> FileDigest:
        """Flush to disk; returns the size and digest of all rows, as a saved state records them."""
        if self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        return {"bytes": self._bytes, ALGORITHM: self._digest.hexdigest()}

    def close(self) -> None:
        """Flush and close."""
        if self._file:
            self._file.close()


def outcome(
    journal: Path, seconds: float, pairs: int, rate: str, keep: str = "last"
) -> Iterator[str]:
    """One line about the training in a complete metrics.jsonl, and one about its validation.

    `rate` is text to add to the number of pairs, such as " (200 pairs/s)"; `keep` says which epoch
    has been kept.
    """
    steps, last = 0, b""
    validations: list[dict[str, Any]] = []
    with journal.open("rb") as file:
        for line in file:
            if b'"val_loss"' in line:
                validations.append(json.loads(line))
            elif line.startswith(b'{"phase": "train"'):
                steps, last = steps + 1, line
    loss = f"; final loss {json.loads(last)['loss']:.3f}" if last else ""
    yield f"trained {counted(steps, 'step')} on {pairs} pairs in {duration(seconds)}{rate}{loss}"
    if validations:
        kept, best = validations[-1], ""
        if keep != "last":
            name = keep.removeprefix("best:")
            sign = 1.0 if name == "val_rmean" else -1.0
            kept = max(validations, key=lambda row: sign * row[name])
            best = f", the best of {len(validations)}"
        recall = f", R@mean {kept['val_rmean']:.2f}" if "val_rmean" in kept else ""
        yield f"validation after step {kept['step'] + 1}{best}: loss {kept['val_loss']:.3f}{recall}"

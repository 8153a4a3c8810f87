"""Work done in parts, so that it can be killed and resumed: options, its directory, its parts.

.OUT.vlcpctl/partial/identity.json       the settings; a command with others is refused
.OUT.vlcpctl/partial/part-NNNNNN.json    written when the files of part N are complete: size and
                                         digest of each, and of identity.json

A finished part is verified before it is used. One that is not recorded is computed again. Torch is
imported where it is used: commands that only plan stay fast.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vlcpctl.core.atomic import new_part, refuse_unfinished
from vlcpctl.core.console import say
from vlcpctl.core.digests import digests_of, verify_files
from vlcpctl.core.errors import BadInput, Incompatible, VlcpError
from vlcpctl.core.gpu import in_words, worker_count
from vlcpctl.core.manifest import identity_differences
from vlcpctl.core.safe_json import read_json_object
from vlcpctl.core.staging import Staging
from vlcpctl.core.versions import NO_VERSIONS, Versions
from vlcpctl.distributed.pool import ALONE, Pool, pool_of

IDENTITY = "identity.json"
_ADVICE = "; --force starts over"


@dataclass(frozen=True, kw_only=True)
class ComputeOptions:
    """How the work is executed; it changes the last bits of results at most."""

    batch_size: int
    device: str
    workers: int | None  # None: auto
    threads: int
    nproc: int = 1  # processes that run the model
    pool: Pool = ALONE  # these processes, while parts are computed

    @contextmanager
    def with_pool(self) -> Iterator[ComputeOptions]:
        """Within the block, the processes run; yields these options with their pool."""
        from vlcpctl.models.imports import preload

        with pool_of(self.nproc, self.device, preload) as pool:
            yield replace(self, pool=pool)

    @property
    def worker_count(self) -> int:
        """The number of processes that decode images; 0 decodes them in this process."""
        return worker_count(self.workers, self.device, self.nproc)

    def __str__(self) -> str:
        """The device and the workers, as a line of a plan."""
        return in_words(self.workers, self.device)

    def numeric(self) -> dict[str, Any]:
        """The facts that decide the last bits of the result."""
        from vlcpctl.core.devices import arithmetic_facts, torch_device

        return {
            **arithmetic_facts(torch_device(self.device)),
            "threads": self.threads,
            "batch_size": self.batch_size,
        }


def claim(
    out: Path,
    identity: dict[str, Any],
    compute: ComputeOptions,
    *,
    force: bool,
    versions: Versions = NO_VERSIONS,
) -> Path:
    """Create the directory of parts, or accept an existing one to resume from; return its path.

    Raises OutputExists if it belongs to a different command, or the data was rewritten since
    (`versions` are those of the inputs), and Incompatible if its identity.json
    cannot be read or is missing beside finished parts; `force` deletes it first.
    """
    staging = Staging(out)
    own = {**identity, "numeric": compute.numeric()}
    # Two shards may start at the same moment: without a lock, both would find no settings there.
    with staging.locked_part("settings", wait_s=math.inf):
        return _claimed(staging, own, versions, force=force)


def _claimed(staging: Staging, own: dict[str, Any], versions: Versions, *, force: bool) -> Path:
    if force:
        staging.drop_partial()
    partial = staging.partial
    stored = partial / IDENTITY
    if stored.exists() or any(partial.glob("part-*.json")):
        refuse_unfinished(partial, _read(stored), own, versions)
        return partial
    staging.open_partial()
    with new_part(stored) as temporary:
        temporary.write_text(json.dumps(own, indent=1))
    return partial


def drop_finished(out: Path, identity: dict[str, Any], versions: Versions = NO_VERSIONS) -> None:
    """Delete the parts of an output that is finished, if a kill has left them.

    Those of another command stay, and so does everything while another process is at work.
    """
    staging = Staging(out)
    stored = staging.partial / IDENTITY
    with suppress(OSError, VlcpError):
        found = read_json_object(stored) if stored.exists() else identity
        alike = {**found, "numeric": None}, {**identity, "numeric": None}
        if not identity_differences(*alike, versions):
            staging.drop_partial()


def record_part(number: int, files: Sequence[Path]) -> None:
    """Record the files of a part, which are complete: from now on the part is finished."""
    partial = files[0].parent
    entry = digests_of(partial, [IDENTITY, *(path.name for path in files)])
    with new_part(_record(partial, number)) as temporary:
        temporary.write_text(json.dumps(entry, indent=1))


def is_finished(number: int, files: Sequence[Path]) -> bool:
    """Whether the part with these files is finished; they are not read."""
    return _record(files[0].parent, number).exists()


def verify_part(number: int, files: Sequence[Path]) -> None:
    """Raise Incompatible, naming the file, if one of a finished part is not what was written."""
    partial = files[0].parent
    recorded = _read(_record(partial, number))
    if recorded.keys() != {IDENTITY, *(path.name for path in files)}:
        raise Incompatible(f"{_record(partial, number)} lists the files of another part{_ADVICE}")
    verify_files(partial, recorded, error=Incompatible, advice=_ADVICE, use_cache=False)


def missing_parts(out: Path, files: Mapping[int, Sequence[Path]]) -> list[int]:
    """The numbers of the parts that are not finished; prints a line if work resumes.

    `files` are those of each part. Raises Incompatible, naming the file, if one of a finished part
    is not what was written.
    """
    missing = [number for number, paths in files.items() if not is_finished(number, paths)]
    for number in files.keys() - set(missing):
        verify_part(number, files[number])
    if len(missing) < len(files):
        say(f"resuming {out} at part {len(files) - len(missing)} of {len(files)}")
    return missing


def _record(partial: Path, number: int) -> Path:
    return partial / f"part-{number:06d}.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json_object(path)
    except BadInput as error:
        raise Incompatible(f"{error}{_ADVICE}") from error

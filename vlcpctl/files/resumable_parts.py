"""Work done in parts, so that it can be killed and resumed: its directory and its parts.

.OUT.vlcpctl/partial/identity.json       the settings; a command with others is refused
.OUT.vlcpctl/partial/part-NNNNNN.json    written when the files of part N are complete: size and
                                         digest of each, and of identity.json

A part has a number or a name. A finished part is verified before it is used; one that is not
recorded is computed again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput, Incompatible, VlcpError
from vlcpctl.files.atomic import REPLACES, new_part, refuse_unfinished
from vlcpctl.files.digests import digests_of, verify_files
from vlcpctl.files.inputs import read_json_object
from vlcpctl.files.manifest import identity_differences
from vlcpctl.files.staging import Staging

IDENTITY = "identity.json"
_ADVICE = "; --force starts over"

Name = int | str
Part = TypeVar("Part", int, str)


def claim(
    out: Path,
    identity: dict[str, Any],
    numeric: dict[str, Any],
    *,
    force: bool,
    advice: str = REPLACES,
) -> Path:
    """Create the directory of parts, or accept an existing one to resume from; return its path.

    `numeric` are the facts that decide the last bits of the parts. Raises OutputExists if the
    directory belongs to a different command, and Incompatible if its identity.json cannot be read
    or is missing beside finished parts; `force` deletes it first, and `advice` ends the refusal of
    other settings.
    """
    staging = Staging(out)
    own = {**identity, "numeric": numeric}
    # Two shards may start at the same moment: without a lock, both would find no settings there.
    with staging.locked_part("settings", wait_s=math.inf):
        if force:
            staging.drop_partial()
        partial = staging.partial
        stored = partial / IDENTITY
        if stored.exists() or any(partial.glob("part-*.json")):
            refuse_unfinished(partial, _read(stored), own, advice)
            return partial
        staging.open_partial()
        with new_part(stored) as temporary:
            temporary.write_text(json.dumps(own, indent=1))
    return partial


def drop_finished(out: Path, identity: dict[str, Any]) -> None:
    """Delete the parts of an output that is finished, if a kill has left them.

    Those of another command stay, and so does everything while another process is at work.
    """
    staging = Staging(out)
    stored = staging.partial / IDENTITY
    with suppress(OSError, VlcpError):
        found = read_json_object(stored) if stored.exists() else identity
        alike = {**found, "numeric": None}, {**identity, "numeric": None}
        if not identity_differences(*alike):
            staging.drop_partial()


def record_part(part: Name, files: Sequence[Path]) -> None:
    """Record the files of a part, which are complete: from now on the part is finished."""
    partial = files[0].parent
    entry = digests_of(partial, [IDENTITY, *(path.name for path in files)])
    with new_part(_record(partial, part)) as temporary:
        temporary.write_text(json.dumps(entry, indent=1))


def is_finished(part: Name, files: Sequence[Path]) -> bool:
    """Whether the part with these files is finished; they are not read."""
    return _record(files[0].parent, part).exists()


def verify_part(part: Name, files: Sequence[Path]) -> None:
    """Raise Incompatible, naming the file, if one of a finished part is not what was written."""
    partial = files[0].parent
    recorded = _read(_record(partial, part))
    if recorded.keys() != {IDENTITY, *(path.name for path in files)}:
        raise Incompatible(f"{_record(partial, part)} lists the files of another part{_ADVICE}")
    verify_files(partial, recorded, error=Incompatible, advice=_ADVICE, use_cache=False)


def missing_parts(out: Path, files: Mapping[Part, Sequence[Path]]) -> list[Part]:
    """Those of the parts that are not finished; prints a line if work resumes.

    `files` are those of each part. Raises Incompatible, naming the file, if one of a finished part
    is not what was written.
    """
    missing = [part for part, paths in files.items() if not is_finished(part, paths)]
    for part in files.keys() - set(missing):
        verify_part(part, files[part])
    if len(missing) < len(files):
        say(f"resuming {out} at part {len(files) - len(missing)} of {len(files)}")
    return missing


def _record(partial: Path, part: Name) -> Path:
    return partial / f"part-{part if isinstance(part, str) else f'{part:06d}'}.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json_object(path)
    except BadInput as error:
        raise Incompatible(f"{error}{_ADVICE}") from error

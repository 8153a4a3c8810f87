"""The keys of a task whose pairs for training were removed, so that no later split takes them in.

A JSON file, and beside it KEYS, an (N, 16) uint8 array in NumPy's format: 16 bytes a pair.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from vlcpctl.core.atomic import new_part
from vlcpctl.core.digests import ALGORITHM, cached_digest
from vlcpctl.core.errors import BadInput, unreadable
from vlcpctl.core.safe_json import read_json_object
from vlcpctl.core.seals import SEAL, broken_seal, seal_of
from vlcpctl.core.structs import converted
from vlcpctl.data.tasks.keys import KEY_BYTES, Keys
from vlcpctl.data.tasks.task import Task

SCHEMA = "vlcpctl.known-keys/1"
KEYS = "keys.npy"
_RESTORE = "; restore it from a backup"


class KnownKeys(msgspec.Struct):
    """What the JSON file says: the task's name, its first content id, and the digest of KEYS."""

    name: str
    content: str
    pairs: int
    digest: str


def write_known(path: Path, task: Task) -> None:
    """Write the keys of all splits of a task into `path` and the file beside it."""
    keys = Keys.joined([task.split(name).keys for name in task.manifest.splits])
    with new_part(path.with_name(KEYS)) as temporary, temporary.open("wb") as file:
        np.save(file, np.ascontiguousarray(keys.raw), allow_pickle=False)
    body: dict[str, Any] = {
        "name": task.name,
        "content": task.id,
        "pairs": len(keys),
        "digest": cached_digest(path.with_name(KEYS)),
    }
    with new_part(path) as temporary:
        text = json.dumps({"schema": SCHEMA, **body, SEAL: seal_of(body)}, indent=1)
        temporary.write_text(f"{text}\n", encoding="utf-8")


def read_known(path: Path) -> tuple[KnownKeys, Keys]:
    """What a file of known keys says, and the keys.

    Raises BadInput if it cannot be read, or one of the two has changed since they were written.
    """
    found = read_json_object(path)
    if found.get("schema") != SCHEMA:
        raise BadInput(
            f"{path} has schema {found.get('schema')!r:.80}; this version reads {SCHEMA}"
        )
    if (broken := broken_seal(path, found)) is not None:
        raise BadInput(broken + _RESTORE)
    about, keys = converted(found, KnownKeys, path), path.with_name(KEYS)
    try:
        raw = np.load(keys, allow_pickle=False)
        is_same = cached_digest(keys) == about.digest
    except (OSError, ValueError) as error:
        raise BadInput(unreadable(keys, error)) from error
    if not is_same or raw.dtype != np.uint8 or raw.shape != (about.pairs, KEY_BYTES):
        raise BadInput(f"{keys} has changed since it was written ({ALGORITHM}){_RESTORE}")
    return about, Keys(raw)


def is_known_keys(path: Path) -> bool:
    """Whether a file has known keys."""
    try:
        return read_json_object(path).get("schema") == SCHEMA
    except BadInput:
        return False

"""Manifests of checkpoints that no command has written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.files.digests import digests_of
from vlcpctl.files.manifest import MANIFESTS, SEAL, is_artifact, seal_of, write_manifest
from vlcpctl.files.outputs import new_directory


def write_checkpoint_manifest(directory: Path, content: str, **facts: Any) -> None:
    """A complete manifest of these facts in a directory, with a content id of the test's choice.

    It records the files that are in the directory, but lacks the hashes that decide a content id.
    Each task has its place in `tasks` as its step, unless `task_steps` says otherwise.
    """
    tasks = facts.get("tasks", [])
    usual = {"run": "ctp", "method": "ctp", "identity": {}, "task_names": tasks}
    given = {**usual, "task_steps": list(range(len(tasks))), **facts}
    made = CheckpointManifest(**given)
    body = {**made.body(), "digests": digests_of(directory)}
    seal = seal_of({"content": content, "identity": made.identity, **body})
    identity = dict(made.identity)
    write_manifest(directory, "checkpoint", identity, content, {**body, SEAL: seal})


def save_encoder(directory: Path, encoder: Any, content: str = "", **facts: Any) -> Path:
    """A checkpoint of a run `seqf` with this encoder; its content id is `content STEP`."""
    from vlcpctl.models import encoders

    usual = {"run": "seqf", "method": "seqf", "buffer": None, "seed": 0, "step": 0, "tasks": []}
    given: dict[str, Any] = {**usual, **facts}
    with new_directory(directory, is_artifact) as temporary:
        encoders.save(encoder, temporary)
        write_checkpoint_manifest(temporary, content or f"content {given['step']}", **given)
    return directory


def save_run(root: Path, model: str, steps: int = 2) -> Path:
    """New models in `run/STEP`, of which each has learned so many tasks of the stream beside it."""
    from vlcpctl.data.tasks.task import open_stream
    from vlcpctl.models import encoders

    contents = [task.content for task in open_stream(root / "stream")]
    for step in range(steps):
        encoder = encoders.build(model, encoders.NewModelOptions(seed=step))
        place = root / "run" / f"{step:02d}"
        save_encoder(place, encoder, step=step, tasks=contents[: step + 1])
    return root


def tasks_of(root: Path) -> list[Path]:
    """The tasks of the stream there."""
    return sorted((root / "stream").glob("[0-9]*"))


def record_files_again(directory: Path, kind: str = "checkpoint") -> None:
    """Make the manifest record the files as they are now, as if they had been written so."""
    path = directory / MANIFESTS[kind]
    digests = {name: one for name, one in digests_of(directory).items() if name != path.name}
    entries = {**json.loads(path.read_text()), "digests": digests}
    path.write_text(json.dumps({**entries, SEAL: seal_of(entries)}))

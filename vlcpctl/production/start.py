"""The start of a model in production: the checkpoint that the first week continues."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.errors import BadInput, OutputExists, UsageError, missing
from vlcpctl.core.words import printable
from vlcpctl.data.tasks.task import open_task
from vlcpctl.jobs.script import CommandLine
from vlcpctl.metrics.calibration import METRICS
from vlcpctl.models.configuration import configuration_here, has_logit_bias
from vlcpctl.production.layout import Layout, local_source
from vlcpctl.production.lines import PRETRAINED, Lines, is_pretrained
from vlcpctl.production.settings import NEW, Settings
from vlcpctl.production.state import Start, State, guard_ids

_MOST_CLONED = 1 << 30  # bytes of one call
_OF_VOLUME = "lost+found"  # in the root of a new file system


def begin(
    place: Layout,
    init: str | None,
    buffer_from: Sequence[str],
    given: Mapping[str, Any],
) -> State:
    """The state before its start is made; nothing is written.

    Raises UsageError without --init, OutputExists if the directory has other files, and BadInput if
    --init is not a checkpoint.
    """
    if init is None:
        raise UsageError(f"{place.root} is not a state directory; --init CHECKPOINT starts one")
    refuse_other_files(place)
    settings = first_settings(place, init, given)
    for data in buffer_from:
        if not Path(local_source(data)).exists():
            raise BadInput(f"--buffer-from {missing(data)}")
    start = Start(
        given=init, source=_source(init), buffer_from=tuple(buffer_from), settings=settings
    )
    return State(start=start, settings=settings)


def first_settings(place: Layout, init: str, given: Mapping[str, Any]) -> Settings:
    """The settings of a call with --init: the given ones and defaults.

    Raises BadInput if --init is not a checkpoint, and UsageError as `Settings.with_given` does.
    """
    made = None if is_pretrained(init) else CheckpointManifest.read(Path(init))
    run = made.run if made is not None and made.tasks else None
    return Settings(run=_run_name(place, given, run), **NEW).with_given(given)


def require_buffer(place: Layout, state: State, settings: Settings) -> None:
    """Raise UsageError if the method of the first week needs a buffer, and there is none."""
    if state.last > 0 or state.start.buffer_from:
        return
    for method in settings.methods:
        if method.needs(first=False).buffer:
            how = f"another --state than {place.root} with" if state.start.ready else "add"
            raise UsageError(
                f"method {method.name} replays a buffer, which the first week does not have; {how} "
                "--buffer-from DATA, or use a method that needs none, such as ctp"
            )


def require_probabilities(place: Layout, state: State, settings: Settings) -> None:
    """Raise UsageError for a condition on probabilities of pairs that the model does not have."""
    start, given = place.start / "checkpoint", state.start.given
    model = given.removeprefix(PRETRAINED).partition(",")[0] if is_pretrained(given) else given
    found = configuration_here(str(start) if start.exists() else model)
    if found is None or has_logit_bias(found.model):
        return
    for gate in settings.parsed_gates:
        if gate.metric.key in METRICS:
            raise UsageError(
                f"--fail-if {gate.text} is about probabilities of pairs, which only a model with a "
                f"sigmoid loss has: {given} has a softmax; leave the condition out"
            )


def require_same_buffer(place: Layout, state: State, settings: Settings) -> None:
    """Raise UsageError if the last buffer cannot be updated with these settings.

    Raises BadInput if it cannot be read.
    """
    if state.last == 0 and not (state.start.ready and state.start.buffer_from):
        return
    before = state.settings
    buffer = open_task(place.week(state.last) / "buffer").buffer
    pairs = {
        "--policy": (buffer.policy, settings.buffer_policy),
        "--seed": (before.seed, settings.seed),
        "--buffer-size": tuple(
            "a share" if one.buffer_size.endswith("%") else "a number" for one in (before, settings)
        ),
        "stored features": (buffer.features is not None, settings.stores_features),
    }
    for name, (was, now) in pairs.items():
        if was != now:
            raise UsageError(
                f"{name}: the buffer of {place.root} was made with {was}, not {now}, which cannot "
                "change; keep it, or start another --state"
            )


def make_start(lines: Lines, run: Callable[[Sequence[CommandLine]], None]) -> State:
    """Make what is missing of the start, and record that it is ready; returns the state."""
    place, state = lines.place, lines.state
    checkpoint = place.start / "checkpoint"
    place.start.mkdir(exist_ok=True)
    if not (is_pretrained(state.start.given) or checkpoint.exists()):
        place.link_tree(Path(state.start.given), checkpoint, _clone)  # users may edit theirs
    run(lines.of_start())
    content = CheckpointManifest.read(checkpoint).content
    if not is_pretrained(state.start.given) and content != state.start.source:
        raise BadInput(f"{state.start.given} has changed while it was being copied; try again")
    start = replace(
        state.start,
        ready=True,
        checkpoint=content,
        settings=lines.settings,
        measured=tuple(guard_ids(lines.settings)),
    )
    state = replace(state, start=start, settings=lines.settings)
    state.write(place)
    place.point_to(0)
    return state


def restarted(
    place: Layout,
    state: State,
    init: str | None,
    buffer_from: Sequence[str],
    settings: Settings,
    *,
    writes: bool = True,
) -> State:
    """The state, after --init and --buffer-from have been compared with what it was started from.

    A start that is not complete gives way to another one, and with `writes` is removed. Raises
    UsageError if the start is complete and another one is given.
    """
    start = state.start
    is_same = (init is None or _is_start(start, init)) and tuple(buffer_from) in {
        (),
        start.buffer_from,
    }
    if start.ready:
        if is_same:
            return state
        with_buffer = "".join(f" --buffer-from {one}" for one in start.buffer_from)
        raise UsageError(
            f"{place.root} was started with --init {start.given}{with_buffer}; leave these options "
            "out, or choose another --state"
        )
    if is_same and settings == start.settings:
        return state
    if writes:
        place.discard(place.start)
    new = replace(
        start,
        given=init or start.given,
        source=_source(init) if init else start.source,
        buffer_from=tuple(buffer_from) or start.buffer_from,
        settings=settings,
    )
    return replace(state, start=new, settings=settings)


def _source(init: str) -> str:
    return init if is_pretrained(init) else CheckpointManifest.read(Path(init)).content


def _is_start(start: Start, init: str) -> bool:
    """Whether --init, given again, names the start; its directory may have been removed since."""
    if is_pretrained(init) or not Path(init).exists():
        return init == start.given
    return _source(init) == start.source


def refuse_other_files(place: Layout) -> None:
    """Raise OutputExists if a state cannot be started in the directory: it has other files."""
    if place.state.is_file() or not os.path.lexists(place.root):
        return
    names = [path.name for path in place.root.iterdir()] if place.root.is_dir() else [""]
    own = {_OF_VOLUME, *([place.scratch.hidden.name] if place.scratch.is_ours() else [])}
    left = f".{place.state.name}.tmp-"  # by a killed call
    if any(name not in own and not name.startswith(left) for name in names):
        raise OutputExists(
            f"{place.root} already exists and is not a state directory; choose another --state"
        )


def _run_name(place: Layout, given: Mapping[str, Any], of_start: str | None) -> str:
    """The name of the run in rows: the state directory's, unless --run is given.

    A start that was trained under the same name would make the weeks continue its run, whose rows
    are not here. Raises UsageError if --run has that name.
    """
    name = str(given.get("run") or printable(Path(place.root).resolve().name).strip() or "update")
    if name != of_start:
        return name
    if given.get("run"):
        raise UsageError(f"--run {name} is the run of --init; choose another name")
    return f"{name}-updates"


def _clone(source: Path, target: Path) -> None:
    """Copy a file; where the file system can, both share blocks until one is changed."""
    with suppress(OSError), source.open("rb") as reading, target.open("xb") as writing:
        if hasattr(os, "copy_file_range"):
            while os.copy_file_range(reading.fileno(), writing.fileno(), _MOST_CLONED):
                pass
            return
    shutil.copyfile(source, target)

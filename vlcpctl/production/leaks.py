"""Test images among the pairs to train on: looked for after a split, before anything is trained.

Images are the same if the bytes of their files are. Shapes: N pairs for training, T captions.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vlcpctl.core.console import say, warn
from vlcpctl.core.errors import BadInput, some_names
from vlcpctl.data.images.header import BrokenImage
from vlcpctl.data.splitting.leaving_out import images_of
from vlcpctl.data.tasks.facts import read_stream
from vlcpctl.data.tasks.keys import Keys
from vlcpctl.data.tasks.task import Split, Task, open_task
from vlcpctl.files.stores import is_stored
from vlcpctl.inspection.image_looks import nearest_within, perceptual_hash
from vlcpctl.jobs.script import CommandLine
from vlcpctl.production.left_out import described
from vlcpctl.production.lines import Lines, RunLines
from vlcpctl.production.state import unmeasured

_SHOWN = 3  # keys
_BITS = 4  # of 64 in which the perceptual hashes of near duplicates may differ
_LOOKED_AT = 5000  # images of a split, those with the lowest keys: 5 ms each at 512 pixels
_ITSELF = "its own test split"


def checked(run: RunLines, of: Lines, *, of_start: bool = False) -> RunLines:
    """Runs lines as `run` does, and looks for leaks after the last split, before the next line.

    The running raises BadInput if there are any.
    """

    def run_checked(lines: Sequence[CommandLine]) -> tuple[CommandLine, int] | None:
        first = max((at for at, line in enumerate(lines, 1) if line.words[0] == "split"), default=0)
        failed = run(lines[:first]) if first else None
        if failed is not None:
            return failed
        if first:
            (_check_start if of_start else _check_week)(of)
        return run(lines[first:])

    return run_checked


def _check_start(lines: Lines) -> None:
    """Look for leaks into the data of --buffer-from."""
    task = open_task(lines.earlier)
    left_out = read_stream(lines.earlier.parent)
    if said := described(left_out.left_out, left_out.read):
        say(f"{lines.place.root}: --buffer-from: {said}")
    _refuse_leaks(lines, task, "--buffer-from")


def _check_week(lines: Lines) -> None:
    """Look for leaks into the pending week, and for guards that came too late."""
    number = lines.state.last + 1
    task = open_task(lines.new)
    _refuse_leaks(lines, task, f"week {number}")
    _refuse_leaks_of_reference(lines, task, number)
    if "train" in task.manifest.splits:
        _say_shared_captions(lines, task.split("train"), number)
        _say_near_duplicates(lines, task, number)
    _warn_of_late_guards(lines)


def _refuse_leaks(lines: Lines, task: Task, what: str) -> None:
    """Raise BadInput if a training pair has an image of a guard, an earlier week or its own test.

    `what` are words for the data.
    """
    images = images_of(task, "train")
    counts, leaked_N = leaked(lines, images, images_of(task, "test"))
    if not leaked_N.any():
        return
    paths = {**lines.guards(lines.settings), **lines.weeks(), _ITSELF: task.path}
    compared = dict.fromkeys(str(paths[name]) for name in [*counts, _ITSELF])
    is_local = not any(map(is_stored, compared))
    check = f"; '{shlex.join(['vlcpctl', 'check', *compared])}' shows them" if is_local else ""
    keys = some_names(list(task.split("train").keys.take(leaked_N)), _SHOWN)
    raise BadInput(
        f"{leaks_in_words(counts, leaked_N, f' of {what}')}, and nothing is trained: keys {keys}; "
        f"--drop-leaks leaves such pairs out, or correct the data{check}"
    )


def _refuse_leaks_of_reference(lines: Lines, task: Task, number: int) -> None:
    """Raise BadInput if a pair of --reference has an image of a guard or of the test of a week."""
    found = leaked_reference(lines, images_of(task, "test"))
    if found is None or not found[1].any():
        return
    assert lines.reference is not None
    reference = open_task(lines.reference)
    keys = some_names(list(reference.split("train").keys.take(found[1])), _SHOWN)
    paths = {**lines.guards(lines.settings), **lines.weeks(), f"week {number}": task.path}
    words = ["vlcpctl", "split", str(reference.path), "-o", "NEW", "--by", f"all:{reference.name}"]
    words += ["--split-column", "split"]
    words += [word for name in found[0] for word in ("--not-test-images", str(paths[name]))]
    raise BadInput(
        f"{leaks_in_words(*found, ' of --reference')}, and week {number} is not trained: keys "
        f"{keys}; '{shlex.join(words)}' leaves them out: give the task in NEW with --reference"
    )


def leaked_reference(lines: Lines, tests: Keys) -> tuple[dict[str, int], np.ndarray] | None:
    """What `leaked` finds among the pairs of --reference; None without it.

    `tests` are those of the week to be made.
    """
    if lines.reference is None:
        return None
    images = images_of(open_task(lines.reference), "train")
    return leaked(lines, images, tests, of_tests=f"week {lines.state.last + 1}")


def leaked(
    lines: Lines, images: Keys, tests: Keys, of_tests: str = _ITSELF
) -> tuple[dict[str, int], np.ndarray]:
    """How many of the images to train on are test images, by words for the tests; and which.

    The array is (N,) bool. `tests` are those of the week, which has the words `of_tests`.
    """
    paths = {**lines.guards(lines.settings), **lines.weeks()}
    parts = {name: images_of(open_task(path), "test") for name, path in paths.items()}
    found = {name: images.among(part) for name, part in {**parts, of_tests: tests}.items()}
    counts = {name: int(leaked_N.sum()) for name, leaked_N in found.items() if leaked_N.any()}
    return counts, np.any(list(found.values()), axis=0)


def leaks_in_words(counts: Mapping[str, int], leaked_N: np.ndarray, of_what: str = "") -> str:
    """What `leaked` has found, such as "2 of 9 training pairs have a test image (2 of week 1)"."""
    tests = some_names([f"{count} of {name}" for name, count in counts.items()])
    total = int(leaked_N.sum())
    return f"{total} of {len(leaked_N)} training pairs{of_what} have a test image ({tests})"


def _say_shared_captions(lines: Lines, train: Split, number: int) -> None:
    """Say how many training pairs have a caption of a guard: no leak, but worth a look."""
    for name, path in lines.guards(lines.settings).items():
        guard_T = _captions(open_task(path).split("test"))
        found_T = pc.is_in(_captions(train), value_set=guard_T).to_numpy(zero_copy_only=False)
        row_T = np.repeat(np.arange(len(train)), train.caption_counts())
        pairs = len(np.unique(row_T[found_T]))
        if pairs:
            say(
                f"{lines.place.root}: week {number}: {pairs} of {len(train)} training pairs have a "
                f"caption that {name} has, with another image; they are trained on"
            )


def _say_near_duplicates(lines: Lines, task: Task, number: int) -> None:
    """Say how many images for training look like a test image of a guard; none is the same.

    Their perceptual hashes differ in at most `_BITS` of 64 bits: of 930 pictures of Emoji-9 none is
    so near to one of 930 others, and of 600 that were scaled and saved again as JPEG, 598 are near
    to what they were. Nothing is said where the package that computes the hashes is not installed.
    """
    guards = lines.guards(lines.settings)
    if not guards or find_spec("imagehash") is None:
        return
    images = task.split("train", _LOOKED_AT)
    row_N, hash_N = _looks(images)
    for name, path in guards.items():
        _, hash_T = _looks(open_task(path).split("test", _LOOKED_AT))
        if not (len(hash_N) and len(hash_T)):
            continue
        near = row_N[nearest_within(hash_T, hash_N, _BITS) >= 0]
        if len(near):
            keys = some_names([images.keys[row] for row in near.tolist()], _SHOWN)
            looked_at = "" if len(images) < _LOOKED_AT else " that were looked at"
            say(
                f"{lines.place.root}: week {number}: {len(near)} of {len(images)} training "
                f"images{looked_at} are like a test image of {name} (perceptual hashes differ in "
                f"at most {_BITS} of 64 bits): keys {keys}; they are trained on"
            )


def _looks(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """(N,) the rows of the images that can be decoded, and (N,) uint64 their perceptual hashes."""
    found = []
    for row in range(len(split)):
        with suppress(BadInput, BrokenImage, OSError, ValueError):
            found.append((row, perceptual_hash(split.image(row))))
    rows, hashes = zip(*found, strict=True) if found else ((), ())
    return np.array(rows, np.int64), np.array(hashes, np.uint64)


def _captions(split: Split) -> pa.Array:
    """(T,) all captions of a split, which share its memory."""
    ends, text = split.texts()
    buffers = [None, pa.py_buffer(np.ascontiguousarray(ends)), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.large_string(), len(ends) - 1, buffers)


def _warn_of_late_guards(lines: Lines) -> None:
    """Warn of guards new in this week of which earlier training data have images."""
    root, trained = lines.place.root, lines.weeks()
    if lines.state.start.buffer_from:
        trained = {"--buffer-from": lines.earlier, **trained}
    for name, path in lines.guards(unmeasured(lines.state, lines.settings)).items():
        guard = images_of(open_task(path), "test")
        known = {
            what: guard.among(images_of(open_task(task), "train")) for what, task in trained.items()
        }
        where = [what for what, known_N in known.items() if known_N.any()]
        if where:
            count = int(np.any(list(known.values()), axis=0).sum())
            warn(
                f"{count} of {len(guard)} test images of {name} are in data that {root} has "
                f"trained on already ({some_names(where)}): the model may know them by heart; a "
                "guard of other images says more"
            )

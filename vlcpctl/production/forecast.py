"""What a week will cost and take in, said by a dry run as comments, before anything is made.

For this the bytes of every image are read once, and none is decoded. Shapes: N kept pairs.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.console import progress
from vlcpctl.core.words import duration, size
from vlcpctl.data.loading.replay import replayed_pairs
from vlcpctl.data.splitting.holdout import CountedHoldout
from vlcpctl.data.splitting.leaving_out import KNOWN, Counts
from vlcpctl.data.splitting.plan import Plan, plan_of
from vlcpctl.data.splitting.rules import Rule
from vlcpctl.data.splitting.selection import Selection
from vlcpctl.data.splitting.stream import check_columns
from vlcpctl.data.tasks.facts import read_stream
from vlcpctl.data.tasks.keys import KEY_BYTES, Keys
from vlcpctl.data.tasks.skips import SkipLog
from vlcpctl.data.tasks.task import Split, open_task
from vlcpctl.production.attempt import Judgement, trained_in
from vlcpctl.production.guards import class_tasks
from vlcpctl.production.layout import TRAINED, local_source, sizes_of
from vlcpctl.production.leaks import leaked, leaked_reference, leaks_in_words
from vlcpctl.production.left_out import TRAIN, described
from vlcpctl.production.lines import Lines, is_pretrained
from vlcpctl.production.seconds import read_seconds
from vlcpctl.production.sources import split_options
from vlcpctl.training.config.composition import settings_of_methods
from vlcpctl.training.config.phases import plan_phases
from vlcpctl.training.config.resolution import parse_replay, resolve

_TRAINING = "train-step"
_SLOW_S = 1.0  # reading that takes longer is said


@dataclass(frozen=True)
class NewPairs:
    """The pairs that the split of a week will keep, and how many it will leave out."""

    read: int
    skipped: str  # by reason
    left_out: Counts
    keys: Keys  # (N,)
    images: Keys  # (N,) first bytes of the sha256 of each image
    captions_N: np.ndarray
    split_N: np.ndarray  # names
    bytes: int  # of the images

    def of(self, split: str) -> NewPairs:
        """Those of one split."""
        return self._where(self.split_N == split)

    def without(self, dropped_N: np.ndarray) -> NewPairs:
        """All but these."""
        return self._where(~dropped_N)

    def _where(self, kept_N: np.ndarray) -> NewPairs:
        return replace(
            self,
            keys=self.keys.take(kept_N),
            images=self.images.take(kept_N),
            captions_N=self.captions_N[kept_N],
            split_N=self.split_N[kept_N],
        )

    def __len__(self) -> int:
        return len(self.keys)


def forecast(lines: Lines) -> Iterator[str]:
    """The comments about the week that these lines would make.

    Raises what the split of the week would, and BadInput if a task or a record of the state cannot
    be read.
    """
    began = time.monotonic()
    pairs = _read_pairs(lines)
    seconds = time.monotonic() - began
    yield from _taken_in(lines, pairs)
    pairs = _without_leaks(lines, pairs)
    steps, batch, is_exact = _steps(lines, pairs.of("train"))
    most = "" if is_exact else "at most "
    yield f"# steps: {most}{steps} of {batch} pairs" if steps else "# steps: too few pairs"
    yield from _time(lines, steps * batch, most)
    yield _disk(lines, pairs)
    if seconds > _SLOW_S:
        yield f"# for this, the bytes of all images were read once, in {duration(seconds)}"


def _read_pairs(lines: Lines) -> NewPairs:
    """Read the sources as the split of the week does.

    Raises BadInput and TooManySkipped as it does.
    """
    how = lines.settings
    options = split_options(lines.call.data, how, lines.place.root)
    options = replace(
        options,
        holdout_most=how.holdout_share,
        not_=list(lines.left_out()),
    )
    plan = plan_of(options)
    check_columns(plan)
    skips = SkipLog(None)
    rule = Rule([""], lambda: lambda _source, _pair: "")
    selection = Selection(plan, rule, skips, is_last=False)
    keys, digests, captions = bytearray(), bytearray(), list[int]()
    named, total = list[str | None](), 0
    with progress("read", plan.rows(), "pairs") as bar:
        for batch in selection.batches():
            for _, sample, split in batch:
                keys += bytes.fromhex(sample.key)
                digests += bytes.fromhex(sample.sha256)
                captions.append(len(sample.captions))
                named.append(split)
                total += len(sample.data)
            bar.advance(len(batch))
    skips.check(plan.tolerance, selection.read)
    digest_N = np.frombuffer(digests, np.uint8).reshape(len(captions), -1)
    return NewPairs(
        read=selection.read,
        skipped=skips.summary(),
        left_out=selection.left_out_counts(),
        keys=Keys(np.frombuffer(keys, np.uint8).reshape(-1, KEY_BYTES)),
        images=Keys(np.ascontiguousarray(digest_N[:, :KEY_BYTES])),
        captions_N=np.array(captions, dtype=np.int64),
        split_N=np.array(_splits(plan, digest_N, named), dtype=str),
        bytes=total,
    )


def _splits(plan: Plan, digest_N: np.ndarray, named: Sequence[str | None]) -> list[str]:
    """The split of each pair: that of its row, or by the hash of its image."""
    holdout = plan.holdout
    if holdout is None:
        return [str(one) for one in named]
    texts = [digest.tobytes().hex() for digest in digest_N]
    if not holdout.counted:
        return [holdout.split_of(text) for text in texts]
    counted = CountedHoldout(holdout)
    for text in texts:
        counted.count("", text)
    counted.decide()
    return [str(counted.split_of("", text)) for text in texts]


def _taken_in(lines: Lines, pairs: NewPairs) -> Iterator[str]:
    """What of the data is trained on, held out, known or deleted, and what leaks."""
    train, held_out = len(pairs.of("train")), len(pairs) - len(pairs.of("train"))
    skipped = f"; skipped: {pairs.skipped}" if pairs.skipped else ""
    yield f"# pairs: {train} to train on, {held_out} held out{skipped}; no image was decoded"
    trains_known = lines.settings.known == TRAIN
    known = _known(lines, pairs) if trains_known else {}
    said = described({**pairs.left_out, **known}, pairs.read, trains_known=trains_known)
    yield f"# overlaps: {said or 'no pair is known from an accepted week, or was deleted'}"
    counts, leaked_N = leaked(lines, pairs.of("train").images, pairs.of("test").images)
    if not leaked_N.any():
        yield "# leaks: no training pair of the week has a test image"
    else:
        what = "they are left out of training" if lines.settings.drop_leaks else "it ends with 3"
        yield f"# leaks: {leaks_in_words(counts, leaked_N)}; {what}"
    if lines.state.start.buffer_from and not lines.state.start.ready:
        yield "# not compared with test images: --buffer-from, until the update runs"
    if len(class_tasks(lines.place.root, lines.settings)) < len(lines.settings.classes):
        yield "# not compared with training pairs: sets of --guard-classes that are not tasks"
    found = leaked_reference(lines, pairs.of("test").images)
    if found is not None:
        said = f"{len(found[1])} pairs, and none has a test image"
        if found[1].any():
            said = f"{leaks_in_words(*found)}; it ends with 3"
        yield f"# reference: {said}"


def _known(lines: Lines, pairs: NewPairs) -> Counts:
    """The pairs that accepted weeks have and --known train takes in, by the name of the week."""
    counts = {}
    for path in lines.weeks().values():
        task = open_task(path)
        keys = Keys.joined([task.split(name).keys for name in task.manifest.splits])
        counts[task.name] = int(pairs.keys.among(keys).sum())
    return {KNOWN: counts}


def _without_leaks(lines: Lines, pairs: NewPairs) -> NewPairs:
    if not lines.settings.drop_leaks:
        return pairs
    dropped_N = pairs.split_N == "train"
    dropped_N[dropped_N] = leaked(lines, pairs.of("train").images, pairs.of("test").images)[1]
    return pairs.without(dropped_N)


def _steps(lines: Lines, train: NewPairs) -> tuple[int, int, bool]:
    """The steps of the training, the pairs of each, and whether that is exact, or the most.

    No steps: there are too few pairs. It is the most while the first buffer is not made.
    """
    how = lines.settings
    methods = how.methods
    settings, _ = resolve(how.preset, how.of_training(), settings_of_methods(methods))
    replayed_M, is_exact = _replayable(lines, train)
    pool_N = train.captions_N
    share = parse_replay(settings.replay).share_of(len(pool_N), len(replayed_M))
    share = share if len(replayed_M) else None
    if share is None:
        pool_N = np.concatenate([pool_N, replayed_M])

    def new(batch: int) -> int:
        return batch - replayed_pairs(batch, share, len(replayed_M))

    batch = settings.batch_size
    if how.batch_size is None:  # it is cut to the data, as `train-step` does
        sizes = range(min(batch, len(pool_N) + len(replayed_M)), 1, -1)
        batch = next((one for one in sizes if 0 < new(one) <= len(pool_N)), 0)
    rounds = [len(pool_N)]
    if settings.captions == "all":  # see `PairSampler`
        rounds = [int((pool_N > number).sum()) for number in range(int(pool_N.max(initial=0)))]
    of_epoch = sum(images // new(batch) for images in rounds) if batch and new(batch) else 0
    if not of_epoch:
        return 0, batch, True
    phases = plan_phases(
        methods,
        first=False,
        epoch_steps=of_epoch,
        epochs=settings.epochs,
        steps=settings.steps,
    )
    return sum(phase.steps for phase in phases), batch, is_exact or settings.steps is not None


def _replayable(lines: Lines, train: NewPairs) -> tuple[np.ndarray, bool]:
    """(M,) captions of each pair of the buffer that is none of the week, and whether it is known.

    Else there are as many as the first buffer can have, with a caption each.
    """
    buffer = lines.buffer_of(lines.state.last)
    if buffer is None:
        return np.zeros(0, np.int64), True
    if not buffer.exists():
        return np.ones(_most_in_buffer(lines), np.int64), False
    task = open_task(buffer)
    if "train" not in task.manifest.splits:
        return np.zeros(0, np.int64), True
    split: Split = task.split("train")
    return split.caption_counts(~split.keys.among(train.keys)), True


def _most_in_buffer(lines: Lines) -> int:
    """The most pairs that the first buffer can have."""
    wanted = lines.settings.buffer_size
    data = [local_source(one) for one in lines.state.start.buffer_from]
    plan = plan_of(split_options(data, lines.settings, lines.place.root))
    rows = [file.count() for file in plan.files]
    known = None if None in rows else sum(one or 0 for one in rows)
    if wanted.endswith("%"):
        return math.ceil((known or 0) * float(wanted.removesuffix("%")) / 100)
    return int(wanted) if known is None else min(int(wanted), known)


def _time(lines: Lines, trained: int, most: str) -> Iterator[str]:
    """What the last week took, its training scaled by the pairs trained on; nothing without one."""
    week = lines.place.week(lines.state.last)
    seconds = read_seconds(week) if lines.state.last else {}
    if not seconds:
        return
    if _TRAINING in seconds:
        judged = Judgement.read(week)
        trainings = len(judged.attempts) if judged is not None and judged.attempts else 1
        before = CheckpointManifest.read(trained_in(week)).pairs * trainings
        seconds = {**seconds, _TRAINING: seconds[_TRAINING] * trained / max(before, 1)}
    training = f"; {_TRAINING}, by its steps, {duration(seconds.get(_TRAINING, 0.0))}"
    total = duration(sum(seconds.values()))
    yield f"# time: {most or 'about '}{total}, as in week {lines.state.last}{training}"


def _disk(lines: Lines, pairs: NewPairs) -> str:
    """What the week will take, after the last one or the start, and what is free."""
    last = lines.place.week(lines.state.last)
    sizes = sizes_of(last) if last.exists() else {}
    if lines.state.last:
        totals = read_stream(last / "stream").totals
        before = sum(split.images for split in totals.values())
        sizes["stream"] = sizes.get("stream", 0) * len(pairs) // max(before, 1)
    else:
        sizes["stream"] = pairs.bytes
        given = lines.state.start.given
        if "checkpoint" not in sizes and not is_pretrained(given):
            sizes["checkpoint"] = sum(
                path.stat().st_size for path in Path(given).rglob("*") if path.is_file()
            )
    if lines.settings.merges and "checkpoint" in sizes:
        sizes.setdefault(TRAINED, sizes["checkpoint"])
    wanted, free = sum(sizes.values()), _free(lines.place.root)
    less = "" if wanted < free else "; that is too little"
    return f"# disk: about {size(wanted)}; {size(free)} are free{less}"


def _free(root: Path) -> int:
    """The free bytes of the file system that a state directory is, or will be, on."""
    there = next(one for one in (root, *root.absolute().parents) if one.exists())
    return shutil.disk_usage(there).free

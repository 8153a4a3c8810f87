"""Which data are tasks of a run's stream, and at which step.

This is the same for every checkpoint of a run: the last one given decides, because its manifest
lists all tasks that the run has learned so far. Data is a task of the run's stream if

1. the run has learned it: at the step at which it did so, whatever the data's own stream says;
2. it is a later task, or one left out, of the stream that the run was last trained on, or of one
   that continues the run: every given task of it that the run learned has the step it was learned
   at. `split` makes such a stream each week, which repeats the earlier tasks under another id. In a
   reordered stream the steps differ.

All other data is outside the stream and has no step: also data that was learned before the run
started, by the model it started from. A model before its first task has no run of its own. It gets
the steps of the runs that start from it if they are evaluated together, and none otherwise: rows
name the data by content, so that a report can join them later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.data.tasks.facts import digits_for
from vlcpctl.files.rows import run_label


@dataclass(frozen=True)
class TaskPlace:
    """A task or data set as rows refer to it."""

    slug: str
    step: int | None  # None: not part of a stream
    stream: str | None
    id: str
    content: str = ""  # if `forget` has rewritten it
    evaluated: str | None = None  # content of what is evaluated, if `forget` removed pairs from it

    def name_at(self, step: int | None, digits: int = 2) -> str:
        """Its slug, numbered by the step at which the model learned it if that is another.

        The number has at least this many digits, so that the names of a run sort; see
        `RunCheckpoint.digits`.
        """
        if step is None or (step == self.step and digits <= self._digits):
            return self.slug
        return f"{step:0{max(digits, self._digits)}d}-{self.slug.split('-', 1)[-1]}"

    @property
    def _digits(self) -> int:
        """How many digits number the tasks of its own stream."""
        number = self.slug.split("-", 1)[0]
        return len(number) if number.isdigit() else 2


@dataclass(frozen=True)
class RunCheckpoint:
    """A checkpoint, and the last one of its run.

    `chain` is the checkpoint's own manifest if no later checkpoint of the run was given.
    """

    manifest: CheckpointManifest
    chain: CheckpointManifest

    def steps(self, places: Sequence[TaskPlace]) -> list[int | None]:
        """The step of each task in the stream of the run; None for data outside of it."""
        learned = _learned(self.chain)
        steps = [learned.get(_learned_id(learned, place) or "") for place in places]
        offsets = _offsets(self.chain, learned, places)
        taken = {step for step in learned.values() if step is not None}
        found: dict[int, int] = {}  # the number of each future task by its step
        for number, place in enumerate(places):
            offset = offsets.get(place.stream)
            if _learned_id(learned, place) or place.step is None or offset is None:
                continue
            step = place.step + offset
            if step < 0 or step in taken:  # the run has learned another task in its place
                continue
            if step not in found or place.stream == self.chain.stream:
                found[step] = number
        for step, number in found.items():
            steps[number] = step
        return steps

    @property
    def digits(self) -> int:
        """How many digits number the tasks that the run learned, so that they sort; see `slug`."""
        learned = [step for step in self.chain.task_steps or () if step is not None]
        return digits_for(max(learned, default=0) + 1)


def run_checkpoints(manifests: Sequence[CheckpointManifest]) -> list[RunCheckpoint]:
    """Each checkpoint with what the others show about its run, in the order given."""
    return [RunCheckpoint(one, _chain_of(one, manifests)) for one in manifests]


def _learned(chain: CheckpointManifest) -> dict[str, int | None]:
    """The step of each learned task by its id."""
    return dict(zip(chain.tasks, chain.task_steps, strict=True)) if chain.task_steps else {}


def _learned_id(learned: Mapping[str, int | None], place: TaskPlace) -> str | None:
    """The content id by which the run has learned the data; None if it has not."""
    return next((one for one in (place.id, place.content) if one in learned), None)


def _offsets(
    chain: CheckpointManifest, learned: Mapping[str, int | None], places: Sequence[TaskPlace]
) -> dict[str | None, int]:
    """What to add to the steps of each stream that continues the run, to get the run's steps."""
    if not learned:  # a model without tasks: only if its step was given when it was imported
        streams = {chain.stream} if chain.stream else {one.stream for one in places if one.stream}
        return dict.fromkeys(streams, 0) if chain.step is not None and len(streams) == 1 else {}
    given: dict[str | None, list[bool]] = {}
    for place in places:
        name = _learned_id(learned, place)
        if name and place.step is not None:
            given.setdefault(place.stream, []).append(place.step == learned[name])
    offsets = {stream: 0 for stream, fits in given.items() if all(fits)}
    if chain.stream is not None:
        offsets[chain.stream] = 0
        # Merged weights have the latest step, and may have the stream of another checkpoint.
        if chain.step is not None and chain.stream_step is not None and not chain.is_merged:
            offsets[chain.stream] = chain.step - chain.stream_step
    return offsets


def _chain_of(made: CheckpointManifest, given: Sequence[CheckpointManifest]) -> CheckpointManifest:
    """The last checkpoint of the run; of several runs that start from `made`, if they agree."""
    run = [one for one in given if _run_of(one) == _run_of(made) and _extends(one, made)]
    last = max([made, *run], key=_progress)
    if last.tasks or last.step is not None:
        return last
    runs = [one for one in given if one.start == made.content]
    longest = max([made, *runs], key=_progress)
    return longest if all(_extends(longest, one) for one in runs) else made


def _run_of(made: CheckpointManifest) -> tuple[str, int]:
    return run_label(made.run, made.alpha), made.seed


def _progress(made: CheckpointManifest) -> tuple[int, int]:
    return len(made.tasks), -1 if made.step is None else made.step


def _extends(later: CheckpointManifest, earlier: CheckpointManifest) -> bool:
    """Whether a checkpoint has learned what another has, at the same steps."""
    learned = _learned(later)
    return all(
        task in learned and learned[task] == step for task, step in _learned(earlier).items()
    )

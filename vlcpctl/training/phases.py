"""The phases of a run: training, phases of methods before each epoch, and those after training.

Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vlcpctl.core.errors import UsageError
from vlcpctl.core.method import TRAIN, Method, Phase

# Of a run: a plan lists its phases, and more of them would fill the memory.
MOST_PHASES, MOST_STEPS = 10**4 - 1, 10**10 - 1


@dataclass(frozen=True)
class PhasePlan:
    """A phase of the run and its number of optimizer steps.

    A phase that comes back every epoch has one plan per epoch. `offset` and `total` place its
    steps among those of all its epochs, for the learning rate and for methods that use progress.
    """

    name: str
    steps: int
    trains: bool = True
    methods: tuple[str, ...] = ()
    contrasts: bool = True
    start: int = 0  # the number of its first batch, see `Pairs.plan`
    weights: str = ""  # METHOD/SLOT that is trained in the model's place
    offset: int = 0
    total: int = 0
    last: bool = True  # whether training ends with this phase or has ended before it

    @property
    def whole(self) -> int:
        """The steps of this phase, summed over its epochs."""
        return self.total or self.steps

    def place_of(self, step: int) -> str:
        """A step of this plan, from 0, in words, counted over all epochs as in metrics.jsonl.

        >>> PhasePlan("train", steps=5, offset=10).place_of(2)
        'step 12 of training'
        >>> PhasePlan("ewc/fisher", steps=5).place_of(2)
        'step 2 of phase fisher of ewc'
        """
        method, _, name = self.name.rpartition("/")
        phase = f"phase {name} of {method}" if method else "training"
        return f"step {self.offset + step} of {phase}"


def steps_before(phases: Sequence[PhasePlan], number: int) -> int:
    """The number of optimizer steps in all phases before the one of this number."""
    return sum(phase.steps for phase in phases[:number])


def plan_phases(
    methods: Sequence[Method], *, first: bool, epoch_steps: int, epochs: int, steps: int | None
) -> tuple[PhasePlan, ...]:
    """The phases in order: one training phase shared by all methods, the others per method.

    Raises UsageError for more steps or phases than a run can have.
    """
    trained = steps or epoch_steps * epochs
    own = [(method.name, phase) for method in methods for phase in method.phases(first=first)]
    each_epoch = sum(phase.each_epoch for _, phase in own)
    count = (1 + each_epoch) * math.ceil(trained / epoch_steps) if each_epoch else 1
    if trained > MOST_STEPS or count + len(own) > MOST_PHASES:
        raise UsageError(
            f"{trained} steps in {count} phases are too many: at most {MOST_STEPS} steps and "
            f"{MOST_PHASES} phases are possible; use fewer --epochs or --steps"
        )
    sharing = tuple(name for name, phase in own if phase.name == TRAIN.name)
    training = PhasePlan(TRAIN.name, trained, methods=sharing)
    before = [(name, phase) for name, phase in own if phase.each_epoch]
    after = [
        (name, phase) for name, phase in own if phase.name != TRAIN.name and not phase.each_epoch
    ]
    # Phases after training read the first epoch that was not trained on: another shuffle and other
    # augmentations than in training, whatever number of steps was trained.
    unread = math.ceil(trained / epoch_steps) * epoch_steps
    return (
        *(_epochs(before, training, epoch_steps) if before else [training]),
        *(
            replace(_own(name, phase), steps=epoch_steps * (phase.epochs or epochs), start=unread)
            for name, phase in after
        ),
    )


def _epochs(
    before: list[tuple[str, Phase]], training: PhasePlan, epoch_steps: int
) -> Iterator[PhasePlan]:
    """For each epoch the phases before it, then the epoch itself, over the same batches."""
    # Training is cut into one plan per epoch, since the loop saves its position as (phase, step):
    # a run killed between two epochs then resumes in the right phase. `start` makes the phases
    # read the batches of their epoch; `offset` and `total` keep the learning-rate schedule in one
    # piece, which would otherwise restart (and warm up) every epoch.
    for offset in range(0, training.steps, epoch_steps):
        epoch = replace(
            training,
            steps=min(epoch_steps, training.steps - offset),
            start=offset,
            offset=offset,
            total=training.steps,
            last=offset + epoch_steps >= training.steps,
        )
        for name, phase in before:
            own = replace(_own(name, phase), steps=epoch.steps, start=offset, last=False)
            # A measuring phase counts from 0 each time, since its result replaces the last one; a
            # training phase continues its own schedule, as the epochs do.
            yield replace(own, offset=offset, total=training.steps) if phase.trains else own
        yield epoch


def _own(name: str, phase: Phase) -> PhasePlan:
    return PhasePlan(
        f"{name}/{phase.name}",
        0,
        trains=phase.trains,
        methods=(name,),
        contrasts=phase.contrasts,
        weights=f"{name}/{phase.weights}" if phase.weights else "",
    )

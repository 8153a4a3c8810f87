"""The phases of a run: training, what methods measure after it, and what goes before each epoch.

Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vlcpctl.core.method import TRAIN, Method, Phase


@dataclass(frozen=True)
class PhasePlan:
    """A phase of the methods, and its steps.

    A phase that comes back every epoch is one plan an epoch; `offset` and `total` place it in the
    whole, for the learning rate and for methods that ask how far they are.
    """

    name: str
    steps: int
    trains: bool = True
    methods: tuple[str, ...] = ()
    contrasts: bool = True
    start: int = 0  # where in the order of the pairs it begins
    weights: str = ""  # METHOD/SLOT that takes the model's place
    offset: int = 0
    total: int = 0
    last: bool = True  # whether training is over, or ends with this phase

    @property
    def whole(self) -> int:
        """The steps of all phases of this name."""
        return self.total or self.steps


def plan_phases(
    methods: Sequence[Method], *, first: bool, epoch_steps: int, epochs: int, steps: int | None
) -> tuple[PhasePlan, ...]:
    """Training is shared by all methods; the other phases are their own method's."""
    trained = steps or epoch_steps * epochs
    own = [(method.name, phase) for method in methods for phase in method.phases(first=first)]
    sharing = tuple(name for name, phase in own if phase.name == TRAIN.name)
    training = PhasePlan(TRAIN.name, trained, methods=sharing)
    before = [(name, phase) for name, phase in own if phase.each_epoch]
    after = [
        (name, phase) for name, phase in own if phase.name != TRAIN.name and not phase.each_epoch
    ]
    unread = math.ceil(trained / epoch_steps) * epoch_steps  # the first epoch not trained on
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
    """Epoch by epoch: what goes before it, then the epoch, over the same batches."""
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
            # What is measured is measured anew each time; what trains goes on.
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

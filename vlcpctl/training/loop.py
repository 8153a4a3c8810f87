"""The training loop, the only one in the project: phases, steps, saves, validation, journal."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import torch

from vlcpctl.core import console
from vlcpctl.core.batch import Batch, Weights
from vlcpctl.core.ending import StopFlag
from vlcpctl.core.errors import Diverged, Incompatible, Interrupted
from vlcpctl.core.machine import keep_freed_memory
from vlcpctl.core.method import TRAIN
from vlcpctl.core.params import copy_of
from vlcpctl.files.tensors import first_not_finite, require_same_names
from vlcpctl.metrics.chance import loss_at_chance
from vlcpctl.training.optimizers import (
    Optimizer,
    learning_rate,
    new_optimizer,
    restore,
    state_tensors,
)
from vlcpctl.training.phases import PhasePlan, steps_before
from vlcpctl.training.run import TrainRun
from vlcpctl.training.settings import SIGMOID, SaveEvery
from vlcpctl.training.state import START_OVER, MetricsLog, ResumeDirectory, SavedProgress
from vlcpctl.training.step import OptimizerStep, StepValues, read_in_order, steps_per_read

# How the names of tensors in a saved state begin; a name of its own follows.
MODEL, BEST, SLOTS, OPTIMIZERS = "model:", "best:", "slots/", "optimizers/"

# Called with the name of each point a run passes: "step=3", "phase=1", "saved". Tests kill the
# process there, to check that a resumed run ends with the same bytes.
Observer = Callable[[str], None]


def ignore_point(_point: str) -> None:
    """Ignore every point: the default observer."""


@dataclass
class TrainingLoop:
    """Trains a run through its phases, starting at the position of its last saved state."""

    run: TrainRun
    phases: Sequence[PhasePlan]
    epoch_steps: int
    batches: Callable[[int, int], Generator[Batch]]
    partial: ResumeDirectory
    metrics_log: MetricsLog
    every: SaveEvery
    stop: StopFlag
    validate: Callable[[], dict[str, float]] | None = None
    track: Callable[[dict[str, Any], int], None] | None = None  # a row at a step of all phases
    observe: Observer = ignore_point
    saved: SavedProgress = field(default_factory=SavedProgress)
    best: Weights = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.last_saved = self.started = self._created = time.monotonic()
        self._earlier_pairs = self.saved.pairs  # of processes before this one
        self._optimizers: dict[str, Optimizer] = {}
        self._unread: list[tuple[StepValues, float]] = []  # of the last steps, with learning rates
        self._note = ""  # the last losses that were read, for the progress bar
        self.steps_per_read = steps_per_read(self.run.device)

    def train(self, tensors: Weights) -> Weights:
        """Run the remaining phases, with the optimizers and best weights of a saved state.

        Its `tensors` are dropped. Returns the best weights if `--keep` selects by validation, else
        {}. Raises Diverged if a loss is not finite, and Interrupted after a signal, once the state
        is saved.
        """
        self._restore(tensors)
        tensors.clear()  # they map the file, which takes memory and disk until they are gone
        for number in range(self.saved.phase, len(self.phases)):
            self.run.position.phase = number
            self._phase(self.phases[number])
            self.saved.phase, self.saved.step, self.saved.scaler = number + 1, 0, {}
            self.observe(f"phase={number}")
        return self.best

    def _restore(self, tensors: Weights) -> None:
        for name in {phase.weights for phase in self.phases[: self.saved.phase + 1]}:
            state = _below(tensors, f"{OPTIMIZERS}{name}:")
            restore(self._optimizer(name), self.run.trained, state)
        best = _below(tensors, BEST)
        self.best = {name: one.to(self.run.device, copy=True) for name, one in best.items()}

    def _phase(self, phase: PhasePlan) -> None:
        run, first = self.run, self.saved.step
        run.position.plan, self._note = phase, ""
        # A measuring phase after training (such as Fisher information) must see the weights that
        # will be written, which are the best and not the last.
        if self.best and not phase.trains and phase.last:
            run.load(self.best)
        # A state saved inside the phase was saved swapped: swapping again would undo it.
        if phase.weights and first == 0:
            run.swap(phase.weights)
        methods = [method for method in run.methods if method.name in phase.methods]
        step_once = OptimizerStep(run, self._optimizer(phase.weights), methods)
        if self.saved.scaler:
            step_once.scaler.load_state_dict(self.saved.scaler)
        run.encoder.module.train(phase.trains)
        batches = self.batches(phase.start + first, phase.start + phase.steps)
        keep_freed_memory()
        with console.progress(phase.name, phase.steps, "steps") as bar, closing(batches):
            bar.resume(first)
            for step, batch in enumerate(batches, start=first):
                run.position.step = step
                self._step(phase, step_once, batch)
                bar.advance(1, self._note)
                if phase.name == TRAIN.name and self.validate and self._ends_epoch(step):
                    self._validation(phase, step)
                self._save_if_due(step_once)
                self.observe(f"step={step}")
            self._read(phase)
        if phase.weights:
            run.swap(phase.weights)
        if run.written_slot and phase.name == TRAIN.name and phase.last:
            run.load_written_slot()

    def _step(self, phase: PhasePlan, step_once: OptimizerStep, batch: Batch) -> None:
        step = self.run.position.step
        rate = self._set_rate(step_once.optimizer, phase, step)
        self._unread.append((step_once(batch), rate))
        self.saved.step = step + 1
        if len(self._unread) >= self.steps_per_read:
            self._read(phase)

    def _optimizer(self, weights: str) -> Optimizer:
        """The optimizer of the model (""), or of the slot METHOD/SLOT trained in its place.

        Each is created once per run: a phase that comes back every epoch keeps its moments.
        """
        if weights not in self._optimizers:
            self._optimizers[weights] = new_optimizer(self.run.trained, self.run.settings)
        return self._optimizers[weights]

    def _ends_epoch(self, step: int) -> bool:
        # Each plan of the training starts with an epoch, also where a method has one per epoch.
        return (step + 1) % self.epoch_steps == 0

    def _read(self, phase: PhasePlan) -> None:
        """Record the steps since the last read; raises Diverged at the first one that diverged.

        Called before anything that depends on these steps leaves the process: before a validation,
        a save and the end of a phase.
        """
        unread, self._unread = self._unread, []
        if not unread:
            return
        rows = read_in_order([values for values, _ in unread])
        try:
            for (step, rate), values in zip(unread, rows, strict=True):
                self._record(phase, step.step, values, rate)
        except Diverged as error:
            self.metrics_log.sync()
            raise Diverged(self.diverged(f"the loss diverged at {error}")) from error
        self._note = f"{self._shown(values)}{self.pairs_per_second():.0f} pairs/s"

    def _shown(self, values: dict[str, float]) -> str:
        """The contrastive term and what it is by chance, else the sum of what a method has instead.

        With other terms the sum says little: a queue of negatives raises it while the model learns.
        """
        settings = self.run.settings
        if "contrastive" in values:
            chance = loss_at_chance(settings.batch_size, settings.loss == SIGMOID)
            return f"contrastive {values['contrastive']:.3f} (chance {chance:.2f}), "
        return f"loss {values['loss']:.3f}, " if len(values) > 1 else ""  # a pass without any term

    def diverged(self, what: str) -> str:
        """The message for a run that diverged: what happened, the last good state, what to do."""
        state = self.partial.newest()
        good = f"the last good state is {state}" if state else "no state had been saved"
        return f"{what}; {good}; a lower --lr or --clip-norm may help"

    def _set_rate(self, optimizer: Optimizer, phase: PhasePlan, step: int) -> float:
        settings, drops = self.run.settings, self.saved.plateau.drops
        rate = learning_rate(settings, phase.offset + step, phase.whole, drops)
        for group in optimizer.param_groups:
            group["lr"] = rate
        return rate

    def _record(self, phase: PhasePlan, step: int, values: dict[str, float], rate: float) -> None:
        step += phase.offset
        row = {"phase": phase.name, "step": step, **values, "lr": rate}
        self.metrics_log.append(row)
        self._track(phase, row)
        if phase.trains:
            self.saved.pairs += self.run.settings.batch_size

    def _track(self, phase: PhasePlan, row: dict[str, Any]) -> None:
        """Log a row of the journal under its names, with that of a phase beside the training.

        The step counts those of all phases, so that it never decreases: trackers need that.
        """
        if self.track is None:
            return
        values = {name: value for name, value in row.items() if name != "step"}
        if phase.name != TRAIN.name:
            values = {f"{phase.name}/{name}": value for name, value in values.items()}
        step = row["step"] - phase.offset
        self.track(values, steps_before(self.phases, self.run.position.phase) + step)

    def _validation(self, phase: PhasePlan, step: int) -> None:
        assert self.validate is not None
        self._read(phase)
        with self.run.as_written():
            # Rank 0's values for all: a last-bit difference between processes could otherwise give
            # them different best weights or learning rates.
            values = self.run.world.from_rank_0(self.validate(), self.run.device)
            if self._is_best(values):
                self.best = copy_of(self.run.saved())
        row = {"phase": phase.name, "step": phase.offset + step, **values}
        self.metrics_log.append(row)
        self._track(phase, row)
        settings = self.run.settings
        if settings.schedule == "plateau":
            self.saved.plateau = self.saved.plateau.after(values["val_loss"], settings.patience)

    def _is_best(self, values: dict[str, float]) -> bool:
        if self.run.settings.keep == "last":
            return False
        name = self.run.settings.keep.removeprefix("best:")
        score = values[name] if name == "val_rmean" else -values[name]
        is_best = score > (-math.inf if self.saved.best is None else self.saved.best)
        self.saved.best = score if is_best else self.saved.best
        return is_best

    def _save_if_due(self, step_once: OptimizerStep) -> None:
        by_step = self.every.steps is not None and self.saved.step % self.every.steps == 0
        if self.run.world.size > 1 and self._unread and not by_step:
            return  # asking the other processes waits for a GPU, as reading values does
        since = time.monotonic() - self.last_saved
        due = by_step or (self.every.seconds is not None and since >= self.every.seconds)
        # Clocks and signals differ between processes. Saving waits for all of them, so they must
        # agree, or one would wait for the others forever.
        stops, due = self.run.world.any([bool(self.stop), due], self.run.device)
        if not (due or stops):
            return
        self._read(self.run.position.plan)
        self.save(step_once.scaler.state_dict())
        if stops:
            raise Interrupted(
                f"stopped after step {self.saved.step}; "
                f"the same command resumes from {self.partial.path}"
            )

    def save(self, scaler: dict[str, float]) -> None:
        """Write a complete state that a later process can resume from.

        Raises Diverged if a weight is not finite: the state before is then the last good one.
        """
        self.saved.scaler = scaler
        self.saved.train_seconds = self.seconds()
        self.saved.inverting_seconds = self.run.inverting_seconds
        self.started = self.last_saved = time.monotonic()
        if self.run.world.rank == 0:
            # The journal goes to disk before the state that names its length: a resume cuts back
            # to that length, and must find at least as many bytes.
            journal = self.metrics_log.sync()
            self.saved.journal_bytes = journal["bytes"]
            self._refuse_diverged_weights()
            tensors = _live(self.run) | {f"{BEST}{name}": one for name, one in self.best.items()}
            for weights, optimizer in self._optimizers.items():
                for name, one in state_tensors(optimizer, self.run.trained).items():
                    tensors[f"{OPTIMIZERS}{weights}:{name}"] = one
            self.partial.save(self.saved, tensors, journal)
        self.run.world.barrier()
        self.observe("saved")

    def _refuse_diverged_weights(self) -> None:
        wrong = first_not_finite(self.run.weights)
        if wrong is not None:
            where = self.phases[self.saved.phase].place_of(self.saved.step - 1)
            what = f"the weights diverged at {where}: {wrong} contains NaN or infinity"
            raise Diverged(self.diverged(what))

    def close(self) -> None:
        """Close the journal."""
        self.metrics_log.close()

    def seconds(self) -> float:
        """Seconds spent training, summed over resumes."""
        return self.saved.train_seconds + time.monotonic() - self.started

    def pairs_per_second(self) -> float:
        """Pairs per second in this process; an earlier one may have run on another machine."""
        pairs = self.saved.pairs - self._earlier_pairs
        return pairs / max(time.monotonic() - self._created, 1e-9)


@torch.no_grad()
def restore_run(
    run: TrainRun, phases: Sequence[PhasePlan], saved: SavedProgress, tensors: Weights
) -> None:
    """Copy a saved state's weights and slots into the run, in place.

    Raises Incompatible, with the first one that differs, if they are not those of the run: what is
    missing must not start at zero.
    """
    live, found = _live(run), {n: one for n, one in tensors.items() if n.startswith((MODEL, SLOTS))}
    try:
        require_same_names(found, live, "the saved state")
        if saved.phase >= len(phases) or saved.step > phases[saved.phase].steps:
            raise Incompatible(f"the run has no step {saved.step} of phase {saved.phase}")
    except Incompatible as error:
        raise Incompatible(f"{error}{START_OVER}") from error
    for name, one in live.items():
        one.copy_(tensors[name])


def _live(run: TrainRun) -> Weights:
    """The weights and slots that a state holds, live, by their names in it."""
    slots = {
        f"{SLOTS}{method}/{slot}:{name}": one
        for method, named in run.slots.items()
        for slot, values in named.items()
        for name, one in values.items()
    }
    return {**{f"{MODEL}{name}": one for name, one in run.saved().items()}, **slots}


def _below(tensors: Weights, start: str) -> Weights:
    """Those of the tensors whose names begin so, by the rest of their names."""
    return {n.removeprefix(start): one for n, one in tensors.items() if n.startswith(start)}

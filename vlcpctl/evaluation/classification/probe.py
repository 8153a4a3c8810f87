"""Linear probes: their options, their rows, and which protocol measures them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.core.options import GoesWith, refuse_idle
from vlcpctl.data.classification.data_sets import DataSet, open_data_sets
from vlcpctl.data.tasks.skips import Tolerance
from vlcpctl.evaluation.evaluator import Evaluator, Job, Plan, Session
from vlcpctl.evaluation.planned_rows import PlannedRow, own_rows, place_of

if TYPE_CHECKING:
    from vlcpctl.evaluation.classification.labelled_sets import LabelledSet

LOGISTIC, MODX = PROTOCOLS = ("logistic", "modx")
LBFGS, SGD = SOLVERS = ("lbfgs", "sgd")
HELD_OUT = 0.1
EPOCHS, RATE, SGD_BATCH = 100, 1.0, 1024
# Of the program that Mod-X's authors released; their paper has none of these values.
MODX_EPOCHS, MODX_RATE, MODX_BATCH = 100, 0.3, 256
_BY_SGD = f"it applies only to --solver {SGD} and --protocol {MODX}"
_IDLE = (
    GoesWith("solver", "protocol", (LOGISTIC,)),
    GoesWith("strength", "protocol", (LOGISTIC,)),
    GoesWith("held_out", "protocol", (LOGISTIC,)),
)
_IDLE_IN_LOGISTIC = (
    GoesWith("epochs", "solver", (SGD,), _BY_SGD),
    GoesWith("lr", "solver", (SGD,), _BY_SGD),
    GoesWith("held_out", "strength", (), "no strength is chosen"),
)
_COUNTS = ("metrics", "n_images", "n_ties", "n_skipped", "n_train", "n_unseen")
_MEASURED = {LOGISTIC: (*_COUNTS, "strength"), MODX: (*_COUNTS, "best_epoch", "last_acc1")}


@final
@dataclass(frozen=True, kw_only=True)
class LinearProbe(Evaluator):
    """Accuracies of probes that are trained on the image features of checkpoints.

    None means the default, and for `strength` that it is chosen. `words` are names or paths of data
    sets; `data` is the directory of those given by name.
    """

    words: tuple[str, ...]
    data: Path | None = None
    protocol: str = LOGISTIC
    solver: str | None = None
    strength: float | None = None
    held_out: float | None = None
    epochs: int | None = None
    lr: float | None = None
    train_split: str = "train"
    split: str = "test"
    seed: int = 0
    tolerance: Tolerance  # of images that cannot be read

    @property
    def is_modx(self) -> bool:
        """Whether the probe is that of Mod-X's authors."""
        return self.protocol == MODX

    @property
    def solver_name(self) -> str:
        """The solver of the probe."""
        return SGD if self.is_modx else self.solver or LBFGS

    @property
    def epoch_count(self) -> int:
        """The epochs of SGD."""
        return self.epochs or (MODX_EPOCHS if self.is_modx else EPOCHS)

    @property
    def rate(self) -> float:
        """The initial learning rate of SGD."""
        return self.lr or (MODX_RATE if self.is_modx else RATE)

    def plan(self) -> Plan:
        """See `Evaluator`; also raises UsageError for options that have no effect."""
        self._check_options()
        for one in self._data_sets:
            one.check(self.train_split)
            one.check(self.split)
            if len(one.classes) < 2:
                raise UsageError(
                    f"{one.name} has one class, {one.classes[0]!r}; a probe needs two or more"
                )
        places = [place_of(one, self.train_split, self.split) for one in self._data_sets]
        common = {
            "evaluator": "probe",
            # Mod-X's, else the solver.
            "protocol": MODX if self.is_modx else self.solver_name,
            "split": self.split,
            "limit": self.limit,
            "options": self._options(),
            **self._unusual(),
        }
        measured = _MEASURED[self.protocol]
        each = [{"n_classes": len(data.classes)} for data in self._data_sets]
        jobs = [
            Job(path, one.manifest, own_rows(one, places, common, measured, each))
            for path, one in self.read_checkpoints().items()
        ]
        return Plan(self, jobs)

    def line(self, job: Job, row: PlannedRow) -> str:
        classes, solver = row.fields["n_classes"], row.fields["protocol"]
        cost = f", every training image embedded in each of {self.epoch_count} epochs"
        what = f"{job.label}: {row.fields['task']}, {classes} classes, by {solver}"
        return what + cost if self.is_modx else what

    def measure(self, session: Session, row: PlannedRow) -> dict[str, Any]:
        """See `Evaluator`; raises TooManySkipped if too many images cannot be read."""
        from vlcpctl.evaluation.classification.linear_probe import Sgd
        from vlcpctl.evaluation.classification.logistic_probe import LogisticProbe
        from vlcpctl.evaluation.classification.modx_probe import measured

        (number,) = row.tasks
        train, test = self._sets[number]
        batch = MODX_BATCH if self.is_modx else SGD_BATCH
        sgd = Sgd(epochs=self.epoch_count, rate=self.rate, batch=batch, seed=self.seed)
        if self.is_modx:
            return measured(session, sgd, train, test, self.tolerance)
        probe = LogisticProbe(
            sgd=sgd if self.solver_name == SGD else None,
            strength=self.strength,
            held_out=self.held_out or HELD_OUT,
            seed=self.seed,
        )
        return asdict(probe.measure(session, train, test, self.tolerance))

    @cached_property
    def _data_sets(self) -> list[DataSet]:
        return open_data_sets(self.words, self.data, "own")

    @cached_property
    def _sets(self) -> list[tuple[LabelledSet, LabelledSet]]:
        """The two splits of each data set, read once for all checkpoints."""
        from vlcpctl.evaluation.classification.labelled_sets import LabelledSet

        return [
            (
                LabelledSet(data, self.train_split, self.limit),
                LabelledSet(data, self.split, self.limit),
            )
            for data in self._data_sets
        ]

    def _check_options(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise UsageError(f"--protocol: {unknown_name('protocol', self.protocol, PROTOCOLS)}")
        if self.solver_name not in SOLVERS:
            raise UsageError(f"--solver: {unknown_name('solver', self.solver_name, SOLVERS)}")
        refuse_idle(_IDLE, vars(self))
        if not self.is_modx:
            refuse_idle(_IDLE_IN_LOGISTIC, {**vars(self), "solver": self.solver_name})
        for option, value in (("--lr", self.lr), ("--strength", self.strength)):
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"{option} {value} must be above 0 and finite")
        if self.train_split == self.split:
            raise UsageError(f"--train-split and --split are both {self.split!r}")
        self._check_choice()

    def _check_choice(self) -> None:
        """Refuse options for choosing the strength that do not fit."""
        if self.held_out is not None and not 0 < self.held_out < 1:
            raise UsageError(f"--held-out {self.held_out} must be between 0 and 1")
        if self.strength is not None and self.seed and self.solver_name != SGD:
            raise UsageError(
                f"--seed {self.seed} has no effect with --strength: nothing is drawn at random"
            )

    def _options(self) -> dict[str, Any]:
        """All options that decide the numbers; None for those that have no effect."""
        if self.is_modx:
            return {
                "protocol": MODX,
                "train_split": self.train_split,
                "epochs": self.epoch_count,
                "lr": self.rate,
                "batch": MODX_BATCH,
                "epoch_chosen_on": self.split,
                "seed": self.seed,
            }
        is_sgd, is_chosen = self.solver_name == SGD, self.strength is None
        return {
            "solver": self.solver_name,
            "train_split": self.train_split,
            "strength": self.strength,  # None: chosen
            "held_out": (self.held_out or HELD_OUT) if is_chosen else None,
            "epochs": self.epoch_count if is_sgd else None,
            "lr": self.rate if is_sgd else None,
            "batch": SGD_BATCH if is_sgd else None,
            "seed": self.seed,
        }

    def _unusual(self) -> dict[str, Any]:
        """The row fields for options that differ from their defaults."""
        epochs, rate = (MODX_EPOCHS, MODX_RATE) if self.is_modx else (EPOCHS, RATE)
        usual = {
            "train_split": (self.train_split, "train"),
            "fixed_strength": (self.strength, None),
            "held_out": (self.held_out or HELD_OUT, HELD_OUT),
            "epochs": (self.epoch_count, epochs),
            "lr": (self.rate, rate),
            "probe_seed": (self.seed, 0),
        }
        return {name: given for name, (given, expected) in usual.items() if given != expected}

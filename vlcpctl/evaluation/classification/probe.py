"""Linear probes: their options, their rows, and which protocol measures them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from vlcpctl.core.errors import UsageError
from vlcpctl.data.classification.data_sets import DataSet, open_data_sets
from vlcpctl.data.tasks.samples import Tolerance
from vlcpctl.evaluation.evaluator import Evaluator, Session
from vlcpctl.evaluation.rows import Row, own_rows, place_of

if TYPE_CHECKING:
    from vlcpctl.evaluation.classification.labelled_sets import LabelledSet

LOGISTIC, MODX = "logistic", "modx"
LBFGS = "lbfgs"  # the solver of the logistic probe, as rows name it
HELD_OUT = 0.1
# Of the program that Mod-X's authors released; their paper has none of these values.
MODX_EPOCHS, MODX_RATE, MODX_BATCH = 100, 0.3, 256
_COUNTS = ("metrics", "n_images", "n_ties", "n_skipped", "n_train", "n_unseen")
_MEASURED = {LOGISTIC: (*_COUNTS, "strength"), MODX: (*_COUNTS, "best_epoch", "last_acc1")}


@final
@dataclass(kw_only=True)
class LinearProbe(Evaluator):
    """Accuracies of probes that are trained on the image features of checkpoints.

    None means the default, and for `strength` that it is chosen. `words` are names or paths of data
    sets; `data` is the directory of those given by name.
    """

    words: tuple[str, ...]
    data: Path | None = None
    protocol: str = LOGISTIC
    strength: float | None = None
    held_out: float | None = None
    epochs: int | None = None
    lr: float | None = None
    train_split: str = "train"
    split: str = "test"
    seed: int = 0
    tolerance: Tolerance  # of images that cannot be read

    @property
    def share(self) -> float:
        """The share of the training images on which the strength is chosen."""
        return self.held_out or HELD_OUT

    @property
    def epoch_count(self) -> int:
        """The epochs of Mod-X's probe."""
        return self.epochs or MODX_EPOCHS

    @property
    def rate(self) -> float:
        """The initial learning rate of Mod-X's probe."""
        return self.lr or MODX_RATE

    def plan(self) -> list[Session]:
        """See `Evaluator`; also raises UsageError for options that have no effect."""
        self._check_options()
        for one in self._data_sets:
            one.check(self.train_split)
            one.check(self.split)
        places = [place_of(one, self.train_split, self.split) for one in self._data_sets]
        common = {
            "evaluator": "probe",
            "protocol": MODX if self.protocol == MODX else LBFGS,
            "split": self.split,
            "limit": self.limit,
            "options": self._options() | self.arithmetic_options(),
            **self._unusual(),
        }
        measured = _MEASURED[self.protocol]
        each = [{"n_classes": len(data.classes)} for data in self._data_sets]
        return [
            Session(self, path, one.manifest, own_rows(one, places, common, measured, each))
            for path, one in self.read_checkpoints().items()
        ]

    def measure(self, session: Session, row: Row) -> dict[str, Any]:
        """See `Evaluator`; raises TooManySkipped if too many images cannot be read."""
        from vlcpctl.evaluation.classification.linear_probe import by_logistic, by_modx

        (number,) = row.tasks
        measured = by_modx if self.protocol == MODX else by_logistic
        return measured(session, self, *self._sets[number])

    @cached_property
    def _data_sets(self) -> list[DataSet]:
        return open_data_sets(self.words, self.data, "own")

    @cached_property
    def _sets(self) -> list[tuple[LabelledSet, LabelledSet]]:
        """The two splits of each data set, read once for all checkpoints."""
        from vlcpctl.evaluation.classification.labelled_sets import LabelledSet

        splits = self.train_split, self.split
        sets = [[LabelledSet(data, one, self.limit) for one in splits] for data in self._data_sets]
        return [(train, test) for train, test in sets]

    def _check_options(self) -> None:
        if self.train_split == self.split:
            raise UsageError(f"--train-split and --split are both {self.split!r}")
        if self.strength is not None and self.held_out is not None:
            raise UsageError("--held-out has no effect with --strength: no strength is chosen")
        if self.strength is not None and self.seed:
            raise UsageError(
                f"--seed {self.seed} has no effect with --strength: nothing is drawn at random"
            )

    def _options(self) -> dict[str, Any]:
        """All options that decide the numbers; None for those that have no effect."""
        if self.protocol == MODX:
            return {
                "protocol": MODX,
                "train_split": self.train_split,
                "epochs": self.epoch_count,
                "lr": self.rate,
                "batch": MODX_BATCH,
                "epoch_chosen_on": self.split,
                "seed": self.seed,
            }
        is_chosen = self.strength is None
        return {
            "solver": LBFGS,
            "train_split": self.train_split,
            "strength": self.strength,  # None: chosen
            "held_out": self.share if is_chosen else None,
            "epochs": None,
            "lr": None,
            "batch": None,
            "seed": self.seed,
        }

    def _unusual(self) -> dict[str, Any]:
        """The row fields for options that differ from their defaults."""
        usual = {
            "train_split": (self.train_split, "train"),
            "fixed_strength": (self.strength, None),
            "held_out": (self.share, HELD_OUT),
            "epochs": (self.epoch_count, MODX_EPOCHS),
            "lr": (self.rate, MODX_RATE),
            "probe_seed": (self.seed, 0),
        }
        return {name: given for name, (given, expected) in usual.items() if given != expected}

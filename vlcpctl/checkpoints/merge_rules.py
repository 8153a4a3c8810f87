"""The rules by which `merge` makes one set of weights of several.

Importing this module does not import torch, so that a mistyped --set is refused at once. Sums are
in float64: models that are equal merge to the same bytes, and the order of models does not matter
unless a rule says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, final

from vlcpctl.checkpoints.step_config import METHOD_CODE
from vlcpctl.core.batch import Weights
from vlcpctl.core.method import hyper

if TYPE_CHECKING:
    from torch import Tensor

TEMPERATURE = ("logit_scale", "logit_bias")  # log(1 / temperature), and the bias of a sigmoid loss


@dataclass(frozen=True, kw_only=True)
class MergeRule(ABC):
    """Base class of all rules: a frozen dataclass of hyper-parameters."""

    name: ClassVar[str]
    least: ClassVar[int] = 2  # number of models
    needs_base: ClassVar[bool] = False  # merges changes since a model that all were trained from
    code: ClassVar[str] = ""  # digest of the file of --rule-file that defines it

    @property
    def method(self) -> str:
        """The method of a merged checkpoint, in its manifest and rows."""
        return f"merge-{self.name}"

    def facts(self) -> dict[str, Any]:
        """What the rule adds to the identity of a merged checkpoint."""
        code = {METHOD_CODE: {self.method: {"file": self.code}}} if self.code else {}
        return {"rule": asdict(self), **code}

    @abstractmethod
    def merged(self, models: Sequence[Weights], base: Weights) -> Weights:
        """New tensors with the names, shapes and dtypes of each model's.

        `models` are the parameters of each model, in the order given; `base` those of --base, empty
        for a rule that does not need it. None of them may be changed.
        """


class MergeOutput(NamedTuple):
    """One merged checkpoint: by which rule, the run name of its rows, and its path."""

    rule: MergeRule
    run: str
    path: Path


@final
@dataclass(frozen=True, kw_only=True)
class Average(MergeRule):
    """The mean of the models, weighted by `weights`; without any, all count alike.

    Of two it is WiSE-FT (Wortsman et al., 2022).
    """

    name: ClassVar[str] = "average"

    weights: tuple[float, ...] = ()

    def merged(self, models: Sequence[Weights], base: Weights) -> Weights:
        """See the class."""
        weights = self.weights or (1.0,) * len(models)
        total = sum(weights)
        return {
            name: _as(
                like,
                _sum([w * m[name].double() for w, m in zip(weights, models, strict=True)]) / total,
            )
            for name, like in models[0].items()
        }


@final
@dataclass(frozen=True, kw_only=True)
class Ema(MergeRule):
    """The moving average over the models in their order: m = decay m + (1 - decay) model."""

    name: ClassVar[str] = "ema"

    decay: float = hyper(
        0.5,
        doc="Share that the average keeps at each model after the first.",
        origin="code of Dziadzio et al., 2025 (TIME)",
        within="[0, 1]",
    )

    def merged(self, models: Sequence[Weights], base: Weights) -> Weights:
        """See the class."""
        return {name: _as(like, self._average(models, name)) for name, like in models[0].items()}

    def _average(self, models: Sequence[Weights], name: str) -> Tensor:
        average = models[0][name].double()
        for model in models[1:]:
            newest = model[name].double()
            average = newest + self.decay * (average - newest)
        return average


@final
@dataclass(frozen=True, kw_only=True)
class Ties(MergeRule):
    """Trim each model's changes, elect their signs, and add the mean of those that agree.

    TIES-Merging (Yadav et al., 2023, arXiv 2306.01708). A change is the difference from the base.
    The temperature is a single number, and is not trimmed: it changes by the mean.
    """

    name: ClassVar[str] = "ties"
    least: ClassVar[int] = 1
    needs_base: ClassVar[bool] = True

    keep: float = hyper(
        0.2,
        doc="Share of each model's changes that is kept, the largest of all its weights; 1 is all.",
        origin="section 4",
        within="(0, 1]",
    )
    scale: float = hyper(
        1.0,
        doc="Factor (lambda) of the merged change; 0 is the base.",
        origin="section 4, without validation data",
    )

    def merged(self, models: Sequence[Weights], base: Weights) -> Weights:
        """See the class."""
        least = [self._least_kept(model, base) for model in models]
        signs = (_trimmed(models, base, name, least).sum(0).sign() for name in _sparse(base))
        balance = sum(int(sign.sum()) for sign in signs)
        majority = (balance > 0) - (balance < 0)
        merged = {}
        for name, start in base.items():
            if name in TEMPERATURE:
                change = _changes(models, base, name).mean(0)
            else:
                change = _mean_of_elected(_trimmed(models, base, name, least), majority)
            merged[name] = _as(start, start.double() + self.scale * change)
        return merged

    def _least_kept(self, model: Weights, base: Weights) -> float:
        """The size of the smallest change that is kept."""
        import torch

        sizes = torch.cat([(model[name] - base[name]).abs().flatten() for name in _sparse(base)])
        trimmed = len(sizes) - int(len(sizes) * self.keep)
        # As in the authors' code, which keeps the largest that should go; without any, it fails.
        return float(sizes.kthvalue(trimmed).values) if trimmed else 0.0


def _sparse(base: Weights) -> list[str]:
    return [name for name in base if name not in TEMPERATURE]


def _changes(models: Sequence[Weights], base: Weights, name: str) -> Tensor:
    """(N, ...) float64: how a tensor of each of N models differs from the base's."""
    import torch

    return torch.stack([model[name].double() for model in models]) - base[name].double()


def _trimmed(models: Sequence[Weights], base: Weights, name: str, least: Sequence[float]) -> Tensor:
    """The changes, with 0 for those that are smaller than the `least` of their model."""
    changes = _changes(models, base, name)
    for change, model, size in zip(changes, models, least, strict=True):
        change.mul_((model[name] - base[name]).abs() >= size)  # rounded as `size` was
    return changes


def _mean_of_elected(changes: Tensor, majority: int) -> Tensor:
    """The mean over the N changes (N, ...) that have the sign of their sum; 0 where there are none.

    Changes that cancel have the sign of the `majority` of all sums, as in the authors' code.
    """
    total = changes.sum(0)
    sign = total.sign().masked_fill_(total == 0, majority)
    agrees = changes * sign > 0
    return (changes * agrees).sum(0) / agrees.sum(0).clamp(min=1)


@final
@dataclass(frozen=True, kw_only=True)
class ModelStock(MergeRule):
    """Move each tensor from the base to the models' mean, the further the more they agree.

    Model Stock (Jang et al., 2024, arXiv 2403.19522): N models whose changes have the cosine c go
    N c / (1 + (N - 1) c) of the way. Of more than two models, c is the mean over pairs, which the
    paper leaves open. Changes that point apart, for which the paper has no ratio, leave the base.
    The temperature is a single number without an angle: it is averaged.
    """

    name: ClassVar[str] = "model-stock"
    needs_base: ClassVar[bool] = True

    def merged(self, models: Sequence[Weights], base: Weights) -> Weights:
        """See the class."""
        merged = {}
        for name, start in base.items():
            changes = _changes(models, base, name)
            share = 1.0 if name in TEMPERATURE else _ratio(_mean_cosine(changes), len(models))
            merged[name] = _as(start, start.double() + share * changes.mean(0))
        return merged


def _ratio(cosine: float, models: int) -> float:
    """Eq. 5 of Model Stock, for cosines from 0.

    >>> _ratio(0.5, 2), _ratio(1.0, 3), _ratio(-0.5, 3)
    (0.666, 1.0, 0.0)
    """
    cosine = max(cosine, 0.0)
    return models * cosine / (1 + (models - 1) * cosine)


def _mean_cosine(changes: Tensor) -> float:
    """The mean cosine of the pairs among N changes (N, ...); 0 with one that is zero."""
    rows = changes.flatten(1)
    sizes = rows.norm(dim=1).clamp(min=5e-324)
    pairs = [
        float(rows[one] @ rows[other] / sizes[one] / sizes[other])
        for one, other in combinations(range(len(rows)), 2)
    ]
    return sum(pairs) / len(pairs)


def _sum(tensors: Sequence[Tensor]) -> Tensor:
    first, *rest = tensors
    return sum(rest, first)


def _as(like: Tensor, merged: Tensor) -> Tensor:
    return merged.to(like.dtype)


TABLE: dict[str, type[MergeRule]] = {rule.name: rule for rule in (Average, Ema, Ties, ModelStock)}

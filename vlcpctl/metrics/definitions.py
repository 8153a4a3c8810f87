"""The table of summary metrics: name, formula, sign and gallery, as reports print them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from vlcpctl.metrics import forgetting
from vlcpctl.metrics.forgetting import Matrix


@dataclass(frozen=True, kw_only=True)
class Definition:
    """One number that summarises a run; gallery "start" is "own" plus the initial model's row."""

    name: str
    gallery: Literal["own", "merged", "start"]
    formula: str
    reading: str
    higher_is_better: bool
    compares_steps: bool
    value: Callable[[Matrix], float | None]


LEGEND = (
    "R[t][j]: score on task j alone after training on task t. M[t][i]: score of model t on the "
    "merged gallery of tasks 0..i. T: number of tasks, counted from 0."
)

DEFINITIONS = {
    definition.name: definition
    for definition in (
        Definition(
            name="merged_final",
            gallery="merged",
            formula="M[T-1][T-1]",
            reading="score of the last model; higher is better",
            higher_is_better=True,
            compares_steps=False,
            value=forgetting.merged_final,
        ),
        Definition(
            name="bwt_ctp",
            gallery="merged",
            formula="1/(T-1) sum_{i<T-1} (M[i][i] - M[T-1][i])",
            reading="positive = forgetting (CTP's BWT)",
            higher_is_better=False,
            compares_steps=True,
            value=forgetting.bwt_ctp,
        ),
        Definition(
            name="own_learned",
            gallery="own",
            formula="1/T sum_j R[j][j]",
            reading="score just after learning; higher is better",
            higher_is_better=True,
            compares_steps=True,
            value=forgetting.own_learned,
        ),
        Definition(
            name="own_final",
            gallery="own",
            formula="1/T sum_j R[T-1][j]",
            reading="score of the last model; higher is better",
            higher_is_better=True,
            compares_steps=False,
            value=forgetting.own_final,
        ),
        Definition(
            name="bwt_gem",
            gallery="own",
            formula="1/(T-1) sum_{j<T-1} (R[T-1][j] - R[j][j])",
            reading="negative = forgetting (GEM)",
            higher_is_better=True,
            compares_steps=True,
            value=forgetting.bwt_gem,
        ),
        Definition(
            name="bwt_incclip",
            gallery="own",
            formula="1/(T-1) sum_{t=1..T-1} 1/(t+1) sum_{j<=t} (R[t][j] - R[j][j])",
            reading="negative = forgetting, averaged over steps (IncCLIP)",
            higher_is_better=True,
            compares_steps=True,
            value=forgetting.bwt_incclip,
        ),
        Definition(
            name="forgetting_max",
            gallery="own",
            formula="1/(T-1) sum_{j<T-1} (max_{j<=t<T-1} R[t][j] - R[T-1][j])",
            reading="positive = forgetting (Chaudhry et al.)",
            higher_is_better=False,
            compares_steps=True,
            value=forgetting.forgetting_max,
        ),
        Definition(
            name="fr_dha",
            gallery="own",
            formula="100/(T-1) sum_{j<T-1} (R[j][j] - R[T-1][j]) / R[j][j]",
            reading="percent of what was learned; positive = forgetting (DHA)",
            higher_is_better=False,
            compares_steps=True,
            value=forgetting.fr_dha,
        ),
        Definition(
            name="fwt_gem",
            gallery="start",
            formula="1/(T-1) sum_{j>=1} (R[j-1][j] - R[start][j])",
            reading="positive = earlier tasks helped (GEM); needs rows of the model at the start",
            higher_is_better=True,
            compares_steps=True,
            value=forgetting.fwt_gem,
        ),
    )
}

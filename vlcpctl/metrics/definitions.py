"""The table of summary metrics: name, formula, sign and gallery, as reports print them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from vlcpctl.metrics import benchmarks, forgetting
from vlcpctl.metrics.forgetting import Matrix


@dataclass(frozen=True, kw_only=True)
class Definition:
    """One number that summarises a run, from a matrix of scores.

    Gallery "start" is "own" plus the initial model's row; "outside" is data outside the stream:
    (1, D) scores of the last model. `source` is where the number was first defined. A metric that
    `looks_ahead` needs scores of tasks before they were learned; one of `least_tasks` 2 is not
    defined after the first task.
    """

    name: str
    gallery: Literal["own", "merged", "start", "outside"]
    formula: str
    reading: str
    source: str
    higher_is_better: bool
    compares_steps: bool
    value: Callable[[Matrix], float | None]
    least_tasks: int = 1
    looks_ahead: bool = False


_CTP = "Zhu et al., ICCV 2023 (CTP)"
_GEM = "Lopez-Paz and Ranzato, NeurIPS 2017 (GEM)"
_ZSCL = "Zheng et al., ICCV 2023 (ZSCL)"
_FOMO = "Roth et al., NeurIPS 2024 (FoMo-in-Flux)"

LEGEND = (
    "R[t][j]: score on task j alone after training on task t. M[t][i]: score of model t on the "
    "merged gallery of tasks 0..i. O[t][d]: score of model t on data set d outside the stream. "
    "T: number of tasks, counted from 0. D: number of data sets outside the stream."
)

DEFINITIONS = {
    definition.name: definition
    for definition in (
        Definition(
            name="merged_final",
            gallery="merged",
            formula="M[T-1][T-1]",
            reading="score of the last model; higher is better",
            source=_CTP,
            higher_is_better=True,
            compares_steps=False,
            value=forgetting.merged_final,
        ),
        Definition(
            name="bwt_ctp",
            gallery="merged",
            formula="1/(T-1) sum_{i<T-1} (M[i][i] - M[T-1][i])",
            reading="positive = forgetting (CTP's BWT)",
            source=_CTP,
            higher_is_better=False,
            compares_steps=True,
            value=forgetting.bwt_ctp,
            least_tasks=2,
        ),
        Definition(
            name="own_learned",
            gallery="own",
            formula="1/T sum_j R[j][j]",
            reading="score just after learning; higher is better",
            source="Riemer et al., ICLR 2019 (learning accuracy)",
            higher_is_better=True,
            compares_steps=True,
            value=forgetting.own_learned,
        ),
        Definition(
            name="own_final",
            gallery="own",
            formula="1/T sum_j R[T-1][j]",
            reading="score of the last model; higher is better",
            source=_GEM,
            higher_is_better=True,
            compares_steps=False,
            value=forgetting.own_final,
        ),
        Definition(
            name="bwt_gem",
            gallery="own",
            formula="1/(T-1) sum_{j<T-1} (R[T-1][j] - R[j][j])",
            reading="negative = forgetting (GEM)",
            source=_GEM,
            higher_is_better=True,
            compares_steps=True,
            value=forgetting.bwt_gem,
            least_tasks=2,
        ),
        Definition(
            name="bwt_incclip",
            gallery="own",
            formula="1/(T-1) sum_{t=1..T-1} 1/(t+1) sum_{j<=t} (R[t][j] - R[j][j])",
            reading="negative = forgetting, averaged over steps (IncCLIP)",
            source="Yan et al., ECCV 2022 (IncCLIP)",
            higher_is_better=True,
            compares_steps=True,
            value=forgetting.bwt_incclip,
            least_tasks=2,
        ),
        Definition(
            name="forgetting_max",
            gallery="own",
            formula="1/(T-1) sum_{j<T-1} (max_{j<=t<T-1} R[t][j] - R[T-1][j])",
            reading="positive = forgetting (Chaudhry et al.)",
            source="Chaudhry et al., ECCV 2018 (RWalk)",
            higher_is_better=False,
            compares_steps=True,
            value=forgetting.forgetting_max,
            least_tasks=2,
        ),
        Definition(
            name="fr_dha",
            gallery="own",
            formula="100/(T-1) sum_{j<T-1} (R[j][j] - R[T-1][j]) / R[j][j]",
            reading="percent of what was learned; positive = forgetting (DHA)",
            source="Luo et al., ICMR 2023 (DHA)",
            higher_is_better=False,
            compares_steps=True,
            value=forgetting.fr_dha,
            least_tasks=2,
        ),
        Definition(
            name="fwt_gem",
            gallery="start",
            formula="1/(T-1) sum_{j>=1} (R[j-1][j] - R[start][j])",
            reading="positive = earlier tasks helped (GEM); needs rows of the model at the start",
            source=_GEM,
            higher_is_better=True,
            compares_steps=True,
            value=forgetting.fwt_gem,
            least_tasks=2,
        ),
        Definition(
            name="transfer_zscl",
            gallery="own",
            formula="1/(T-1) sum_{j>=1} 1/j sum_{t<j} R[t][j]",
            reading="score on tasks before they were learned (ZSCL's Transfer); higher is better",
            source=_ZSCL,
            higher_is_better=True,
            compares_steps=True,
            value=benchmarks.transfer_zscl,
            least_tasks=2,
            looks_ahead=True,
        ),
        Definition(
            name="avg_zscl",
            gallery="own",
            formula="1/T^2 sum_t sum_j R[t][j]",
            reading="score over all steps and tasks (ZSCL's Avg.); higher is better",
            source=_ZSCL,
            higher_is_better=True,
            compares_steps=True,
            value=benchmarks.avg_zscl,
            looks_ahead=True,
        ),
        Definition(
            name="last_zscl",
            gallery="own",
            formula="1/T sum_j R[T-1][j]",
            reading="score of the last model (ZSCL's Last), as own_final; higher is better",
            source=_ZSCL,
            higher_is_better=True,
            compares_steps=False,
            value=benchmarks.last_zscl,
        ),
        Definition(
            name="ka_fomo",
            gallery="own",
            formula="1/T sum_j R[T-1][j]",
            reading="knowledge accumulation, as own_final; FoMo-in-Flux takes acc1, or R@5 for "
            "retrieval; higher is better",
            source=_FOMO,
            higher_is_better=True,
            compares_steps=False,
            value=benchmarks.ka_fomo,
        ),
        Definition(
            name="zs_fomo",
            gallery="outside",
            formula="1/D sum_d O[T-1][d]",
            reading="zero-shot retention: score of the last model on data outside the stream; "
            "FoMo-in-Flux takes acc1, or R@5 for retrieval; higher is better",
            source=_FOMO,
            higher_is_better=True,
            compares_steps=False,
            value=benchmarks.zs_fomo,
        ),
    )
}

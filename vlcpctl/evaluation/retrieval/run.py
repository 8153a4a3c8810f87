"""The evaluator of a retrieval protocol."""

from __future__ import annotations

from vlcpctl.evaluation.driver import Evaluator
from vlcpctl.evaluation.jobs import Compute
from vlcpctl.evaluation.retrieval.cross_modal import CrossModalEvaluator
from vlcpctl.evaluation.retrieval.multi_modal import MultiModalEvaluator
from vlcpctl.evaluation.retrieval.plan import CROSS_MODAL, RetrievalPlan


def retrieval_evaluator(plan: RetrievalPlan, compute: Compute) -> Evaluator:
    """The evaluator of the protocol that a plan names.

    Raises UsageError for an unknown backend, or if it is not installed.
    """
    if plan.request.protocol == CROSS_MODAL:
        return CrossModalEvaluator(plan, compute)
    return MultiModalEvaluator(plan, compute)

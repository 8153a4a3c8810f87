"""The conditions of --fail-if, checked before a week is trained."""

from __future__ import annotations

from collections.abc import Sequence

from vlcpctl.report.gates.grammar import parse_gate

_RETRIEVAL = (
    *("i2t_r1", "i2t_r5", "i2t_r10", "i2t_rmean", "t2i_r1", "t2i_r5", "t2i_r10", "t2i_rmean"),
    "rm",
)
_ZERO_SHOT = ("acc1", "acc5", "mean_per_class_recall")


def check_gates(texts: Sequence[str], *, has_classes: bool) -> None:
    """Raise UsageError for a condition that the report would refuse after the training.

    Only with sets of classes to guard are there metrics of classification.
    """
    for text in texts:
        parse_gate(text, (*_RETRIEVAL, *(_ZERO_SHOT if has_classes else ())))

"""Masked language modelling: predict masked words, or a teacher's distribution over them.

Losses are sums over masked tokens, so that parts of a batch add up; without masked tokens they are
0, never NaN. Shapes: m masked tokens, V words.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax


def word_loss(logits_mV: Tensor, labels_m: Tensor) -> Tensor:
    """Cross-entropy of (m, V) logits with the (m,) masked words, as a sum (ALBEF eq. 3; CTP eq. 2).

    >>> import torch
    >>> word_loss(torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64)).item()
    0.0
    """
    return cross_entropy(logits_mV, labels_m, reduction="sum")


def soft_word_loss(logits_mV: Tensor, teacher_mV: Tensor) -> Tensor:
    """Cross-entropy of predictions with a teacher's, both (m, V) logits, as a sum (CTP eq. 5)."""
    return -(teacher_mV.softmax(1) * log_softmax(logits_mV, 1)).sum()

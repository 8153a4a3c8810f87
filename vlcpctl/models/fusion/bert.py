"""Initial weights of the text side, from a BERT that transformers loads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vlcpctl.core.console import say
from vlcpctl.core.errors import Incompatible
from vlcpctl.models.fusion.configuration import ELSEWHERE, TextConfig
from vlcpctl.models.fusion.key_mapping import bert_names, join_tensors
from vlcpctl.models.fusion.text_encoder import EPSILON
from vlcpctl.models.hub import quietly, why_unavailable

if TYPE_CHECKING:  # importing transformers takes a second
    from transformers import BertForMaskedLM, PreTrainedConfig


def bert_tensors(name: str, text: TextConfig, own: Iterable[str]) -> dict[str, Tensor]:
    """The tensors of a BERT, by its name on the hub or its directory, under our names `own`.

    Cross-attention, which BERT lacks, is left out, and so is the head for masked words if the
    checkpoint lacks it. Raises Incompatible if the BERT cannot be loaded or has another shape.
    """
    bert, missing = _read(name, text)
    lacking = sorted(tensor for tensor in missing if not tensor.startswith("cls."))
    if lacking:
        raise Incompatible(f"the BERT {name!r} lacks the tensor {lacking[0]!r}")
    if missing:
        say(f"the BERT {name} has no head for masked words; initialising a new one")
    theirs = {n: tensor for n, tensor in bert.state_dict().items() if n not in missing}
    return join_tensors(theirs, bert_names(own))


def vocabulary_size(name: str) -> int:
    """The number of word embeddings of a BERT. Raises Incompatible if it cannot be loaded."""
    return int(_configuration(name).vocab_size)


def _configuration(name: str) -> PreTrainedConfig:
    from transformers import AutoConfig

    with quietly():
        try:
            found: PreTrainedConfig = AutoConfig.from_pretrained(name)
        except (OSError, ValueError) as error:
            raise _unavailable(name, error) from error
    return found


def _read(name: str, text: TextConfig) -> tuple[BertForMaskedLM, frozenset[str]]:
    """The BERT, and the names of the tensors missing in its checkpoint."""
    from transformers import BertForMaskedLM

    _check(name, _configuration(name), text)
    with quietly(), torch.random.fork_rng(devices=[]):
        try:
            both: Any = BertForMaskedLM.from_pretrained(
                name, dtype=torch.float32, output_loading_info=True
            )
        except (OSError, ValueError) as error:
            raise _unavailable(name, error) from error
    bert, report = both
    return bert, frozenset(report["missing_keys"])


def _unavailable(name: str, error: Exception) -> Incompatible:
    return Incompatible(f"cannot load the BERT {name!r}: {why_unavailable(error)}; {ELSEWHERE}")


def _check(name: str, config: PreTrainedConfig, text: TextConfig) -> None:
    """Raise Incompatible for settings that change the computation but not the tensors' shapes."""
    wanted = {
        "model_type": "bert",
        "hidden_act": "gelu",
        "layer_norm_eps": EPSILON,
        "num_hidden_layers": text.layers,
        "num_attention_heads": text.heads,
    }
    found = config.to_dict()
    for key, value in wanted.items():
        if found.get(key) != value:
            raise Incompatible(
                f"the BERT {name!r} has {key} {found.get(key)}, but the model has {value}"
            )

"""Initial weights of a fusion model: from a whole model, an image encoder, or a BERT."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vlcpctl.core.console import say
from vlcpctl.core.errors import Incompatible, UsageError
from vlcpctl.files.tensors import require_fit, require_names, require_same_names
from vlcpctl.models.checkpoint_files import WEIGHT_SUFFIXES
from vlcpctl.models.fusion.configuration import ELSEWHERE, FusionConfig, TextConfig
from vlcpctl.models.fusion.image_encoder import fit_positions, image_tensors
from vlcpctl.models.fusion.key_mapping import bert_names, from_ctp, is_ctp, join_tensors
from vlcpctl.models.fusion.model import FusionModel
from vlcpctl.models.fusion.text_encoder import EPSILON
from vlcpctl.models.hub import quietly, why_unavailable
from vlcpctl.models.weight_files import read_weights

if TYPE_CHECKING:  # importing transformers takes a second
    from transformers import BertForMaskedLM, PreTrainedConfig

IMAGE = "image_encoder."
NONE = "none"


@dataclass(frozen=True, kw_only=True)
class InitialWeights:
    """The sources of initial weights; weights without a source are random."""

    file: Path | None = None  # a whole model
    image: str | None = None  # the name of a timm model, or a file
    text: str | None = None  # the name of a BERT on the hub, or a directory


def parse_initial_weights(pretrained: str | None, found: FusionConfig) -> InitialWeights:
    """Parse `--pretrained`: `none`, FILE, or `image=NAME`, `text=NAME` or both with a comma.

    A source that is not given comes from the configuration. Raises UsageError for anything else.
    """
    if pretrained is None:
        return InitialWeights(image=found.image_pretrained, text=found.text_pretrained)
    if pretrained == NONE:
        return InitialWeights()
    path = Path(pretrained)
    if path.is_file() or (path.suffix in WEIGHT_SUFFIXES and "=" not in pretrained):
        return InitialWeights(file=path)
    parts = dict(part.partition("=")[::2] for part in pretrained.split(","))
    if parts.keys() - {"image", "text"} or not all(parts.values()):
        raise UsageError(
            f"--pretrained {pretrained!r} is not 'none', an existing file, or "
            "image=NAME_OR_FILE,text=NAME_OR_DIRECTORY"
        )
    image = parts.get("image", found.image_pretrained)
    text = parts.get("text", found.text_pretrained)
    return InitialWeights(
        image=None if image == NONE else image, text=None if text == NONE else text
    )


def set_initial_weights(module: FusionModel, sources: InitialWeights, found: FusionConfig) -> None:
    """Load the weights of these sources into a module; its other weights do not change.

    Raises Incompatible if a source cannot be loaded, or a name or shape differs.
    """
    if sources.file is not None:
        set_all(module, read_weights(sources.file).tensors, str(sources.file), resizes=True)
    if sources.image is not None:
        encoder = module.image_encoder
        tensors = image_tensors(sources.image, encoder)
        require_same_names(tensors, encoder.state_dict(keep_vars=True), sources.image)
        encoder.load_state_dict(tensors)
    if sources.text is not None:
        own = module.state_dict(keep_vars=True)
        tensors = _bert_tensors(sources.text, found.text_cfg, own)
        require_same_names(tensors, {name: own[name] for name in tensors}, sources.text)
        module.load_state_dict(tensors, strict=False)


def set_all(
    module: FusionModel, tensors: Mapping[str, Tensor], what: str, *, resizes: bool
) -> None:
    """Load the weights of a whole model, under our names or those of the CTP authors.

    With `resizes`, position embeddings of another image size are interpolated. Raises Incompatible
    with all tensors that do not fit; `what` is their source.
    """
    own = module.state_dict(keep_vars=True)
    if is_ctp(tensors):
        converted = from_ctp(tensors, own)
        require_names(converted.missing, converted.unexpected, what)
        tensors = converted.tensors
    if resizes:
        image = {n.removeprefix(IMAGE): t for n, t in tensors.items() if n.startswith(IMAGE)}
        fitted = fit_positions(image, module.image_encoder)
        tensors = {**tensors, **{f"{IMAGE}{name}": tensor for name, tensor in fitted.items()}}
    require_fit(tensors, own, what)
    module.load_state_dict(tensors)


def _bert_tensors(name: str, text: TextConfig, own: Iterable[str]) -> dict[str, Tensor]:
    """The tensors of a BERT, by its name on the hub or its directory, under our names `own`.

    Cross-attention, which BERT lacks, is left out, and so is the head for masked words if the
    checkpoint lacks it. Raises Incompatible if the BERT cannot be loaded or has another shape.
    """
    bert, missing = _read_bert(name, text)
    lacking = sorted(tensor for tensor in missing if not tensor.startswith("cls."))
    if lacking:
        raise Incompatible(f"the BERT {name!r} lacks the tensor {lacking[0]!r}")
    if missing:
        say(f"the BERT {name} has no head for masked words; initialising a new one")
    theirs = {n: tensor for n, tensor in bert.state_dict().items() if n not in missing}
    return join_tensors(theirs, bert_names(own))


def vocabulary_size(name: str) -> int:
    """The number of word embeddings of a BERT. Raises Incompatible if it cannot be loaded."""
    return int(_bert_configuration(name).vocab_size)


def _bert_configuration(name: str) -> PreTrainedConfig:
    from transformers import AutoConfig

    with quietly():
        try:
            found: PreTrainedConfig = AutoConfig.from_pretrained(name)
        except (OSError, ValueError) as error:
            raise _no_bert(name, error) from error
    return found


def _read_bert(name: str, text: TextConfig) -> tuple[BertForMaskedLM, frozenset[str]]:
    """The BERT, and the names of the tensors missing in its checkpoint."""
    from transformers import BertForMaskedLM

    _check_bert(name, _bert_configuration(name), text)
    with quietly(), torch.random.fork_rng(devices=[]):
        try:
            both: Any = BertForMaskedLM.from_pretrained(
                name, dtype=torch.float32, output_loading_info=True
            )
        except (OSError, ValueError) as error:
            raise _no_bert(name, error) from error
    bert, report = both
    return bert, frozenset(report["missing_keys"])


def _no_bert(name: str, error: Exception) -> Incompatible:
    return Incompatible(f"cannot load the BERT {name!r}: {why_unavailable(error)}; {ELSEWHERE}")


def _check_bert(name: str, config: PreTrainedConfig, text: TextConfig) -> None:
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

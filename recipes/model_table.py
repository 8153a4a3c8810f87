"""The facts of docs/reference/models.md: each of open_clip's configurations, and whether it trains.

    python recipes/model_table.py [NAME ...] > table.md    about ten minutes for all

A model counts as trained if vlcpctl builds it and it embeds a batch of two pairs, both on torch's
meta device, which has shapes but no numbers: no memory is needed, and no weights are downloaded. So
a configuration whose tower the hub describes is listed as not tried.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator

import open_clip
import torch

from vlcpctl.core.errors import BadInput, Incompatible
from vlcpctl.models.configuration import find_configuration, has_logit_bias, transform_of
from vlcpctl.models.dual_encoder import ProjectionModule
from vlcpctl.models.hub import offline
from vlcpctl.models.towers import new_module, without_downloads

PAIRS = 2
USUAL_LENGTH = 77  # of a configuration that names none


def rows() -> Iterator[str]:
    """Lines of Markdown, one for each configuration."""
    yield "| model | weights, M | image, px | text, tokens | loss | trains |"
    yield "|---|---|---|---|---|---|"
    for name in sys.argv[1:] or open_clip.list_models():
        yield f"| {' | '.join([f'`{name}`', *facts(name)])} |"


def facts(name: str) -> tuple[str, ...]:
    """The cells of a configuration after its name."""
    try:
        found = find_configuration(name)
    except Incompatible as error:
        return "-", "-", "-", "-", f"no: {error}"
    text = found.model["text_cfg"]
    length, size = text.get("context_length", USUAL_LENGTH), transform_of(found).image_size
    loss = "sigmoid" if has_logit_bias(found.model) else "softmax"
    weights = "-"
    try:
        with offline(), torch.device("meta"):
            module = new_module(without_downloads(found.model, None), 0)
            weights = f"{sum(one.numel() for one in module.parameters()) / 1e6:.0f}"
            images = torch.zeros(PAIRS, 3, size, size)
            texts = torch.zeros(PAIRS, length, dtype=torch.long)
            sides = ProjectionModule(module)(images, texts)
        said = "yes" if len({side.shape for side in sides}) == 1 else "no: towers of two widths"
    except Incompatible as error:
        tower = None if "multimodal_cfg" in found.model else text.get("hf_model_name")
        said = f"not tried: `{tower}` is on the hub" if tower else f"no: {error}"
    except BadInput as error:
        said = f"no: {error}"
    return weights, str(size), str(length), loss, said


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    for line in rows():
        print(line)
        sys.stdout.flush()

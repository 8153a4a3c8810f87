"""What the model of a checkpoint is, where its configuration leaves something out."""

from __future__ import annotations

from dataclasses import replace

from vlcpctl.checkpoints.model_facts import facts_of_encoder
from vlcpctl.models import encoders
from vlcpctl.models.encoders import NewModelOptions
from vlcpctl.models.imports import open_clip


def test_texts_have_the_length_of_open_clip_if_none_is_configured() -> None:
    encoder = encoders.build("micro", NewModelOptions(seed=0))
    texts = {k: v for k, v in encoder.config["text_cfg"].items() if k != "context_length"}
    bare = replace(encoder, config={**encoder.config, "text_cfg": texts})
    assert facts_of_encoder(encoder, "micro", None)["text_length"] == 12
    usual = open_clip().CLIPTextCfg().context_length
    assert facts_of_encoder(bare, "micro", None)["text_length"] == usual == 77

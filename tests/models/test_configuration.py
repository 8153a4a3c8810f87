"""Model configurations that others wrote: read within bounds, or refused in one line."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from support.training import model_file

from vlcpctl.core.errors import BadInput, Incompatible, VlcpError
from vlcpctl.models import configuration, encoders, towers
from vlcpctl.models.configuration import PACKAGED, configuration_here, fusion_configuration
from vlcpctl.models.imports import open_clip

MICRO: list[tuple[str, object]] = [
    ("vision_cfg.width", 10**7),
    ("embed_dim", 10**9),
    ("text_cfg.layers", 10**6),
    ("text_cfg.vocab_size", 10**9),
    ("vision_cfg.layers", [10**6] * 4),
    ("vision_cfg.mlp_ratio", float("inf")),
    ("vision_cfg.image_size", -1),
    ("vision_cfg.image_size", 7),
    ("vision_cfg.patch_size", 0),
    ("vision_cfg.patch_size", "8"),
    ("vision_cfg.head_width", 0),
    ("vision_cfg.head_width", 5),
    ("vision_cfg.nothing", 1),
    ("vision_cfg.attentional_pool", "no"),
    ("text_cfg.heads", 0),
    ("text_cfg.hf_tokenizer_name", 3),
    ("text_cfg.context_length", None),
    ("text_cfg.tokenizer_kwargs", [1]),
    ("embed_dim", 0),
    ("quick_gelu", "no"),
    ("model_cfg", []),
    ("preprocess_cfg", 3),
    ("preprocess_cfg.std", [1, 1, "x"]),
    ("preprocess_cfg.interpolation", "random"),
    ("learns_temperature", "yes"),
]
ALBEF: list[tuple[str, object]] = [
    ("image_cfg.width", 10**7),
    ("image_cfg.width", 16),
    ("image_cfg.heads", 3),
    ("image_cfg.layers", 10**7),
    ("image_cfg.image_size", 20),
    ("image_cfg.depth", 3),
    ("text_cfg.dropout", 2.0),
    ("text_cfg.fusion_layers", 3),
    ("text_cfg.context_length", 17),
    ("text_cfg.clean", "dust"),
    ("embed_dim", "8"),
    ("heads", "square"),
    ("directory", "x"),
    ("preprocess_cfg.mean", [1.0]),
]
WRONG = [*(("micro", *one) for one in MICRO), *(("albef-micro", *one) for one in ALBEF)]


@pytest.mark.parametrize(("packaged", "path", "value"), WRONG)
def test_a_setting_that_builds_no_model_is_refused_in_one_line_at_once(
    tmp_path: Path, packaged: str, path: str, value: object
) -> None:
    file = model_file(tmp_path, packaged, **{path.replace(".", "__"): value})
    started = time.monotonic()
    with pytest.raises(VlcpError) as caught:
        encoders.build(file)
    assert caught.value.exit_code in (2, 3, 5)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - started < 20  # seconds; a width of 10**7 took minutes, and 8 GB


def test_the_configurations_of_open_clip_have_known_settings() -> None:
    directory = Path(open_clip().__path__[0]) / "model_configs"
    configs = [json.loads(path.read_text()) for path in directory.glob("*.json")]
    # The others are CoCa, and open_clip 4's NaFlexGenLip and models of sounds.
    duals = [
        config
        for config in configs
        if "vision_cfg" in config and not config.keys() & {"multimodal_cfg", "genlip_cfg"}
    ]
    assert len(duals) > 100
    for config in duals:
        towers._check_settings(config)


@pytest.mark.parametrize(
    "data", [b"", b"[" * 10**5, b"{}", b"[]", b'"x"', b"\xff", b'{"embed_dim": ' + b"9" * 400]
)
def test_what_is_no_configuration_is_refused_in_one_line(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "model.json").write_bytes(data)
    assert fusion_configuration(str(tmp_path / "model.json")) is None
    with pytest.raises(BadInput, match=r"model\.json") as caught:
        configuration_here(str(tmp_path / "model.json"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data", [b"[" * 10**5, b"[]", b'{"pad_token": {}}', b'{"padding_side": 3}', b"\xff"]
)
def test_a_hostile_tokenizer_is_refused_in_one_line(tmp_path: Path, data: bytes) -> None:
    file = model_file(tmp_path, text_cfg__hf_tokenizer_name=str(tmp_path))
    tokenizer = (PACKAGED / "tiny-tokenizer" / "tokenizer.json").read_bytes()
    (tmp_path / "tokenizer.json").write_bytes(tokenizer)
    (tmp_path / "tokenizer_config.json").write_bytes(data)
    with pytest.raises(Incompatible, match="the tokenizer in") as caught:
        encoders.build(file)
    assert "\n" not in str(caught.value)


def test_a_model_that_is_not_one_of_images_and_texts_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """open_clip 4 has models of sounds and texts."""
    (tmp_path / "CLAP.json").write_text(json.dumps({"embed_dim": 8, "audio_cfg": {}}))
    monkeypatch.setattr(configuration, "_open_clip_models", lambda: tmp_path)
    with pytest.raises(Incompatible, match=r"CLAP is not a model of .* has no vision_cfg"):
        configuration_here("CLAP")

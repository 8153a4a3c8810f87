"""The presets: what the four papers print, and the source of every value that they do not."""

from __future__ import annotations

from typing import Any

import pytest

from vlcpctl.production.settings import NEW, with_given
from vlcpctl.production.settings import Settings as StateSettings
from vlcpctl.training.methods import compose, hyper_of
from vlcpctl.training.presets import names, preset, resolve
from vlcpctl.training.settings import SETTINGS

# The values as the papers print them, transcribed: CTP, section 5.1; IncCLIP, section 4.1; Mod-X,
# appendix B.1 with table 4; DHA, sections 3.2 and 4.2. The text encoder is part of each model.
PRINTED: dict[str, dict[str, Any]] = {
    "ctp": {
        "model": "albef-base",
        "optimizer": "adamw",
        "weight_decay": 0.05,
        "lr": 1e-4,
        "min_lr": 1e-6,
        "schedule": "cosine",
        "batch_size": 4 * 128,
        "epochs": 5,
        "text_length": 30,
        "temperature": "fixed:0.07",
        "crop": "random",
    },
    "incclip": {
        "model": "RN50",
        "optimizer": "lamb",
        "weight_decay": 0.003,
        "lr": 0.003,
        "schedule": "cosine",
        "batch_size": 8 * 512,
        "epochs": 15,
    },
    "modx": {
        "model": "RN50",
        "optimizer": "adamw",
        "weight_decay": 0.2,
        "betas": (0.9, 0.99),
        "eps": 1e-8,
        "lr": 5e-4,
        "schedule": "cosine",
        "warmup": 0.2,
        "batch_size": 280,
        "epochs": 35,
        "text_length": 77,
        "temperature": "learn:0.07",
    },
    "modx-finetune": {
        "model": "ViT-B-32-quickgelu",
        "pretrained": "openai",
        "optimizer": "adamw",
        "weight_decay": 0.2,
        "betas": (0.9, 0.99),
        "eps": 1e-8,
        "lr": 1e-6,
        "schedule": "cosine",
        "warmup": 0.2,
        "batch_size": 280,
        "epochs": 35,
        "text_length": 77,
    },
    "dha": {
        "model": "rn50-bert",
        "optimizer": "adam",
        "weight_decay": 1e-5,
        "lr": 5e-5,
        "schedule": "plateau",
        "base_loss": "sum",
        "batch_size": 320,
        "epochs": 15,
        "text_length": 256,
    },
}


@pytest.mark.parametrize("name", PRINTED)
def test_a_value_is_the_papers_or_marked(name: str) -> None:
    settings, origins = resolve(name, {}, {})
    for setting, value in PRINTED[name].items():
        assert getattr(settings, setting) == value, setting
        assert origins[setting] == f"preset {name}", setting
    for setting in preset(name).settings.keys() - PRINTED[name].keys():
        assert origins[setting].startswith(f"preset {name}, "), setting


@pytest.mark.parametrize("name", ["modx", "modx-finetune", "dha"])
def test_images_are_resized_and_cropped_at_the_center(name: str) -> None:
    settings, _ = resolve(name, {}, {})
    assert (settings.crop, settings.flip, settings.randaugment) == ("center", False, None)


@pytest.mark.parametrize("name", names())
def test_a_source_is_that_of_a_setting(name: str) -> None:
    found = preset(name)
    assert found.settings.keys() <= {*SETTINGS}
    assert found.sources.keys() <= found.settings.keys()


def test_what_presets_set_is_a_parameter_of_a_method() -> None:
    for name in names():
        for assignment in preset(name).hyper:
            compose(assignment.partition(".")[0], [assignment])


def test_a_state_of_update_trains_with_what_its_preset_sets() -> None:
    (tiny,) = StateSettings(with_given(NEW, {"train-step": {"preset": "tiny"}})).methods
    (usual,) = StateSettings(with_given(NEW, {})).methods
    assert (hyper_of([tiny])["ctp"]["queue"], hyper_of([usual])["ctp"]["queue"]) == (0, 1024)

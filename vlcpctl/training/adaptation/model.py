"""The settings that describe the model, where a previous checkpoint decides them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.model_facts import LEARNED, model_facts
from vlcpctl.core.errors import UsageError
from vlcpctl.core.hashing import file_sha256
from vlcpctl.training.config.request import TrainRequest
from vlcpctl.training.config.settings import OF_MODEL, PREVIOUS, Settings


def with_model(request: TrainRequest) -> TrainRequest:
    """The request with the settings of the model as they are in --previous.

    Options that --previous makes idle stay as given; they are refused later. Raises UsageError if
    there is neither a previous checkpoint nor a model, and BadInput if the checkpoint cannot be
    read.
    """
    if request.previous is None:
        _require_model(request)
        return request
    made = CheckpointManifest.read(request.previous)
    facts = model_facts(request.previous, made)
    facts = {name: facts["name" if name == "model" else name] for name in OF_MODEL}
    decided = [name for name in OF_MODEL if request.origins.get(name) != "flag"]
    values = {
        name: facts[name] for name in decided if not _agrees(name, request.settings, facts[name])
    }
    return replace(
        request,
        settings=replace(request.settings, **values),
        origins={**request.origins, **dict.fromkeys(decided, PREVIOUS)},
        inherited={name: facts[name] for name in decided},
    )


def _require_model(request: TrainRequest) -> None:
    if request.settings.model:
        return
    origins = [one for one in request.origins.values() if one.startswith("preset ")]
    raise UsageError(
        f"{origins[0].split(',')[0] if origins else 'the preset'} names no model; give --previous "
        "with a checkpoint ('vlcpctl import-checkpoint' makes one of a pretrained model), or "
        "--model"
    )


def _agrees(name: str, settings: Settings, fact: str | int | None) -> bool:
    """Whether a setting says nothing about the model that is not so."""
    # Settings that describe the model rightly stay as they are written: the identity of the run
    # contains them. None is "what the model has", except for its weights.
    value = getattr(settings, name)
    if value == fact or (value is None and name != "pretrained"):
        return True
    if name == "temperature" and fact == LEARNED:
        return str(value).startswith(LEARNED)
    is_file = name in {"model", "pretrained"} and value is not None and Path(value).is_file()
    return is_file and f"sha256:{file_sha256(value)}" == fact

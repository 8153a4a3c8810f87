"""The configuration of a train-step, which decides whether rows of different seeds are comparable.

Unlike the identity of a checkpoint, it does not depend on seeds, data, names, paths, or on how the
work is divided, but on everything else that a user may set.
"""

from __future__ import annotations

from typing import Any

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.files.ids import content_id

METHOD_CODE = "method_code"  # of an identity: digests of the code of methods that are not built in
# Settings that divide the work, as processes do: they change rounding, and over how many images
# batch norms normalise.
_COMPUTE = ("micro_batch",)
_RULE = ("alpha", "rule", METHOD_CODE)  # of an identity: what decides merged weights
BATCH_NORM_FROM = "batch_norm_from"  # likewise: the task that the statistics of batch norms are of
_PRESET = "preset "  # then its name, in the origin of a setting
_INPUTS = ("previous", "teacher", "buffer", "targets", "pseudo_texts", "reference")


def step_config(made: CheckpointManifest) -> dict[str, Any] | None:
    """The configuration of the step that made a checkpoint: `{"id": ..., "values": {...}}`.

    Merged weights have their rule, or the share alpha, and the ids of the configurations of the
    checkpoints; an imported checkpoint has no configuration, and the result is None.
    """
    if made.origin is not None:
        return None
    if made.is_merged:
        rule = {name: made.identity[name] for name in _RULE if name in made.identity}
        values = {"method": made.method, **rule, "parents": list(made.configs or ())}
        if made.identity.get(BATCH_NORM_FROM) is not None:
            values["inputs"] = [BATCH_NORM_FROM]
    else:
        values = _trained(made)
    values["start"] = made.start_config or made.start
    return {"id": content_id(values), "values": values}


def preset_of(made: CheckpointManifest) -> str | None:
    """The preset that settings of the step come from; None if none does, or it was not trained.

    It is not part of the configuration: the same settings may come from flags.
    """
    for origin in made.origins.values():
        if origin.startswith(_PRESET):
            return origin.removeprefix(_PRESET).split(",", 1)[0]
    return None


def config_id(made: CheckpointManifest) -> str | None:
    """The id of the configuration of the step that made a checkpoint; None if it was imported."""
    config = step_config(made)
    return None if config is None else str(config["id"])


def _trained(made: CheckpointManifest) -> dict[str, Any]:
    identity = made.identity
    # A batch that was cut to the data is the same setting for all seeds: as it was asked for.
    settings = {**(identity.get("settings") or {}), **(made.asked or {})}
    return {
        "method": made.method,
        **({METHOD_CODE: identity[METHOD_CODE]} if identity.get(METHOD_CODE) else {}),
        "hyper": identity.get("hyper"),
        "settings": {name: settings[name] for name in settings if name not in _COMPUTE},
        "buffer": made.buffer,
        # Their contents differ between seeds; whether they were given does not.
        "inputs": [name for name in _INPUTS if identity.get(name) is not None],
        "from_scratch": bool(identity.get("from_scratch")),
        "fresh_state": made.fresh_state,
        "limit": identity.get("limit"),
    }

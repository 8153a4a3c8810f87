"""Import weights that another program has trained as a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from vlcpctl.checkpoints.checkpoint import write_checkpoint
from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.model_facts import facts_of_encoder, model_facts
from vlcpctl.core.console import say
from vlcpctl.core.errors import BadInput, Diverged, UsageError, missing
from vlcpctl.files.digests import file_sha256
from vlcpctl.files.finished import already_made
from vlcpctl.files.manifest import read_manifest
from vlcpctl.files.tensors import first_not_finite
from vlcpctl.models import dual_encoder, encoders
from vlcpctl.models.checkpoint_files import (
    OPEN_CLIP,
    TOKENIZER_FILES,
    is_checkpoint,
    verify_model,
)
from vlcpctl.models.configuration import (
    CONFIG_FILE,
    activation_note,
    find_configuration,
    fusion_configuration,
)
from vlcpctl.models.encoders import Encoder, NewModelOptions
from vlcpctl.models.fusion import build
from vlcpctl.models.fusion.key_mapping import is_ctp
from vlcpctl.models.pretrained import find_pretrained, is_weight_file
from vlcpctl.models.weight_files import WeightFile, read_weights

METHOD = "imported"
EXAMPLE = "open_clip:ViT-B-32,laion2b_s34b_b79k"
CTP_MODEL = "albef-base"  # what the CTP authors train


@dataclass(frozen=True, kw_only=True)
class ImportRequest:
    """The weights to import, their model, and the run name and stream step of its rows."""

    source: Path
    out: Path
    model: str | None = None
    tokenizer: Path | None = None
    run: str | None = None
    step: int | None = None
    trusts_pickle: bool = False
    force: bool = False

    @property
    def hub(self) -> tuple[str, str] | None:
        """Model and weights of a source open_clip:MODEL,TAG; None for a file or directory.

        Raises UsageError if it names no weights, or options have no effect with it.
        """
        text = str(self.source)
        if not text.startswith(OPEN_CLIP) or self.source.exists():
            return None
        model, comma, weights = text.removeprefix(OPEN_CLIP).partition(",")
        if not (model and comma and weights):
            raise UsageError(f"{text} is not {OPEN_CLIP}MODEL,TAG, such as {EXAMPLE}")
        for option, value in (("--model", self.model), ("--tokenizer", self.tokenizer)):
            if value is not None:
                raise UsageError(f"{option} has no effect with {text}: open_clip chooses it")
        if self.trusts_pickle:
            raise UsageError(
                f"--trust-pickle has no effect with {text}: give the file of weights itself, "
                f"and --model {model}"
            )
        return model, weights

    @cached_property
    def file(self) -> Path:
        """The file of weights: the source itself, or the one in it beside a configuration.

        Weights of open_clip are downloaded unless they are in its cache. Raises BadInput if the
        file does not exist, and what `find_pretrained` raises.
        """
        if self.hub is not None:
            model, weights = self.hub
            if fusion_configuration(model) is not None:
                raise UsageError(f"open_clip has no model {model!r}: it is one of vlcpctl")
            find_configuration(model)  # for an unknown name, before its tags
            file = find_pretrained(model, weights, f"{OPEN_CLIP}{model},").file
            if not file.is_file():
                raise BadInput(missing(file))
            return file
        if not self.source.exists():
            raise BadInput(missing(self.source))
        if self.source.is_file():
            return self.source
        if (self.source / CONFIG_FILE).is_file():
            return dual_encoder.weights_file(self.source)
        if (self.source / build.WEIGHTS_FILE).is_file():
            return self.source / build.WEIGHTS_FILE
        raise BadInput(
            f"{self.source} contains neither {CONFIG_FILE} nor {build.WEIGHTS_FILE}; "
            "give the file of weights itself, and --model"
        )


def import_checkpoint(request: ImportRequest) -> Path:
    """Import the weights and return the path of the checkpoint; do nothing if it is finished.

    Raises BadInput or Incompatible for weights that cannot be read or do not fit the model,
    Diverged if they are not finite, UsageError if the model is not known, and OutputExists if
    something else is at `request.out`.
    """
    about = _made_before(request) or identity(request)
    if already_made(request.out, "checkpoint", about, force=request.force):
        return request.out
    encoder, found = read(request)
    origin = {
        "name": request.file.name,
        "bytes": request.file.stat().st_size,
        "sha256": about["imported"],
        "ran_code": found.ran_code,
    }
    if request.hub is not None:
        tag = _tag(request)
        origin |= {"model": request.hub[0], **({} if tag is None else {"tag": tag})}
    known, pretrained = _known(request, about), _tag(request) or f"sha256:{about['imported']}"
    files = {**known.get("files", {}), "pretrained": request.file.name}
    manifest = CheckpointManifest(
        identity=about,
        run=_run(request),
        method=METHOD,
        step=request.step,
        origin=origin,
        model=facts_of_encoder(encoder, known["name"], pretrained, files),
    )
    write_checkpoint(request.out, encoder, manifest)
    return request.out


def read(request: ImportRequest) -> tuple[Encoder, WeightFile]:
    """The model with the imported weights, after checking every tensor."""
    if request.hub is not None:
        model, weights = request.hub
        _ = request.file  # its errors name the source as it was given
        return encoders.build(model, NewModelOptions(pretrained=weights)), WeightFile({})
    if is_checkpoint(request.source):
        verify_model(request.source)
    found = read_weights(request.file, trusts_pickle=request.trusts_pickle)
    wrong = first_not_finite(found.tensors)
    if wrong is not None:
        raise Diverged(
            f"{request.file} contains NaN or infinity in {wrong}: the training has diverged"
        )
    model = _model(request, found.tensors)
    if request.model is not None and (note := activation_note(model)) is not None:
        say(f"note: {note}")
    what = f"{request.file} as {model}"
    tokenizer = None if request.tokenizer is None else str(request.tokenizer.absolute())
    return encoders.with_weights(model, found.tensors, what, tokenizer), found


def identity(request: ImportRequest) -> dict[str, Any]:
    """The facts that decide the checkpoint, with contents in place of paths."""
    return {"imported": file_sha256(request.file), **_options(request)}


def _options(request: ImportRequest) -> dict[str, Any]:
    """The facts of the identity but for the content of the weights."""
    model = request.model
    if model is not None and Path(model).is_file():
        model = f"sha256:{file_sha256(Path(model))}"
    about = {
        "model": model if request.hub is None else request.hub[0],
        "tokenizer": None if request.tokenizer is None else _tokenizer(request.tokenizer),
        "run": _run(request),
        "step": request.step,
    }
    return about if request.hub is None else {**about, "open_clip": _tag(request)}


def _made_before(request: ImportRequest) -> dict[str, Any] | None:
    """The identity of the finished checkpoint of a tag, to which nothing is downloaded again.

    None if the weights are a file, or if anything else is at the output.
    """
    if _tag(request) is None or request.force:
        return None
    try:
        found = read_manifest(request.out, "checkpoint")["identity"]
    except BadInput:
        return None
    own = {"imported": found.get("imported"), **_options(request)}
    return own if own == found else None


def _tag(request: ImportRequest) -> str | None:
    """The tag of weights that open_clip knows; None for a file."""
    if request.hub is None or is_weight_file(request.hub[1]):
        return None
    return request.hub[1]


def _known(request: ImportRequest, about: dict[str, Any]) -> dict[str, Any]:
    """The name of the architecture, and of its file or directory; that of a checkpoint of ours."""
    if about["model"] is None and is_checkpoint(request.source):
        return model_facts(request.source, CheckpointManifest.read(request.source))
    beside = request.source if request.source.is_dir() else request.source.parent
    given = beside.resolve() if request.model is None else Path(request.model)
    return {"name": about["model"], "files": {"name": given.name}}


def _tokenizer(directory: Path) -> dict[str, str]:
    """The sha256 of each file of a tokenizer, by name."""
    files = [directory / name for name in TOKENIZER_FILES if (directory / name).is_file()]
    if not files:
        raise BadInput(f"--tokenizer {directory} contains none of {', '.join(TOKENIZER_FILES)}")
    return {path.name: file_sha256(path) for path in files}


def _model(request: ImportRequest, tensors: dict[str, Tensor]) -> str:
    """The model of --model, or the one that the source itself is for."""
    if request.model is not None:
        return request.model
    for directory in (request.source, request.source.parent):
        if (directory / CONFIG_FILE).is_file() or fusion_configuration(str(directory)):
            return str(directory)
    # Checkpoints of the CTP authors name no model; their tensor names are their own.
    if is_ctp(tensors):
        return CTP_MODEL
    raise UsageError(
        f"{request.file} does not name the model of its weights; "
        "give --model NAME or FILE.json, such as --model ViT-B-32"
    )


def _run(request: ImportRequest) -> str:
    if request.run is not None or request.hub is None:
        return request.run or request.source.resolve().stem
    return "-".join((request.hub[0], _tag(request) or request.file.stem)).replace("/", "-")

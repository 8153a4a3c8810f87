"""Import weights that another program has trained as a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from vlcpctl.checkpoints.checkpoint import write_checkpoint
from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.core.atomic import already_made
from vlcpctl.core.errors import BadInput, Diverged, UsageError
from vlcpctl.core.hashing import file_sha256
from vlcpctl.core.tensors import first_not_finite
from vlcpctl.models import dual_encoder, encoders
from vlcpctl.models.checkpoint_files import TOKENIZER_FILES, is_checkpoint, verify_model
from vlcpctl.models.configuration import CONFIG_FILE, fusion_configuration
from vlcpctl.models.encoders import Encoder
from vlcpctl.models.fusion import build
from vlcpctl.models.fusion.key_mapping import is_ctp
from vlcpctl.models.weight_files import WeightFile, read_weights

METHOD = "imported"
CTP_MODEL = "albef-base"  # what the CTP authors train


@dataclass(frozen=True, kw_only=True)
class Request:
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
    def file(self) -> Path:
        """The file of weights: the source itself, or the one in it beside a configuration.

        Raises BadInput if there is none.
        """
        if self.source.is_file():
            return self.source
        if not self.source.exists():
            raise BadInput(f"{self.source} does not exist")
        if (self.source / CONFIG_FILE).is_file():
            return dual_encoder.weights_file(self.source)
        if (self.source / build.WEIGHTS_FILE).is_file():
            return self.source / build.WEIGHTS_FILE
        raise BadInput(
            f"{self.source} contains neither {CONFIG_FILE} nor {build.WEIGHTS_FILE}; "
            "give the file of weights itself, and --model"
        )


def import_checkpoint(request: Request) -> Path:
    """Import the weights and return the path of the checkpoint; do nothing if it is finished.

    Raises BadInput or Incompatible for weights that cannot be read or do not fit the model,
    Diverged if they are not finite, UsageError if the model is not known, and OutputExists if
    something else is at `request.out`.
    """
    about = identity(request)
    if already_made(request.out, "checkpoint", about, force=request.force):
        return request.out
    encoder, found = read(request)
    origin = {
        "name": request.file.name,
        "bytes": request.file.stat().st_size,
        "sha256": about["imported"],
        "ran_code": found.ran_code,
    }
    manifest = CheckpointManifest(
        identity=about, run=_run(request), method=METHOD, step=request.step, origin=origin
    )
    write_checkpoint(request.out, encoder, manifest)
    return request.out


def read(request: Request) -> tuple[Encoder, WeightFile]:
    """The model with the imported weights, after checking every tensor."""
    if is_checkpoint(request.source):
        verify_model(request.source)
    found = read_weights(request.file, trusts_pickle=request.trusts_pickle)
    _require_finite(found.tensors, request.file)
    model = _model(request, found.tensors)
    what = f"{request.file} as {model}"
    tokenizer = None if request.tokenizer is None else str(request.tokenizer.absolute())
    return encoders.with_weights(model, found.tensors, what, tokenizer), found


def identity(request: Request) -> dict[str, Any]:
    """The facts that decide the checkpoint, with contents in place of paths."""
    model = request.model
    if model is not None and Path(model).is_file():
        model = f"sha256:{file_sha256(Path(model))}"
    return {
        "imported": file_sha256(request.file),
        "model": model,
        "tokenizer": None if request.tokenizer is None else _tokenizer(request.tokenizer),
        "run": _run(request),
        "step": request.step,
    }


def _tokenizer(directory: Path) -> dict[str, str]:
    """The sha256 of each file of a tokenizer, by name."""
    files = [directory / name for name in TOKENIZER_FILES if (directory / name).is_file()]
    if not files:
        raise BadInput(f"--tokenizer {directory} contains none of {', '.join(TOKENIZER_FILES)}")
    return {path.name: file_sha256(path) for path in files}


def _model(request: Request, tensors: dict[str, Tensor]) -> str:
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


def _require_finite(tensors: dict[str, Tensor], file: Path) -> None:
    wrong = first_not_finite(tensors)
    if wrong is not None:
        raise Diverged(f"{file} contains NaN or infinity in {wrong}: the training has diverged")


def _run(request: Request) -> str:
    return request.run or request.source.resolve().stem

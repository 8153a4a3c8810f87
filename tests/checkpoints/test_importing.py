"""Weights of other programs as checkpoints: what is read, refused, and never executed."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.commands import inspect
from support.ctp_reference import split_tensors
from torch import Tensor

from vlcpctl.checkpoints.check import check_checkpoint
from vlcpctl.checkpoints.importing import ImportRequest, import_checkpoint
from vlcpctl.core.errors import BadInput, Diverged, Incompatible, OutputExists, UsageError
from vlcpctl.files.digests import file_sha256
from vlcpctl.files.manifest import read_manifest
from vlcpctl.models import dual_encoder, encoders
from vlcpctl.models.encoders import NewModelOptions
from vlcpctl.models.fusion.key_mapping import ctp_names
from vlcpctl.models.imports import open_clip

NAME = "visual.proj"
WEIGHTS = "open_clip_model.safetensors"


@pytest.fixture
def trained() -> dict[str, Tensor]:
    return dict(dual_encoder.build("micro", seed=7).module.state_dict())


def epoch_file(path: Path, weights: dict[str, Tensor], **more: object) -> Path:
    """What open_clip's trainer saves from several processes."""
    named = {f"module.{name}": value for name, value in weights.items()}
    torch.save({"epoch": 1, "name": "run", "state_dict": named, "optimizer": {}, **more}, path)
    return path


def imported(source: Path, out: Path, **options: Any) -> dict[str, Any]:
    import_checkpoint(ImportRequest(source=source, out=out, **options))
    assert list(check_checkpoint(out, deep=True)) == []
    return read_manifest(out, "checkpoint")


def test_open_clips_checkpoint_becomes_one_that_open_clip_opens(
    trained: dict[str, Tensor], tmp_path: Path
) -> None:
    source = epoch_file(tmp_path / "epoch_1.pt", trained)
    manifest = imported(source, tmp_path / "out", model="micro")
    assert load_file(tmp_path / "out" / WEIGHTS).keys() == trained.keys()
    module, _, _ = open_clip().create_model_and_transforms(f"local-dir:{tmp_path / 'out'}")
    assert torch.equal(module.state_dict()[NAME], trained[NAME])
    assert (manifest["run"], manifest["method"], manifest["step"]) == ("epoch_1", "imported", None)
    assert (manifest["tasks"], manifest["parent"]) == ([], None)
    assert manifest["origin"]["name"] == "epoch_1.pt"
    assert not manifest["origin"]["ran_code"]


@pytest.mark.parametrize("name", [WEIGHTS, "open_clip_pytorch_model.bin"])
def test_a_directory_says_its_model_itself(
    trained: dict[str, Tensor], tmp_path: Path, name: str
) -> None:
    source = tmp_path / "model"
    source.mkdir()
    dual_encoder.save(dual_encoder.build("micro", seed=7), source)
    if name != WEIGHTS:
        (source / WEIGHTS).unlink()
        torch.save(trained, source / name)
    for number, place in enumerate((source, source / name)):
        imported(place, tmp_path / f"out{number}")
        assert torch.equal(load_file(tmp_path / f"out{number}" / WEIGHTS)[NAME], trained[NAME])


def test_every_tensor_that_does_not_fit_is_named(
    trained: dict[str, Tensor], tmp_path: Path
) -> None:
    trained["visual.proj"] = trained["visual.proj"][:, :1]
    trained["extra.one"] = trained["extra.two"] = torch.zeros(1)
    del trained["ln_final.weight"], trained["ln_final.bias"]
    source = epoch_file(tmp_path / "epoch_1.pt", trained)
    with pytest.raises(Incompatible) as caught:
        imported(source, tmp_path / "out", model="micro")
    said = str(caught.value)
    assert "it lacks 2 (ln_final.bias, ln_final.weight)" in said
    assert "it has unexpected tensors: 2 (extra.one, extra.two)" in said
    assert "it has tensors of other shapes: 1 (visual.proj (" in said
    assert caught.value.exit_code == 5
    assert not (tmp_path / "out").exists()


def test_a_diverged_model_is_refused(trained: dict[str, Tensor], tmp_path: Path) -> None:
    trained[NAME] = trained[NAME] * float("nan")
    source = epoch_file(tmp_path / "epoch_1.pt", trained)
    with pytest.raises(Diverged, match=r"NaN or infinity in visual\.proj: "):
        imported(source, tmp_path / "out", model="micro")


class _Payload:
    """The content of a hostile file: unpickling it prints."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("code ran",)


def test_code_runs_only_when_trusted_and_that_is_recorded(
    trained: dict[str, Tensor], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = epoch_file(tmp_path / "epoch_1.pt", trained, memory=_Payload())
    with pytest.raises(Incompatible, match=r"without running code from it: .*print") as caught:
        imported(source, tmp_path / "out", model="micro")
    assert "--trust-pickle' reads the file and runs its code" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "code ran" not in capsys.readouterr().out
    manifest = imported(source, tmp_path / "out", model="micro", trusts_pickle=True)
    said = capsys.readouterr()
    assert "code ran" in said.out
    assert "is unpickled in full" in said.err
    assert manifest["origin"]["ran_code"]
    inspect(tmp_path / "out")
    assert "its code was run" in capsys.readouterr().out


@pytest.mark.parametrize("made_by", [b"numpy._core", b"numpy.core"])
@pytest.mark.parametrize(
    "value",
    [
        *(np.float64(3.5), np.float32(3.5), np.int64(3), np.bool_(1)),
        *(np.arange(3.0), np.array(["a"])),
    ],
)
def test_what_numpy_has_beside_the_weights_needs_no_trust(
    trained: dict[str, Tensor], tmp_path: Path, value: object, made_by: bytes
) -> None:
    source = tmp_path / "epoch_1.pt"
    found = {"state_dict": trained, "best": value}
    torch.save(found, source, _use_new_zipfile_serialization=False)
    source.write_bytes(source.read_bytes().replace(b"numpy._core", made_by))
    assert not imported(source, tmp_path / "out", model="micro")["origin"]["ran_code"]


@pytest.mark.parametrize(
    "wrapper",
    [
        *("_orig_mod.", "module._orig_mod.", "module.", "model.", "_forward_module.clip."),
        *("visual._orig_mod.", "visual._fsdp_wrapped_module._checkpoint_wrapped_module."),
    ],
)
def test_wrappers_of_the_model_are_removed_from_names(
    trained: dict[str, Tensor], tmp_path: Path, wrapper: str
) -> None:
    first, dot, _ = wrapper.partition("visual.")
    named = {
        name.replace("visual.", wrapper) if dot else first + name: trained[name] for name in trained
    }
    save_file(named, tmp_path / "weights.safetensors")
    imported(tmp_path / "weights.safetensors", tmp_path / "out", model="micro")
    assert torch.equal(load_file(tmp_path / "out" / WEIGHTS)[NAME], trained[NAME])


@pytest.mark.filterwarnings("ignore:.torch.jit:FutureWarning")
def test_an_archive_of_openai_is_read_with_trust_only(
    trained: dict[str, Tensor], tmp_path: Path
) -> None:
    whole = torch.nn.Module()
    for name, value in {**trained, "context_length": torch.tensor(77)}.items():
        *path, last = name.split(".")
        part = whole
        for one in path:
            if one not in dict(part.named_children()):
                part.add_module(one, torch.nn.Module())
            part = part.get_submodule(one)
        part.register_buffer(last, value.half() if value.is_floating_point() else value)
    torch.jit.script(whole).save(str(tmp_path / "jit.pt"))
    torch.save(whole.state_dict(), tmp_path / "plain.pt")
    with pytest.raises(Incompatible, match=r"TorchScript archive; .*--trust-pickle"):
        imported(tmp_path / "jit.pt", tmp_path / "out", model="micro")
    for name, trusts in (("jit.pt", True), ("plain.pt", False)):
        out = tmp_path / f"out-{name}"
        imported(tmp_path / name, out, model="micro", trusts_pickle=trusts)
        assert torch.equal(load_file(out / WEIGHTS)[NAME], trained[NAME].half().float())


@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
def test_a_pointer_of_git_lfs_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n"
    )
    with pytest.raises((BadInput, Incompatible), match="git lfs pull"):
        imported(tmp_path / name, tmp_path / "out", model="micro")


@pytest.mark.parametrize("trusts", [False, True])
@pytest.mark.parametrize(
    "data", [b"", b"hello", b"\x80\x04\x95cos", pickle.dumps([1]), pickle.dumps({"a": 1})]
)
def test_a_file_that_is_no_weights_is_refused(tmp_path: Path, data: bytes, *, trusts: bool) -> None:
    source = tmp_path / "x.pt"
    source.write_bytes(data)
    with pytest.raises(Incompatible, match=r"x\.pt") as caught:
        imported(source, tmp_path / "out", model="micro", trusts_pickle=trusts)
    said = str(caught.value)
    assert "\n" not in said
    assert data[:1] == b"\x80" or "neither a .safetensors file nor a torch pickle" in said


def test_importing_again_is_free_and_another_file_is_refused(
    trained: dict[str, Tensor], tmp_path: Path
) -> None:
    source = epoch_file(tmp_path / "epoch_1.pt", trained)
    imported(source, tmp_path / "out", model="micro")
    before = (tmp_path / "out" / "checkpoint.json").stat().st_mtime_ns
    moved = source.rename(tmp_path / "epoch_9.pt")
    imported(moved, tmp_path / "out", model="micro", run="epoch_1", trusts_pickle=True)
    assert (tmp_path / "out" / "checkpoint.json").stat().st_mtime_ns == before
    trained[NAME] = trained[NAME] + 1
    with pytest.raises(OutputExists, match="imported"):
        imported(epoch_file(moved, trained), tmp_path / "out", model="micro", run="epoch_1")


def authors_file(path: Path, heads: str = "linear") -> dict[str, Tensor]:
    """A checkpoint with the names of the CTP authors; our tensors that it was made of."""
    encoder = encoders.build("albef-micro", NewModelOptions(seed=3, heads=heads))
    own = encoder.module.state_dict()
    theirs = split_tensors(own, {**ctp_names(own), "logit_scale": ("temp",)})
    theirs["temp"] = torch.exp(-own["logit_scale"])
    besides = {
        name.replace("text_mlm_encoder.bert", "text_encoder"): value
        for name, value in theirs.items()
        if name.startswith("text_mlm_encoder.bert")
    }
    decoder = "text_mlm_encoder.cls.predictions.decoder"
    besides[f"{decoder}.weight"] = theirs["text_mlm_encoder.bert.embeddings.word_embeddings.weight"]
    besides[f"{decoder}.bias"] = theirs["text_mlm_encoder.cls.predictions.bias"]
    besides["text_encoder.embeddings.position_ids"] = torch.arange(16)[None]
    besides |= {"image_queue": torch.zeros(8, 4), "text_queue": torch.zeros(8, 4)}
    besides |= {"queue_ptr": torch.zeros(1, dtype=torch.long), "distill_temp": torch.ones(())}
    config = {"init_lr": 1e-4, "task": ["家居用品"]}
    torch.save({"model": {**theirs, **besides}, "optimizer": {}, "config": config}, path)
    return dict(own)


@pytest.mark.parametrize("heads", ["linear", "cosine"])
def test_the_ctp_authors_checkpoint_gives_our_tensors(tmp_path: Path, heads: str) -> None:
    own = authors_file(tmp_path / "task_08.pth", heads)
    manifest = imported(tmp_path / "task_08.pth", tmp_path / "out", model="albef-micro", step=8)
    found = encoders.load(tmp_path / "out").module.state_dict()
    assert found.keys() == own.keys()
    for name, tensor in own.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-6, atol=0)
    assert (manifest["step"], manifest["run"]) == (8, "task_08")
    imported(tmp_path / "out", tmp_path / "again")  # of a directory that says its model itself
    assert encoders.load(tmp_path / "again").module.state_dict().keys() == own.keys()


def test_the_tokenizer_of_the_ctp_authors_may_lie_in_a_directory(tmp_path: Path) -> None:
    authors_file(tmp_path / "task_00.pth")
    words = tmp_path / "words"
    words.mkdir()
    encoders.build("albef-micro").tokenizer.save(words)
    imported(tmp_path / "task_00.pth", tmp_path / "out", model="albef-micro", tokenizer=words)
    with (words / "vocab.txt").open("a") as file:
        file.write("unheard-of\n")
    with pytest.raises(OutputExists, match="tokenizer"):
        imported(tmp_path / "task_00.pth", tmp_path / "out", model="albef-micro", tokenizer=words)
    texts = ["a red thing"]
    tokenize = encoders.load(tmp_path / "out").tokenize
    assert torch.equal(tokenize(texts), encoders.build("albef-micro").tokenize(texts))
    with pytest.raises(BadInput, match="contains none of"):
        imported(tmp_path / "task_00.pth", tmp_path / "o", model="albef-micro", tokenizer=tmp_path)
    with pytest.raises(UsageError, match="--tokenizer has no effect on micro"):
        imported(tmp_path / "task_00.pth", tmp_path / "o", model="micro", tokenizer=words)


@pytest.fixture
def tag(trained: dict[str, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Makes `ours` a tag of the model micro; the downloads that its weights take are listed."""
    file, downloads = tmp_path / "cache" / "weights.safetensors", []
    file.parent.mkdir()
    save_file(trained, file)
    tags = {"ours": {"hf_hub": "org/micro", "mean": (0.5, 0.5, 0.5), "quick_gelu": True}}

    def download(config: dict[str, Any]) -> str:
        assert config is tags["ours"]
        if not file.exists():
            raise OSError("no network")
        downloads.append(file)
        return str(file)

    library = open_clip()
    monkeypatch.setattr(library, "list_pretrained_tags_by_model", lambda _: list(tags))
    monkeypatch.setattr(library, "get_pretrained_cfg", lambda _, name: tags[name])
    monkeypatch.setattr(library, "download_pretrained", download)
    return downloads


def test_a_pretrained_model_of_open_clip_becomes_a_checkpoint(
    trained: dict[str, Tensor], tag: list[Path], tmp_path: Path
) -> None:
    manifest = imported(Path("open_clip:micro,ours"), tmp_path / "out")
    assert manifest["run"] == "micro-ours"
    origin = manifest["origin"]
    assert (origin["model"], origin["tag"]) == ("micro", "ours")
    assert origin["sha256"] == manifest["identity"]["imported"] == file_sha256(tag[0])
    assert (manifest["model"]["name"], manifest["model"]["pretrained"]) == ("micro", "ours")
    assert torch.equal(load_file(tmp_path / "out" / WEIGHTS)[NAME], trained[NAME])
    config = json.loads((tmp_path / "out" / "open_clip_config.json").read_text())
    assert config["model_cfg"]["quick_gelu"]  # as the tag says
    assert config["preprocess_cfg"]["mean"] == [0.5, 0.5, 0.5]


def test_a_finished_import_of_a_tag_downloads_nothing(tag: list[Path], tmp_path: Path) -> None:
    source = Path("open_clip:micro,ours")
    imported(source, tmp_path / "out")
    (file, *_) = tag
    file.unlink()
    imported(source, tmp_path / "out")
    with pytest.raises(Incompatible, match=r"cannot download .* pass open_clip:micro,FILE"):
        imported(source, tmp_path / "other")
    with pytest.raises(Incompatible, match="cannot download"):
        imported(source, tmp_path / "out", run="renamed")


def test_weights_of_open_clip_may_be_a_file(
    trained: dict[str, Tensor], tag: list[Path], tmp_path: Path
) -> None:
    file = tmp_path / "fetched.safetensors"
    save_file(trained, file)
    manifest = imported(Path(f"open_clip:micro,{file}"), tmp_path / "out")
    assert manifest["origin"]["sha256"] == file_sha256(file)
    assert "tag" not in manifest["origin"]
    assert (manifest["run"], tag) == ("micro-fetched", [])
    with pytest.raises(BadInput, match=r"missing\.pt does not exist"):
        imported(Path("open_clip:micro,missing.pt"), tmp_path / "other")


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("open_clip:micro,our", {}, "'ours'"),
        ("open_clip:micr,ours", {}, "'micro'"),
        ("open_clip:micro", {}, "MODEL,TAG"),
        ("open_clip:albef-micro,ours", {}, "albef-micro"),
        ("open_clip:micro,ours", {"model": "micro"}, "--model"),
        ("open_clip:micro,ours", {"trusts_pickle": True}, "--trust-pickle"),
        ("weights.pt", {}, "--model"),
    ],
)
def test_a_source_that_names_no_weights_or_no_model_is_refused(
    tag: list[Path],
    trained: dict[str, Tensor],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    options: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(trained, "weights.pt")
    with pytest.raises(UsageError, match=message):
        imported(Path(source), tmp_path / "out", **options)
    assert tag == []

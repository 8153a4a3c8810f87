"""Classifiers for labels: timm's agree with timm, those by names with a loop over the prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from support.checkpoints import write_checkpoint_manifest
from support.commands import split as run
from support.pair_files import write_parquet

from vlcpctl.core.errors import Incompatible, UsageError
from vlcpctl.data.images.transforms import decode_image
from vlcpctl.data.splitting.labels import Classifier, LabelsFrom, labels_from
from vlcpctl.data.tasks.task import open_stream
from vlcpctl.files.manifest import is_artifact
from vlcpctl.files.outputs import new_directory
from vlcpctl.models import encoders
from vlcpctl.precompute.label_classifiers import classifier_of
from vlcpctl.testing.tiny_stream import make_image

NAMES = ("cat", "dog", "bird", "fish", "frog")


@pytest.fixture(scope="module")
def timm() -> Any:
    return pytest.importorskip("timm")  # takes seconds


@pytest.fixture(scope="module")
def weights(timm: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model of timm with five classes, its head set to distinguish images."""
    torch.manual_seed(0)
    model = timm.create_model("test_efficientnet", num_classes=5).eval()
    path = tmp_path_factory.mktemp("timm") / "weights.safetensors"
    state = model.state_dict()
    state["classifier.weight"] = 50 * torch.randn(state["classifier.weight"].shape)
    save_file(state, path)
    return path


def images(count: int = 12) -> list[Image.Image]:
    return [decode_image(make_image(number, 40)) for number in range(count)]


def labels(classifier: Classifier) -> list[str]:
    batch = np.stack([classifier.prepare(image) for image in images()])
    return [classifier.names[number] for number in classifier.classify(batch)]


def labelling(text: str, tmp_path: Path, names: tuple[str, ...] | None = NAMES) -> LabelsFrom:
    file = tmp_path / "names.txt"
    file.write_text("".join(f"{name}\n" for name in names or ()))
    return labels_from(text, file if names else None)


def by_timm(timm: Any, model: Any) -> list[int]:
    config = timm.data.resolve_model_data_config(model)
    transform = timm.data.create_transform(**config, is_training=False)
    with torch.no_grad():
        return [int(model.eval()(transform(image)[None]).argmax()) for image in images()]


def test_labels_are_those_of_timm(timm: Any, weights: Path, tmp_path: Path) -> None:
    found = labels(classifier_of(labelling(f"timm:test_efficientnet,{weights}", tmp_path), "cpu"))
    model = timm.create_model("test_efficientnet", num_classes=5, checkpoint_path=str(weights))
    expected = [NAMES[number] for number in by_timm(timm, model)]
    assert found == expected
    assert len(set(found)) > 1


def test_a_directory_that_timm_saved_brings_its_names(
    timm: Any, weights: Path, tmp_path: Path
) -> None:
    model = timm.create_model("test_efficientnet", num_classes=5, checkpoint_path=str(weights))
    timm.models.save_for_hf(
        model, str(tmp_path / "saved"), model_config={"label_names": list(NAMES)}
    )
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert config["num_classes"] == 5
    found = classifier_of(labelling(f"timm:{tmp_path / 'saved'}", tmp_path, None), "cpu")
    assert labels(found) == [NAMES[number] for number in by_timm(timm, model)]


def test_a_thousand_classes_are_imagenets(timm: Any, tmp_path: Path) -> None:
    model = timm.create_model("test_efficientnet")
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    how = labelling(f"timm:test_efficientnet,{tmp_path / 'w.safetensors'}", tmp_path, None)
    assert classifier_of(how, "cpu").names[0] == "tench"


@pytest.mark.parametrize("names", [None, NAMES[:3]])
def test_every_class_needs_a_name(
    weights: Path, tmp_path: Path, names: tuple[str, ...] | None
) -> None:
    how = labelling(f"timm:test_efficientnet,{weights}", tmp_path, names)
    with pytest.raises(UsageError, match="--class-names"):
        classifier_of(how, "cpu")


def test_weights_of_another_model_are_refused(weights: Path, tmp_path: Path) -> None:
    for model, file, error in (
        ("test_vit", weights, Incompatible),
        ("test_vitt", weights, UsageError),
        ("test_vit", tmp_path / "none.pt", UsageError),
    ):
        with pytest.raises(error):
            classifier_of(labelling(f"timm:{model},{file}", tmp_path), "cpu")


class Attack:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (print, ("code from a file of weights ran",))


def test_weights_run_no_code(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch.save({"state_dict": Attack()}, tmp_path / "bad.pth")
    with pytest.raises(Incompatible, match="does not contain the weights"):
        classifier_of(labelling(f"timm:test_vit,{tmp_path / 'bad.pth'}", tmp_path), "cpu")
    assert "ran" not in capfd.readouterr().out


@pytest.mark.parametrize("kind", ["checkpoint", "open_clip"])
def test_labels_by_names_are_those_of_a_loop(tmp_path: Path, kind: str) -> None:
    encoder = encoders.build("micro")
    with new_directory(tmp_path / "model", is_artifact) as temporary:
        encoders.save(encoder, temporary)
        write_checkpoint_manifest(temporary, "content")
    found = labels(classifier_of(labelling(f"{kind}:{tmp_path / 'model'}", tmp_path), "cpu"))
    import open_clip

    where = f"local-dir:{tmp_path / 'model'}"
    model, _, transform = open_clip.create_model_and_transforms(where)
    tokens = open_clip.get_tokenizer(where)([f"a photo of a {name}." for name in NAMES])
    with torch.no_grad():
        texts = model.eval().encode_text(tokens, normalize=True)
        features = [model.encode_image(transform(image)[None])[0] for image in images()]
    assert found == [NAMES[int((texts @ feature).argmax())] for feature in features]
    assert len(set(found)) > 1


def test_split_labels_by_a_checkpoint(tmp_path: Path) -> None:
    with new_directory(tmp_path / "model", is_artifact) as temporary:
        encoders.save(encoders.build("micro"), temporary)
        write_checkpoint_manifest(temporary, "content")
    pairs = [{"image": make_image(n, 16), "caption": f"number {n}"} for n in range(40)]
    source = str(write_parquet(tmp_path / "pairs.parquet", pairs))
    (tmp_path / "names.txt").write_text("".join(f"{name}\n" for name in NAMES))
    how: dict[str, Any] = {
        "labels_from": f"checkpoint:{tmp_path / 'model'}",
        "class_names": tmp_path / "names.txt",
        "quiet": True,
    }
    run([source], tmp_path / "out", by="classes", tasks=2, workers=2, device="cpu", **how)
    tasks = open_stream(tmp_path / "out")
    dealt = [set(task.manifest.labels) for task in tasks]
    assert dealt[0] | dealt[1] <= set(NAMES)
    assert dealt[0]
    assert dealt[1]
    assert not dealt[0] & dealt[1]
    made = (tmp_path / "out" / "stream.json").stat().st_mtime_ns
    run([source], tmp_path / "out", by="classes", tasks=2, **how)  # no model is loaded for this
    assert (tmp_path / "out" / "stream.json").stat().st_mtime_ns == made

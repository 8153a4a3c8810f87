"""`vlcpctl export --to onnx`: the embeddings of torch, without torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from support.program import check_refused, run_program

from vlcpctl.export import model, onnx_towers
from vlcpctl.models.encoders import load_for_inference

pytestmark = pytest.mark.skipif(find_spec("onnxruntime") is None, reason="needs onnxruntime")

NAMES = ("image.onnx", "text.onnx")
CONFIGURATION = ("open_clip_config.json", "tokenizer.json", "tokenizer_config.json")
# In a process of its own, that has neither torch nor vlcpctl.
RUNS = """
import sys
import numpy as np
import onnxruntime

given = np.load("given.npz")
found = {}
for side in ("image", "text"):
    tower = onnxruntime.InferenceSession(f"model/{side}.onnx")
    (found[side],) = tower.run([f"{side}_features"], {side: given[side]})
np.savez("found.npz", **found)
assert not {"torch", "vlcpctl"} & sys.modules.keys()
"""


@pytest.fixture(scope="module")
def exported(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("onnx") / "model"
    model.ModelExport(checkpoint=place / "queued", out=out, to="onnx").export()
    return out


@pytest.mark.parametrize("count", [1, 3])
def test_onnxruntime_alone_gives_the_embeddings(place: Path, exported: Path, count: int) -> None:
    encoder = load_for_inference(place / "queued", "cpu")
    size = encoder.transform.image_size
    images = torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(7))
    texts = encoder.tokenize([f"a thing number {number}" for number in range(count)])
    with torch.no_grad():
        wanted = [
            torch.nn.functional.normalize(side, dim=-1) for side in encoder.features(images, texts)
        ]
    where = exported.parent
    np.savez(where / "given.npz", image=images.numpy(), text=texts.numpy())
    subprocess.run([sys.executable, "-c", RUNS], cwd=where, check=True)
    found = np.load(where / "found.npz")
    for side, embeddings in zip(("image", "text"), wanted, strict=True):
        np.testing.assert_allclose(found[side], embeddings.numpy(), atol=1e-5)


def test_the_files_are_whole_and_have_no_path_of_this_machine(
    exported: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in NAMES:
        assert b"site-packages" not in (exported / name).read_bytes()
    assert run_program(capfd, "check", exported).code == 0
    files = {path.name for path in exported.iterdir() if path.is_file()}
    assert files == {*NAMES, "README.md", *CONFIGURATION}
    assert json.loads((exported / ".vlcpctl/export.json").read_text())["to"] == "onnx"


@pytest.mark.slow
def test_an_export_has_the_same_bytes_again(
    place: Path, exported: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "again"
    ended = run_program(capfd, "export", place / "queued", "--to", "onnx", "-o", out)
    assert (ended.code, ended.out) == (0, f"{out}\n"), ended.err
    for name in NAMES:
        assert (out / name).read_bytes() == (exported / name).read_bytes()


def test_embeddings_that_differ_are_not_exported(
    place: Path,
    exported: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(onnx_towers, "MOST_DIFFERENCE", 0.0)
    monkeypatch.setattr(
        onnx_towers, "_write", lambda *how: shutil.copy(exported / f"{how[2]}.onnx", how[3])
    )
    out = tmp_path / "model"
    refused = run_program(capfd, "export", place / "queued", "--to", "onnx", "-o", out, "-q")
    check_refused(refused, "export", 5, "onnxruntime's embeddings differ from torch's by")
    assert not out.exists()


def test_missing_packages_are_named(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "find_spec", lambda name: None if name == "onnxscript" else name)
    words = ("export", place / "queued", "--to", "onnx", "-o", tmp_path / "out")
    for more in ((), ("--dry-run",)):
        refused = run_program(capfd, *words, *more)
        check_refused(refused, "export", 2, "not installed: pip install onnxscript")

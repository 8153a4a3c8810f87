"""Other programs read what we write and we read what they write; the wheel runs by itself."""

from __future__ import annotations

import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from support.environments import install, new_python, run
from support.program import run_program

import vlcpctl
from vlcpctl.testing.tiny_stream import make_task

ROOT = Path(vlcpctl.__file__).parents[1]
WEIGHTS = "open_clip_model.safetensors"
# Training so little that the weights stay what they were.
FROZEN = ("--method", "seqf", "--preset", "tiny", "--lr", "1e-20", "--weight-decay", "0", "-q")
FOUR = ("--batch-size", "4", "--steps", "1")


@pytest.fixture
def python(tmp_path: Path) -> Iterator[Path]:
    """The Python of an empty virtual environment, which is removed afterwards: it may be large."""
    place = tmp_path / "environment"
    yield new_python(place)
    shutil.rmtree(place)


def require_close(checkpoint: Path, wanted: Mapping[str, Any]) -> None:
    """The checkpoint has these weights, but for the temperature, which the preset sets."""
    import torch
    from safetensors.torch import load_file

    found = load_file(checkpoint / WEIGHTS)
    assert found.keys() == wanted.keys()
    for name in wanted.keys() - {"logit_scale"}:
        torch.testing.assert_close(found[name], wanted[name])


def test_a_file_of_open_clips_trainer_can_be_started_from(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import torch

    from vlcpctl.models import dual_encoder

    trained = dual_encoder.build("micro", seed=7).module.state_dict()
    under_ddp = {f"module.{name}": value for name, value in trained.items()}
    file = tmp_path / "epoch_3.pt"
    torch.save({"epoch": 3, "name": "run", "state_dict": under_ddp, "optimizer": {}}, file)
    task, out = make_task(tmp_path / "task", 4), tmp_path / "out"
    how = (*FROZEN, *FOUR, "--model", "micro", "--pretrained", file)
    assert run_program(capfd, "train-step", task, "-o", out, *how).code == 0
    require_close(out, trained)


@pytest.mark.slow
@pytest.mark.net
@pytest.mark.timeout(1800)
def test_open_clips_trainer_resumes_from_our_checkpoint_and_we_from_its(
    python: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import torch
    from safetensors.torch import load_file

    # The versions that are here, so that nothing large is fetched twice.
    pinned = [f"{name}=={version(name)}" for name in ("torch", "torchvision", "transformers")]
    install(python, "open_clip_torch[training]==3.3.*", *pinned)
    task = make_task(tmp_path / "task", 24, shard_bytes=30_000)
    shards = sorted(task.glob("train-*.tar"))
    assert len(shards) > 1
    ours = tmp_path / "ours"
    how = ("--model", "tiny", *FROZEN, *FOUR)
    assert run_program(capfd, "train-step", task, "-o", ours, *how).code == 0

    done = run(
        *(python, "-m", "open_clip_train.main", "--device", "cpu"),
        *("--train-data", f"{task}/train-{{000000..{len(shards) - 1:06d}}}.tar"),
        *("--train-num-samples", 24, "--dataset-type", "webdataset", "--batch-size", 8),
        *("--model", f"local-dir:{ours}", "--precision", "fp32", "--workers", 1, "--epochs", 1),
        *("--warmup", 1, "--lr", "1e-3", "--log-every-n-steps", 1),
        *("--logs", tmp_path / "logs", "--name", "theirs"),
        HF_HUB_OFFLINE="1",
    )
    losses = re.findall(r"Loss: (\d+\.\d+)", done.stderr + done.stdout)
    assert len(losses) >= 3, done.stderr

    theirs, out = tmp_path / "logs" / "theirs" / "checkpoints" / "epoch_1.pt", tmp_path / "out"
    how = (*how, "--pretrained", theirs)
    assert run_program(capfd, "train-step", task, "-o", out, *how).code == 0
    moved = torch.load(theirs, weights_only=True)["state_dict"]
    assert not torch.equal(load_file(ours / WEIGHTS)["visual.proj"], moved["visual.proj"])
    require_close(out, moved)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist of this tree, and with the wheel built from it."""
    place = tmp_path_factory.mktemp("dist")
    source = place / "source"
    leave_out = shutil.ignore_patterns("__pycache__")
    for name in ("vlcpctl", "tests"):
        shutil.copytree(ROOT / name, source / name, ignore=leave_out)
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / name, source)
    shutil.copy(ROOT / "CITATION.cff", source)
    uv = shutil.which("uv")
    if uv:
        run(uv, "build", "--quiet", "--python", sys.executable, "-o", place, source)
    else:
        builder = new_python(place / "environment")
        install(builder, "build")
        run(builder, "-m", "build", "-o", place, source)
        shutil.rmtree(place / "environment")
    return place


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (path,) = dist.glob("*.whl")
    return path


@pytest.mark.slow
@pytest.mark.net
def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    files = {
        f"vlcpctl/{path.relative_to(ROOT / 'vlcpctl')}"
        for path in (ROOT / "vlcpctl").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    all_names = zipfile.ZipFile(wheel).namelist()
    held = {name for name in all_names if ".dist-info/" not in name}
    assert held == files
    for name in ("glyphs.parquet", "tiny.json", "tokenizer.json", "style.css", "py.typed"):
        assert any(path.endswith(f"/{name}") for path in held), name
    # The licence of the emoji pictures is where tools look for licences.
    assert any(re.search(r"/licenses/.*emoji9/LICENSES.md$", name) for name in all_names)
    assert wheel.stat().st_size < 5_000_000


@pytest.mark.slow
@pytest.mark.net
def test_the_sdist_holds_the_package_and_no_tests(dist: Path, wheel: Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {one.name.partition("/")[2] for one in archive if one.isfile()}
    packaged = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packaged <= names
    others = {name for name in names - packaged if not name.startswith("vlcpctl.egg-info/")}
    texts = {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"}
    assert others == texts | {"MANIFEST.in", "PKG-INFO", "pyproject.toml", "setup.cfg"}


@pytest.mark.slow
@pytest.mark.net
@pytest.mark.timeout(600)
def test_the_wheel_alone_shows_its_help(wheel: Path, python: Path) -> None:
    install(python, "typer", "orjson", "xxhash")
    install(python, "--no-deps", wheel)
    program = python.with_name("vlcpctl")
    assert "train-step" in run(program, "--help").stdout
    assert run(program, "--version").stdout == f"vlcpctl {vlcpctl.__version__}\n"
    assert "ctp" in run(program, "methods").stdout
    words = {"COMP_WORDS": "vlcpctl train-step --method inc", "COMP_CWORD": "3"}
    assert run(program, _VLCPCTL_COMPLETE="complete_bash", **words).stdout == "incclip\n"

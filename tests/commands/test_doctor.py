"""`vlcpctl doctor` tells what is missing from what is merely different."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from vlcpctl.commands import doctor
from vlcpctl.commands.doctor import Check
from vlcpctl.core.errors import VlcpError


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts these checks in the place of the real ones."""
    return lambda *found: monkeypatch.setattr(doctor, "_checks", lambda: iter(found))


def test_a_failed_check_ends_with_an_error_that_names_it(
    checks: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    checks(Check("torch", "fail", "ImportError: no"), Check("disk", "warn", "full"))
    with pytest.raises(VlcpError, match="torch failed"):
        doctor.Doctor().execute()
    assert capsys.readouterr().out.splitlines()[0].split() == [
        "fail",
        "torch",
        "ImportError:",
        "no",
    ]


def test_a_warning_is_no_error(
    checks: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    checks(Check("disk", "warn", "full"))
    doctor.Doctor.made_of({"json": True}).execute()
    shown = json.loads(capsys.readouterr().out)
    assert shown["checks"] == [{"name": "disk", "status": "warn", "detail": "full"}]


@pytest.mark.parametrize(
    "error", [ImportError("no module"), RuntimeError("operator torchvision::nms does not exist")]
)
def test_a_wheel_that_does_not_import_is_a_failure(error: Exception) -> None:
    def look(module: ModuleType) -> Check:
        raise error

    check = doctor._import_check("json", look)
    assert (check.status, str(error) in check.detail) == ("fail", True)


@pytest.mark.parametrize(
    ("wheels", "status", "said"),
    [
        (("faiss-cpu", "faiss-gpu"), "fail", "overwrite each other"),
        ((), "ok", "torch does the search"),
        (("faiss-gpu",), "ok", "2 GPUs"),
    ],
)
def test_faiss_is_judged_by_its_wheels(
    wheels: tuple[str, ...], status: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build: Any = SimpleNamespace(
        __version__="1.15", get_compile_options=lambda: "OPTIMIZE GPU ", get_num_gpus=lambda: 2
    )
    monkeypatch.setitem(sys.modules, "faiss", build)
    monkeypatch.setattr(doctor, "_installed", wheels.__contains__)
    check = doctor._faiss()
    assert (check.status, said in check.detail) == (status, True)


def test_a_gpu_that_torch_does_not_see_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    torch: Any = SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: 0))
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert doctor._cuda(torch).status == "warn"


def test_a_gpu_is_shown_with_its_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimpleNamespace(name="H100", total_memory=80 * 2**30)
    cuda = SimpleNamespace(
        device_count=lambda: 1,
        get_device_properties=lambda _: device,
        is_bf16_supported=lambda *, including_emulation: not including_emulation,
    )
    torch: Any = SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda="13.2"))
    monkeypatch.setattr(doctor, "has_tf32", lambda: False)
    assert doctor._cuda(torch).detail == "H100 (80 GiB), CUDA 13.2; bf16, no TF32"


def test_a_missing_compiler_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    check = doctor._compiler()
    assert (check.status, "--compile needs a C compiler" in check.detail) == ("warn", True)


def test_the_default_number_of_workers_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "worker_count", lambda wanted, device: 7)
    assert doctor._threads().detail.endswith("--workers auto 7")


def test_a_temporary_directory_that_cannot_be_written_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refuse)
    check = doctor._temporary()
    assert (check.status, "Read-only" in check.detail) == ("fail", True)


@pytest.mark.slow
def test_this_machine_passes(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.Doctor.made_of({"json": True}).execute()
    names = {check["name"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert {"python", "torch", "cuda", "faiss", "tokenizer", "disk", "batch"} <= names


def test_torch_without_bytecode_is_a_warning_whose_advice_helps(tmp_path: Path) -> None:
    package = tmp_path / "site packages" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    module = SimpleNamespace(__file__=str(package / "__init__.py"))
    found = doctor._bytecode(module)
    assert found.status == "warn"
    words = shlex.split(found.detail.partition("run once: ")[2])
    assert words.pop(0) == "python"
    assert subprocess.run([sys.executable, *words], check=False).returncode == 0
    assert doctor._bytecode(module).status == "ok"

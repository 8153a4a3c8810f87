"""`vlcpctl doctor` tells what is missing from what is merely different."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from vlcpctl.commands import doctor
from vlcpctl.core.errors import VlcpError


def refuse() -> tuple[str, str]:
    raise RuntimeError("operator torchvision::nms does not exist")


def test_what_fails_is_an_error_and_a_warning_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", {"disk": lambda: ("warn", "full")})
    doctor.Doctor.made_of({"json": True}).execute()
    shown = json.loads(capsys.readouterr().out)
    assert shown["checks"] == [{"name": "disk", "status": "warn", "detail": "full"}]
    monkeypatch.setitem(doctor.CHECKS, "open_clip", refuse)
    with pytest.raises(VlcpError, match="open_clip"):
        doctor.Doctor().execute()
    _, failed = capsys.readouterr().out.splitlines()
    assert failed.split()[:2] == ["fail", "open_clip"]
    assert "nms" in failed


@pytest.mark.parametrize(
    ("gpus", "status", "said"),
    [(1, "ok", "H100 (80 GiB), CUDA 13.2; bf16, no TF32"), (0, "warn", "CPU only")],
)
def test_a_gpu_is_shown_with_its_arithmetic(
    gpus: int, status: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = SimpleNamespace(
        device_count=lambda: gpus,
        get_device_properties=lambda _: SimpleNamespace(name="H100", total_memory=80 * 2**30),
        is_bf16_supported=lambda *, including_emulation: not including_emulation,
    )
    torch: Any = SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda="13.2"))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(doctor, "has_tf32", lambda: False)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/usr/bin/{name}")
    found = doctor._cuda()
    assert (found[0], found[1].endswith(said)) == (status, True)


@pytest.mark.slow
def test_this_machine_passes(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.Doctor().execute()
    assert len(capsys.readouterr().out.splitlines()) == len(doctor.CHECKS)

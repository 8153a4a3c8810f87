"""`vlcpctl doctor` tells what is missing from what is merely different."""

from __future__ import annotations

import json

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


@pytest.mark.slow
def test_this_machine_passes(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.Doctor().execute()
    assert len(capsys.readouterr().out.splitlines()) == len(doctor.CHECKS)

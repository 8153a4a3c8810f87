"""Environments of their own for other programs, and running those."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def run(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program that must succeed, away from the repository."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in words],
        cwd="/",
        env={**own, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done


def new_python(place: Path) -> Path:
    """The Python of an empty virtual environment."""
    uv = shutil.which("uv")
    maker = (
        (uv, "venv", "--quiet", "--python", sys.executable)
        if uv
        else (sys.executable, "-m", "venv")
    )
    run(*maker, place)
    return place / "bin" / "python"


def install(python: Path, *packages: object) -> None:
    """Put packages into the environment of this Python."""
    uv = shutil.which("uv")
    arguments = (
        (uv, "pip", "install", "--python", python) if uv else (python, "-m", "pip", "install")
    )
    run(*arguments, "--quiet", *packages)

"""Finds or makes an environment that runs open_clip's trainer; imported by the other scripts."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from vlcpctl.core.console import say

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "open_clip_training"


def trainer_python() -> str:
    """The Python to run `-m open_clip_train.main` with: this one, or that of a new environment.

    The new one is made in build/ once. It has this environment's packages, torch and open_clip
    among them, so that both contenders run the same versions, and what the trainer needs besides.
    """
    if _runs_trainer():
        return sys.executable
    python = PLACE / "bin" / "python"
    made = PLACE / "complete"
    if not made.is_file():
        say(f"making {PLACE} for open_clip's trainer")
        venv.create(PLACE, clear=True, with_pip=True)
        here = sysconfig.get_paths()["purelib"]
        paths = sysconfig.get_paths(vars={"base": str(PLACE), "platbase": str(PLACE)})
        link = Path(paths["purelib"]) / "this_environment.pth"
        link.write_text(f"import site; site.addsitedir({here!r})\n", encoding="utf-8")
        wanted = f"open_clip_torch[training]=={version('open_clip_torch')}"
        words = [str(python), "-m", "pip", "install", "--quiet", wanted]
        # pip also reports that its webdataset is older than the one vlcpctl's tests want.
        subprocess.run(words, check=True, capture_output=True)
        made.touch()
    return str(python)


def run_there() -> None:
    """Run this script again in an environment with open_clip's trainer, unless this one has it."""
    if not _runs_trainer():
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": paths.strip(os.pathsep)}
        words = [trainer_python(), *sys.argv]
        sys.exit(subprocess.run(words, env=environment, check=False).returncode)


def _runs_trainer() -> bool:
    """Whether this environment has what the trainer asks for: not a later webdataset, either."""
    asked = [Requirement(one) for one in requires("open_clip_torch") or ()]
    for one in asked:
        if one.marker and one.marker.evaluate({"extra": "training"}):
            try:
                if not one.specifier.contains(version(one.name)):
                    return False
            except PackageNotFoundError:
                return False
    return True

"""Methods from outside: files for --method-file, and distributions with entry points."""

from __future__ import annotations

from pathlib import Path

import pytest

MINE = """
from dataclasses import dataclass
from typing import ClassVar

from vlcpctl.core.method import Method, Needs, Slot, hyper


@dataclass(frozen=True, kw_only=True)
class Mine(Method):
    name: ClassVar[str] = "mine"
    title: ClassVar[str] = "Penalise changes to all weights"
    preset: ClassVar[str] = "tiny"
    off: ClassVar[tuple[str, ...]] = ("strength=0",)

    strength: float = hyper(1.0, doc="Weight of the penalty.", origin="ours")

    def needs(self, *, first):
        return Needs(previous_weights=not first)

    def slots(self, *, first):
        return (Slot(name="seen", lifetime="stream", start=seen),)

    def loss(self, run, batch, out):
        if run.first or not self.strength:
            return {}, {}
        moved = ((value - run.anchor[name]).square().sum() for name, value in run.weights.items())
        return {"distance": self.strength * sum(moved)}, {}

    def after_step(self, run, batch, aux, *, stepped):
        run.slot("seen")["pairs"].add_(len(batch.keys))


def seen(run):
    import torch

    return {"pairs": torch.zeros((), dtype=torch.int64)}
"""


def write_method(path: Path, code: str = MINE, **replaced: str) -> Path:
    """A file that defines the method `mine`, with texts replaced: `mine="other"`; its path."""
    for old, new in replaced.items():
        assert old in code
        code = code.replace(old, new)
    path.write_text(code, encoding="utf-8")
    return path


def install(
    site: Path, monkeypatch: pytest.MonkeyPatch, entry: str, code: str = MINE, version: str = "1.2"
) -> None:
    """Make a distribution `own-methods` importable whose entry point is `NAME = MODULE:CLASS`."""
    info = site / f"own_methods-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: own-methods\nVersion: {version}\n"
    )
    (info / "entry_points.txt").write_text(f"[vlcpctl.methods]\n{entry}\n")
    module = entry.split("=")[1].split(":", maxsplit=1)[0].strip()
    (site / f"{module}.py").write_text(code)
    monkeypatch.syspath_prepend(site)

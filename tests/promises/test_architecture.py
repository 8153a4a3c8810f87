"""The page about the architecture and its drawing name every package of the contract on layers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "extend" / "architecture.md"
DRAWING = ROOT / "docs" / "drawings" / "layers.svg"


def packages() -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    return [name for layer in contract["layers"] for name in layer.split(" | ")]


@pytest.mark.parametrize("name", packages())
def test_each_package_is_on_the_page_and_in_the_drawing(name: str) -> None:
    page, drawing = (path.read_text(encoding="utf-8") for path in (PAGE, DRAWING))
    assert re.search(rf"^\|[^|]*`{name}`[^|]*\|", page, re.MULTILINE)
    assert f">{name}</text>" in drawing

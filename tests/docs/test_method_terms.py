"""The page of a method names its loss terms and passes as `metrics.jsonl` does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.doc_pages import generator

from vlcpctl.testing.battery import TrainingWorld, request
from vlcpctl.training.train_step import train_step

NOT_TERMS = {"phase", "step", "loss", "lr"}


def names_under(page: str, section: str) -> set[str]:
    """The names in code that a section of a page lists."""
    found = re.search(rf"^## {section}\n(.*?)(?=^## )", page, flags=re.DOTALL | re.MULTILINE)
    assert found is not None
    return set(re.findall(r"^- (?:[^`\n]*, )?`([^`]+)`", found[1], flags=re.MULTILINE))


@pytest.mark.parametrize("name", ["afec", "derpp"])
def test_terms_and_passes_have_the_names_of_the_log(
    world: TrainingWorld, tmp_path: Path, name: str
) -> None:
    buffered = name == "derpp"
    train_step(request(world, name, 0, tmp_path, buffered=False))
    train_step(request(world, name, 1, tmp_path, buffered=buffered))
    rows = [json.loads(line) for line in (tmp_path / "01/metrics.jsonl").read_text().splitlines()]
    page = generator("methods").page(name)
    terms = set().union(*rows) - NOT_TERMS
    assert terms - names_under(page, "Loss terms") == set()
    passes = {row["phase"] for row in rows} - {"train"}
    assert passes == {
        one for one in names_under(page, "State and passes") if one.startswith(f"{name}/")
    }

"""The notebook of the documentation runs from its first cell to its last, and is small."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.doc_pages import DOCS, ROOT

NOTEBOOK = DOCS / "guides" / "notebook.ipynb"
MOST_BYTES = 100_000


def code_cells() -> list[dict[str, Any]]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [one for one in cells if one["cell_type"] == "code"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_cells_run_in_order(tmp_path: Path) -> None:
    script = "\n\n".join("".join(cell["source"]) for cell in code_cells())
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "02-objects" / "checkpoint.json").is_file()


def test_it_was_saved_after_a_whole_run_without_errors() -> None:
    for number, cell in enumerate(code_cells(), start=1):
        ast.parse("".join(cell["source"]))
        assert cell["execution_count"] == number
        assert all(one["output_type"] != "error" for one in cell["outputs"])


def test_its_outputs_are_small() -> None:
    assert NOTEBOOK.stat().st_size < MOST_BYTES

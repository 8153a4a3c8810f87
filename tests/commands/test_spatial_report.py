"""`vlcpctl spatial-report`: rows as a loop over two models has them; tables, plots, refusals."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest
from support.checkpoints import save_encoder, save_run
from support.commands import spatial_report as run
from support.eval_rows import rows_in
from support.one_by_one import projections, unit
from support.program import check_refused, run_program

from vlcpctl.core.errors import Incompatible
from vlcpctl.data.tasks.task import open_task
from vlcpctl.metrics.angles import rotations, self_angle_changes
from vlcpctl.models import encoders
from vlcpctl.testing.tiny_stream import make_pair, make_stream

COMMAND = "spatial-report"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of two tasks, and checkpoints of two steps of a run."""
    root = tmp_path_factory.mktemp("spatial")
    make_stream(root / "stream", 2, 4, test=7, pair=lambda n: make_pair(n, captions=2))
    return save_run(root, "micro", 3)


def first(place: Path) -> Path:
    return place / "stream" / "00-part-0"


def steps(place: Path, *numbers: int) -> list[Path]:
    return [place / "run" / f"{number:02d}" for number in numbers]


def test_a_row_has_the_angles_of_a_loop_over_both_models(place: Path, tmp_path: Path) -> None:
    run([first(place)], steps(place, 0, 1), out=tmp_path / "rows", batch_size=3, quiet=True)
    (row,) = rows_in(tmp_path / "rows")
    split = open_task(first(place)).split("test")
    then, now = (list(map(unit, projections(path, split))) for path in steps(place, 0, 1))
    for side, name in enumerate(("image", "text")):
        turned = rotations(then[side], now[side])
        changed = self_angle_changes(then[side], now[side])
        metrics = row["metrics"]
        assert metrics[f"ram_{name}_mean"] == pytest.approx(turned.mean(), abs=1e-3)
        assert metrics[f"sam_{name}_mean"] == pytest.approx(changed.mean, abs=1e-3)
    assert (row["n_images"], row["n_texts"]) == (7, 14)
    assert sum(row["degrees"]["sam_text"]) == len(list(combinations(range(14), 2)))
    kept = ("run", "step", "task_step", "evaluator", "protocol", "gallery", "task", "split")
    assert [row[name] for name in kept] == [
        *("seqf", 1, 0, "spatial", "angles", "own", "00-part-0", "test")
    ]
    assert row["since"] == {"run": "seqf", "step": 0, "checkpoint": "content 0"}
    assert row["checkpoint"] == "content 1"


def test_tables_go_to_stdout_and_rows_where_they_are_wanted(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = (first(place), "--checkpoint", place / "run/00", "--checkpoint", place / "run/01")
    shown = run_program(capfd, COMMAND, *words)
    assert shown.code == 0
    for title in ("SAM, images", "SAM, texts", "RAM, images", "RAM, texts", "ImAV, image to text"):
        assert title in shown.out
    assert "(30, 180]" in shown.out
    written = run_program(capfd, COMMAND, *words, "-o", tmp_path / "rows")
    assert written.out == f"{shown.out}{tmp_path / 'rows'}\n"
    piped = run_program(capfd, COMMAND, *words, "-o", "-")
    assert piped.out == (tmp_path / "rows").read_text()
    quiet = run_program(capfd, COMMAND, *words, "-o", tmp_path / "rows", "-q")
    assert quiet.out == f"{tmp_path / 'rows'}\n"
    whole = run_program(capfd, COMMAND, *words, "--json")
    assert [row["step"] for row in json.loads(whole.out)["rows"]] == [1]
    check_refused(run_program(capfd, COMMAND, *words, "--json", "-o", "-"), COMMAND, 2, "no effect")


def test_forgetting_report_reads_the_rows_and_draws_them(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run([first(place)], steps(place, 0, 1, 2), out=tmp_path / "rows", quiet=True)
    shown = run_program(capfd, "forgetting-report", tmp_path / "rows", "-o", tmp_path / "report")
    assert "RAM, images: rotation of a sample" in shown.out
    page = (tmp_path / "report" / "report.html").read_text()
    assert page.count("percent of the angles in each degree") == 3


def test_spaces_of_other_widths_are_refused(place: Path, tmp_path: Path) -> None:
    wide = save_encoder(tmp_path / "wide", encoders.build("tiny"), step=1)
    with pytest.raises(Incompatible, match="angles between them are not defined"):
        run([first(place)], [place / "run/00", wide], quiet=True)

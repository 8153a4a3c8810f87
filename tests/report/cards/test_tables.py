"""The cost of a run: sums over its tasks, the highest peak and the last state, over the seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.checkpoints import write_checkpoint_manifest
from support.eval_rows import own_rows, read_back, row
from support.run_checkpoints import log_lines, write_step

from vlcpctl.report.cards.runs import read_cards
from vlcpctl.report.cards.tables import cost_table

MATRIX = ((60.0,), (50.0, 40.0))
# (seed, step, seconds, bytes of state, peak bytes)
STEPS = (
    (0, 0, 4.0, 500, 5_000_000),
    (0, 1, 4.0, 1500, 3_000_000),
    (1, 0, 6.0, 4500, 7_000_000),
    (1, 1, 6.0, 2500, 1_000_000),
)


def _costs(path: Path, *, without_peak: tuple[int, ...] = ()) -> dict[str, tuple[str, str]]:
    """The text and the deviation of each column."""
    for seed, step, seconds, state, peak in STEPS:
        content = f"c{step}-{seed}" if seed else f"c{step}"
        more: dict[str, Any] = {} if seed in without_peak else {"peak_memory": {"process": peak}}
        write_step(
            path / f"{seed}-{step}",
            step,
            log_lines(range(2)),
            **{"seed": seed, "content": content, "slots": state, "train_seconds": seconds, **more},
        )
    rows = [one for seed in (0, 1) for one in own_rows(MATRIX, seed=seed)]
    table = cost_table(read_cards([path], read_back(path / "rows.ndjson", rows)))
    assert table is not None
    ((line,),) = (group.rows for group in table.groups)
    names = [column.name for column in table.columns]
    return {name: (cell.text, cell.sd) for name, cell in zip(names, line, strict=True)}


def test_sums_peaks_and_the_last_state_are_means_over_the_seeds(tmp_path: Path) -> None:
    found = _costs(tmp_path)
    assert found["tasks"] == ("2", "")
    assert found["seconds"] == ("10.00", "2.83")  # of 8 and 12
    assert found["state"] == ("2.00 kB", "")  # of 1500 and 2500
    assert found["peak memory"] == ("6.00 MB", "")  # of 5 and 7


def test_what_a_seed_did_not_record_is_blank(tmp_path: Path) -> None:
    assert _costs(tmp_path, without_peak=(1,))["peak memory"] == ("", "")


def test_an_imported_model_has_no_cost_and_no_step(tmp_path: Path) -> None:
    facts: dict[str, Any] = {"run": "clip", "origin": {"name": "clip"}, "parent": None}
    (tmp_path / "clip").mkdir()
    write_checkpoint_manifest(tmp_path / "clip", "s", step=None, **facts)
    rows = [row(run="clip", step=None, task_step=None, checkpoint="s")]
    cards = read_cards([tmp_path], read_back(tmp_path / "rows.ndjson", rows))
    assert cost_table(cards) is None
    ((card,),) = (one["checkpoints"] for one in cards.as_json())
    assert card["step"] is None
    assert "seconds" not in card

"""recipes/styles.sh: its stream, its lines, and what its table and the claims say of the rows."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections import Counter, defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.eval_rows import row
from support.recipe_lines import dry_run_of, options_of, options_of_command, script

from vlcpctl.data.emoji9.glyphs import read_glyphs
from vlcpctl.methods import TABLE

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DOCS))
    from _generate import claims as found

    return found


# --- The stream.


def drawn(svg: str) -> bytes:
    """A picture that differs from drawing to drawing, without resvg."""
    return svg.encode()


def styles_of(make: ModuleType, directory: Path) -> dict[str, Any]:
    """Packages with the drawings of the first 40 emoji; EmojiOne v1 lacks most of them."""
    found = {}
    glyphs = read_glyphs(limit=40)
    for name in make.PACKAGES:
        vendor = name.rpartition("-")[0]
        some = glyphs[:5] if vendor == "emojione-v1" else glyphs
        icons = {make.slug_of(one.name): {"body": f"<{vendor}>{one.name}"} for one in some}
        document = {"icons": icons, "width": 32, "height": 32}
        path = directory / f"{name}.tgz"
        with tarfile.open(path, "w:gz") as package:
            text = json.dumps(document).encode()
            member = tarfile.TarInfo("package/icons.json")
            member.size = len(text)
            package.addfile(member, io.BytesIO(text))
        found[vendor] = make.style_of(path)
    return found


def test_no_training_pair_has_a_test_picture_or_an_unseen_name(tmp_path: Path) -> None:
    make = script("make_styles")
    rows = list(make.rows(styles_of(make, tmp_path), drawn, None))
    of_split = defaultdict(list)
    for one in rows:
        of_split[one["split"]].append(one)
    assert set(of_split) == {"train", "test", "query", "gallery", "val"}
    trained = {one["image"] for one in of_split["train"]}
    for split in ("test", "query", "val"):
        assert not trained & {one["image"] for one in of_split[split]}, split
    assert trained >= {one["image"] for one in of_split["gallery"]}
    known = {make.family(one["captions"][0]) for one in of_split["train"]}
    assert known >= {make.family(one["captions"][0]) for one in of_split["test"]}
    assert not known & {make.family(one["captions"][0]) for one in of_split["query"]}
    assert {one["vendor"] for one in of_split["test"]} == {"fluent-emoji-flat"}
    assert Counter(one["vendor"] for one in of_split["train"])["emojione-v1"] < 6


def test_settings_are_chosen_on_a_vendor_that_trains_nothing(tmp_path: Path) -> None:
    make = script("make_styles")
    rows = list(make.rows(styles_of(make, tmp_path), drawn, "emojione"))
    assert {one["split"] for one in rows} == {"train", "val"}
    assert {one["vendor"] for one in rows if one["split"] == "val"} == {"emojione"}
    assert "emojione" not in {one["vendor"] for one in rows if one["split"] == "train"}
    assert "fluent-emoji-flat" not in {one["vendor"] for one in rows}


def test_another_package_than_the_pinned_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = script("make_styles")
    (tmp_path / "iconify-json-noto-1.2.9.tgz").write_bytes(b"another")
    with pytest.raises(SystemExit, match=r"is not the package noto-1\.2\.9: its SHA-256 is"):
        make.fetch(tmp_path, "noto-1.2.9")
    monkeypatch.setattr(sys, "argv", ["make_styles.py", str(tmp_path / "out.parquet")])
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(SystemExit, match=r"pip install resvg-py==0\.5\.0"):
        make.main()


# --- The lines.


def test_every_line_is_one_that_the_program_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDS", "0")
    monkeypatch.setenv("CHOOSERS", "100")
    monkeypatch.setenv("SAME_COMPUTE", "1")
    lines = dry_run_of("styles.sh", "--jobs", "1")
    assert all(options_of(line) for line in lines)
    made = {
        Path(out)
        for given in (options_of(line) for line in lines)
        if (out := given.get("out")) is not None
    }
    steps = options_of_command(lines, "train-step")
    for given in steps:
        for name in ("previous", "buffer", "reference", "teacher"):
            assert given[name] is None or Path(given[name]) in made
    for given in options_of_command(lines, "eval-retrieval"):
        assert {Path(one) for one in given["checkpoint"]} <= made
    lengths = {given["run"]: given["steps"] for given in steps}
    assert (lengths["joint"], lengths["ctp"], lengths["ctp same compute"]) == (1200, 300, 173)


def test_the_choice_reads_no_test_picture_and_the_board_no_seed_of_it() -> None:
    lines = dry_run_of("styles.sh")
    stages = defaultdict(set)
    for given in options_of_command(lines, "eval-retrieval"):
        stage = str(given["out"]).split("/")[0]
        streams = {str(task).split("/")[0] for task in given["tasks"]}
        stages[stage].add((*streams, given["split"]))
    assert stages["selection"] == {("choose", "val")}
    assert stages["board-runs"] == {("board", split) for split in (None, "query", "gallery", "val")}
    seeds = defaultdict(set)
    for given in options_of_command(lines, "train-step"):
        seeds[str(given["out"]).split("/")[0]].add(given["seed"])
    assert seeds == {"selection": {100, 101, 102}, "board-runs": {0, 1, 2, 3, 4}}


def test_methods_beside_the_claims_have_one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDS", "3 4")
    seeds = defaultdict(set)
    for given in options_of_command(dry_run_of("styles.sh", "--jobs", "2"), "train-step"):
        if str(given["out"]).startswith("board-runs"):
            seeds[given["run"]].add(given["seed"])
    assert seeds["er"] == seeds["ctp"] == {3, 4}
    assert seeds["gift"] == seeds["si"] == seeds["interpolate alpha=0.75"] == {3}
    trained = {name.split("@")[0].split()[0] for name in seeds}
    assert trained >= {*TABLE} - {"joint"} | {"mof", "lwf+er", "ctp+er", "lwf-channels"}


def test_the_board_has_what_was_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDS", "0")
    (tmp_path / "chosen.tsv").write_text("ctp\t1e-3\tctp.queue=256\t1.00\t1.00 (...)\n")
    rows = ("--methods", "ctp ctp+er seqf@ctp", "--out", str(tmp_path))
    board = [
        given
        for given in options_of_command(dry_run_of("styles.sh", *rows), "train-step")
        if str(given["out"]).startswith("board-runs")
    ]
    assert {(given["run"], *(given["set"] or ())) for given in board} == {
        ("ctp", "ctp.queue=256"),
        ("ctp+er", "ctp.queue=256"),
        ("seqf@ctp",),
    }
    head_start = [given for given in board if given["run"] == "seqf@ctp"]
    assert len(head_start) == 3  # the first model is ctp's
    assert str(head_start[0]["previous"]) == "board-runs/seed0/ctp/00-people-and-smileys"


# --- The table.


def scored(run: str, rm: float, **fields: Any) -> dict[str, Any]:
    usual = {"gallery": "merged", "split": "test", "step": 3, "task_step": 3, "n_images": 1000}
    return row(**usual | {"run": run, "metrics": {"rm": rm}} | fields)


def test_cells_have_the_last_model_on_each_gallery(tmp_path: Path) -> None:
    table = script("styles_table")
    own = [
        scored("er", 10.0 * step + task, gallery="own", step=step, task_step=task)
        for step in range(4)
        for task in range(step + 1)
    ]
    rows = [
        *own,
        scored("er", 5.0),
        scored("er", 9.0, step=2, task_step=2),  # not the last model
        scored("er", 6.0, split="query", n_images=100),
        scored("er", 7.0, split="gallery"),
        scored("er", 3.0, split="val"),
        scored("joint", 8.0, step=0),
        scored("interpolate alpha=0.75", 2.0),
    ]
    cells, sizes = table.cells_of(rows)
    found = cells["er", 0]
    assert {name: found[name] for name in ("rm", "names", "seen", "far")} == {
        "rm": 5.0,
        "names": 6.0,
        "seen": 7.0,
        "far": 3.0,
    }
    assert (found["learned"], found["final"]) == (16.5, 31.5)
    assert cells["joint", 0] == {"rm": 8.0}
    assert cells["interpolate", 0] == {"rm": 2.0}
    assert sizes["names"] == 100
    table.write_cells(tmp_path / "cells.tsv", cells)
    assert table.read_cells(tmp_path / "cells.tsv") == cells
    lines = list(table.table(cells, sizes))
    assert lines[2].startswith("| `joint` | 8.00 | 8.00 | 15.0 | - | - | - | - | - |")
    assert lines[3] == "| `er` | 5.00 | 5.00 | 9.4 | 1.1 | 13.1 | 5.6 | 16.50 | 31.50 |"


def test_the_floor_is_that_of_the_nearest_training_picture(tmp_path: Path) -> None:
    def pair(colours: str, name: str, split: str) -> dict[str, Any]:
        pixels = np.array([[[255, 0, 0] if one == "r" else [0, 0, 255] for one in colours]] * 4)
        buffer = io.BytesIO()
        Image.fromarray(pixels.astype(np.uint8)).save(buffer, "PNG")
        return {"image": buffer.getvalue(), "captions": [name], "split": split}

    pairs = [
        pair("rrrb", "one", "train"),
        pair("bbbr", "two", "train"),
        pair("rrbb", "one", "test"),
        pair("rrrb", "two", "test"),  # is nearest to a picture of another name
    ]
    pq.write_table(pa.Table.from_pylist(pairs), tmp_path / "pairs.parquet")
    floor = script("styles_table").pixel_floor(tmp_path / "pairs.parquet")
    assert floor == pytest.approx(100 * (0.5 + 1 + 1) / 3)


# --- The claims.


def test_a_claim_holds_fails_or_is_not_shown(claims: ModuleType) -> None:
    scores = {
        "best": {0: 9.0, 1: 9.1, 2: 9.2},
        "good": {0: 5.0, 1: 5.11, 2: 5.2},
        "noisy": {0: 1.0, 1: 9.0, 2: 5.0},
        "single": {0: 1.0},
    }
    asked = [
        {"better": "best", "than": "good"},
        {"better": "good", "than": "best"},
        {"better": "noisy", "than": "good"},
        {"better": "best", "than": "single"},
        {"better": "best", "than": "missing"},
    ]
    judged = claims.judge(asked, scores, 0.05)
    assert [one and one.verdict for one in judged] == [
        "holds",
        "the opposite holds",
        "not shown",
        None,
        None,
    ]
    from scipy.stats import ttest_rel

    alone = ttest_rel([9.0, 9.1, 9.2], [5.0, 5.11, 5.2]).pvalue
    assert judged[0].p == pytest.approx(3 * alone)


def test_sentences_name_the_streams_that_were_tested(claims: ModuleType) -> None:
    found = {
        "A": claims.Judged((1.0, 1.1), 0.01, 0.05),
        "B": claims.Judged((-1.0, -1.1, -1.0), 0.01, 0.05),
        "C": claims.Judged((1.0, -1.1), 0.5, 0.05),
        "D": None,
    }
    assert claims._in_words(found) == (
        "ahead on A (2 seeds), behind on B (3 seeds), no difference shown on C (2 seeds), "
        "not tested elsewhere"
    )


def test_there_are_at_most_ten_claims_and_cells_of_their_streams(claims: ModuleType) -> None:
    document, judged = claims._judged()
    assert 0 < len(document["claims"]) <= 10
    assert set(judged) <= set(document["streams"].values())
    assert "Emoji-9" in judged
    rows = claims.read_scores(DOCS / "results/cells/emoji9.tsv")
    page = (DOCS / "results/leaderboard.md").read_text(encoding="utf-8")
    for name, by_seed in rows.items():
        values = ", ".join(f"{by_seed[seed]:.2f}" for seed in sorted(by_seed))
        assert any(
            line.startswith(f"| `{name}` |") and f"| {values} |" in line
            for line in page.splitlines()
        ), name

"""Every evaluator's rows say what they were made from: data, options, settings and lineage."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any

import pytest
from support.commands import (
    buffer,
    distill,
    eval_retrieval,
    export,
    import_checkpoint,
    merge,
    train_step,
)
from support.doc_pages import generator
from support.evaluators import EVALUATORS, evaluation

from vlcpctl import cli
from vlcpctl.files.ids import content_id
from vlcpctl.files.manifest import MANIFESTS, content_of, read_manifest
from vlcpctl.files.rows import OPTIONS_OF_DATA, SCHEMA, read_rows
from vlcpctl.testing.tiny_stream import make_pair, make_stream, make_task

BOTH = {"eval-retrieval": ("--gallery", "both")}
INTEGER, TEXT = (int, NoneType), (str, NoneType)  # or null
FIELDS = {
    **dict.fromkeys(("schema", "run", "method", "evaluator", "protocol", "gallery", "task"), str),
    **dict.fromkeys(("split", "data", "checkpoint"), str),
    **dict.fromkeys(("step", "task_step", "limit"), INTEGER),
    **dict.fromkeys(("stream", "start", "parent"), TEXT),
    **dict.fromkeys(("buffer", "config"), (dict, NoneType)),
    **dict.fromkeys(("options", "metrics"), dict),
    "seed": int,
    "tasks": list,
}
ABOUT = Path(__file__).parents[2] / "docs/reference/rows.md"
MADE = {
    "buffer": "task",
    "average": "checkpoint",
    "targets": "targets",
    "emb": "embeddings",
    "data": "export",
    "model": "export",
}
HOW: dict[str, Any] = {"preset": "tiny", "batch_size": 4, "steps": 1, "quiet": True}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An imported model, two runs of two seeds that start from it, and one of another run."""
    root = tmp_path_factory.mktemp("rows")
    stream = make_stream(root / "stream", 3, 8, test=6, pair=lambda n: make_pair(n, captions=2))
    splits = {"train": 8, "test": 5}
    aside = make_task(root / "coco", name="coco", stream="aside", splits=splits, first=500)
    train_step([aside], root / "taught", "seqf", model="micro", **HOW)
    import_checkpoint(root / "taught", root / "start", run="start", quiet=True)
    for seed in (0, 1):
        before = root / "start"
        for step, task in enumerate(sorted(stream.glob("0*"))[:2]):
            out = root / f"seed{seed}" / f"{step:02d}"
            train_step([task], out, "ewc", previous=before, seed=seed, **HOW)
            before = out
    first = sorted(stream.glob("0*"))[0]
    train_step([first], root / "other", "seqf", previous=root / "taught", run="own", **HOW)
    return root


def tasks(place: Path) -> list[Path]:
    return [*sorted((place / "stream").glob("0*")), place / "coco"]


def chain(place: Path, seed: int = 0) -> list[Path]:
    return [place / f"seed{seed}" / f"{step:02d}" for step in range(2)]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def evaluated(
    name: str,
    place: Path,
    out: Path,
    checkpoints: Sequence[Path],
    *more: str,
    paths: Sequence[Path] = (),
) -> list[dict[str, Any]]:
    words = [*evaluation(name, paths or tasks(place), checkpoints), *BOTH.get(name, ())]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["vlcpctl", *map(str, words), *more, "-o", str(out), "-q"])
        with pytest.raises(SystemExit) as stop:
            cli.main()
    assert not stop.value.code, words
    return rows_of(out)


retrieved = partial(evaluated, "eval-retrieval")


def test_every_field_of_a_manifest_is_described(place: Path, tmp_path: Path) -> None:
    """As docs/reference/manifests.md shows it."""
    kinds = generator("manifest_fields").KINDS
    assert kinds.keys() == MANIFESTS.keys()
    task, first = next((place / "stream").glob("00-*")), chain(place)[0]
    buffer(task, tmp_path / "buffer", policy="ring", size="4", quiet=True)
    merge(chain(place), tmp_path / "average", quiet=True)
    distill([task], tmp_path / "targets", first, quiet=True)
    emb, rows = tmp_path / "emb", tmp_path / "rows"
    eval_retrieval([task], [first], save_embeddings=emb, out=rows, quiet=True)
    export([task], tmp_path / "data", "hf", quiet=True)
    export([first], tmp_path / "model", "hf-model", quiet=True)
    made = {tmp_path / name: kind for name, kind in MADE.items()}
    made |= {place / "start": "checkpoint", first: "checkpoint", task: "task"}
    for path, kind in made.items():
        about = kinds[kind]
        known = {re.split(r"[.\[]", name)[0] for name in (*about.fields, *about.common)}
        assert read_manifest(path, kind).keys() <= known, path
    known = {name.split(".")[1] for name in kinds["task"].fields if name[:7] == "buffer."}
    assert read_manifest(tmp_path / "buffer", "task")["buffer"].keys() <= known


@pytest.mark.parametrize("name", EVALUATORS)
def test_every_row_has_every_field(name: str, place: Path, tmp_path: Path) -> None:
    start = place / "start"
    described = generator("pages").filled(ABOUT.read_text("utf-8"))
    rows = evaluated(name, place, tmp_path / "rows", [start, *chain(place)], "--limit", "6")
    for row in rows:
        assert row.keys() >= FIELDS.keys()
        assert all(f"| `{one}` |" in described for one in row)
        wrong = [one for one, kind in FIELDS.items() if not isinstance(row[one], kind)]
        assert not wrong, {one: row[one] for one in wrong}
        assert (row["schema"], row["limit"]) == (SCHEMA, 6)
        assert set(OPTIONS_OF_DATA) & row["options"].keys() == ({"prompts"} & row["options"].keys())
    assert len(read_rows([str(tmp_path / "rows")])) == len(rows)
    contents = {
        read_manifest(path, "task")["slug"]: content_of(path, "task") for path in tasks(place)
    }
    for row in rows:
        ids = [contents[slug] for slug in row["tasks"]]
        assert row["data"] == (ids[0] if len(ids) == 1 else content_id(ids))
    run = [row for row in rows if row["run"] == "ewc"]
    assert {row["preset"] for row in run} == {"tiny"}
    assert {row["start"] for row in run} == {content_of(start, "checkpoint")}
    lineage = [start, *chain(place)]
    by_content = {content_of(path, "checkpoint"): path for path in lineage}
    for row in run:
        before = lineage[lineage.index(by_content[row["checkpoint"]]) - 1]
        assert row["parent"] == content_of(before, "checkpoint")
        assert row["config"]["id"] == content_id(row["config"]["values"])
    for row in rows:
        if row["run"] == "start":
            assert (row["start"], row["parent"], row["config"]) == (None, None, None)
    # The start has the steps of the run that was given with it; the data aside has none.
    own = [row for row in rows if row["gallery"] == "own" and len(row["tasks"]) == 1]
    data = [content_of(path, "task") for path in tasks(place)]
    wanted = dict(zip(data, (0, 1, 2, None), strict=True))
    assert {(row["data"], row["task_step"]) for row in own} == set(wanted.items())


def test_the_settings_are_those_of_the_step_whatever_the_seed(place: Path, tmp_path: Path) -> None:
    first = tasks(place)[0]

    def config(out: Path) -> str:
        row, *_ = retrieved(place, tmp_path / f"{out.parent.name}-{out.name}", [out], paths=[first])
        return str(row["config"]["id"])

    found = {config(out) for seed in (0, 1) for out in chain(place, seed)}
    assert len(found) == 1  # the same settings, from the same start
    for number, more in enumerate(({"lr": 2e-3}, {"set": ["ewc.strength=7"]}, {"limit": 6})):
        out = tmp_path / f"other{number}"
        train_step([first], out, "ewc", previous=place / "start", **{**HOW, **more})
        assert config(out) not in found


def test_a_run_that_continues_a_trained_model_starts_from_it(place: Path, tmp_path: Path) -> None:
    """CLIP_0 of Mod-X: trained on COCO, and the start of runs on another stream."""
    rows = evaluated(
        "eval-retrieval", place, tmp_path / "rows", [place / "taught", place / "other"]
    )
    taught, other = (
        [row for row in rows if row["run"] == run and row["gallery"] == "own"]
        for run in ("seqf", "own")
    )
    assert {row["start"] for row in other} == {taught[0]["checkpoint"]}
    assert other[0]["config"]["values"]["start"] == taught[0]["config"]["id"]
    assert [row["task_step"] for row in other] == [0, 1, 2, None]
    assert [row["task_step"] for row in taught] == [None, None, None, 0]


def test_an_average_has_the_settings_of_both_and_their_start(place: Path, tmp_path: Path) -> None:
    first, last = chain(place)
    for one, other, start in ((place / "start", last, "start"), (first, last, "start")):
        out = tmp_path / one.name
        merge([one, other], out, quiet=True)
        (row,) = retrieved(place, tmp_path / f"{one.name}.rows", [out])[:1]
        assert row["start"] == content_of(place / start, "checkpoint")
        assert row["config"]["values"]["rule"] == {"weights": []}
        assert len(row["config"]["values"]["parents"]) == 2

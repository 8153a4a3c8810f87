"""`eval-retrieval --distractors` and `--gallery-checkpoint`, against a naive implementation."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.checkpoints import save_encoder
from support.commands import eval_retrieval as run
from support.eval_rows import read_back, rows_in

from vlcpctl.core.errors import Incompatible, OutputExists
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.data.tasks.task import open_task
from vlcpctl.evaluation.rank_files import SavedRanks
from vlcpctl.metrics.recall import recalls
from vlcpctl.models import encoders
from vlcpctl.models.encoders import NewModelOptions
from vlcpctl.testing.tiny_stream import make_pair, make_stream, make_task

OWN, MORE = 14, 30
Vectors = dict[str, np.ndarray]  # by image hash or caption, of one checkpoint


def own_pair(number: int) -> Pair:
    """Two captions each, of which some pairs share one."""
    shared = f"one of the things {number % 5}"
    return make_pair(number)._replace(captions=[f"thing number {number}", shared])


def other_bytes(image: bytes) -> bytes:
    """The same picture in another file."""
    file = io.BytesIO()
    Image.open(io.BytesIO(image)).save(file, "PNG", compress_level=1)
    assert file.getvalue() != image
    return file.getvalue()


def other_pair(number: int) -> Pair:
    """Distractors: 100 to 102 share something with own pairs, 103 to 105 something with those."""
    pair = make_pair(number, captions=2)
    changed = {
        100: own_pair(3),
        101: pair._replace(image=own_pair(4).image, captions=["another name of 4", "x of 4"]),
        102: pair._replace(captions=["thing number 5", "a new name"]),
        103: pair._replace(captions=["x of 4"]),  # its image stays, its caption does not
        104: pair._replace(captions=["y", "y of two"]),
        105: pair._replace(captions=["y"]),  # two images with one caption
        106: pair._replace(image=other_bytes(own_pair(6).image)),  # ties with an own image
        107: pair._replace(image=other_bytes(own_pair(7).image)),
    }
    return changed.get(number, pair)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("index")
    make_task(root / "guard", name="guard", splits={"test": OWN}, pair=own_pair)
    make_task(root / "more", name="more", splits={"test": MORE}, first=100, pair=other_pair)
    for name, seed in (("old", 0), ("new", 1)):
        make_checkpoint(root / name, "tiny", seed)
    return root


def make_checkpoint(directory: Path, model: str, seed: int = 0, **fields: Any) -> Path:
    encoder = encoders.build(model, NewModelOptions(seed=seed))
    about = {"run": directory.name, "step": None, **fields}
    return save_encoder(directory, encoder, f"content of {directory.name}", **about)


def evaluated(place: Path, out: Path, checkpoint: str = "new", **options: Any) -> dict[str, Any]:
    """The row of the guard, as it is written."""
    named: dict[str, Any] = {
        name: [place / one for one in value] if name == "distractors" else value
        for name, value in options.items()
    }
    if "gallery_checkpoint" in named:
        named["gallery_checkpoint"] = place / named["gallery_checkpoint"]
    run([place / "guard"], [place / checkpoint], out=out, quiet=True, **named)
    (row,) = rows_in(out)
    return row


def saved_vectors(place: Path, cache: Path, checkpoint: str) -> tuple[Vectors, Vectors]:
    """The embeddings of all images and of all captions, from the files of --embedding-cache."""
    images: Vectors = {}
    texts: Vectors = {}
    for path in cache.rglob("*.npy"):
        key = json.loads(path.with_name("cached.json").read_text())["identity"]
        vectors = np.load(path)
        if key["checkpoint"] != f"content of {checkpoint}":
            continue
        (task,) = [
            one
            for one in map(open_task, (place / "guard", place / "more"))
            if one.content == key["data"]
        ]
        split = task.split("test")
        of_images = key["what"] == "images"
        names = split.column("sha256") if of_images else captions_of(split)
        found = dict(zip(dict.fromkeys(names), vectors, strict=True))
        (images if of_images else texts).update(found)
    return images, texts


def captions_of(split: Any) -> list[str]:
    return [text for row in range(len(split)) for text in split.captions(row)]


def samples(task: Path) -> list[tuple[str, list[str]]]:
    split = open_task(task).split("test")
    return [(sha, list(split.captions(row))) for row, sha in enumerate(split.column("sha256"))]


def naive(
    place: Path, cache: Path, query: str, gallery: str, distractors: str | None
) -> tuple[dict[str, float], dict[str, list[tuple[int, int]]]]:
    """The metrics, and for each direction the rank and the best wrong one's rank of each query."""
    own, more = samples(place / "guard"), samples(place / "more") if distractors else []
    images, texts = {sha for sha, _ in own}, {one for _, of in own for one in of}
    out = [(sha, of) for sha, of in more if sha in images or texts & set(of)]
    left = {sha for sha, _ in out}, {one for _, of in out for one in of}
    added = {sha for sha, _ in more} - left[0], {one for _, of in more for one in of} - left[1]
    pairs = {(sha, one) for sha, of in own for one in of}
    vectors = {one: saved_vectors(place, cache, one) for one in (query, gallery)}
    ranks: dict[str, list[tuple[int, int]]] = {}
    for side, way in enumerate(("i2t", "t2i")):
        own_entries, others = (dict.fromkeys(sha for sha, _ in own), texts)[:: 1 - 2 * side]
        ranks[way] = []
        for name in sorted(own_entries):
            asked = vectors[query][side][name].astype(np.float64)
            score = {
                one: vectors[gallery][1 - side][one].astype(np.float64) @ asked for one in others
            }
            if distractors:
                by = vectors[distractors][1 - side]
                score |= {one: by[one].astype(np.float64) @ asked for one in added[1 - side]}
            right = {one for one in others if ((name, one), (one, name))[side] in pairs}
            best = max(score[one] for one in right)
            wrong = [score[one] for one in score.keys() - right]
            rank = 1 + sum(one >= best - 1e-5 for one in wrong)
            above = sum(score[one] > max(wrong) + 1e-5 for one in right)
            ranks[way].append((rank, 1 if rank > 1 else max(2, 1 + above)))
    worst = [np.array([rank for rank, _ in ranks[way]]) for way in ("i2t", "t2i")]
    return recalls(*worst), ranks


CASES = [
    *({"distractors": ["more"]}, {"gallery_checkpoint": "old"}),
    {"gallery_checkpoint": "old", "distractors": ["more"]},
    {"gallery_checkpoint": "old", "distractors": ["more"], "distractors_by": "query"},
]


@pytest.mark.parametrize("options", CASES)
def test_numbers_and_ranks_are_those_of_a_naive_search(
    place: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    cache = tmp_path / "cache"
    row = evaluated(place, tmp_path / "rows", embedding_cache=cache, **options)
    gallery = options.get("gallery_checkpoint", "new")
    by = None
    if "distractors" in options:
        by = "new" if options.get("distractors_by") == "query" else gallery
    metrics, ranks = naive(place, cache, "new", gallery, by)
    assert row["metrics"] == pytest.approx(metrics)
    assert (row["n_images"], row["n_texts"]) == (OWN, OWN + 5)
    if by:
        texts = {one for _, of in samples(place / "more")[6:] for one in of} | {"y", "y of two"}
        assert (row["n_left_out"], row["n_distractor_images"]) == (3, MORE - 3)
        assert row["n_distractor_texts"] == len(texts)
        assert row["options"]["distractors"] == [open_task(place / "more").content]
    # The same from the cache, and with files of ranks.
    again = {"embedding_cache": cache, "save_ranks": tmp_path / "ranks", **options}
    assert evaluated(place, tmp_path / "again", **again) == row
    table = pq.read_table(tmp_path / "ranks")
    own, more = ({*open_task(place / name).split("test").keys} for name in ("guard", "more"))
    assert bool((more - own) & {*table["wrong"].to_pylist()}) is ("distractors" in options)
    for way, found in ranks.items():
        of_way = table.filter(np.array(table["direction"].to_pylist()) == way)
        saved = zip(of_way["rank"].to_pylist(), of_way["wrong_rank"].to_pylist(), strict=True)
        assert sorted(saved) == sorted(found)


def test_the_order_of_distractors_and_the_evaluated_data_among_them_change_nothing(
    place: Path, tmp_path: Path
) -> None:
    rows = [
        evaluated(place, tmp_path / f"{number}", distractors=list(names))
        for number, names in enumerate(itertools.permutations(["more", "guard"]))
    ]
    assert rows[0] == rows[1]
    make_task(
        tmp_path / "twin",
        splits={"test": MORE},
        first=100,
        pair=lambda number: other_pair(number)._replace(captions=[f"twin {number}"]),
    )
    twins = [tmp_path / "twin", place / "more"]
    for number, paths in enumerate((twins, twins[::-1])):  # which of two names a shared image has
        ranks = tmp_path / f"ranks{number}"
        evaluated(place, tmp_path / f"twins{number}", distractors=paths, save_ranks=ranks)
    assert pq.read_table(tmp_path / "ranks0") == pq.read_table(tmp_path / "ranks1")
    alone = evaluated(place, tmp_path / "alone", distractors=["more"])
    assert rows[0]["metrics"] == alone["metrics"]
    assert rows[0]["n_left_out"] == alone["n_left_out"] + OWN
    own = evaluated(place, tmp_path / "own", distractors=["guard"])
    assert (own["n_distractor_images"], own["n_distractor_texts"]) == (0, 0)
    assert own["metrics"] == evaluated(place, tmp_path / "none")["metrics"]


def test_merged_galleries_have_distractors_and_indexes(place: Path, tmp_path: Path) -> None:
    stream = make_stream(tmp_path / "stream", 2, 2, test=6)
    tasks = sorted(stream.glob("0*"))
    contents = [open_task(task).content for task in tasks]
    step = make_checkpoint(tmp_path / "step", "tiny", 3, step=1, tasks=contents)
    for number, more in enumerate(({}, {"distractors": [place / "more"]})):
        out = tmp_path / f"rows{number}"
        index = {"gallery_checkpoint": place / "old", **more}
        run(tasks, [step], gallery="both", out=out, quiet=True, **index)
        rows = rows_in(out)
        own, first, both = rows[0], rows[2], rows[3]
        assert [row["gallery"] for row in rows] == ["own", "own", "merged", "merged"]
        assert own["metrics"] == first["metrics"]
        assert both["n_images"] == 12
        assert {row["gallery_checkpoint"] for row in rows} == {"content of old"}
        assert own["metrics"] != both["metrics"]


def test_rows_say_what_they_are_of_and_others_are_as_before(place: Path, tmp_path: Path) -> None:
    plain = evaluated(place, tmp_path / "plain")
    assert not {"gallery_checkpoint", "n_left_out"} & plain.keys()
    assert plain["options"] == {"duplicates": "unite"}
    mixed = evaluated(place, tmp_path / "mixed", **CASES[3])
    assert mixed["gallery_checkpoint"] == "content of old"
    assert mixed["options"]["distractors_by"] == "query"
    assert "distractors_by" not in evaluated(place, tmp_path / "all", **CASES[2])["options"]
    itself = evaluated(place, tmp_path / "itself", gallery_checkpoint="new")
    assert itself["metrics"] == plain["metrics"]
    assert itself == {**plain, "gallery_checkpoint": "content of new"}


def test_finished_rows_are_not_measured_again_and_others_are_refused(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, ranks = tmp_path / "rows", tmp_path / "ranks"
    row = evaluated(place, out, save_ranks=ranks, **CASES[3])
    with monkeypatch.context() as patch:
        patch.setattr("vlcpctl.evaluation.evaluator.Session.encoder", None)
        assert evaluated(place, out, save_ranks=ranks, **CASES[3]) == row
    for other in CASES[:3]:
        with pytest.raises(OutputExists, match="contains other rows"):
            evaluated(place, out, **other)
        with pytest.raises(OutputExists):
            evaluated(place, tmp_path / "new", save_ranks=ranks, **other)


def test_what_does_not_fit_is_refused(place: Path, tmp_path: Path) -> None:
    squash = make_checkpoint(tmp_path / "squash", "tiny")
    file = squash / "open_clip_config.json"
    file.write_text(file.read_text().replace('"shortest"', '"squash"'))
    narrow, fusion = (make_checkpoint(tmp_path / name, name) for name in ("micro", "albef-micro"))
    for gallery in (narrow, fusion, squash):
        with pytest.raises(Incompatible, match="earlier checkpoint"):
            evaluated(place, tmp_path / "rows", gallery_checkpoint=gallery)


def test_ranks_belong_to_rows_of_the_same_index(place: Path, tmp_path: Path) -> None:
    cases = [{}, *CASES]
    files, rows = [], []
    for number, options in enumerate(cases):
        ranks = tmp_path / f"ranks{number}"
        row = evaluated(place, tmp_path / f"rows{number}", save_ranks=ranks, **options)
        rows += read_back(tmp_path / "one", [row])
        files.append(SavedRanks.open(ranks))
    for number, file in enumerate(files):
        (found,) = file.read([(rows[0].checkpoint, rows[0].data)])
        assert [found.may_be_of(row) for row in rows] == [one == number for one in range(5)]

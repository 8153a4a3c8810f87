"""Lists of other tools: P9D, ALBEF, Karpathy, COCO captions, CSV and TSV."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.pair_files import read_pairs, write_tar

from vlcpctl.core.errors import BadInput, TooManySkipped, UsageError
from vlcpctl.data.sources.find import find_inputs
from vlcpctl.data.splitting.plan import identity, plan_of
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import make_stream
from vlcpctl.data.tasks.task import Task, open_stream
from vlcpctl.testing.tiny_stream import make_image

FOOD, CARS = "食品/保健", "车品配件"


def images(directory: Path, *names: str) -> None:
    for number, name in enumerate(names):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_image(number, 8, "JPEG"))


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    path.write_text(text, encoding="utf-8")
    return path


def captions(path: Path, **wanted: Any) -> list[list[str]]:
    return [pair.captions for pair in read_pairs(path, **wanted)]


def product(title: str, cate: str, industry: str | None = None) -> dict[str, str]:
    named = {"industry_name": industry} if industry else {}
    return {"title": title, "cate_name": cate, "image_link": "http://x/y.jpg", **named}


def make_p9d(root: Path) -> Path:
    """Two industries; item 11 is a query and also in the gallery."""
    train = {
        FOOD: {"1": product("tea", "drinks"), "2": product("nuts", "snacks")},
        CARS: {"3": product("tyre, black", "wheels")},
    }
    later = {
        "test": {"10": product("juice", "drinks", FOOD)},
        "query": {"11": product("wheel", "wheels", CARS)},
        "gallery": {
            "11": product("wheel", "wheels", CARS),
            "12": product("cola", "drinks", FOOD),
        },
    }
    write(root / "json/train.json", train)
    for name, records in later.items():
        write(root / f"json/{name}.json", records)
    images(root, *(f"train_images/{item}.jpg" for item in (1, 2, 3)), "gallery_images/10.jpg")
    for number, item in enumerate((11, 12), start=20):
        (root / f"gallery_images/{item}.jpg").write_bytes(make_image(number, 8, "JPEG"))
    return root


def split_p9d(tmp_path: Path, source: Path, **options: Any) -> list[Task]:
    given = SplitOptions(
        sources=[str(source)], by="column:industry_name", split_column="split", **options
    )
    make_stream(given, tmp_path / "stream")
    return open_stream(tmp_path / "stream")


def test_p9d_keeps_its_tasks_its_splits_and_its_classes(tmp_path: Path) -> None:
    food, cars = split_p9d(tmp_path, make_p9d(tmp_path / "P9D"))
    assert (food.name, cars.name) == (FOOD, CARS)
    assert dict(food.counts) == {"train": 2, "test": 1, "gallery": 1}
    assert dict(cars.counts) == {"train": 1, "query": 1, "gallery": 1}
    train = food.split("train")
    assert train.column("source_key") == ["1", "2"]
    assert train.column("label") == ["drinks", "snacks"]
    assert train.captions(1) == ["nuts"]
    assert train.image(1) == (tmp_path / "P9D/train_images/2.jpg").read_bytes()
    assert cars.split("query").keys == cars.split("gallery").keys


def test_images_elsewhere_are_found_under_the_roots_given(tmp_path: Path) -> None:
    root = make_p9d(tmp_path / "P9D")
    for name in ("train_images", "gallery_images"):
        (root / name).rename(tmp_path / name[:3])
    with pytest.raises(TooManySkipped, match=r"member 1: cannot read 1\.jpg: No such file"):
        split_p9d(tmp_path, root)
    roots = (str(tmp_path / "tra"), str(tmp_path / "gal"))
    assert len(split_p9d(tmp_path, root, image_root=roots)) == 2


def test_a_train_id_is_looked_for_among_train_images_first(tmp_path: Path) -> None:
    root = make_p9d(tmp_path / "P9D")
    (root / "gallery_images/1.jpg").write_bytes(make_image(99, 8, "JPEG"))
    (root / "train_images/10.jpg").write_bytes(make_image(98, 8, "JPEG"))
    food, _ = split_p9d(tmp_path, root)
    assert food.split("train").image(0) == make_image(0, 8, "JPEG")
    assert food.split("test").image(0) == make_image(3, 8, "JPEG")


def test_albef_lists_give_an_image_once_with_all_its_captions(tmp_path: Path) -> None:
    images(tmp_path, "val2014/a.jpg", "b.jpg")
    rows = [
        {"image": "val2014/a.jpg", "caption": "one", "image_id": "coco_1"},
        {"image": "val2014/a.jpg", "caption": "two", "image_id": "coco_1"},
        {"image": "b.jpg", "caption": ["three", "four"], "image_id": "coco_2"},
        {"image": "val2014/a.jpg", "caption": "five", "image_id": "coco_1"},
    ]
    pairs = read_pairs(write(tmp_path / "coco_karpathy_train.json", rows), split="split")
    assert [pair.captions for pair in pairs] == [["one", "two"], ["three", "four"], ["five"]]
    assert [pair.split for pair in pairs] == ["train"] * 3
    assert [pair.source_key for pair in pairs] == ["coco_1", "coco_2", "coco_1"]
    assert pairs[0].image == make_image(0, 8, "JPEG")


def test_rows_that_ask_for_different_things_stay_apart(tmp_path: Path) -> None:
    rows = [{"image": "a.jpg", "caption": str(week), "week": week} for week in (1, 1, 2)]
    path = write(tmp_path / "list.json", rows)
    assert captions(path, value="week") == [["1", "1"], ["2"]]
    assert captions(path) == [["1", "1", "2"]]


def test_karpathy_lists_know_their_splits(tmp_path: Path) -> None:
    listed = [
        {
            "filepath": "val2014",
            "filename": "a.jpg",
            "cocoid": 7,
            "imgid": 0,
            "split": "restval",
            "sentences": [{"raw": "one", "tokens": ["one"]}, {"raw": "two"}],
        },
        {"filename": "b.jpg", "imgid": 1, "split": "test", "sentences": [{"raw": "three"}]},
    ]
    images(tmp_path, "val2014/a.jpg", "b.jpg")
    path = write(tmp_path / "dataset_coco.json", {"images": listed, "dataset": "coco"})
    first, second = read_pairs(path, split="split")
    assert (first.captions, first.split, first.source_key) == (["one", "two"], "restval", "7")
    assert (second.captions, second.split, second.source_key) == (["three"], "test", "1")
    given = SplitOptions(sources=[str(path)], by="source", split_column="split")
    make_stream(given, tmp_path / "stream")
    (task,) = open_stream(tmp_path / "stream")
    assert dict(task.counts) == {"train": 1, "test": 1}


@pytest.mark.parametrize(
    ("caption", "captions", "flaw"),
    [
        (["one", None, float("nan")], ["one"], None),  # missing, as pandas writes it
        (["one", 5], [], "a caption is 5, not text"),
        (5, [], "a caption is 5, not text"),
        ({"en": "one"}, [], "a caption is {'en': 'one'}, not text"),
    ],
)
def test_a_caption_that_is_no_text_is_a_flaw(
    tmp_path: Path, caption: object, captions: list[str], flaw: str | None
) -> None:
    """It is skipped and counted; its other captions would be a part of it."""
    sentences = [{"raw": one} for one in (caption if isinstance(caption, list) else [caption])]
    annotations = [{"image_id": 1, "caption": one["raw"]} for one in sentences]
    for name, value in {
        "albef": [{"image": "a.jpg", "caption": caption}],
        "karpathy": {"images": [{"filename": "a.jpg", "sentences": sentences}]},
        "coco": {"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": annotations},
    }.items():
        images(tmp_path, "a.jpg")
        (pair,) = read_pairs(write(tmp_path / f"{name}.json", value))
        assert (pair.captions, pair.flaw) == (captions, flaw)
        assert flaw is None or pair.reason == "caption that is not text"
    described = json.dumps({"caption": caption}).encode()
    tar = write_tar(tmp_path / "x.tar", {"a.jpg": make_image(0), "a.json": described})
    (pair,) = read_pairs(tar)
    assert (pair.captions, pair.flaw) == (captions, flaw)


@pytest.mark.parametrize("turned", [False, True])
def test_coco_captions_are_joined_whatever_comes_first(tmp_path: Path, turned: bool) -> None:
    parts: dict[str, Any] = {
        "info": {"year": 2014},
        "images": [{"id": 5, "file_name": "a.jpg"}, {"id": 6, "file_name": "b.jpg"}],
        "licenses": [{"id": 1}],
        "annotations": [
            {"image_id": 6, "id": 1, "caption": "on b"},
            {"image_id": 5, "id": 2, "caption": "on a"},
            {"image_id": 5, "id": 3, "caption": "on a too"},
        ],
    }
    if turned:
        parts = dict(reversed(parts.items()))
    path = write(tmp_path / "captions_val2014.json", parts)
    assert captions(path) == [["on a", "on a too"], ["on b"]]
    assert [pair.split for pair in read_pairs(path, split="split")] == ["val", "val"]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("coco_karpathy_test", "test"),
        ("flickr30k_val", "val"),
        ("captions_train2014", "train"),
        ("query", "query"),
        ("pairs", None),
        ("train_and_test", None),
        ("latest", None),
    ],
)
def test_a_list_says_its_split_in_its_name(tmp_path: Path, name: str, split: str | None) -> None:
    path = write(tmp_path / f"{name}.json", [])
    ((source,),) = (one.files for one in find_inputs([str(path)]))
    assert source.split == split


@pytest.mark.parametrize("mark", ["\t", ",", ";"])
def test_the_separator_of_a_table_is_found(tmp_path: Path, mark: str) -> None:
    head = ("filepath", "title", "week")
    if mark == "\t":  # between tabs, marks have a meaning only if those of the header are quoted
        head = tuple(f'"{name}"' for name in head)
    rows = (head, ("a.jpg", '"a, b\t; c"', "9"))
    path = write(tmp_path / "open_clip.csv", "".join(mark.join(row) + "\n" for row in rows))
    (pair,) = read_pairs(path, value="week")
    assert (pair.captions, pair.value) == (["a, b\t; c"], 9)


def test_flickr30k_lists_leave_the_commas_of_captions_bare(tmp_path: Path) -> None:
    text = "image,caption\na.jpg,A man, a dog , and more\na.jpg,Two\nb.jpg,Three\n"
    path = write(tmp_path / "flickr30k_test_karpathy.txt", text)
    assert captions(path) == [["A man, a dog , and more", "Two"], ["Three"]]


def test_a_row_of_another_width_is_skipped_and_named(tmp_path: Path) -> None:
    text = "filepath,title,week\na.jpg,one,1\nb.jpg,two,2,3\nc.jpg,three,3\n"
    pairs = read_pairs(write(tmp_path / "t.csv", text))
    assert pairs[1].flaw == "4 values where the first line names 3 columns"
    assert [pair.place for pair in pairs] == [0, 1, 2]


def test_roots_that_change_nothing_or_are_not_there_are_refused(tmp_path: Path) -> None:
    images(tmp_path, "folder/a.jpg")
    (tmp_path / "folder/a.txt").write_text("a")
    given = SplitOptions(sources=[str(tmp_path / "folder")], by="source", image_root=("/",))
    with pytest.raises(UsageError, match="--image-root has no effect"):
        make_stream(given, tmp_path / "out")
    given = SplitOptions(sources=[str(tmp_path / "folder")], by="source", image_root=("/no",))
    with pytest.raises(BadInput, match="/no is not a directory"):
        plan_of(given)


def test_the_place_of_images_is_in_no_id(tmp_path: Path) -> None:
    ids = []
    for place in ("here", "there/deeper"):
        base = tmp_path / place
        path = write(base / "train.json", [{"image": "a.jpg", "caption": "c"}])
        images(base / "images", "a.jpg")
        given = SplitOptions(
            sources=[str(path)], by="source", holdout="none", image_root=(str(base / "images"),)
        )
        manifest = make_stream(given, base / "out")
        ids.append((manifest["content"], identity(plan_of(given))))
    assert ids[0] == ids[1]

"""Lists of other tools: P9D, ALBEF, Karpathy, COCO captions, JSON Lines, CSV and TSV."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.pair_files import read_pairs

from vlcpctl.core.errors import BadInput, TooManySkipped
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
    """A file of these bytes or this text; other values are written as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not isinstance(content, bytes):
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        content = text.encode()
    path.write_bytes(content)
    return path


def written(directory: Path, name: str, content: object) -> Path:
    """The file, beside the images a.png, b.png and c.png, which are below `d`, too."""
    for letter in "abc":
        for place in (directory, directory / "d"):
            place.mkdir(exist_ok=True)
            (place / f"{letter}.png").write_bytes(make_image(ord(letter), 8))
    return write(directory / name, content)


def captions(path: Path, **wanted: Any) -> list[list[str]]:
    return [pair.captions for pair in read_pairs(path, **wanted)]


def lines(records: list[Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


# -- P9D


def product(title: str, cate: str, industry: str | None = None) -> dict[str, str]:
    named = {"industry_name": industry} if industry else {}
    return {"title": title, "cate_name": cate, "image_link": "http://x/y.jpg", **named}


def make_p9d(root: Path) -> Path:
    """Two industries; item 11 is a query and also in the gallery."""
    train = {
        FOOD: {"1": product("tea", "drinks"), "2": product("nuts", "snacks")},
        CARS: {"3": product("tyre, black", "wheels")},
    }
    wheel = product("wheel", "wheels", CARS)
    later = {
        "test": {"10": product("juice", "drinks", FOOD)},
        "query": {"11": wheel},
        "gallery": {"11": wheel, "12": product("cola", "drinks", FOOD)},
    }
    for name, records in {"train": train, **later}.items():
        write(root / f"json/{name}.json", records)
    images(root, *(f"train_images/{item}.jpg" for item in (1, 2, 3)), "gallery_images/10.jpg")
    for number, item in enumerate((11, 12), start=20):
        (root / f"gallery_images/{item}.jpg").write_bytes(make_image(number, 8, "JPEG"))
    return root


def split_p9d(tmp_path: Path, source: Path, **options: Any) -> list[Task]:
    how = {"by": "column:industry_name", "split_column": "split", **options}
    make_stream(SplitOptions(sources=[str(source)], **how), tmp_path / "stream")
    return open_stream(tmp_path / "stream")


def test_p9d_keeps_its_tasks_its_splits_and_its_classes(tmp_path: Path) -> None:
    root = make_p9d(tmp_path / "P9D")
    # The images of training are looked for among those first, and the others' among theirs.
    (root / "gallery_images/1.jpg").write_bytes(make_image(99, 8, "JPEG"))
    (root / "train_images/10.jpg").write_bytes(make_image(98, 8, "JPEG"))
    food, cars = split_p9d(tmp_path, root)
    assert (food.name, cars.name) == (FOOD, CARS)
    assert dict(food.counts) == {"train": 2, "test": 1, "gallery": 1}
    assert dict(cars.counts) == {"train": 1, "query": 1, "gallery": 1}
    train = food.split("train")
    assert train.column("source_key") == ["1", "2"]
    assert train.column("label") == ["drinks", "snacks"]
    assert train.captions(1) == ["nuts"]
    assert [train.image(row) for row in range(2)] == [make_image(n, 8, "JPEG") for n in range(2)]
    assert food.split("test").image(0) == make_image(3, 8, "JPEG")
    assert cars.split("query").keys == cars.split("gallery").keys


def test_images_elsewhere_are_found_under_the_roots_given(tmp_path: Path) -> None:
    root = make_p9d(tmp_path / "P9D")
    for name in ("train_images", "gallery_images"):
        (root / name).rename(tmp_path / name[:3])
    with pytest.raises(TooManySkipped, match=r"member 1: cannot read 1\.jpg: No such file"):
        split_p9d(tmp_path, root)
    roots = (str(tmp_path / "tra"), str(tmp_path / "gal"))
    assert len(split_p9d(tmp_path, root, image_root=roots)) == 2


def test_the_place_of_images_is_in_no_id(tmp_path: Path) -> None:
    ids = []
    for place in ("here", "there/deeper"):
        base = tmp_path / place
        path = write(base / "train.json", [{"image": "a.jpg", "caption": "c"}])
        images(base / "images", "a.jpg")
        how = {"by": "source", "holdout": "none", "image_root": (str(base / "images"),)}
        given = SplitOptions(sources=[str(path)], **how)
        ids.append((make_stream(given, base / "out")["content"], identity(plan_of(given))))
    assert ids[0] == ids[1]


# -- lists of images and captions


def test_albef_lists_give_an_image_once_with_all_its_captions(tmp_path: Path) -> None:
    images(tmp_path, "val2014/a.jpg", "b.jpg")
    rows = [
        {"image": "val2014/a.jpg", "caption": "one", "image_id": "coco_1", "owner": "y"},
        {"image": "val2014/a.jpg", "caption": "two", "image_id": "coco_1", "owner": "x"},
        {"image": "b.jpg", "caption": ["three", "four", None], "image_id": "coco_2"},
        {"image": "val2014/a.jpg", "caption": "five", "image_id": "coco_1"},
    ]
    path = write(tmp_path / "coco_karpathy_train.json", rows)
    pairs = read_pairs(path, split="split", keep=("owner",))
    assert [pair.captions for pair in pairs] == [["one", "two"], ["three", "four"], ["five"]]
    assert [pair.split for pair in pairs] == ["train"] * 3
    assert [pair.source_key for pair in pairs] == ["coco_1", "coco_2", "coco_1"]
    assert [pair.kept for pair in pairs] == [(("x", "y"),), ((),), ((),)]
    assert pairs[0].image == make_image(0, 8, "JPEG")


def test_rows_that_ask_for_different_things_stay_apart(tmp_path: Path) -> None:
    rows = [{"image": "a.jpg", "caption": str(week), "week": week} for week in (1, 1, 2)]
    path = write(tmp_path / "list.json", rows)
    assert captions(path, value="week") == [["1", "1"], ["2"]]
    assert captions(path) == [["1", "1", "2"]]


def test_karpathy_lists_know_their_splits(tmp_path: Path) -> None:
    sentences = [{"raw": "one", "tokens": ["one"]}, {"raw": "two"}]
    first = {"filepath": "val2014", "filename": "a.jpg", "cocoid": 7, "imgid": 0}
    listed = [
        {**first, "split": "restval", "sentences": sentences},
        {"filename": "b.jpg", "imgid": 1, "split": "test", "sentences": [{"raw": "three"}]},
    ]
    images(tmp_path, "val2014/a.jpg", "b.jpg")
    path = write(tmp_path / "dataset_coco.json", {"images": listed, "dataset": "coco"})
    one, two = read_pairs(path, split="split")
    assert (one.captions, one.split, one.source_key) == (["one", "two"], "restval", "7")
    assert (two.captions, two.split, two.source_key) == (["three"], "test", "1")
    (task,) = split_p9d(tmp_path, path, by="source")
    assert dict(task.counts) == {"train": 1, "test": 1}


@pytest.mark.parametrize("turned", [False, True])
def test_coco_captions_are_joined_whatever_comes_first(tmp_path: Path, turned: bool) -> None:
    parts: dict[str, Any] = {
        "info": {"year": 2014},
        "images": [{"id": 5, "file_name": "a.jpg"}, {"id": 6, "file_name": "b.jpg"}],
        "annotations": [
            {"image_id": 6, "id": 1, "caption": "on b"},
            {"image_id": 5, "id": 2, "caption": "on a"},
            {"image_id": 5, "id": 3, "caption": "on a too"},
        ],
    }
    parts = dict(reversed(parts.items())) if turned else parts
    path = write(tmp_path / "captions_val2014.json", parts)
    assert captions(path) == [["on a", "on a too"], ["on b"]]


def test_a_caption_that_is_no_text_is_a_flaw(tmp_path: Path) -> None:
    """It is skipped and counted; its other captions would be a part of it."""
    for caption in (["one", 5], {"en": "one"}):
        (pair,) = read_pairs(written(tmp_path, "l.json", [{"image": "a.png", "caption": caption}]))
        assert (pair.captions, pair.reason) == ([], "caption that is not text")


SPLITS = {
    "coco_karpathy_test": "test",
    "flickr30k_val": "val",
    "captions_train2014": "train",
    "query": "query",
    "train_and_test": None,
    "latest": None,
}


def test_a_list_says_its_split_in_its_name(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{name}.json", []) for name in SPLITS]
    found = [one.files[0].split for one in find_inputs(list(map(str, paths)))]
    assert found == list(SPLITS.values())


def test_lists_of_splits_in_a_directory_are_a_source(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    for name in ("validation", "train", "test", "notes"):
        write(tmp_path / "lists" / f"{name}.jsonl", {"image": "a.png", "caption": name})
    assert [one.split for one in read_pairs(tmp_path / "lists", split="split")] == [
        *("train", "val", "test"),
    ]
    write(tmp_path / "lists/train.json", [])
    with pytest.raises(BadInput, match=r"contains both train\.json and test\.jsonl"):
        find_inputs([str(tmp_path / "lists")])
    # P9D's are below `json`, which may be a link.
    (tmp_path / "data").mkdir()
    (tmp_path / "data/json").symlink_to(tmp_path / "lists")
    (source,) = find_inputs([str(tmp_path / "data")])
    assert [file.path for file in source.files] == [tmp_path / "data/json/train.json"]


# -- what a list is

ROWS = [{"image": f"{one}.png", "caption": f"on {one}"} for one in "abc"]
KARPATHY = [
    {"filepath": "d", "filename": f"{one}.png", "cocoid": 7, "sentences": [{"raw": f"on {one}"}]}
    for one in "abc"
]
WHOLE = [{"filepath": f"d/{x}.png", "filename": f"{x}.png", "text": f"on {x}"} for x in "abc"]
COCO = {
    "images": [{"id": n, "file_name": f"{one}.png"} for n, one in enumerate("abc")],
    "annotations": [{"image_id": n, "caption": f"on {one}"} for n, one in enumerate("abc")],
}
PRODUCTS = {str(n): {"title": f"on {one}", "image": f"{one}.png"} for n, one in enumerate("abc")}
CONTENTS = [
    ("train.json", lines(ROWS)),
    ("train.json", "\ufeff\n" + lines(ROWS)),
    ("crlf.jsonl", "\n  \r\n" + lines(ROWS).replace("\n", "\r\n").rstrip()),
    ("pairs.jsonl", json.dumps(ROWS)),
    ("pairs.jsonl", json.dumps(ROWS, indent=1)),
    ("pairs.ndjson", json.dumps(COCO)),
    ("pairs.jsonl", json.dumps(PRODUCTS, indent=1)),
    ("pairs.json", json.dumps(PRODUCTS)),
    ("pairs.json", json.dumps(COCO, indent=2)),
    ("rows.jsonl", lines(KARPATHY)),
    ("rows.json", json.dumps(KARPATHY)),
    ("rows.jsonl", lines(WHOLE)),
    ("rows.csv", "filepath,filename,title\n" + "".join(f"d,{x}.png,on {x}\n" for x in "abc")),
    ("t.csv", "\ufeffimage,caption\n" + "".join(f"{x}.png,on {x}\n" for x in "abc")),
]


@pytest.mark.parametrize(("name", "content"), CONTENTS)
def test_the_content_of_a_list_decides_and_not_its_suffix(
    tmp_path: Path, name: str, content: str
) -> None:
    pairs = read_pairs(written(tmp_path, name, content))
    assert [pair.captions for pair in pairs] == [["on a"], ["on b"], ["on c"]]
    assert [pair.image for pair in pairs] == [make_image(ord(one), 8) for one in "abc"]
    assert captions(written(tmp_path, "one.json", ROWS[0])) == [["on a"]]


# -- JSON Lines


def test_a_column_that_the_first_line_leaves_out_is_found(tmp_path: Path) -> None:
    path = written(tmp_path, "l.jsonl", lines([ROWS[0], {**ROWS[1], "label": "cat", "week": 3}]))
    found = [(pair.label, pair.value) for pair in read_pairs(path, value="week")]
    assert found == [(None, None), ("cat", 3)]


BAD_LINES: list[tuple[bytes, str]] = [
    (b'{"image": "3.png", "capt', "line 2: character 19: Unterminated string"),
    (b'["3.png", "caption"]', "line 2: expected a record in braces"),
    (b'{"image": "3.png", "caption": "caf\xe9"}', "line 2: it is not UTF-8"),
    (b'{"a":' + b"[" * 10**6, "line 2: maximum recursion depth"),
    (b'{"a": ' + b"1" * 5000 + b"}", "line 2: Exceeds the limit (4300 digits)"),
    (rb'{"image": "3.png", "caption": "\ud800"}', "lone surrogate"),
    (b'{".flaw": 5, "image": "no.png", "caption": "c"}', "no.png"),
    (b"{} {}", "line 2: character 3: Extra data"),
]


def test_a_bad_line_is_skipped_with_its_number_and_the_rest_is_read(tmp_path: Path) -> None:
    first, last = (json.dumps(ROWS[at]).encode() for at in (0, 2))
    for line, words in BAD_LINES:
        pairs = read_pairs(written(tmp_path, "l.jsonl", b"\n".join((first, line, last))))
        assert [pair.image is None for pair in pairs] == [False, True, False], words
        assert words in str(pairs[1].flaw)


# -- CSV and TSV


@pytest.mark.parametrize("mark", ["\t", ",", ";"])
def test_the_separator_of_a_table_is_found(tmp_path: Path, mark: str) -> None:
    head = ("filepath", "title", "week")
    if mark == "\t":  # between tabs, marks have a meaning only if those of the header are quoted
        head = tuple(f'"{name}"' for name in head)
    rows = (head, ("a.jpg", '"a, b\t; c"', "9"))
    path = write(tmp_path / "open_clip.csv", "".join(mark.join(row) + "\n" for row in rows))
    (pair,) = read_pairs(path, value="week", keep=("week",))
    assert (pair.captions, pair.value, pair.kept) == (["a, b\t; c"], 9, (("9",),))


def test_flickr30k_lists_leave_the_commas_of_captions_bare(tmp_path: Path) -> None:
    text = "image,caption\na.jpg,A man, a dog , and more\na.jpg,Two\nb.jpg,Three\n"
    path = write(tmp_path / "flickr30k_test_karpathy.txt", text)
    assert captions(path) == [["A man, a dog , and more", "Two"], ["Three"]]


def test_a_row_of_another_width_is_skipped_and_named(tmp_path: Path) -> None:
    text = "filepath,title,week\na.jpg,one,1\nb.jpg,two,2,3\nc.jpg,three,3\n"
    pairs = read_pairs(write(tmp_path / "t.csv", text))
    assert pairs[1].flaw == "4 values where the first line names 3 columns"
    assert [pair.place for pair in pairs] == [0, 1, 2]


def test_quotation_marks_between_tabs_are_part_of_a_caption(tmp_path: Path) -> None:
    for text, caption in (
        ('"Hello', '"Hello'),
        ('"Hello" said Bob', '"Hello" said Bob'),
        ('"Hello"', '"Hello"'),
        ('a 5" nail', 'a 5" nail'),
        ('"he said ""hi"""', 'he said "hi"'),  # as pandas writes a caption with marks
    ):
        rows = f"image\tcaption\na.png\t{text}\nb.png\ttwo\n"
        assert captions(written(tmp_path, "t.tsv", rows)) == [[caption], ["two"]]


@pytest.mark.parametrize(
    ("rows", "flaws"),
    [
        ('a.png,"Hello\nb.png,5"\nc.png,x\n', ["lines 2 to 3", None]),
        ('"Hello,a.png\nWorld",b.png\nx,c.png\n', ["lines 2 to 3", None]),
        ('1,"Hello\n2,5"\n', ["lines 2 to 3"]),
        ('c.png,x\na.png,"One, two.\nThree, four."\n', [None, None]),
        ('a.png,"One\nTwo"\n', [None]),
    ],
)
def test_a_value_of_csv_that_may_hold_rows_is_skipped_with_its_lines(
    tmp_path: Path, rows: str, flaws: list[str | None]
) -> None:
    head = "caption,image\n" if rows.startswith('"') else "image,caption\n"
    pairs = read_pairs(written(tmp_path, "t.csv", head + rows))
    found = [None if pair.image else str(pair.flaw)[:12] for pair in pairs]
    assert found == flaws


# -- what pandas writes


def test_a_column_without_a_name_has_no_role(tmp_path: Path) -> None:
    """As that of the index of a frame."""
    rows = ",image,text\n0,a.png,on a\n1,b.png,on b\n"
    for pair in read_pairs(written(tmp_path, "t.csv", rows)):
        assert pair.image
        assert (pair.label, pair.source_key, pair.value, pair.split) == (None,) * 4


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_nan_is_a_missing_value_everywhere(tmp_path: Path, kind: str) -> None:
    """As in columns of integers with gaps."""
    numbers = [1.0, float("nan"), 2.5]
    records = [
        {**row, **dict.fromkeys(("label", "id", "s", "v", "k"), number)}
        for row, number in zip(ROWS, numbers, strict=True)
    ]
    path = written(tmp_path, f"l.{kind}", records)
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    pairs = read_pairs(path, split="s", value="v", keep=("k",))
    assert [pair.image is None for pair in pairs] == [False] * 3
    parts = [(pair.label, pair.source_key, pair.split, pair.value, pair.kept) for pair in pairs]
    assert parts[1] == (None, None, None, None, ((),))
    assert parts[2] == ("2.5", "2.5", "2.5", 2.5, (("2.5",),))


@pytest.mark.parametrize(
    ("texts", "captions"),
    [
        (['["a", "b"]', '["c"]'], [["a", "b"], ["c"]]),
        (['["a"]', "[]", "a dog"], [["a"], [], ["a dog"]]),  # beyond the first 100 rows
        (["['a', \"b's\"]", "[u'c']"], [["a", "b's"], ["c"]]),
        (["['a' 'b'\n 'c']"], [["a", "b", "c"]]),
        (['["a", "b"]', "a cat"], [['["a", "b"]'], ["a cat"]]),
        (["[1, 2]"], [["[1, 2]"]]),
        (["[a cat]", "[removed]"], [["[a cat]"], ["[removed]"]]),
        ([r'["\ud800"]'], [[r'["\ud800"]']]),
    ],
)
def test_lists_that_are_spelled_as_text_are_read_as_lists(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    texts: list[str],
    captions: list[list[str]],
) -> None:
    every = [*(texts[:2] * 50 if "a dog" in texts else []), *texts]
    records = [{"image": f"{'abc'[at % 3]}.png", "text": text} for at, text in enumerate(every)]
    path = written(tmp_path, "l.jsonl", lines(records))
    assert [pair.captions for pair in read_pairs(path)][-len(texts) :] == captions
    assert ("read as lists" in capsys.readouterr().err) == (captions[0] != [texts[0]])

"""What ordinary files of other programs mean: what pandas and datasets write, and people do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.pair_files import read_pairs

from vlcpctl.data.sources.find import find_inputs
from vlcpctl.data.sources.pairs import Columns, names_files
from vlcpctl.testing.tiny_stream import make_image

NAN = float("nan")
CLASSES = {"_type": "ClassLabel", "names": ["cat", "dog"]}


def written(directory: Path, name: str, content: str | bytes) -> Path:
    for letter in "abc":
        place = directory / "d" / f"{letter}.png"
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(make_image(ord(letter), 8))
        (directory / place.name).write_bytes(place.read_bytes())
    path = directory / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def parquet(directory: Path, columns: dict[str, Any], features: dict[str, Any] | None) -> Path:
    table = pa.table({"image": [make_image(n, 8) for n in range(3)], "text": [*"xyz"], **columns})
    if features:
        described = json.dumps({"info": {"features": features}})
        table = table.replace_schema_metadata({"huggingface": described})
    pq.write_table(table, directory / "p.parquet")
    return directory / "p.parquet"


@pytest.mark.parametrize(
    ("options", "part", "expected"),
    [
        ({"label": "n"}, "label", ["dog", None, "cat"]),
        ({"split": "n"}, "split", ["dog", None, "cat"]),
        ({"value": "n"}, "value", ["dog", None, "cat"]),
        ({"keep": ("n",)}, "kept", [(("dog",),), ((),), (("cat",),)]),
        ({"keep": ("old", "new")}, "kept", [(("cat", "dog"), ()), ((), ()), (("cat",), ("dog",))]),
    ],
)
def test_class_labels_of_any_arrow_schema_are_named(
    tmp_path: Path, options: dict[str, Any], part: str, expected: list[Any]
) -> None:
    columns = {"n": [1, -1, 0], "old": [[1, 0], None, [0]], "new": [[], [7], [1]]}
    features = {"n": CLASSES, "old": [CLASSES], "new": {"_type": "List", "feature": CLASSES}}
    pairs = read_pairs(parquet(tmp_path, columns, features), **options)
    assert [getattr(pair, part) for pair in pairs] == expected


@pytest.mark.parametrize(
    ("text", "caption"),
    [
        ('"Hello', '"Hello'),
        ('"Hello" said Bob', '"Hello" said Bob'),
        ('"Hello"', '"Hello"'),
        ('a 5" nail', 'a 5" nail'),
        ('"he said ""hi"""', 'he said "hi"'),  # as pandas writes a caption with marks
    ],
)
def test_quotation_marks_between_tabs_are_part_of_a_caption(
    tmp_path: Path, text: str, caption: str
) -> None:
    rows = f"image\tcaption\na.png\t{text}\nb.png\ttwo\nc.png\tthree\n"
    pairs = read_pairs(written(tmp_path, "t.tsv", rows))
    assert [pair.captions for pair in pairs] == [[caption], ["two"], ["three"]]


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
    found = [
        None if pair.image else (pair.flaw or "")[: len(flaw or "")]
        for pair, flaw in zip(pairs, flaws, strict=True)
    ]
    assert found == flaws


def test_a_column_without_a_name_has_no_role(tmp_path: Path) -> None:
    """As pandas writes the index of a frame."""
    rows = ",image,text\n0,a.png,on a\n1,b.png,on b\n"
    for pair in read_pairs(written(tmp_path, "t.csv", rows)):
        assert pair.image
        assert (pair.label, pair.source_key, pair.value, pair.split) == (None,) * 4


@pytest.mark.parametrize("kind", ["parquet", "json", "jsonl"])
def test_nan_is_a_missing_value_everywhere(tmp_path: Path, kind: str) -> None:
    """As pandas writes columns of integers with gaps."""
    columns = {name: [1.0, NAN, 2.5] for name in ("label", "id", "s", "v", "k")}
    if kind == "parquet":
        path = parquet(tmp_path, columns, None)
    else:
        records = [
            {"image": f"{one}.png", "text": one, **{n: column[at] for n, column in columns.items()}}
            for at, one in enumerate("abc")
        ]
        lines = "\n".join(map(json.dumps, records))
        path = written(tmp_path, f"l.{kind}", lines if kind == "jsonl" else json.dumps(records))
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
@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_lists_that_are_spelled_as_text_are_read_as_lists(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    texts: list[str],
    captions: list[list[str]],
) -> None:
    first = texts[:2] * 50 if "a dog" in texts else []
    every = [*first, *texts]
    names = [f"{'abc'[place % 3]}.png" for place in range(len(every))]
    path = written(tmp_path, f"l.{kind}", "")
    if kind == "parquet":
        pq.write_table(pa.table({"image": names, "text": every}), path)
    elif kind == "csv":
        quoted = ('"' + text.replace('"', '""') + '"' for text in every)
        rows = (f"{name},{text}\n" for name, text in zip(names, quoted, strict=True))
        path.write_text("image,text\n" + "".join(rows))
    else:
        records = ({"image": x, "text": y} for x, y in zip(names, every, strict=True))
        path.write_text("\n".join(map(json.dumps, records)))
    assert [pair.captions for pair in read_pairs(path)][-len(texts) :] == captions
    assert ("read as lists" in capsys.readouterr().err) == (captions[0] != [texts[0]])


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


def lines(records: list[Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.json", lines(ROWS)),
        ("train.json", "\ufeff\n" + lines(ROWS)),
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
    ],
)
def test_the_content_of_a_list_decides_and_not_its_suffix(
    tmp_path: Path, name: str, content: str
) -> None:
    pairs = read_pairs(written(tmp_path, name, content))
    assert [pair.captions for pair in pairs] == [["on a"], ["on b"], ["on c"]]
    assert [pair.image for pair in pairs] == [make_image(ord(one), 8) for one in "abc"]


def test_one_line_of_json_is_a_record(tmp_path: Path) -> None:
    (pair,) = read_pairs(written(tmp_path, "one.json", json.dumps(ROWS[0])))
    assert pair.captions == ["on a"]


@pytest.mark.parametrize(
    ("kind", "image"),
    [
        (pa.struct([("bytes", pa.binary()), ("path", pa.null())]), {"bytes": make_image(97, 8)}),
        (pa.struct([("bytes", pa.null()), ("path", pa.string())]), {"path": "a.png"}),
        (pa.struct([("path", pa.null()), ("bytes", pa.large_binary())]), {"bytes": b"x"}),
    ],
)
def test_a_field_of_an_image_that_is_null_in_every_row_is_missing(
    tmp_path: Path, kind: pa.DataType, image: dict[str, Any]
) -> None:
    path = written(tmp_path, "p.parquet", "")
    whole = {"bytes": None, "path": None, **image}
    pq.write_table(pa.table({"image": pa.array([whole, None], kind), "text": ["x", "y"]}), path)
    first, second = read_pairs(path)
    assert bytes(first.image or b"") == (image.get("bytes") or make_image(97, 8))
    assert second.flaw
    ((source,),) = (one.files for one in find_inputs([str(path)]))
    assert names_files(source, Columns()) == ("path" in image)

"""What no honest program writes, in every format: an end, and one line that names the file."""

from __future__ import annotations

import gzip
import io
import json
import os
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.hostile import block, check_memory, member, mutated, pax, refusal, tar_file
from support.pair_files import img2dataset_members, read_pairs, rows, write_parquet, write_tar
from support.saved_datasets import save_dataset, save_dataset_dict, table, write_arrow

from vlcpctl.core.errors import BadInput
from vlcpctl.data.sources.find import find_inputs
from vlcpctl.data.sources.pairs import Columns, pairs
from vlcpctl.data.sources.source import RECORD_LENGTH
from vlcpctl.testing.tiny_stream import make_image

PNG = make_image(0, 8)
WHOLE = member(b"a.png", PNG) + member(b"a.txt", b"a caption")
NEGATIVE = b"\xff" * 12
HUGE = b"\x80" + b"\xff" * 11
END = bytes(1024)
ARROW = pa.BufferOutputStream()
with pa.ipc.new_stream(ARROW, table(20).schema) as stream:
    stream.write_table(table(20), 7)
STREAM = ARROW.getvalue().to_pybytes()
LONG = b"x" * RECORD_LENGTH
COCO = {"images": [{"id": 1, "file_name": "a.png"}]}

# By the name of a file: its contents, and a word of what is said if there is one to type or do.
REFUSED: dict[str, list[bytes | tuple[bytes, str]]] = {
    "x.tar": [
        *(block(size=size) + WHOLE + END for size in (b"-0000001000\0", b"+0000000010\0")),
        *(block(size=size) + WHOLE + END for size in (b"0_000000010\0", b"0o000000010\0")),
        *(block(size=size) + WHOLE + END for size in (NEGATIVE, HUGE, "\u0661".encode() * 5)),
        *(block(b"x", NEGATIVE, kind) + WHOLE + END for kind in (b"x", b"L", b"g")),
        *(block(b"x", b"77777777777\0", kind) + WHOLE + END for kind in (b"x", b"L")),
        *(pax(b"size=" + size) + WHOLE + END for size in (b"-1", b"", b"9" * 20, b"9" * 400)),
        *(pax("size=\u00b2".encode()) + WHOLE + END, pax("size=\u0661".encode()) + WHOLE + END),
        *(member(b"x", data, b"x") + WHOLE + END for data in (b"size=3\n", b"0 a=b\n", b"5 ab\n")),
        *(member(b"x", data, b"x") + WHOLE + END for data in (b"99 a=b\n", b"2 " * 2**18)),
        *(pax(b"GNU.sparse.major=1") + WHOLE + END, block(kind=b"S") + WHOLE + END),
        *(WHOLE + member(b"a.txt", b"another") + END, b"x" + WHOLE[1:] + END),
        *(b"", b"no tar" * 200, WHOLE + END + b"\n", WHOLE + END + b"no tar" * 200),
        *(WHOLE[:length] for length in (1, 511, 512, 513, len(WHOLE) - 1, len(WHOLE))),
        (gzip.compress(WHOLE + END), "unpack"),
    ],
    "x.json": [
        *(b"[" * 100_000, b'[{"a":' + b"[" * 100_000, b'{"x": {"y": {"z":' * 200, b" " * 10**6),
        *(b'[{"a": ' + b"1" * 5000 + b"}]", b'[{"caption": "' + b"x" * 2**21, b"", b"1"),
        (json.dumps({**COCO, "annotations": [{"image_id": 1}]}).encode(), "captions_*.json"),
        json.dumps({**COCO, "annotations": []}).encode(),
        (json.dumps([{"image": "a.png"}]).encode("utf-16"), "iconv -f utf-16"),
    ],
    "x.jsonl": [
        *(b"", b"\n \n", b"{\n[", b"{}", b'{".flaw": 5}', b'{"image": "' + LONG + b'"}'),
        json.dumps({f"c{n}": 0 for n in range(10_001)}).encode(),
        ('{"image": "a"}\n'.encode("utf-16"), "iconv -f utf-16"),
    ],
    "x.csv": [
        *(",".join(f"c{n}" for n in range(100_000)).encode() + b"\nx", b"image,caption,x,x\nx"),
        *(b'image,caption\na.png,"b"c\nx', b"image,caption\na.png," + b"x," * (len(LONG) // 2 + 9)),
        b'image,caption\na.png,"' + (b"x" * 999 + b"\n") * (len(LONG) // 999),
        (b'image,caption\na.png,"two\nlines"\nb.png,"b\nc.png,c\n', "line 4"),
        *((text, "header") for text in (b"a.png,a cat\nb.png,c", b"1;D/A.JPG;a cat\n" * 2)),
        (b"path_of,words\na.png,a cat\n", "--image-column"),
        *(
            (b"image,caption\na.png,caf\xe9", "iconv -f latin1"),
            (b"caf\xe9,x\n", "iconv -f latin1"),
        ),
        ("image,caption\na.png,b".encode("utf-16"), "iconv -f utf-16"),
    ],
    "x.arrow": [
        *(STREAM[:-400], STREAM[:-400] + STREAM[-8:], STREAM[:64], STREAM[:-8], STREAM + STREAM),
        *(
            b"",
            b"hello, arrow",
            STREAM[-8:],
            STREAM.replace(b"caption 0001", b"caption \xff\xff\xff\xff"),
        ),
        STREAM.replace(b'{"info": ', b'{"info"; '),
        (b"ARROW1\0\0" + STREAM + b"ARROW1", "Parquet"),
    ],
    "x.parquet": [b"csv,really", b"PAR1", b"PAR1" + bytes(99) + b"PAR1"],
}
CASES = [(name, place) for name, all_of in REFUSED.items() for place in range(len(all_of))]


@pytest.mark.parametrize(("name", "place"), CASES)
def test_a_damaged_file_is_refused(tmp_path: Path, name: str, place: int) -> None:
    case = REFUSED[name][place]
    data, word = case if isinstance(case, tuple) else (case, "")
    (tmp_path / name).write_bytes(data)
    said = refusal(lambda: read_pairs(tmp_path / name), tmp_path / name)
    assert said
    assert word in said


def whole_files(path: Path) -> list[bytes]:
    """Files of a suffix that are read; of Parquet with a long footer, which is most fragile."""
    if path.suffix == ".tar":
        names = {"n" * 200 + key: data for key, data in img2dataset_members(2).items()}
        kinds = (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
        parts = [write_tar(path, names, kind).read_bytes() for kind in kinds]
        return [*parts, WHOLE + END, pax(b"path=a.png", b"size=3") + WHOLE + END]
    if path.suffix == ".parquet":
        return [write_parquet(path, rows(9)).read_bytes()]
    if path.suffix == ".arrow":
        return [write_arrow(path, table(5, group=pa.array(list("abcde")))).read_bytes()]
    sentences = [{"raw": "a cat"}, {"raw": "two"}]
    lists: list[object] = [
        [{"image": "a.png", "caption": ["c", "d"], "g": 1.5e3}],
        {"images": [{"filename": "a.png", "sentences": sentences}]},
        {"toys": {"12": {"title": "t", "x": None}}},
        {"images": [{"id": 1}], "annotations": [{"image_id": 1, "caption": "c"}]},
    ]
    return {
        ".csv": [b'image,caption,"g"\r\na.png,"a, ""cat""",1\nb.png,c,2\n'],
        ".jsonl": [b'{"image": "0.png", "caption": ["c"], "g": 1.5e3}\n{"a": 1}\n'],
        ".json": [json.dumps(one).encode() for one in lists],
    }[path.suffix]


@pytest.mark.parametrize("suffix", ["tar", "parquet", "arrow", "csv", "json", "jsonl"])
def test_any_file_ends_in_pairs_or_one_line(tmp_path: Path, suffix: str) -> None:
    path, draw = tmp_path / f"x.{suffix}", np.random.default_rng(0)
    seeds = whole_files(path)
    for number in range(200):
        data = seeds[number % len(seeds)]
        is_binary = suffix in {"parquet", "arrow"}
        end = data[-8:] if is_binary else b""
        start = data[:-900] if suffix == "parquet" and number % 2 else b""
        path.write_bytes(start + mutated(data[len(start) : len(data) - len(end)], draw) + end)
        refusal(lambda: read_pairs(path), path)


# -- tables of `datasets`


def _with_state(**state: object) -> str:
    return json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}], **state})


BAD_STATES = [
    *(_with_state(_data_files=[{"filename": name}]) for name in ("../x.arrow", "/x", "no.arrow")),
    *(_with_state(_data_files=3), "{}", "[]", "[" * 10**5, _with_state(_data_files=[])),
    _with_state(_indices_data_files=[{"filename": "i.arrow"}]),
]


@pytest.mark.parametrize("text", BAD_STATES, ids=range(len(BAD_STATES)))
def test_a_malformed_state_is_refused(tmp_path: Path, text: str) -> None:
    source = save_dataset(tmp_path / "ds", [table(1)])
    (source / "state.json").write_text(text)
    assert refusal(lambda: read_pairs(source), tmp_path)


def test_an_unfinished_or_misleading_dict_is_refused(tmp_path: Path) -> None:
    source = save_dataset_dict(tmp_path / "ds", {"train": [table(1)]})
    (source / "train" / "state.json").rename(source / "train" / "gone")
    assert "save" in str(refusal(lambda: read_pairs(source), source))
    (source / "dataset_dict.json").write_text(json.dumps({"splits": ["../.."]}))
    assert refusal(lambda: read_pairs(source), source)


def test_offsets_outside_their_buffer_are_refused(tmp_path: Path) -> None:
    content = pa.table({"image": [PNG] * 3, "text": ["a", "b", "c"]})
    path = write_arrow(tmp_path / "x.arrow", content)
    data, length = bytearray(path.read_bytes()), len(PNG)
    offsets = np.array([0, length, 2 * length, 3 * length], "<i4").tobytes()
    place = data.index(offsets)
    for wrong in ([0, length, 2 * length, 2**30], [-(2**30), 1, 2, 3], [0, length, 5, 3 * length]):
        data[place : place + 16] = np.array(wrong, "<i4").tobytes()
        path.write_bytes(data)
        assert refusal(lambda: read_pairs(path), path)


# -- samples and images that cannot be used


@pytest.mark.parametrize(
    "part",
    [
        *(block(b"a.png", kind=kind) for kind in (b"1", b"2", b"3", b"6")),
        member(b"a.png", PNG) + block(b"a.json", kind=b"2"),
        *(
            member(b"a.png", PNG) + member(b"a.json", text)
            for text in (
                *(b"[" * 100_000, b'{"caption": "\\ud800"}', b'{"n": ' + b"1" * 5000 + b"}"),
                *(b"\xff", b'{"caption": "' + b"x" * 2**22 + b'"}'),
            )
        ),
    ],
    ids=range(10),
)
def test_a_part_that_cannot_be_used_is_a_flaw(tmp_path: Path, part: bytes) -> None:
    (pair,) = read_pairs(tar_file(tmp_path / "x.tar", member(b"a.txt", b"c"), part))
    assert pair.flaw
    assert pair.image is None


def test_names_are_only_names(tmp_path: Path) -> None:
    """Absolute, with .., not UTF-8, of NULs, of control characters: the sample is read."""
    for name in (b"/etc/x", b"../../x", b"\xff\xfe", b"\x1b[31mred", b"a b\nc"):
        path = tar_file(
            tmp_path / "x.tar", member(name + b".png", PNG), member(name + b".txt", b"c")
        )
        (pair,) = read_pairs(path)
        assert (pair.flaw, pair.image) == (None, PNG)


def test_what_tarfile_reads_is_read_the_same(tmp_path: Path) -> None:
    for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        long = {f"{'d/' * 60}{key}": data for key, data in img2dataset_members(2).items()}
        if kind == tarfile.USTAR_FORMAT:
            long = {name[90:]: data for name, data in long.items()}
        path = write_tar(tmp_path / "x.tar", long, kind)
        with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as tar:
            names = {name.split(".")[0] for name in tar.getnames()}
        assert {pair.place for pair in read_pairs(path)} == names


def _socket(path: Path) -> None:
    where = Path.cwd()
    os.chdir(path.parent)  # the path of a socket has at most 108 characters
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(where)


SPECIAL: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "socket": _socket,
    "directory": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "loop of links": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_no_file_is_a_flaw_of_a_list_and_of_a_folder(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    SPECIAL[kind](folder / "b.png")
    (folder / "a.png").write_bytes(PNG)
    for name in "ab":
        (folder / f"{name}.txt").write_text("c")
    path = tmp_path / "l.json"
    path.write_text(json.dumps([{"image": f"folder/{one}.png", "caption": "c"} for one in "ab"]))
    for source in (path, folder):
        one, other = read_pairs(source)
        assert (one.flaw, one.image) == (None, PNG)
        assert kind == "directory" or other.flaw
        assert other.image is None


@pytest.mark.parametrize("suffix", ["tar", "parquet", "json", "csv", "txt", ""])
def test_a_source_that_is_no_file_is_refused_at_once(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    for make in (os.mkfifo, SPECIAL["loop of links"], SPECIAL["device"]):
        make(path)
        assert refusal(lambda: read_pairs(path), path)
        path.unlink()


# -- memory


def test_a_json_list_above_a_tenth_of_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "l.json"
    path.write_text(json.dumps([{"image": "a.png", "caption": "c"}]))
    monkeypatch.setattr("vlcpctl.data.sources.lists.memory_limit", lambda: 10 * path.stat().st_size)
    assert len(read_pairs(path)) == 1
    monkeypatch.setattr("vlcpctl.data.sources.lists.memory_limit", lambda: path.stat().st_size)
    assert "JSON Lines" in str(refusal(lambda: read_pairs(path), path))


def _lines(path: Path) -> None:
    records = ({"image": f"{number}.png", "caption": "x" * 5000} for number in range(4_000))
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def _one_sample(path: Path) -> None:
    with path.open("wb") as file:
        for _ in range(3):
            file.write(block(b"a.png", b"%011o\0" % 2**27))
            file.truncate(file.tell() + 2**27)
            file.seek(0, os.SEEK_END)
        file.write(END)


@pytest.mark.parametrize(
    ("name", "make", "most_mib"), [("l.jsonl", _lines, 15), ("o.tar", _one_sample, 300)]
)
def test_memory_does_not_grow_with_a_source(
    tmp_path: Path, name: str, make: Callable[[Path], None], most_mib: int
) -> None:
    make(tmp_path / name)
    ((source,),) = (one.files for one in find_inputs([str(tmp_path / name)]))
    check_memory(lambda: sum(1 for _ in pairs(source, Columns())), most_mib)


def test_a_row_group_that_decompresses_to_much_more_is_refused(tmp_path: Path) -> None:
    zeros = pa.table({"image": [bytes(3 * 10**7)] * 3, "caption": ["a", "b", "c"]})
    pq.write_table(zeros, tmp_path / "z.parquet", compression="zstd", use_dictionary=False)
    said = refusal(lambda: read_pairs(tmp_path / "z.parquet"), tmp_path / "z.parquet")
    assert "smaller row groups" in str(said)


def test_a_file_that_becomes_shorter_is_noticed(tmp_path: Path) -> None:
    path = tar_file(tmp_path / "x.tar", *(member(b"%d.png" % n, PNG * 2000) for n in range(40)))
    read = pairs(find_inputs([str(path)])[0].files[0], Columns())
    next(read)
    os.truncate(path, 4096)
    with pytest.raises(BadInput, match=r"x\.tar"):
        list(read)

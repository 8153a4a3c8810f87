"""Sources made by others: tars, lists, tables, folders and images."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from case import Table, written
from PIL import Image

SOURCES = Table("Sources of split")
IMAGES = Table("Images")
_BAD = (3, 6)


def image(kind: str = "PNG", mode: str = "RGB", size: int = 24, **how: Any) -> bytes:
    """The bytes of a small image."""
    file = io.BytesIO()
    Image.new(mode, (size, size), 77).save(file, kind, **how)
    return file.getvalue()


def source(make: Callable[[Path], object]) -> Callable[[Path], object]:
    """A fault that makes a directory `src` and fills it."""

    def prepare(world: Path) -> None:
        (world / "src").mkdir()
        make(world / "src")

    return prepare


def _split(name: str, more: str = "--by iid --tasks 2") -> str:
    return f"split {name} -o out {more} --max-skip 0"


# Tars


def header(name: bytes, size: bytes = b"%011o\0" % 5, kind: bytes = b"0") -> bytes:
    """A USTAR header with the size field as given, 12 bytes."""
    block = bytearray(512)
    block[0 : len(name)] = name
    block[100:136] = b"0000644\0" + 2 * b"0000000\0" + size[:12].ljust(12, b"\0")
    block[136:148] = b"00000000000\0"
    block[156:157] = kind
    block[257:265] = b"ustar\x0000"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def member(name: bytes, data: bytes, kind: bytes = b"0") -> bytes:
    """A whole member."""
    return header(name, b"%011o\0" % len(data), kind) + data + bytes(-len(data) % 512)


def pax(record: bytes) -> bytes:
    """A PAX header member with one record."""
    length = len(record) + 3
    while len(b"%d " % length + record + b"\n") != length:
        length += 1
    return member(b"pax", b"%d " % length + record + b"\n", b"x")


GOOD = b"".join(
    member(b"%03d.png" % n, image(size=16 + n)) + member(b"%03d.txt" % n, b"a thing %d" % n)
    for n in range(12)
)
END = bytes(1024)


def tar(before: bytes = b"", after: bytes = b"") -> Callable[[Path], None]:
    """A fault that writes a tar around good members."""
    return written("src/a.tar", before + GOOD + after + END)


def _tar_case(fault: str, data: bytes, codes: Any = _BAD, **more: Any) -> None:
    SOURCES.add(
        f"tar: {fault}", _split("src/a.tar"), codes, prepare=written("src/a.tar", data), **more
    )


_tar_case("good", GOOD + END, 0)
_NEGATIVE = {
    "octal -1000": b"-0000001000\0",
    "octal -2000": b"-0000002000\0",
    "octal -1": b"-1\0",
    "base 256 below zero": b"\xff" * 12,
    "base 256 huge": b"\x80" + b"\x7f" * 11,
    "letters": b"abcdefghijk\0",
    "empty": b"",
    "spaces": b"            ",
    "digits of another script": "\N{SUPERSCRIPT TWO}".encode(),
}
for _what, _size in _NEGATIVE.items():
    for _kind, _extension in (
        (b"0", b"png"),
        (b"0", b"bin"),
        (b"0", b"txt"),
        (b"x", b"x"),
        (b"L", b"L"),
        (b"g", b"g"),
        (b"2", b"lnk"),
    ):
        _codes = (0, *_BAD) if _what in {"empty", "spaces"} or _kind == b"2" else _BAD
        _codes = (0, *_BAD) if _extension == b"bin" else _codes
        _tar_case(
            f"size {_what} of a member .{_extension.decode()}",
            header(b"zzz." + _extension, _size, _kind) + GOOD + END,
            _codes,
        )
for _what, _record in {
    "size=-1": b"size=-1",
    "size=superscript two": b"size=\xc2\xb2",
    "size=1e3": b"size=1e3",
    "size=99999999999999999999": b"size=99999999999999999999",
    "size=9 * 5000": b"size=" + b"9" * 5000,
    "path=../../etc/passwd.png": b"path=../../etc/x.png",
    "path with a NUL": b"path=a\0b.png",
    "path with escape codes": b"path=\x1b[31m.png",
    "path not UTF-8": b"path=\xff\xfe.png",
    "path of 100 kB": b"path=" + b"x" * 100_000,
    "no equals sign": b"sizesize",
}.items():
    _tar_case(f"PAX {_what}", pax(_record) + member(b"zzz.png", image()) + GOOD + END, (0, *_BAD))
for _what, _record in {
    "length 0": b"0 size=1\n",
    "length -1": b"-1 size=1\n",
    "length huge": b"99999999999 size=1\n",
    "length text": b"x size=1\n",
    "length superscript": b"\xc2\xb2 size=1\n",
}.items():
    _tar_case(f"PAX record {_what}", member(b"p", _record, b"x") + GOOD + END, (0, *_BAD))
_tar_case(
    "names with escape codes",
    member(b"\x1b[31mred\x1b]0;x\x07.png", b"no image")
    + member(b"\x1b[31mred\x1b]0;x\x07.txt", b"text")
    + GOOD
    + END,
)
_tar_case(
    "a name with a newline",
    member(b"a\nb.png", b"no image") + member(b"a\nb.txt", b"t") + GOOD + END,
)
_tar_case("cut in a header", (GOOD + END)[: len(GOOD) - 700])
_tar_case("cut in a member", GOOD[: 512 + 40])
_tar_case("a checksum wrong", GOOD.replace(b"000.txt", b"00x.txt", 1) + END)
_tar_case("empty", b"", (2, *_BAD))
_tar_case("zeros only", bytes(10240), (2, *_BAD))
_tar_case("random bytes", bytes(range(256)) * 40)
_tar_case(
    "two that were joined",
    GOOD
    + END
    + b"".join(
        member(b"b%d.%s" % (n, kind), data)
        for n in range(3)
        for kind, data in ((b"png", image(size=40 + n)), (b"txt", b"b %d" % n))
    )
    + END,
    0,
)
_tar_case("a newline after the end", GOOD + END + b"\n", says="after the end-of-archive mark")
_tar_case("other data after the end", GOOD + END + b"no tar" * 200)
_tar_case("gzip", __import__("gzip").compress(GOOD + END))
_tar_case("the same name twice", member(b"000.png", image()) + GOOD + END, (0, *_BAD))
_tar_case("a member of 8 GB that is not there", header(b"x.png", b"77777777777\0") + GOOD + END)
SOURCES.add(
    "tar: a FIFO", _split("src/a.tar"), (2, *_BAD), prepare=source(lambda d: os.mkfifo(d / "a.tar"))
)
SOURCES.add(
    "tar: a FIFO in a folder",
    _split("src"),
    (2, *_BAD),
    prepare=source(lambda d: os.mkfifo(d / "a.tar")),
)
SOURCES.add("tar: a device", _split("/dev/zero"), (2, *_BAD))
SOURCES.add(
    "a directory that is empty",
    _split("src"),
    (2, *_BAD),
    prepare=source(lambda directory: directory),
)
SOURCES.add("missing", _split("src"), (2, 3))


def _hard_link(directory: Path) -> None:
    with tarfile.open(directory / "a.tar", "w") as file:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo(f"{kind.decode()}.png")
            info.type, info.linkname = kind, "/etc/passwd"
            file.addfile(info)


SOURCES.add(
    "tar: links, devices and FIFOs as members",
    _split("src/a.tar"),
    (2, *_BAD),
    prepare=source(_hard_link),
)

for _name in ("a.tar", "a.csv", "a.jsonl", "a.parquet", "a.arrow"):
    SOURCES.add(
        f"{_name}: the disk fails",
        _split(f"src/{_name}"),
        1,
        prepare=source(lambda d, n=_name: (d / n).symlink_to("/proc/self/mem")),
        says=f"src/{_name}: Input/output error",
    )


def _described(directory: Path) -> None:
    """An imagefolder whose table has a row for two of three images."""
    for number in range(3):
        (directory / f"{number}.png").write_bytes(image(size=16 + number))
    rows = "".join(f"{number}.png,thing {number}\n" for number in range(2))
    (directory / "metadata.csv").write_text("file_name,text\n" + rows)


SOURCES.add(
    "imagefolder: an image without a row",
    _split("src"),
    6,
    prepare=source(_described),
    says="2.png: metadata.csv has no row for it",
)

# Lists


def listed(name: str, text: str | bytes) -> Callable[[Path], object]:
    """A fault that writes a list beside its images."""

    def make(directory: Path) -> None:
        for number in range(12):
            (directory / f"{number}.png").write_bytes(image(size=16 + number))
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        (directory / name).write_bytes(data)

    return source(make)


_ROWS = [{"image": f"{n}.png", "caption": f"a thing {n}"} for n in range(12)]


def _json_list(*more: str) -> str:
    return "[" + ",\n".join([*map(json.dumps, _ROWS), *more]) + "]"


SOURCES.add("json: good", _split("src/l.json"), 0, prepare=listed("l.json", _json_list()))
for _what, _line in {
    "a path nested 100,000 deep": '{"image": ' + "[" * 100_000,
    "half a surrogate pair as path": '{"image": "\\ud800.png", "caption": "x"}',
    "half a surrogate pair as caption": '{"image": "1.png", "caption": "\\ud800"}',
    "an integer of 5,000 digits": '{"image": "1.png", "caption": "x", "id": ' + "1" * 5000 + "}",
    "caption null": '{"image": "1.png", "caption": null}',
    "a caption among others a number": '{"image": "1.png", "caption": ["x", 5]}',
    "caption a number": '{"image": "1.png", "caption": 5}',
    "caption an object": '{"image": "1.png", "caption": {"a": 1}}',
    "caption empty": '{"image": "1.png", "caption": ""}',
    "image null": '{"image": null, "caption": "x"}',
    "image a list": '{"image": ["1.png"], "caption": "x"}',
    "image a directory": '{"image": ".", "caption": "x"}',
    "image /dev/zero": '{"image": "/dev/zero", "caption": "x"}',
    "image missing, with escape codes": '{"image": "\\u001b[31m.png", "caption": "x"}',
    "image with a NUL": '{"image": "a\\u0000b.png", "caption": "x"}',
    "image a name of 5,000 characters": '{"image": "' + "x" * 5000 + '", "caption": "x"}',
    "a caption of 40 MB": '{"image": "1.png", "caption": "' + "x" * 40_000_000 + '"}',
    "not JSON": "hello",
    "a number": "5",
    "NaN": '{"image": "1.png", "caption": NaN}',
}.items():
    _codes = (0, *_BAD) if _what.startswith("an integer") else _BAD
    SOURCES.add(
        f"json: {_what}",
        _split("src/l.json"),
        _codes,
        prepare=listed("l.json", _json_list(_line)),
    )
SOURCES.add(
    "json: not UTF-8",
    _split("src/l.json"),
    _BAD,
    prepare=listed("l.json", _json_list()[:-1].encode() + b', {"image": "\xff"}]'),
)
SOURCES.add(
    "json: nested 100,000 deep", _split("src/l.json"), _BAD, prepare=listed("l.json", "[" * 100_000)
)
SOURCES.add(
    "json: cut short", _split("src/l.json"), _BAD, prepare=listed("l.json", json.dumps(_ROWS)[:-20])
)
SOURCES.add(
    "json: an object bomb", _split("src/l.json"), _BAD, prepare=listed("l.json", '{"a":' * 100_000)
)
SOURCES.add("json: empty", _split("src/l.json"), (2, *_BAD), prepare=listed("l.json", ""))
_CSV = "image,caption\n" + "".join(f"{row['image']},{row['caption']}\n" for row in _ROWS)
SOURCES.add("csv: good", _split("src/l.csv"), 0, prepare=listed("l.csv", _CSV))
for _what, _text in {
    "100,000 columns": ",".join(f"c{n}" for n in range(100_000)) + "\n" + "," * 99_999 + "\n",
    "100,000 equal columns": ",".join(["image"] * 100_000) + "\n",
    "a row of 100,000 columns": _CSV + "," * 100_000 + "\n",
    "unbalanced quotes": _CSV + '1.png,"open\n',
    "a field of a megabyte": _CSV + f"1.png,{'x' * 2_000_000}\n",
    "a NUL": _CSV + "1.png,a\0b\n",
    "a short row": _CSV + "1.png\n",
    "a long row": _CSV + "1.png,a,b,c\n",
    "no caption column": "image,other\n1.png,x\n",
    "header only": "image,caption\n",
    "empty": "",
}.items():
    _codes = (0, *_BAD) if _what in {"a NUL", "a long row", "a field of a megabyte"} else (2, *_BAD)
    SOURCES.add(f"csv: {_what}", _split("src/l.csv"), _codes, prepare=listed("l.csv", _text))
SOURCES.add(
    "csv: not UTF-8",
    _split("src/l.csv"),
    _BAD,
    prepare=listed("l.csv", _CSV.encode() + b"1.png,caf\xe9\n"),
)

# Parquet


def parquet(**columns: Any) -> Callable[[Path], object]:
    """A fault that writes a table with a good image and caption column and others."""

    def make(directory: Path) -> None:
        good = {
            "image": pa.array([image(size=16 + n) for n in range(30)]),
            "caption": pa.array([f"a thing {n}" for n in range(30)]),
            "g": pa.array([f"g{n % 2}" for n in range(30)]),
        }
        pq.write_table(pa.table({**good, **columns}), directory / "n.parquet")

    return source(make)


_BY = "--by column:g"
SOURCES.add("parquet: good", _split("src/n.parquet", _BY), 0, prepare=parquet())
for _what, _values in {
    "struct": pa.array([{"a": n} for n in range(30)]),
    "list": pa.array([[n] for n in range(30)]),
    "map": pa.array([[("a", n)] for n in range(30)], pa.map_(pa.string(), pa.int64())),
    "binary not UTF-8": pa.array([b"\xff%d" % n for n in range(30)]),
    "float NaN": pa.array([float("nan")] * 30),
    "all null": pa.nulls(30),
    "escape codes": pa.array(["\x1b[31mred"] * 15 + ["\x1b]0;t\x07"] * 15),
}.items():
    for _column, _rule in (
        ("g", _BY),
        ("g", "--by time:g --tasks 2"),
        ("g", f"{_BY} --label-column g"),
    ):
        _codes = (0, 2, *_BAD) if _what in {"escape codes", "binary not UTF-8"} else (2, *_BAD)
        SOURCES.add(
            f"parquet: {_rule} is {_what}",
            _split("src/n.parquet", _rule),
            _codes,
            prepare=parquet(**{_column: _values}),
        )
    for _column in ("caption", "image"):
        _codes = (0, *_BAD) if _column == "caption" else _BAD
        SOURCES.add(
            f"parquet: {_column} is {_what}",
            _split("src/n.parquet", _BY),
            (2, *_codes),
            prepare=parquet(**{_column: _values}),
        )


def _bomb(directory: Path) -> None:
    schema = pa.schema([("image", pa.binary()), ("caption", pa.string()), ("g", pa.string())])
    with pq.ParquetWriter(directory / "n.parquet", schema, compression="zstd") as file:
        for number in range(2):
            table = [[bytes(200_000_000)] * 4, ["x"] * 4, [f"g{number}"] * 4]
            file.write_table(pa.table(dict(zip(schema.names, table, strict=True)), schema))


SOURCES.add(
    "parquet: a row group of 800 MB in 100 kB",
    _split("src/n.parquet", _BY),
    _BAD,
    prepare=source(_bomb),
)
SOURCES.add(
    "parquet: the magic bytes only",
    _split("src/n.parquet", _BY),
    _BAD,
    prepare=written("src/n.parquet", b"PAR1" + bytes(100) + b"PAR1"),
)
SOURCES.add(
    "parquet: 100,000 columns of null",
    _split("src/n.parquet", _BY),
    (0, 2, *_BAD),
    prepare=parquet(**{f"c{n}": pa.nulls(30) for n in range(20_000)}),
)

# Folders and images


def folder(name: str, data: bytes) -> Callable[[Path], object]:
    """A fault that writes a folder of good images with captions, and one more."""

    def make(directory: Path) -> None:
        for number in range(12):
            (directory / f"{number}.png").write_bytes(image(size=16 + number))
            (directory / f"{number}.txt").write_text(f"a thing {number}")
        (directory / name).write_bytes(data)
        (directory / name).with_suffix(".txt").write_text("one more")

    return source(make)


SOURCES.add("folder: good", _split("src"), 0, prepare=folder("more.png", image()))
SOURCES.add(
    "folder: a name with escape codes",
    _split("src"),
    _BAD,
    prepare=folder("\x1b[31mevil.png", b"no image"),
)
SOURCES.add(
    "folder: a name that is not UTF-8",
    _split("src"),
    (0, *_BAD),
    prepare=folder("\udcff\udcfe.png", image()),
)
SOURCES.add(
    "folder: a link to itself",
    _split("src"),
    (0, 2, *_BAD),
    prepare=source(lambda d: (d / "loop").symlink_to(d)),
)
SOURCES.add(
    "folder: a dangling link",
    _split("src"),
    (2, *_BAD),
    prepare=source(lambda d: (d / "x.png").symlink_to("nowhere")),
)
_PNG = image()
for _what, _name, _data, _codes in (
    ("CMYK JPEG", "x.jpg", image("JPEG", "CMYK"), 0),
    ("greyscale JPEG", "x.jpg", image("JPEG", "L"), 0),
    ("16-bit PNG", "x.png", image("PNG", "I;16"), 0),
    ("PNG with a palette", "x.png", image("PNG", "P"), 0),
    ("PNG of one bit", "x.png", image("PNG", "1"), 0),
    ("PNG with transparency", "x.png", image("PNG", "RGBA"), 0),
    ("progressive JPEG", "x.jpg", image("JPEG", progressive=True), 0),
    ("lossless WebP", "x.webp", image("WEBP", lossless=True), 0),
    ("GIF named .png", "x.png", image("GIF", "P"), _BAD),
    ("BMP named .png", "x.png", image("BMP"), _BAD),
    ("TIFF named .jpg", "x.jpg", image("TIFF"), _BAD),
    ("SVG named .png", "x.png", b"<svg xmlns='http://www.w3.org/2000/svg'/>", _BAD),
    ("PNG cut short", "x.png", _PNG[:40], (0, *_BAD)),
    ("JPEG cut short", "x.jpg", image("JPEG")[:60], _BAD),
    ("PNG of 60,000 x 60,000", "x.png",
     _PNG[:16] + (60_000).to_bytes(4, "big") * 2 + _PNG[24:], _BAD),
    ("PNG of 0 x 0", "x.png", _PNG[:16] + bytes(8) + _PNG[24:], _BAD),
    ("empty", "x.png", b"", _BAD),
    ("text", "x.png", b"hello", _BAD),
    ("PNG in a file named .jpg", "x.jpg", _PNG, (0, *_BAD)),
):  # fmt: skip
    IMAGES.add(_what, _split("src"), _codes, prepare=folder(_name, _data))
    if _codes == 0:
        IMAGES.add(
            f"{_what}, decoded", f"{_split('src')} --decode", 0, prepare=folder(_name, _data)
        )

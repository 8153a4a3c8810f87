"""Tars that lie about sizes, names and kinds: an end, and one line that names the file."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from support.hostile import block, check_memory, member, mutated, pax, refusal, tar_file
from support.pair_files import img2dataset_members, read_pairs, write_tar

from vlcpctl.core.errors import BadInput
from vlcpctl.data.sources.find import find_inputs
from vlcpctl.data.sources.pairs import Columns, pairs
from vlcpctl.testing.tiny_stream import make_image

PNG = make_image(0, 8)
WHOLE = member(b"a.png", PNG) + member(b"a.txt", b"a caption")
NEGATIVE = b"\xff" * 12
HUGE = b"\x80" + b"\xff" * 11


REFUSED = {
    "octal with a minus": (block(size=b"-0000001000\0") + WHOLE, "not a number"),
    "octal with a minus, text": (block(b"a.txt", b"-0000002000\0") + WHOLE, "not a number"),
    "octal with a minus, pax": (block(b"x", b"-0000001000\0", b"x") + WHOLE, "not a number"),
    "octal with a plus": (block(size=b"+0000000010\0") + WHOLE, "not a number"),
    "octal with an underscore": (block(size=b"0_000000010\0") + WHOLE, "not a number"),
    "octal with a prefix": (block(size=b"0o000000010\0") + WHOLE, "not a number"),
    "octal in other digits": (block(size="\u0661".encode() * 5) + WHOLE, "-1 bytes"),
    "base 256 below zero": (block(size=NEGATIVE) + WHOLE, "-1 bytes"),
    "base 256 below zero, pax": (block(b"x", NEGATIVE, b"x") + WHOLE, "-1 bytes"),
    "base 256 below zero, long name": (block(b"x", NEGATIVE, b"L") + WHOLE, "-1 bytes"),
    "base 256 below zero, global": (block(b"x", NEGATIVE, b"g") + WHOLE, "-1 bytes"),
    "base 256 huge": (block(size=HUGE) + WHOLE, "past the end"),
    "pax of gigabytes": (block(b"x", b"77777777777\0", b"x") + WHOLE, "the limit is"),
    "long name of gigabytes": (block(b"x", b"77777777777\0", b"L") + WHOLE, "the limit is"),
    "pax size below zero": (pax(b"size=-1") + WHOLE, "not a number"),
    "pax size superscript two": (pax("size=\u00b2".encode()) + WHOLE, "not a number"),
    "pax size in other digits": (pax("size=\u0661".encode()) + WHOLE, "not a number"),
    "pax size empty": (pax(b"size=") + WHOLE, "not a number"),
    "pax size huge": (pax(b"size=" + b"9" * 20) + WHOLE, "past the end"),
    "pax size of 400 digits": (pax(b"size=" + b"9" * 400) + WHOLE, "not a number"),
    "pax record without a length": (member(b"x", b"size=3\n", b"x") + WHOLE, "malformed"),
    "pax record of length zero": (member(b"x", b"0 a=b\n", b"x") + WHOLE, "malformed"),
    "pax record beyond its header": (member(b"x", b"99 a=b\n", b"x") + WHOLE, "malformed"),
    "pax record without a value": (member(b"x", b"5 ab\n", b"x") + WHOLE, "malformed"),
    "pax records of two bytes": (member(b"x", b"2 " * 2**18, b"x") + WHOLE, "malformed"),
    "sparse": (pax(b"GNU.sparse.major=1") + WHOLE, "sparse"),
    "old sparse": (block(kind=b"S") + WHOLE, "sparse"),
    "a name twice": (WHOLE + member(b"a.txt", b"another"), "two members"),
    "a wrong checksum": (b"x" + WHOLE[1:], "checksum"),
    "nothing": (b"", "end-of-archive"),
    "text": (b"no tar" * 200, "damaged or not a tar"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_header_that_lies_is_refused(tmp_path: Path, name: str) -> None:
    data, words = REFUSED[name]
    path = tar_file(tmp_path / "x.tar", data, end=bool(data))
    assert words in str(refusal(lambda: read_pairs(path), path))


def test_gzip_and_its_kin_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(gzip.compress(WHOLE + bytes(1024)))
    assert "compressed with gzip" in str(refusal(lambda: read_pairs(path), path))


def test_a_member_cut_off_is_refused(tmp_path: Path) -> None:
    for length in (0, 1, 511, 512, 513, len(WHOLE) - 1, len(WHOLE)):
        path = tar_file(tmp_path / "x.tar", WHOLE[:length], end=False)
        assert refusal(lambda: read_pairs(path), path)  # noqa: B023


def test_names_are_only_names(tmp_path: Path) -> None:
    """Absolute, with .., not UTF-8, of NULs, of control characters: the sample is read."""
    for name in (b"/etc/x", b"../../x", b"\xff\xfe", b"\x1b[31mred", b"a b\nc"):
        path = tar_file(
            tmp_path / "x.tar", member(name + b".png", PNG), member(name + b".txt", b"c")
        )
        (pair,) = read_pairs(path)
        assert pair.flaw is None
        assert pair.image == PNG


def test_links_and_devices_are_flaws(tmp_path: Path) -> None:
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
        parts = member(b"a.txt", b"c"), block(b"a.png", kind=kind)
        (pair,) = read_pairs(tar_file(tmp_path / "x.tar", *parts))
        assert "a link or a device" in str(pair.flaw)


def test_a_text_that_is_a_link_is_not_passed_over(tmp_path: Path) -> None:
    parts = member(b"a.txt", b"c"), block(b"a.json", kind=b"2"), member(b"a.png", PNG)
    (pair,) = read_pairs(tar_file(tmp_path / "x.tar", *parts))
    assert "json is not a file" in str(pair.flaw)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[" * 100_000, "recursion depth"),
        (b'{"caption": "\\ud800"}', "surrogate"),
        (b'{"n": ' + b"1" * 5000 + b"}", "digits"),
        (b"\xff", "decode"),
        (b'{"caption": "' + b"x" * 2**22 + b'"}', "the limit is"),
    ],
)
def test_a_description_that_is_not_one_is_a_flaw(tmp_path: Path, text: bytes, words: str) -> None:
    path = tar_file(tmp_path / "x.tar", WHOLE, member(b"a.json", text))
    (pair,) = read_pairs(path)
    assert words in str(pair.flaw)


def test_a_description_of_long_integers_is_read(tmp_path: Path) -> None:
    text = b'{"group": ' + b"1" * 400 + b', "caption": "c"}'
    (pair,) = read_pairs(
        tar_file(tmp_path / "x.tar", WHOLE, member(b"a.json", text)), value="group"
    )
    assert pair.value == "1" * 400


def test_many_extended_headers_take_no_memory(tmp_path: Path) -> None:
    noise = b"".join(pax(b"k%d=" % number + b"x" * 2**16) for number in range(1500))
    path = tar_file(tmp_path / "x.tar", noise, WHOLE)
    check_memory(lambda: read_pairs(path), 40)


def test_one_sample_many_times_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with path.open("wb") as file:
        for _ in range(3):
            file.write(block(b"a.png", b"%011o\0" % 2**27))
            file.truncate(file.tell() + 2**27)
            file.seek(0, os.SEEK_END)
        file.write(bytes(1024))
    check_memory(lambda: read_pairs(path), 300)
    with pytest.raises(BadInput, match="two members"):
        read_pairs(path)


def test_a_file_that_becomes_shorter_is_noticed(tmp_path: Path) -> None:
    path = tar_file(tmp_path / "x.tar", *(member(b"%d.png" % n, PNG * 2000) for n in range(40)))

    def shrink() -> None:
        for _ in pairs(find_inputs([str(path)])[0].files[0], Columns()):
            os.truncate(path, 4096)

    assert "shorter" in str(refusal(shrink, path)) or "truncated" in str(refusal(shrink, path))


def test_any_tar_ends_in_pairs_or_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    draw = np.random.default_rng(0)
    seeds = [WHOLE + bytes(1024), pax(b"path=a.png", b"size=3") + WHOLE + bytes(1024)]
    for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        names = {"n" * 200 + key: data for key, data in img2dataset_members(2).items()}
        seeds.append(write_tar(path, names, kind).read_bytes())
    for number in range(300):
        path.write_bytes(mutated(seeds[number % len(seeds)], draw))
        refusal(lambda: read_pairs(path), path)


def test_what_tarfile_reads_is_read_the_same(tmp_path: Path) -> None:
    for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        long = {f"{'d/' * 60}{key}": data for key, data in img2dataset_members(2).items()}
        if kind == tarfile.USTAR_FORMAT:
            long = {name[90:]: data for name, data in long.items()}
        path = write_tar(tmp_path / "x.tar", long, kind)
        with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as tar:
            names = {name.split(".")[0] for name in tar.getnames()}
        assert {pair.place for pair in read_pairs(path)} == names

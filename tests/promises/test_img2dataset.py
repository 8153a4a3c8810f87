"""`vlcpctl split` reads what img2dataset writes.

img2dataset runs in an environment of its own, and downloads from a server on this machine.
"""

from __future__ import annotations

import csv
import io
import shutil
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.environments import install, new_python, run
from support.program import run_program

from vlcpctl.data.tasks.task import open_stream
from vlcpctl.testing.tiny_stream import make_image

PICTURES = 10
BROKEN, MISSING = 3, 7
# Per shard, so that there are several.
PER_SHARD = 4


class Silent(SimpleHTTPRequestHandler):
    """A server that does not log requests."""

    def log_message(self, *_: Any, **__: Any) -> None:
        pass


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Python that has img2dataset."""
    place = tmp_path_factory.mktemp("environment") / "venv"
    found = new_python(place)
    install(found, "img2dataset==1.47.*")
    yield found
    shutil.rmtree(place)


@pytest.fixture
def urls(tmp_path: Path) -> Iterator[Path]:
    """A CSV file with URLs and captions of served pictures; one is damaged, one does not exist."""
    folder = tmp_path / "served"
    folder.mkdir()
    for number in set(range(PICTURES)) - {MISSING}:
        (folder / f"{number}.png").write_bytes(make_image(number))
    (folder / f"{BROKEN}.png").write_bytes(b"not a picture")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{server.server_port}"
        with (tmp_path / "urls.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(("url", "caption"))
            table.writerows((f"{place}/{one}.png", f"picture {one}") for one in range(PICTURES))
        yield tmp_path / "urls.csv"
        server.shutdown()


def download(python: Path, urls: Path, out: Path, form: str) -> Path:
    """What img2dataset makes of the list, without a change to any pixel."""
    run(
        *(python.with_name("img2dataset"), "--url_list", urls, "--input_format", "csv"),
        *("--caption_col", "caption", "--output_folder", out, "--output_format", form),
        *("--resize_mode", "no", "--encode_format", "png", "--encode_quality", 6),
        *("--number_sample_per_shard", PER_SHARD, "--processes_count", 1, "--thread_count", 2),
        no_proxy="127.0.0.1",
        NO_ALBUMENTATIONS_UPDATE="1",
    )
    return out


def pairs_of(stream: Path) -> dict[str, bytes]:
    """The pixels of every pair of a stream, by caption."""
    found = {}
    for task in open_stream(stream):
        for name in task.manifest.splits:
            split = task.split(name)
            for row, captions in enumerate(split.column("captions")):
                with Image.open(io.BytesIO(split.image(row))) as image:
                    found[captions[0]] = image.convert("RGB").tobytes()
    return found


def members_of(tar: Path) -> set[str]:
    """The extensions of the files in a tar."""
    with tarfile.open(tar) as archive:
        return {name.partition(".")[2] for name in archive.getnames()}


@pytest.mark.slow
@pytest.mark.net
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("form", ["webdataset", "parquet", "files"])
def test_split_reads_downloads_and_leaves_out_those_that_failed(
    form: str, python: Path, urls: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    downloaded, stream = download(python, urls, tmp_path / form, form), tmp_path / "stream"
    # Its tables list the failures, so that there was something to leave out.
    tables = sorted(downloaded.glob("*.parquet"))
    assert len(tables) == -(-PICTURES // PER_SHARD)
    states = [state for table in tables for state in pq.read_table(table)["status"].to_pylist()]
    assert len(states) == PICTURES
    assert states.count("success") == PICTURES - 2

    # No pair may be skipped for another reason than a failed download.
    how = ("--by", "iid", "--tasks", 2, "--max-skip", 0, "-q")
    ended = run_program(capfd, "split", downloaded, "-o", stream, *how)
    assert ended.code == 0, ended.err
    wanted = {}
    for number in set(range(PICTURES)) - {BROKEN, MISSING}:
        with Image.open(io.BytesIO(make_image(number))) as image:
            wanted[f"picture {number}"] = image.convert("RGB").tobytes()
    assert pairs_of(stream) == wanted

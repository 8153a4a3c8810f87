"""Bad data and foreign state: one line that names the file and what would do, and the code."""

from __future__ import annotations

import shutil
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.checkpoints import record_files_again
from support.edits import record_again
from support.pair_files import img2dataset_members, rows, write_parquet, write_tar
from support.program import QUEUE, TINY, ProgramResult, check_refused, make_inputs, run_program

from vlcpctl.testing.tiny_stream import make_image

Program = Callable[..., ProgramResult]
Change = Callable[[dict[str, object]], object]


@pytest.fixture
def program(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    """Runs a command line in this process."""
    monkeypatch.delenv("VLCPCTL_DEBUG", raising=False)
    return lambda *words: run_program(capfd, *words)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands read."""
    return make_inputs(tmp_path_factory.mktemp("inputs"))


# Pairs


def without_captions(directory: Path) -> Path:
    return write_parquet(directory / "in.parquet", [{"image": row["image"]} for row in rows(20)])


def with_numbers_for_captions(directory: Path) -> Path:
    return write_parquet(directory / "in.parquet", [{**row, "caption": 3} for row in rows(20)])


def half_a_tar(directory: Path) -> Path:
    path = write_tar(directory / "in.tar", img2dataset_members(4))
    path.write_bytes(path.read_bytes()[:3000])
    return path


def not_a_tar(directory: Path) -> Path:
    path = directory / "in.tar"
    path.write_bytes(b"\x01" * 5000)
    return path


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            without_captions,
            "has no caption column (found: image); choose one with --caption-column",
        ),
        (with_numbers_for_captions, "column 'caption' has no caption"),
        (half_a_tar, "the tar is truncated"),
        (not_a_tar, "the file is damaged or not a tar"),
    ],
)
def test_a_source_that_cannot_be_read_is_named(
    program: Program, tmp_path: Path, source: Callable[[Path], Path], said: str
) -> None:
    path = source(tmp_path)
    ended = program("split", path, "-o", tmp_path / "out", "--by", "source")
    check_refused(ended, "split", 3, path, said)
    assert list(tmp_path.iterdir()) == [path]


def truncated_jpeg() -> bytes:
    return make_image(3, 64, "JPEG")[:-200]


def large_png() -> bytes:
    """20,000 x 20,000 black pixels, whole, in 50 kB."""

    def chunk(name: bytes, data: bytes) -> bytes:
        checked = name + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = struct.pack(">IIBBBBB", 20_000, 20_000, 1, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(20_000 * (1 + 20_000 // 8)), 1)
    parts = ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(name, data) for name, data in parts)


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (truncated_jpeg, "truncated: a JPEG without its end marker"),
        (large_png, "too large: 20000 x 20000 pixels, the limit is 40000000"),
    ],
)
def test_an_image_that_cannot_be_used_is_named_by_file_and_row(
    program: Program, tmp_path: Path, image: Callable[[], bytes], said: str
) -> None:
    pairs = rows(20)
    pairs[13]["image"] = image()
    path = write_parquet(tmp_path / "in.parquet", pairs)
    how = ("split", path, "-o", tmp_path / "out", "--by", "source", "-q", "--max-skip")
    check_refused(program(*how, 0), "split", 6, "1 of 20 samples", f"{path}, row 13: {said}")
    assert list(tmp_path.iterdir()) == [path]
    assert program(*how, 1).code == 0
    assert said in (tmp_path / "out" / "skipped.ndjson").read_text()


# Checkpoints


def renamed(tensors: dict[str, object]) -> None:
    name = min(tensors)
    tensors[f"{name}_of_another"] = tensors.pop(name)


def misshapen(tensors: dict[str, object]) -> None:
    import torch

    tensors[min(tensors)] = torch.zeros(5, 5)


def tampered(checkpoint: Path, name: str, change: Change, copy: Path) -> Path:
    """A copy of a checkpoint with changed tensors in one file."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(checkpoint, copy)
    tensors = load_file(copy / name)
    change(tensors)
    save_file(tensors, copy / name)
    record_files_again(copy)
    return copy


@pytest.mark.parametrize(
    ("change", "said"),
    [(renamed, "lacks the tensor 'ln_final.bias'"), (misshapen, "has shape (5, 5), expected (8,)")],
)
@pytest.mark.parametrize("command", ["train-step", "eval-retrieval", "buffer"])
def test_weights_of_another_model_are_named_by_file_and_tensor(
    program: Program, place: Path, tmp_path: Path, change: Change, said: str, command: str
) -> None:
    name = "open_clip_model.safetensors"
    other = tampered(place / "queued", name, change, tmp_path / "other")
    how = {
        "train-step": ("-o", tmp_path / "out", *TINY, "--previous", other),
        "eval-retrieval": ("-q", "--checkpoint", other),
        "buffer": (
            *("-o", tmp_path / "out", "-q", "--size", 6),
            *("--policy", "herding", "--checkpoint", other),
        ),
    }
    ended = program(command, place / "stream" / "01-part-1", *how[command])
    check_refused(ended, command, 5, other / name, said)
    assert not (tmp_path / "out").exists()


def test_a_model_with_nan_weights_is_refused_by_buffer(
    program: Program, place: Path, tmp_path: Path
) -> None:
    def diverge(tensors: dict[str, object]) -> None:
        tensors["visual.proj"] *= float("nan")  # type: ignore[operator]

    other = tampered(place / "plain", "open_clip_model.safetensors", diverge, tmp_path / "other")
    how = ("--policy", "herding", "--size", 6, "-q", "--checkpoint", other)
    ended = program("buffer", place / "stream" / "01-part-1", "-o", tmp_path / "out", *how)
    check_refused(ended, "buffer", 8, other, "NaN or infinite", "use an earlier checkpoint")


def test_a_tokenizer_that_cannot_be_read_is_named(
    program: Program, place: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(place / "plain", other)
    (other / "tokenizer.json").write_text("{")
    record_files_again(other)
    ended = program("eval-retrieval", place / "stream" / "00-part-0", "--checkpoint", other)
    check_refused(ended, "eval-retrieval", 5, other, "cannot read the tokenizer")


@pytest.mark.parametrize("fresh", [False, True])
def test_missing_method_state_is_named_with_a_fix(
    program: Program, place: Path, tmp_path: Path, *, fresh: bool
) -> None:
    how = ("-o", tmp_path / "out", *TINY, *QUEUE, "--previous", place / "plain")
    words = ("train-step", place / "stream" / "01-part-1", *how)
    if fresh:
        assert program(*words, "--fresh-state").code == 0
        return
    said = ("no state 'queue' of method ctp", "trained with 'seqf'", "--fresh-state")
    ended = program(*words)
    warning, error = ended.err.splitlines()
    assert warning.startswith("warning: --previous is a checkpoint of another run: run 'seqf'")
    check_refused(replace(ended, err=error), "train-step", 5, place / "plain", *said)


@pytest.mark.parametrize(
    ("change", "said"),
    [(renamed, "lacks the tensor 'filled'"), (misshapen, "'filled' has shape (5, 5), expected")],
)
def test_state_with_other_tensors_is_refused(
    program: Program, place: Path, tmp_path: Path, change: Change, said: str
) -> None:
    name = "method/ctp/queue.safetensors"
    other = tampered(place / "queued", name, change, tmp_path / "other")
    how = ("-o", tmp_path / "out", *TINY, *QUEUE, "--previous", other)
    ended = program("train-step", place / "stream" / "01-part-1", *how)
    check_refused(ended, "train-step", 5, f"{other}: state ctp/queue", said)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("captions", None),
        ("captions", [3] * 12),
        ("captions", [["one"]] * 11 + [None]),
        ("captions", [["one"]] * 11 + [[]]),
        ("offset", ["x"] * 12),
    ],
)
def test_an_index_that_vlcpctl_does_not_write_is_named(
    program: Program, place: Path, tmp_path: Path, name: str, values: object
) -> None:
    task = tmp_path / "task"
    shutil.copytree(place / "stream" / "01-part-1", task)
    table = pq.read_table(task / "train.parquet").drop_columns([name])
    if values is not None:
        table = table.append_column(name, pa.array(values))
    pq.write_table(table, task / "train.parquet")
    ended = program("buffer", record_again(task), "-o", tmp_path / "out", "-q", "--size", 6)
    check_refused(ended, "buffer", 3, task / "train.")

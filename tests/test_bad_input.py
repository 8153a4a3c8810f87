"""Bad input, foreign state and full disks: one line that says what would do, and the exit code."""

from __future__ import annotations

import os
import pty
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from support.pair_files import img2dataset_members, rows, write_parquet, write_tar
from support.program import Ended, run_program
from support.tiny_stream import make_image, make_stream

Program = Callable[..., Ended]
Change = Callable[[dict[str, object]], object]

TINY = ("--method", "ctp", "--preset", "tiny", "--batch-size", "4", "--epochs", "1", "-q")
MICRO = ("--model", "micro")
QUEUE = ("--set", "ctp.keep_queue=true")


@pytest.fixture
def program(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    """Runs a command line in this process."""
    monkeypatch.delenv("VLCPCTL_DEBUG", raising=False)
    return lambda *words: run_program(capfd, *words)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream, a buffer of its first task, and checkpoints of it with and without a queue."""
    from vlcpctl.commands.buffer import run as buffer
    from vlcpctl.commands.train_step import run as train_step

    root = tmp_path_factory.mktemp("bad")
    make_stream(root / "stream", 3, 12)
    first = root / "stream" / "00-part-0"
    buffer(first, root / "buffer", size="6", quiet=True)
    how = {"preset": "tiny", "model": "micro", "batch_size": 4, "epochs": 1, "quiet": True}
    train_step([first], root / "plain", "seqf", **how)  # type: ignore[arg-type]
    train_step([first], root / "queued", "ctp", set_=[QUEUE[1]], **how)  # type: ignore[arg-type]
    return root


def refused(ended: Ended, command: str, code: int, *said: object) -> None:
    """One line about this command on stderr, nothing on stdout, and this code."""
    assert (ended.code, ended.out) == (code, ""), ended.err
    (line,) = ended.err.splitlines()
    assert line.startswith(f"vlcpctl {command}: ")
    for words in said:
        assert str(words) in line


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
        (without_captions, "has no caption column; it has image; name one with --caption-column"),
        (with_numbers_for_captions, "column 'caption' is int64; captions are strings or lists"),
        (half_a_tar, "the tar is truncated"),
        (not_a_tar, "the tar is damaged, or not a tar"),
    ],
)
def test_a_source_that_cannot_be_read_is_named(
    program: Program, tmp_path: Path, source: Callable[[Path], Path], said: str
) -> None:
    path = source(tmp_path)
    ended = program("split", path, "-o", tmp_path / "out", "--by", "source")
    refused(ended, "split", 3, path, said)
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
    refused(program(*how, 0), "split", 6, "1 of 20 samples", f"{path}, row 13: {said}")
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
    other = tampered(place / "plain", name, change, tmp_path / "other")
    how = {
        "train-step": ("-o", tmp_path / "out", *TINY, "--previous", other),
        "eval-retrieval": ("-q", "--checkpoint", other),
        "buffer": (
            *("-o", tmp_path / "out", "-q", "--size", 6),
            *("--policy", "herding", "--checkpoint", other),
        ),
    }
    ended = program(command, place / "stream" / "01-part-1", *how[command])
    refused(ended, command, 5, other / name, said)
    assert not (tmp_path / "out").exists()


def test_a_model_of_nan_chooses_no_buffer(program: Program, place: Path, tmp_path: Path) -> None:
    def diverge(tensors: dict[str, object]) -> None:
        tensors["visual.proj"] *= float("nan")  # type: ignore[operator]

    other = tampered(place / "plain", "open_clip_model.safetensors", diverge, tmp_path / "other")
    how = ("--policy", "herding", "--size", 6, "-q", "--checkpoint", other)
    ended = program("buffer", place / "stream" / "01-part-1", "-o", tmp_path / "out", *how)
    refused(ended, "buffer", 8, other, "NaN or infinite", "go back to an earlier checkpoint")


def test_a_tokenizer_that_cannot_be_read_is_named(
    program: Program, place: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(place / "plain", other)
    (other / "tokenizer.json").write_text("{")
    ended = program("eval-retrieval", place / "stream" / "00-part-0", "--checkpoint", other)
    refused(ended, "eval-retrieval", 5, other, "the tokenizer cannot be read")


@pytest.mark.parametrize("fresh", [False, True])
def test_state_that_is_missing_is_named_with_the_way_out(
    program: Program, place: Path, tmp_path: Path, *, fresh: bool
) -> None:
    how = ("-o", tmp_path / "out", *TINY, *QUEUE, "--previous", place / "plain")
    words = ("train-step", place / "stream" / "01-part-1", *how)
    if fresh:
        assert program(*words, "--fresh-state").code == 0
        return
    said = ("no state 'queue' of method ctp", "trained with 'seqf'", "--fresh-state")
    refused(program(*words), "train-step", 5, place / "plain", *said)


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
    refused(ended, "train-step", 5, f"{other}: state ctp/queue", said)


# Command lines


def test_a_batch_larger_than_the_task_is_refused_with_both_numbers(
    program: Program, place: Path, tmp_path: Path
) -> None:
    how = ("-o", tmp_path / "out", *TINY, *MICRO, "--batch-size", 64)
    ended = program("train-step", place / "stream" / "00-part-0", *how)
    refused(ended, "train-step", 2, "64", "12 pairs")


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize("command", ["train-step", "buffer", "eval-retrieval"])
def test_a_stream_is_answered_with_its_tasks(
    program: Program, place: Path, tmp_path: Path, command: str, *, dry: bool
) -> None:
    how = {
        "train-step": ("-o", tmp_path / "out", *TINY, *MICRO),
        "buffer": ("-o", tmp_path / "out", "--size", 6),
        "eval-retrieval": ("--checkpoint", place / "plain"),
    }
    stream = place / "stream"
    ended = program(command, stream, *how[command], *(["--dry-run"] if dry else []))
    tasks = " ".join(str(path) for path in sorted(stream.glob("0*")))
    refused(ended, command, 3, f"{stream} is a stream; give one of its tasks: {tasks}")


@pytest.mark.parametrize("command", ["forgetting-report", "batch"])
def test_a_terminal_is_not_waited_for(
    program: Program, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        ended = program(command, "-")
    os.close(ours)
    refused(ended, command, 2, "pipe them in")


def test_a_plain_task_is_no_buffer(program: Program, place: Path, tmp_path: Path) -> None:
    how = ("-o", tmp_path / "out", *TINY, *MICRO, "--buffer", place / "stream" / "01-part-1")
    ended = program("train-step", place / "stream" / "00-part-0", *how)
    refused(ended, "train-step", 3, "01-part-1 is not a buffer; make one with 'vlcpctl buffer'")


@pytest.mark.parametrize("how", [(), ("--dry-run",), ("--batch-size", 4)])
def test_a_preset_whose_model_is_not_here_says_which_is(
    program: Program, place: Path, tmp_path: Path, how: tuple[object, ...]
) -> None:
    words = (place / "stream" / "00-part-0", "-o", tmp_path / "out", "--method", "ctp", *how)
    ended = program("train-step", *words)
    refused(ended, "train-step", 2, "albef-base", "--model, such as ViT-B-32, or --preset tiny")


def test_weights_that_cannot_be_fetched_say_how_to_pass_a_file(
    program: Program, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    how = ("-o", tmp_path / "out", *TINY, "--model", "ViT-B-32", "--pretrained", "openai")
    ended = program("train-step", place / "stream" / "00-part-0", *how)
    said = ("'openai' of ViT-B-32 cannot be downloaded", "pass --pretrained FILE.safetensors")
    refused(ended, "train-step", 5, *said)


MISTYPED = (*TINY, *MICRO, "--set", "ctp.keep_queu=true")


def test_a_mistyped_hyper_parameter_is_answered_with_the_nearest(
    program: Program, place: Path, tmp_path: Path
) -> None:
    ended = program("train-step", place / "stream" / "00-part-0", "-o", tmp_path / "out", *MISTYPED)
    refused(ended, "train-step", 2, "'keep_queu'; did you mean 'keep_queue'? (known: cross_modal,")


@pytest.mark.parametrize(("how", "code"), [((*TINY, *MICRO, "--dry-run"), 0), (MISTYPED, 2)])
def test_a_plan_and_a_refusal_wait_for_no_torch(
    place: Path, tmp_path: Path, how: tuple[str, ...], code: int
) -> None:
    words = ["train-step", place / "stream" / "00-part-0", "-o", tmp_path / "out", *how]
    program = f"""
import sys
from vlcpctl.cli import main
sys.argv = ["vlcpctl", *{[str(word) for word in words]}]
try:
    main()
finally:
    print([name for name in ("torch", "open_clip", "transformers") if name in sys.modules])
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stderr
    assert ended.stdout.splitlines()[-1] == "[]"

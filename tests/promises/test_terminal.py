"""Names that others chose never reach the terminal as control codes, whatever the command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.eval_rows import own_rows, write_rows
from support.marks import mostly_slow
from support.pair_files import rows, write_parquet, write_tar
from support.processes import exit_code_of, start_child
from support.program import TINY, ProgramResult, make_inputs, run_program

from vlcpctl import cli
from vlcpctl.core import console
from vlcpctl.testing.tiny_stream import make_image

# Colours, a title, a new line, a return, a bell, a one-byte CSI, DEL, right-to-left, a line
# separator, and what rich takes for markup.
EVIL = "x\x1b[31m\x1b]0;t\x07\n\r\x9b1m\x7f\u202ey\u2028[red]"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069]")

Words = list[object]


def check_safe(result: ProgramResult, *codes: int) -> None:
    """Only these exit codes, no raw control character, no traceback; an error is one line."""
    for text in (result.out, result.err):
        assert not RAW.search(text), repr(text)
    assert "Traceback" not in result.err
    assert result.code in codes, result.err
    if result.code in {3, 4, 5, 6}:
        assert result.err.splitlines()[-1].startswith("vlcpctl "), result.err


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream, a buffer and checkpoints in a directory with an evil name."""
    return make_inputs(tmp_path_factory.mktemp("inputs") / EVIL)


COMMANDS = (
    "inspect {at}/stream",
    "inspect {at}/plain",
    "inspect --json {at}/stream",
    "check --deep {at}/stream",
    "buffer {at}/stream/00-part-0 --policy ring --size 4 -o {at}/b{evil}",
    "distill {at}/stream/01-part-1 --teacher {at}/plain --preset tiny -o {at}/d{evil}",
    f"train-step {{at}}/stream/01-part-1 {' '.join(TINY)} --previous {{at}}/plain --dry-run -o out",
    "eval-retrieval {at}/stream/01-part-1 --checkpoint {at}/plain -o -",
    "eval-zeroshot {at}/stream/01-part-1 --checkpoint {at}/plain -o -",
    "export {at}/stream --to hf -o {at}/e{evil}",
    "export {at}/plain --to hf-model -o {at}/m{evil}",
    "merge {at}/plain {at}/queued -o {at}/merge{evil}",
)


@pytest.mark.parametrize("line", COMMANDS)
def test_paths_are_shown_with_escapes(
    line: str, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [word.format(at=place, evil=EVIL) for word in line.split()]
    for _ in range(2):  # again: it is finished
        check_safe(run_program(capfd, *words), 0)


@pytest.mark.parametrize(
    "words", [["inspect"], ["check"], ["check", "--json"], ["check", "--deep"]]
)
def test_names_in_damaged_manifests_are_shown_with_escapes(
    words: Words, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for kind, name in (("stream", "stream.json"), ("stream/00-part-0", "task.json")):
        path = place / kind / name
        whole = path.read_text()
        manifest = json.loads(whole)
        manifest["name"] = manifest["slug"] = EVIL
        if name == "stream.json":
            manifest["tasks"][0]["path"] = EVIL
        else:
            manifest["splits"]["train"]["shards"] = [EVIL]
            manifest["splits"][EVIL] = manifest["splits"]["test"]
            manifest["skipped"] = {EVIL: 3}
        path.write_text(json.dumps(manifest))
        try:
            check_safe(run_program(capfd, *words, path.parent), 0, 3)
        finally:
            path.write_text(whole)


def _member_tar(at: Path) -> Words:
    members = {f"{EVIL}{number}.jpg": make_image(number, 16, "JPEG") for number in range(3)}
    captions = {f"{EVIL}{number}.txt": b"a caption" for number in range(4)}
    members[f"{EVIL}3.jpg"] = b"broken"
    return [write_tar(at / f"{EVIL}.tar", {**members, **captions})]


def _class_folder(at: Path) -> Words:
    for number in range(6):
        folder = at / f"classes{EVIL}" / f"{EVIL}{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{EVIL}{number}.png").write_bytes(make_image(number) if number else b"broken")
    return [at / f"classes{EVIL}"]


def _groups(at: Path) -> Words:
    made = [{**row, "group": f"{EVIL}{number % 3}"} for number, row in enumerate(rows(12))]
    return [write_parquet(at / f"{EVIL}.parquet", made), "--by", "column:group"]


@pytest.mark.parametrize("source", [_member_tar, _class_folder, _groups])
@pytest.mark.parametrize("skips", mostly_slow(["0", "50%"], kept=["50%"]))
def test_names_in_sources_are_shown_with_escapes(
    source: Callable[[Path], Words], skips: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = source(tmp_path)
    how = ["--max-skip", skips, "-o", tmp_path / EVIL]
    split = ["split", *words, *([] if "--by" in words else ["--by", "source"]), *how]
    check_safe(run_program(capfd, *split), 0, 2, 3, 6)
    if (tmp_path / EVIL).exists():
        check_safe(run_program(capfd, "inspect", tmp_path / EVIL), 0)
        check_safe(run_program(capfd, "inspect", "--json", tmp_path / EVIL), 0)
        check_safe(run_program(capfd, "check", tmp_path / EVIL), 0)


@pytest.mark.parametrize("field", ["run", "method", "task", "stream", "split", "protocol"])
def test_names_in_rows_are_shown_with_escapes(
    field: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = [{**one, field: EVIL} for one in own_rows()]
    path = write_rows(tmp_path / EVIL, made)
    check_safe(run_program(capfd, "forgetting-report", path), 0, 3)
    check_safe(run_program(capfd, "forgetting-report", path, "-o", tmp_path / f"r{EVIL}"), 0, 3)
    write_rows(tmp_path / EVIL, [*made, {**made[0], "metrics": {"rm": 1.0}}])  # a contradiction
    check_safe(run_program(capfd, "forgetting-report", path), 3)


def test_a_line_of_json_on_stdout_is_the_same_json(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = f"{EVIL}\u00e9"
    console.emit(json.dumps({"name": name}, ensure_ascii=False))
    text = capfd.readouterr().out
    assert not RAW.search(text)
    assert "\u00e9" in text
    assert json.loads(text) == {"name": name}


def _in_pseudo_terminal(act: Callable[[int], None]) -> tuple[int, str]:
    """The exit code of an action in a terminal of its own, and all that the terminal got."""
    ours, theirs = os.openpty()

    def on_terminal(rank: int) -> None:
        for descriptor in (0, 1, 2):
            os.dup2(theirs, descriptor)
        os.close(ours)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        act(rank)

    pid = start_child(on_terminal, TERM="xterm", COLUMNS="100")
    os.close(theirs)
    seen = b""
    while True:
        try:
            data = os.read(ours, 1 << 16)
        except OSError:  # the child has closed the terminal
            break
        if not data:
            break
        seen += data
    os.close(ours)
    return exit_code_of(pid), seen.decode()


def _run(*words: object) -> Callable[[int], None]:
    def act(_: int) -> None:
        sys.argv = ["vlcpctl", *map(str, words)]
        cli.main()

    return act


def test_tables_on_a_terminal_have_escapes(tmp_path: Path) -> None:
    made = [{**one, "run": EVIL, "method": EVIL} for one in own_rows()]
    path = write_rows(tmp_path / "rows.ndjson", made)
    code, seen = _in_pseudo_terminal(_run("forgetting-report", path))
    assert code == 0, seen
    assert "\\x1b[31m\\x1b]0;t\\x07" in seen  # and rich's own codes are as they were
    for raw in ("\x1b]0;", "\x07", "\x9b", "\x1b[31m", "\u202e"):
        assert raw not in seen


def test_labels_of_progress_bars_have_escapes() -> None:
    def act(_: int) -> None:
        console.claim_stdout()
        with console.progress(f"{EVIL}[/bold]", 2, "images") as bar:
            bar.advance(2, f"{EVIL}[/bold]")
        console.release_stdout()

    code, seen = _in_pseudo_terminal(act)
    assert code == 0, seen
    for raw in ("\x1b]0;", "\x07", "\x9b", "\u202e"):
        assert raw not in seen


@pytest.mark.parametrize(
    "environment",
    mostly_slow([{"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}], kept=[{"LC_ALL": "C"}]),
)
def test_a_name_is_shown_in_any_locale(environment: dict[str, str], tmp_path: Path) -> None:
    pairs = write_parquet(tmp_path / "pairs.parquet", [{**r, "group": "\u732b"} for r in rows(4)])
    bare = {key: value for key, value in os.environ.items() if not key.startswith("LC_")}
    made, renamed = tmp_path / "\u732b", tmp_path / "caf\u00e9 \u732b"
    for words, code in (
        (["split", pairs, "--by", "column:group", "-o", made], 0),
        (["inspect", renamed], 0),
        (["check", f"{renamed}.x"], 3),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "vlcpctl", *map(str, words)],
            env={**bare, "LANG": "C.UTF-8", **environment},
            capture_output=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert b"Traceback" not in done.stderr
        if made.exists():
            made.rename(renamed)

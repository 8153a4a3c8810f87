"""`eval-retrieval --num-shards`: shards by several commands give the bytes of one process."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import write_checkpoint_manifest
from support.processes import exit_code_of, start_child
from support.program import ProgramResult, check_refused, run_program

from vlcpctl.data.tasks.task import open_stream
from vlcpctl.deletion.places import UNFINISHED, Artifact
from vlcpctl.evaluation import embedding
from vlcpctl.evaluation.evaluator import Session
from vlcpctl.evaluation.retrieval import cross_modal, multi_modal
from vlcpctl.files.manifest import is_artifact, read_manifest
from vlcpctl.files.outputs import Output, new_directory
from vlcpctl.files.parts import Parts
from vlcpctl.models import encoders
from vlcpctl.models.encoders import NewModelOptions
from vlcpctl.testing.tiny_stream import make_pair, make_stream

BATCHES_OF_5 = ("--batch-size", 5, "--device", "cpu", "--workers", 0)  # 13 images: 5, 5 and 3
GALLERIES = {
    "own": ("--save-embeddings", "emb", "--save-ranks", "ranks.parquet"),
    "merged": ("--gallery", "merged", "--save-embeddings", "emb"),
    "index": ("--gallery-checkpoint", "old", "--distractors", "more", "--distractors-by", "query"),
    "distractors": ("--gallery-checkpoint", "old", "--distractors", "more"),
    "multi-modal": ("--protocol", "multi-modal", "--gallery", "both"),
    "sigmoid": ("--gallery", "both"),
}
RUNS = {"multi-modal": "fusion", "sigmoid": "sigmoid"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream with two captions an image, other tasks, and checkpoints of both families."""
    root = tmp_path_factory.mktemp("shards")
    pair = partial(make_pair, captions=2, labels=4)
    make_stream(root / "stream", 2, 4, test=13, pair=pair)
    make_stream(root / "others", 1, 4, test=7, pair=lambda number: pair(number + 500))
    for name, model in (("run", "micro"), ("fusion", "albef-micro"), ("sigmoid", "micro")):
        for step in range(2):
            how = NewModelOptions(seed=step, is_sigmoid=name == "sigmoid" or None, batch_size=8)
            make_checkpoint(root / name / f"{step:02d}", root / "stream", model, step, how)
    make_checkpoint(root / "later" / "02", root / "stream", "micro", 2)
    return root


def make_checkpoint(
    directory: Path, stream: Path, model: str, step: int, how: NewModelOptions | None = None
) -> None:
    tasks = [task.content for task in open_stream(stream)][: step + 1]
    body = {"run": "seqf", "method": "seqf", "buffer": None, "seed": 0, "step": step}
    with new_directory(directory, is_artifact) as temporary:
        encoders.save(encoders.build(model, how or NewModelOptions(seed=step)), temporary)
        content = f"content {model} {step}"
        write_checkpoint_manifest(temporary, content, **body, tasks=tasks)


def words(place: Path, out: Path, kind: str = "own", *more: object) -> list[object]:
    """A line that evaluates both checkpoints; its other outputs are beside its rows."""
    run = place / RUNS.get(kind, "run")
    (other,) = (place / "others").glob("[0-9]*")
    paths = {"emb": out.parent / "emb", "ranks.parquet": out.parent / "ranks.parquet"}
    paths |= {"old": run / "00", "more": other}
    options = [paths.get(word, word) for word in GALLERIES[kind]]
    checkpoints = ["--checkpoint", run / "00", "--checkpoint", run / "01"]
    tasks = sorted((place / "stream").glob("[0-9]*"))
    line = ["eval-retrieval", *tasks, *checkpoints, "-o", out, *options, *BATCHES_OF_5]
    return [*line, "-q", *more]


def made(directory: Path) -> dict[str, Any]:
    """The bytes of all files below a directory, of manifests what does not depend on time."""
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        if path.name == "embeddings.json":
            manifest = read_manifest(path.parent, "embeddings")
            found[str(path)] = {name: manifest[name] for name in ("content", "digests", "inputs")}
        elif path.is_file():
            found[str(path)] = path.read_bytes()
    return {name.removeprefix(str(directory)): value for name, value in found.items()}


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("kind", GALLERIES)
def test_joined_shards_have_the_bytes_of_one_process(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str, count: int
) -> None:
    whole, joined = tmp_path / "whole" / "rows", tmp_path / "joined" / "rows"
    assert run_program(capfd, *words(place, whole, kind)).code == 0
    sharing = words(place, joined, kind, "--num-shards", count)
    for index in reversed(range(count)):
        ended = run_program(capfd, *sharing, "--shard-index", index)
        assert (ended.code, ended.out) == (0, "")
        assert [path.name for path in joined.parent.iterdir()] == [".rows.vlcpctl"]
    ended = run_program(capfd, *sharing)
    assert (ended.code, ended.out) == (0, f"{joined}\n")
    assert made(joined.parent) == made(whole.parent)
    again = run_program(capfd, *sharing, "--shard-index", 0)
    assert (again.code, again.out) == (0, f"{joined}\n")  # the rows are there already


def noted(monkeypatch: pytest.MonkeyPatch, asked: list[int]) -> None:
    """Add the number of queries of each search to `asked`."""

    def noting(real: Any) -> Any:
        def search(first: Any, *more: Any) -> Any:
            asked.append(len(more[-1] if isinstance(more[-1], range) else first))
            return real(first, *more)

        return search

    for name in ("ranks", "exact_ranks"):
        monkeypatch.setattr(cross_modal, name, noting(getattr(cross_modal, name)))
    monkeypatch.setattr(multi_modal, "hits", noting(multi_modal.hits))


@pytest.mark.parametrize(
    ("kind", "count"), [*((kind, 2) for kind in GALLERIES), ("own", 1), ("own", 5), ("merged", 5)]
)
def test_searches_by_shards_have_the_bytes_of_one_process(
    place: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    count: int,
) -> None:
    whole, joined = tmp_path / "whole" / "rows", tmp_path / "joined" / "rows"
    assert run_program(capfd, *words(place, whole, kind)).code == 0
    sharing = words(place, joined, kind, "--num-shards", count)
    for index in range(count):
        assert run_program(capfd, *sharing, "--shard-index", index).code == 0
    asked: list[int] = []
    noted(monkeypatch, asked)
    left_out = 3  # which the joining line searches
    for index in reversed([one for one in range(count) if one != left_out]):
        ended = run_program(
            capfd, *[word for word in sharing if word != "-q"], "--shard-index", index
        )
        assert (ended.code, ended.out) == (0, "")
        assert f"shard {index} of {count} has searched its share" in ended.err
        assert [path.name for path in joined.parent.iterdir()] == [".rows.vlcpctl"]
    before = sum(asked)
    assert run_program(capfd, *sharing).code == 0
    assert (sum(asked) > before) is (count > left_out)
    assert made(joined.parent) == made(whole.parent)


def test_a_joining_line_runs_no_model(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = words(place, tmp_path / "rows", "own", "--num-shards", 2)
    for index in range(2):
        assert run_program(capfd, *line, "--shard-index", index).code == 0
    monkeypatch.delattr(embedding, "image_vectors")
    monkeypatch.delattr(embedding, "text_vectors")
    assert run_program(capfd, *line).code == 0


def test_a_shard_that_was_killed_computes_only_what_it_lacks(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it embeds and while it searches; each time three more parts are there."""
    whole, rows = tmp_path / "whole" / "rows", tmp_path / "cut" / "rows"
    assert run_program(capfd, *words(place, whole)).code == 0
    line = words(place, rows, "own", "--num-shards", 2)
    keep, kept = Parts.keep, list[str]()

    def killed_after(count: int) -> None:
        def dying(self: Parts, name: str, *given: Any) -> None:
            keep(self, name, *given)
            kept.append(name)
            if len(kept) == count:
                os.kill(os.getpid(), signal.SIGKILL)

        def act(_: int) -> None:
            monkeypatch.setattr(Parts, "keep", dying)
            run_program(capfd, *line, "--shard-index", 1)

        assert exit_code_of(start_child(act)) == -signal.SIGKILL

    def then_keeps() -> int:
        before = len(Parts(rows).listed())
        assert run_program(capfd, *line, "--shard-index", 1).code == 0
        return len(Parts(rows).listed()) - before

    killed_after(3)
    assert run_program(capfd, *line, "--shard-index", 0).code == 0
    check_refused(run_program(capfd, *line), "eval-retrieval", 3, "shard 1 of 2", "--shard-index 1")
    # Images and texts of two tasks by two checkpoints, the end; both directions of the same.
    assert then_keeps() == 8 - 3 + 1
    killed_after(3)
    assert then_keeps() == 8 - 3
    assert run_program(capfd, *line).code == 0
    assert made(rows.parent) == made(whole.parent)


def test_a_shard_says_why_it_cannot_search_yet(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A line that is started again, as after the failure of another, has ended well."""
    rows = tmp_path / "rows"
    line = [word for word in words(place, rows, "own", "--num-shards", 2) if word != "-q"]
    first = run_program(capfd, *line, "--shard-index", 0)
    assert first.err.splitlines()[-1] == f"{rows}: shard 0 of 2 is complete"
    again = run_program(capfd, *line, "--shard-index", 0)
    said = f"nothing to search yet: shard 1 of 2 of {rows} is missing; first run this line with"
    assert (again.code, f"{said} --shard-index 1" in again.err) == (0, True)
    assert run_program(capfd, *line, "--shard-index", 1).code == 0
    again = run_program(capfd, *line, "--shard-index", 0)
    assert again.err.splitlines()[-1] == f"{rows}: shard 0 of 2 has searched its share"


def test_what_was_changed_is_computed_again(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole, rows = tmp_path / "whole" / "rows", tmp_path / "joined" / "rows"
    assert run_program(capfd, *words(place, whole)).code == 0
    for index in (0, 1, 1):
        assert shard(place, rows, capfd, index).code == 0
    join = words(place, rows, "own", "--num-shards", 2)
    for kind in ("npz", "npy"):
        file = max(Output(rows).partial.glob(f"*.{kind}"))
        data = file.read_bytes()
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    ended = run_program(capfd, *join)  # it searches what is missing, but embeds nothing
    assert (ended.code, rows.exists()) == (3, False)
    assert "--shard-index 1" in ended.err
    for index in range(2):
        assert shard(place, rows, capfd, index).code == 0
    assert run_program(capfd, *join).code == 0
    assert made(rows.parent) == made(whole.parent)


def shard(
    place: Path, out: Path, capfd: pytest.CaptureFixture[str], index: int, *more: object
) -> ProgramResult:
    line = words(place, out, "own", "--num-shards", 2, "--shard-index", index, *more)
    return run_program(capfd, *line)


def test_a_joining_line_names_the_line_of_a_missing_shard(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "rows"
    join = words(place, rows, "own", "--num-shards", 2)
    said = f"shard 0 of 2 of {rows} is missing, and 1 more; first run this line with --shard-index"
    check_refused(run_program(capfd, *join), "eval-retrieval", 3, f"{said} 0")
    assert list(tmp_path.iterdir()) == []
    assert shard(place, rows, capfd, 0).code == 0
    monkeypatch.delattr(Session, "encoder")  # refused before a model is loaded
    said = f"shard 1 of 2 of {rows} is missing; first run this line with --shard-index 1"
    check_refused(run_program(capfd, *join), "eval-retrieval", 3, said)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (("--batch-size", 4), "numeric.batch_size was 5 and is now 4"),
        (("--threads", 2), "numeric.threads was 1 and is now 2"),
        (("--limit", 9), "limit was not set and is now 9"),
        (("--split", "train"), "split was 'test' and is now 'train'"),
        (("--checkpoint", "later/02"), "checkpoints was ["),
        (("--distractors", "others"), "distractors was [] and is now ["),
        (("--num-shards", 3), "numeric.shards was 2 and is now 3"),
    ],
)
def test_shards_of_something_else_are_refused(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], other: Any, said: str
) -> None:
    rows, (name, value) = tmp_path / "rows", other
    if name == "--checkpoint":
        value = place / value
    if name == "--distractors":
        (value,) = (place / value).glob("[0-9]*")
    usual = ("--threads", 1) if name != "--threads" else ()
    for index in range(2):
        assert shard(place, rows, capfd, index, "--threads", 1).code == 0
    line = words(place, rows, "own", "--num-shards", 2, name, value, *usual)
    for more in ((), ("--shard-index", 1)):
        refused = run_program(capfd, *line, *more)
        check_refused(refused, "eval-retrieval", 4, "an unfinished run of a different", said)
    assert not rows.exists()


def test_a_line_without_shards_does_not_silently_drop_them(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows"
    assert shard(place, rows, capfd, 0).code == 0
    refused = run_program(capfd, *words(place, rows))
    check_refused(refused, "eval-retrieval", 4, "--num-shards", "--force")
    assert run_program(capfd, *words(place, rows, "own", "--force")).code == 0
    assert not Output(rows).hidden.exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--shard-index", 0), "--shard-index has no effect without --num-shards"),
        (("--num-shards", 2, "--shard-index", 2), "with --num-shards 2 the last is 1"),
        (("--num-shards", 2, "--force"), "--force would remove the shards of other commands"),
        (("--num-shards", 2, "--out", "-"), "give the path"),
    ],
)
def test_options_of_shards_that_do_not_fit_are_refused(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], more: Any, said: str
) -> None:
    line = words(place, tmp_path / "rows", "own", *more)
    check_refused(run_program(capfd, *line), "eval-retrieval", 2, said)


def test_forget_finds_shards_of_its_data(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows"
    line = words(place, rows, "distractors", "--num-shards", 2, "--shard-index", 0)
    assert run_program(capfd, *line).code == 0
    partial_ = Output(rows).partial
    (distractor,) = (task.content for task in open_stream(place / "others"))
    assert distractor in Artifact(partial_, UNFINISHED, partial_).data

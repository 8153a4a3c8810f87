"""`vlcpctl interpolate`: averages of two checkpoints, alone and as a sweep."""

from __future__ import annotations

import json
from pathlib import Path

import open_clip
import pytest
import torch
from safetensors.torch import load_file
from support.collected import collect
from support.program import MICRO, TINY, check_refused, make_inputs, run_program

from vlcpctl.files.manifest import read_manifest
from vlcpctl.files.rows import read_rows
from vlcpctl.inspection.check import check

WEIGHTS = "open_clip_model.safetensors"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints `plain` of the first task, and `later` of the second one after it."""
    from support.commands import train_step

    root = make_inputs(tmp_path_factory.mktemp("inputs"))
    how = {"preset": "tiny", "batch_size": 4, "epochs": 2, "lr": 1e-2, "quiet": True}
    task = root / "stream" / "01-part-1"
    train_step([task], root / "later", "ewc", previous=root / "plain", fresh_state=True, **how)  # type: ignore[arg-type]
    return root


def average(
    capfd: pytest.CaptureFixture[str], inputs: Path, out: Path, alpha: object, *more: object
) -> list[str]:
    words = (inputs / "plain", inputs / "later", "--alpha", alpha, "-o", out, *more)
    ended = run_program(capfd, "interpolate", *words)
    assert ended.code == 0, ended.err
    return ended.out.splitlines()


def test_weights_lie_between_and_the_ends_are_the_ends(
    inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert average(capfd, inputs, tmp_path / "sweep", "0,0.3,1") == [
        str(tmp_path / "sweep" / f"alpha-{share}") for share in ("0", "0.3", "1")
    ]
    first, second = (load_file(inputs / name / WEIGHTS) for name in ("plain", "later"))
    mixed = {name: 0.7 * first[name] + 0.3 * second[name] for name in first}
    for share, expected in (("0", first), ("0.3", mixed), ("1", second)):
        found = load_file(tmp_path / "sweep" / f"alpha-{share}" / WEIGHTS)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)
    for share, name in (("0", "plain"), ("1", "later")):
        end = (tmp_path / "sweep" / f"alpha-{share}" / WEIGHTS).read_bytes()
        assert end == (inputs / name / WEIGHTS).read_bytes()


def test_one_alpha_is_the_checkpoint_itself_and_the_same_in_a_sweep(
    inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert average(capfd, inputs, tmp_path / "one", 0.5) == [str(tmp_path / "one")]
    average(capfd, inputs, tmp_path / "sweep", "0.5,0.25")
    contents = [
        read_manifest(path, "checkpoint")["content"]
        for path in (tmp_path / "one", tmp_path / "sweep" / "alpha-0.5")
    ]
    assert contents[0] == contents[1]


def test_the_result_is_a_whole_checkpoint_that_has_seen_both_tasks(
    inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "average"
    average(capfd, inputs, out, 0.5)
    first, second, found = (
        read_manifest(path, "checkpoint") for path in (inputs / "plain", inputs / "later", out)
    )
    assert list(check(out, deep=True)) == []
    assert found["parents"] == [first["content"], second["content"]]
    assert found["tasks"] == second["tasks"]
    assert found["task_names"] == ["part 0", "part 1"]
    assert (found["step"], found["alpha"]) == (1, 0.5)
    assert found.keys() >= (second.keys() - {"parent", "peak_memory", "warnings"})
    slot = Path("method") / "ewc" / "fisher.safetensors"
    assert (out / slot).read_bytes() == (inputs / "later" / slot).read_bytes()
    shown = run_program(capfd, "inspect", out)
    assert str(inputs / "plain") in shown.out or first["content"] in shown.out


def test_open_clip_loads_it(
    inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    average(capfd, inputs, tmp_path / "average", 0.5)
    model = open_clip.create_model(f"local-dir:{tmp_path / 'average'}")
    ours = load_file(tmp_path / "average" / WEIGHTS)
    assert all(torch.equal(value, ours[name]) for name, value in model.state_dict().items())


def test_it_can_be_trained_on(
    inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    average(capfd, inputs, tmp_path / "average", 0.5)
    words = ("--method", "ewc", "--preset", "tiny", "--batch-size", 4, "--epochs", 1, "-q")
    task, out = inputs / "stream" / "02-part-2", tmp_path / "on"
    ended = run_program(
        capfd, "train-step", task, "--previous", tmp_path / "average", "-o", out, *words
    )
    assert ended.code == 0, ended.err
    assert len(read_manifest(out, "checkpoint")["tasks"]) == 3


def test_rows_carry_alpha_and_the_report_has_a_run_for_each(
    inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shares = average(capfd, inputs, tmp_path / "sweep", "0,0.5,1", "--run", "wise-ft", "-q")
    tasks = [inputs / "stream" / name for name in ("00-part-0", "01-part-1")]
    checkpoints = [word for path in shares for word in ("--checkpoint", path)]
    rows = tmp_path / "rows.ndjson"
    ended = run_program(capfd, "eval-retrieval", *tasks, *checkpoints, "-o", rows, "-q")
    assert ended.code == 0, ended.err
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [row["alpha"] for row in found] == [0, 0, 0.5, 0.5, 1, 1]
    assert {row["run"] for row in found} == {"wise-ft"}
    (track,) = collect(read_rows([str(rows)]))
    assert [run.name for run in track.runs] == [
        f"wise-ft alpha={share}" for share in ("0", "0.5", "1")
    ]
    report = run_program(capfd, "forgetting-report", rows)
    assert report.code == 0
    assert "wise-ft alpha=0.5" in report.out


def test_shares_that_differ_in_the_seventh_digit_stay_apart(
    inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shares = ("0.1234567", "0.12345671")
    made = average(capfd, inputs, tmp_path / "sweep", ",".join(shares))
    assert made == [str(tmp_path / "sweep" / f"alpha-{share}") for share in shares]
    checkpoints = [word for path in made for word in ("--checkpoint", path)]
    task, rows = inputs / "stream" / "00-part-0", tmp_path / "rows.ndjson"
    assert run_program(capfd, "eval-retrieval", task, *checkpoints, "-o", rows, "-q").code == 0
    found = [row.run for row in read_rows([str(rows)])]
    assert found == [f"interpolate alpha={share}" for share in shares]


def test_angles_between_shares_are_comparisons_of_their_own(
    inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    zero, quarter, one = average(capfd, inputs, tmp_path / "sweep", "0,0.25,1")
    task, files = inputs / "stream" / "00-part-0", []
    how = ("--split", "train", "-q", "-o")
    for number, before in enumerate((zero, quarter)):
        files.append(tmp_path / f"rows-{number}")
        pair = ("--checkpoint", before, "--checkpoint", one)
        assert run_program(capfd, "spatial-report", task, *pair, *how, files[-1]).code == 0
    report = run_program(capfd, "forgetting-report", *files)
    assert report.code == 0, report.err
    for share in ("0", "0.25"):
        assert f"interpolate alpha={share} 1 -> 1" in report.out
    three = [word for path in (zero, quarter, one) for word in ("--checkpoint", path)]
    ended = run_program(capfd, "spatial-report", task, *three, "--split", "train")
    check_refused(ended, "spatial-report", 2, zero, "only checkpoint of run 'interpolate alpha=0'")


def test_it_is_made_once_and_another_one_there_is_an_error(
    inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "average"
    average(capfd, inputs, out, 0.5)
    made = read_manifest(out, "checkpoint")["made_by"]["time"]
    average(capfd, inputs, out, 0.5)
    assert read_manifest(out, "checkpoint")["made_by"]["time"] == made
    words = (inputs / "plain", inputs / "later", "--alpha", 0.25, "-o", out)
    check_refused(run_program(capfd, "interpolate", *words), "interpolate", 4, "alpha was 0.5")
    (shown,) = average(capfd, inputs, out, 0.25, "--force", "--json")
    assert json.loads(shown)["alpha"] == 0.25


def test_nothing_is_written_by_a_dry_run(
    inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert len(average(capfd, inputs, tmp_path / "sweep", "0,1", "--dry-run")) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("alpha", ["1.5", "-0.1", "half", "0,,1", "nan", "0.5,0.50"])
def test_other_shares_are_refused(
    inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], alpha: str
) -> None:
    words = (inputs / "plain", inputs / "later", f"--alpha={alpha}", "-o", tmp_path / "out")
    check_refused(run_program(capfd, "interpolate", *words), "interpolate", 2, f"--alpha '{alpha}'")


def test_another_model_is_refused(
    inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    task = inputs / "stream" / "00-part-0"
    words = (*TINY, *MICRO, "--text-length", 9, "-o", other)
    assert run_program(capfd, "train-step", task, *words).code == 0
    ended = run_program(capfd, "interpolate", inputs / "plain", other, "-o", tmp_path / "out")
    check_refused(ended, "interpolate", 5, other, "is a different model than", "config")


def test_a_fixed_and_a_learned_temperature_are_not_mixed(
    inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kinds = {}
    for kind in ("fixed", "learn"):
        kinds[kind] = tmp_path / kind
        words = (*TINY, *MICRO, "--temperature", f"{kind}:0.07", "-o", kinds[kind])
        task = inputs / "stream" / "00-part-0"
        assert run_program(capfd, "train-step", task, *words).code == 0
    ended = run_program(capfd, "interpolate", *kinds.values(), "-o", tmp_path / "out")
    said = (f"{kinds['fixed']} has a fixed temperature and {kinds['learn']} a learned one",)
    check_refused(ended, "interpolate", 5, *said, "--temperature")


def test_what_is_no_checkpoint_is_named(
    inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task = inputs / "stream" / "00-part-0"
    ended = run_program(capfd, "interpolate", inputs / "plain", task, "-o", tmp_path / "out")
    check_refused(ended, "interpolate", 3, task, "is not a checkpoint")


def test_fusion_models_are_averaged_too(
    inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    how = ("--preset", "tiny", "--batch-size", 4, "--epochs", 1, "--method", "seqf", "-q")
    tasks = [inputs / "stream" / name for name in ("00-part-0", "01-part-1")]
    new = ("--model", "albef-micro", "-o", first)
    for words in ((tasks[0], *new), (tasks[1], "--previous", first, "-o", second)):
        assert run_program(capfd, "train-step", *words, *how).code == 0
    ended = run_program(capfd, "interpolate", first, second, "-o", tmp_path / "average")
    assert ended.code == 0, ended.err
    one, other, found = (
        load_file(path / "model.safetensors") for path in (first, second, tmp_path / "average")
    )
    mixed = {name: (one[name] + other[name]) / 2 for name in one}
    torch.testing.assert_close(found, mixed, rtol=1e-5, atol=1e-7)
    check_refused(
        run_program(capfd, "interpolate", first, inputs / "plain", "-o", tmp_path / "out"),
        *("interpolate", 5, "is a different model than", "family"),
    )


def test_a_chain_from_an_imported_model_goes_on_from_an_average_with_it(
    inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """WiSE-FT against the model in production: it stays the start of every row."""
    from vlcpctl.testing.tiny_stream import make_task

    def run(*words: object) -> None:
        ended = run_program(capfd, *words, "-q")
        assert ended.code == 0, ended.err

    weeks = [
        make_task(
            tmp_path / f"week-{week}" / "00",
            name=f"week {week}",
            stream=f"the stream of week {week}",
            splits={"train": 12, "test": 4},
            first=500 + 100 * week,
        )
        for week in range(2)
    ]
    start, first, mean, second = (tmp_path / name for name in ("start", "w0", "mean", "w1"))
    run("import-checkpoint", f"open_clip:micro,{inputs / 'plain' / WEIGHTS}", "-o", start)
    how = ("--method", "lwf", "--preset", "update", "--run", "production", "--device", "cpu")
    run("train-step", weeks[0], "--previous", start, "-o", first, *how)
    run("interpolate", start, first, "-o", mean, "--run", "production")
    run("train-step", weeks[1], "--previous", mean, "-o", second, *how)
    content = read_manifest(start, "checkpoint")["content"]
    made = [read_manifest(path, "checkpoint") for path in (first, mean, second)]
    assert [one["start"] for one in made] == [content] * 3
    assert [(one["step"], one["task_steps"]) for one in made] == [(0, [0]), (0, [0]), (1, [0, 1])]
    assert [one["model"]["name"] for one in made] == ["micro"] * 3
    given = [word for path in (start, first, mean, second) for word in ("--checkpoint", path)]
    run("eval-retrieval", *weeks, *given, "-o", tmp_path / "rows")
    found = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert {row["start"] for row in found if row["run"] == "production"} == {content}
    report = run_program(capfd, "forgetting-report", tmp_path / "rows")
    assert report.code == 0, report.err
    assert "production alpha=0.5" in report.out

"""`vlcpctl merge`: checkpoints by each rule, alone and as a sweep, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.eval_rows import rows_in
from support.production import SETTINGS, write_week
from support.program import MICRO, TINY, check_refused, run_program
from torch import Tensor, nn

from vlcpctl import Task, load_model
from vlcpctl.checkpoints.merge_rules import TABLE, Average, Ema, MergeRule, ModelStock, Ties
from vlcpctl.deletion.places import Artifact
from vlcpctl.files.manifest import read_manifest
from vlcpctl.inspection.check import check
from vlcpctl.models.configuration import PACKAGED
from vlcpctl.testing.tiny_stream import make_task

WEIGHTS = "open_clip_model.safetensors"
Run = Callable[..., list[str]]
BASED = [name for name, rule in TABLE.items() if rule.needs_base]
MAGMAX = """
from dataclasses import dataclass
from typing import ClassVar

import torch

from vlcpctl.checkpoints.merge_rules import MergeRule
from vlcpctl.core.method import hyper


@dataclass(frozen=True, kw_only=True)
class MagMax(MergeRule):
    name: ClassVar[str] = "magmax"
    needs_base: ClassVar[bool] = True

    scale: float = hyper(0.5, doc="Factor of the changes.", origin="section 4")

    def merged(self, models, base):
        merged = {}
        for name, start in base.items():
            changes = torch.stack([model[name] - start for model in models])
            largest = changes.abs().argmax(0, keepdim=True)
            merged[name] = start + self.scale * changes.gather(0, largest)[0]
        return merged
"""
BODY = MAGMAX[MAGMAX.index("        merged = {}") :]


@pytest.fixture(scope="module")
def inputs(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints `plain` of the first task, and `one` and `other` of one more task each."""
    from support.commands import train_step

    root = shutil.copytree(place, tmp_path_factory.mktemp("inputs"), dirs_exist_ok=True)
    how = {"preset": "tiny", "batch_size": 4, "epochs": 2, "lr": 1e-2, "quiet": True}
    for name, task in (("one", "01-part-1"), ("other", "02-part-2")):
        given = {"previous": root / "plain", "fresh_state": True, **how}
        train_step([root / "stream" / task], root / name, "ewc", **given)  # type: ignore[arg-type]
    return root


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a line that must end well, and gives what it prints."""

    def run(*words: object) -> list[str]:
        ended = run_program(capfd, *words)
        assert ended.code == 0, ended.err
        return ended.out.splitlines()

    return run


@pytest.fixture
def merge(inputs: Path, run: Run) -> Run:
    """Merges `one` and `other` by a rule, with the base that it needs."""

    def merge(out: Path, rule: str, *more: object) -> list[str]:
        base = ("--base", inputs / "plain") if rule in BASED else ()
        pair = (inputs / "one", inputs / "other")
        return run("merge", *pair, "-o", out, "--rule", rule, *more, *base)

    return merge


@pytest.mark.parametrize(
    ("rule", "more"),
    [
        (Average(), ()),
        (Average(weights=(1.0, 3.0)), ("--weights", "1,3")),
        (Ema(), ()),
        (Ties(), ()),
        (Ties(keep=1.0, scale=0.5), ("--set", "keep=1", "--set", "scale=0.5")),
        (ModelStock(), ()),
    ],
    ids=repr,
)
def test_each_rule_merges_all_weights_of_the_files(
    inputs: Path, tmp_path: Path, merge: Run, rule: MergeRule, more: tuple[str, ...]
) -> None:
    assert merge(tmp_path / "out", rule.name, *more) == [str(tmp_path / "out")]
    one, other, base, found = (
        load_file(path / WEIGHTS)
        for path in (inputs / "one", inputs / "other", inputs / "plain", tmp_path / "out")
    )
    expected = rule.merged([one, other], base)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert not all(torch.equal(found[name], other[name]) for name in expected)


def test_the_result_is_a_whole_checkpoint_with_its_lineage(
    inputs: Path, tmp_path: Path, merge: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    merge(out, "ties", "--set", "keep=0.5")
    one, other, base, found = (
        read_manifest(path, "checkpoint")
        for path in (inputs / "one", inputs / "other", inputs / "plain", out)
    )
    assert list(check(out, deep=True)) == []
    assert found["parents"] == [one["content"], other["content"]]
    assert found["identity"]["base"] == base["content"]
    assert found["identity"]["rule"] == {"keep": 0.5, "scale": 1.0}
    assert found["task_names"] == ["part 0", "part 1", "part 2"]
    assert (found["step"], found["method"], found["alpha"]) == (2, "merge-ties", None)
    slot = Path("method") / "ewc" / "fisher.safetensors"
    assert (out / slot).read_bytes() == (inputs / "other" / slot).read_bytes()
    depends = Artifact(out, "checkpoint", out)
    assert depends.models >= {one["content"], other["content"], base["content"]}
    shown = run_program(capfd, "inspect", out).out
    assert "method merge-ties, parameters keep=0.5 scale=1.0, step 2" in shown
    assert all(made["content"] in shown for made in (one, other, base))


def test_it_is_evaluated_and_trained_like_any_other(
    inputs: Path, tmp_path: Path, merge: Run, run: Run
) -> None:
    merged, rows = tmp_path / "merged", tmp_path / "rows.ndjson"
    merge(merged, "ties")
    made = read_manifest(merged, "checkpoint")
    tasks = sorted((inputs / "stream").glob("0*"))
    run("eval-retrieval", *tasks, "--checkpoint", merged, "-o", rows)
    found = rows_in(rows)
    assert {(row["run"], row["method"]) for row in found} == {("merge-ties", "merge-ties")}
    assert [row["task_step"] for row in found] == [0, 1, 2]
    assert found[0]["config"]["values"]["rule"] == made["identity"]["rule"]
    how = ("--method", "ewc", "--preset", "tiny", "--batch-size", 4, "--epochs", 1)
    later = make_task(tmp_path / "later", 12, first=900)
    run("train-step", later, "--previous", merged, "-o", tmp_path / "on", *how)
    trained = read_manifest(tmp_path / "on", "checkpoint")
    assert trained["parent"] == made["content"]
    assert "run 'merge-ties', not 'ewc'" in trained["warnings"][0]  # and not of another method


@pytest.mark.slow
def test_update_starts_from_it(tmp_path: Path, merge: Run, run: Run) -> None:
    merge(tmp_path / "merged", "ties")
    week, state = write_week(tmp_path / "week.parquet", 1), tmp_path / "prod"
    run("update", week, "--state", state, "--init", tmp_path / "merged", *SETTINGS)
    week = state / "current"
    made = read_manifest(week, "checkpoint")
    assert made["parent"] == read_manifest(tmp_path / "merged", "checkpoint")["content"]
    more = ("--rule", "ties", "--base", tmp_path / "merged")
    run("merge", week, "-o", tmp_path / "on", *more)
    assert read_manifest(tmp_path / "on", "checkpoint")["start"] == made["start"]


def test_a_sweep_is_a_run_for_each_combination(tmp_path: Path, merge: Run) -> None:
    words = ("--set", "keep=0.2,1", "--set", "scale=0.5,1", "--run", "mine", "--json")
    assert len(merge(tmp_path / "sweep", "ties", *words, "--dry-run")) == 4
    assert list(tmp_path.iterdir()) == []
    made = [json.loads(one) for one in merge(tmp_path / "sweep", "ties", *words)]
    values = [(keep, scale) for keep in ("0.2", "1") for scale in ("0.5", "1")]
    assert [(Path(one["path"]).name, one["run"]) for one in made] == [
        (f"keep-{keep}_scale-{scale}", f"mine keep={keep} scale={scale}") for keep, scale in values
    ]
    one = merge(tmp_path / "one", "ties", "--set", "keep=1", "--set", "scale=0.5")
    weights = [Path(path, WEIGHTS).read_bytes() for path in (*one, made[2]["path"])]
    assert weights[0] == weights[1]


def test_an_average_of_two_lies_between_them_and_its_ends_are_theirs(
    inputs: Path, tmp_path: Path, merge: Run
) -> None:
    words = ("--weights", "1,0", "--weights", "3,1", "--weights", "0,1")
    made = merge(tmp_path / "w", "average", *words)
    assert [Path(one).name for one in made] == ["weights-1,0", "weights-3,1", "weights-0,1"]
    first, second, found = (
        load_file(place / WEIGHTS) for place in (inputs / "one", inputs / "other", Path(made[1]))
    )
    for name, tensor in first.items():
        torch.testing.assert_close(found[name], 0.75 * tensor + 0.25 * second[name])
    for path, end in ((made[0], "one"), (made[2], "other")):
        assert Path(path, WEIGHTS).read_bytes() == (inputs / end / WEIGHTS).read_bytes()


def test_fusion_models_are_averaged_too(inputs: Path, tmp_path: Path, run: Run) -> None:
    how = ("--preset", "tiny", "--batch-size", 4, "--epochs", 1, "--method", "seqf", "-q")
    for name in ("first", "second"):
        words = (inputs / "stream" / "00-part-0", "--model", "albef-micro", "-o", tmp_path / name)
        run("train-step", *words, "--run", name, *how)
        how = (*how, "--seed", 1)
    places = [tmp_path / name for name in ("first", "second", "mean")]
    run("merge", *places[:2], "-o", places[2])
    one, other, found = (load_file(path / "model.safetensors") for path in places)
    mixed = {name: (one[name] + other[name]) / 2 for name in one}
    torch.testing.assert_close(found, mixed, rtol=1e-5, atol=1e-7)


def test_a_chain_from_an_imported_model_goes_on_from_an_average_with_it(
    inputs: Path, tmp_path: Path, run: Run
) -> None:
    """WiSE-FT against the model in production: it stays the start of every row."""

    splits = {"train": 12, "test": 4}
    weeks = [
        make_task(tmp_path / str(n), name=f"week {n}", stream=f"{n}", splits=splits, first=500 * n)
        for n in (1, 2)
    ]
    start, first, mean, second = (tmp_path / name for name in ("start", "w0", "mean", "w1"))
    run("import-checkpoint", f"open_clip:micro,{inputs / 'plain' / WEIGHTS}", "-o", start)
    how = ("--method", "lwf", "--preset", "update", "--run", "production", "--device", "cpu")
    run("train-step", weeks[0], "--previous", start, "-o", first, *how)
    run("merge", start, first, "-o", mean, "--run", "production")
    run("train-step", weeks[1], "--previous", mean, "-o", second, *how)
    content = read_manifest(start, "checkpoint")["content"]
    made = [read_manifest(path, "checkpoint") for path in (first, mean, second)]
    assert [one["start"] for one in made] == [content] * 3
    assert [(one["step"], one["task_steps"]) for one in made] == [(0, [0]), (0, [0]), (1, [0, 1])]
    assert [one["model"]["name"] for one in made] == ["micro"] * 3


@pytest.fixture(scope="module")
def resnets(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints `first` and `second` of two seeds of a model with batch norms."""
    from support.commands import train_step

    root = tmp_path_factory.mktemp("resnets")
    config = json.loads((PACKAGED / "micro.json").read_text())
    config["vision_cfg"] = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "head_width": 8}
    config["text_cfg"]["hf_tokenizer_name"] = str(PACKAGED / "tiny-tokenizer")
    (root / "resnet.json").write_text(json.dumps(config))
    how = {"preset": "tiny", "batch_size": 4, "epochs": 1, "quiet": True}
    for seed, name in enumerate(("first", "second")):
        given: dict[str, Any] = {"model": str(root / "resnet.json"), "seed": seed, **how}
        train_step([inputs / "stream" / "00-part-0"], root / name, "seqf", **given)
    return root


def test_statistics_of_batch_norms_are_not_merged(
    resnets: Path, tmp_path: Path, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = resnets / "first", resnets / "second"
    ended = run_program(capfd, "merge", first, second, "-o", tmp_path / "out")
    check_refused(ended, "merge", 5, second, "--batch-norm-from TASK")
    (tmp_path / "checks.py").write_text(
        MAGMAX.replace("needs_base: ClassVar[bool] = True", "least: ClassVar[int] = 2").replace(
            BODY,
            "        assert not any('running' in name for name in models[0])\n"
            "        return {name: tensor.clone() for name, tensor in models[0].items()}\n",
        )
    )
    file = ("--rule", "magmax", "--rule-file", tmp_path / "checks.py")
    run("merge", first, first, *file, "-o", tmp_path / "same")
    assert (tmp_path / "same" / WEIGHTS).read_bytes() == (first / WEIGHTS).read_bytes()


def naive_statistics(checkpoint: Path, images: Tensor) -> dict[str, Tensor]:
    """The mean and the unbiased variance (C,) of what each batch norm gets of one batch.

    All of them normalise by the batch. `images` are (N, 3, H, W).
    """
    model, _, _ = load_model(checkpoint)
    found: dict[str, Tensor] = {}

    def normalised(name: str, given: Tensor, norm: nn.BatchNorm2d) -> Tensor:
        channels = given.transpose(0, 1).flatten(1)
        mean, centred = channels.mean(1), channels - channels.mean(1, keepdim=True)
        squares = centred.pow(2).sum(1)
        found[f"{name}.running_mean"] = mean
        found[f"{name}.running_var"] = squares / (channels.shape[1] - 1)
        deviation = (squares / channels.shape[1] + norm.eps).sqrt()
        scaled = centred / deviation[:, None] * norm.weight[:, None] + norm.bias[:, None]
        return scaled.view(given.transpose(0, 1).shape).transpose(0, 1)

    for name, part in model.double().named_modules():
        if isinstance(part, nn.BatchNorm2d):
            part.forward = partial(normalised, name, norm=part)  # type: ignore[method-assign]
    with torch.no_grad():
        model.encode_image(images)  # type: ignore[operator]
    return found


def test_statistics_of_batch_norms_are_those_of_a_naive_pass(
    inputs: Path, resnets: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over two batches of five images and four, those with the lowest keys."""
    monkeypatch.setattr("vlcpctl.checkpoints.batch_norms._MOST", 9)
    monkeypatch.setattr("vlcpctl.checkpoints.batch_norms._BATCH", 5)
    first, second = resnets / "first", resnets / "second"
    task, out = inputs / "stream" / "01-part-1", tmp_path / "out"
    run("merge", first, second, "--batch-norm-from", task, "-o", out)
    content = read_manifest(task, "task")["content"]
    assert read_manifest(out, "checkpoint")["identity"]["batch_norm_from"] == content
    assert content in Artifact(out, "checkpoint", out).data
    pairs = list(Task(task).pairs("train"))
    lowest = sorted(str(pair.columns["key"]) for pair in pairs)[:9]
    pairs = [pair for pair in pairs if pair.columns["key"] in lowest]
    _, transform, _ = load_model(out)
    images = torch.stack([transform(pair.image) for pair in pairs]).double()
    parts = [naive_statistics(out, part) for part in (images[:5], images[5:])]
    found = load_file(out / WEIGHTS)
    assert parts[0].keys() == {name for name in found if "running_" in name}
    for name, one in parts[0].items():
        wanted = (one + parts[1][name]) / 2
        torch.testing.assert_close(found[name].double(), wanted, rtol=1e-4, atol=1e-6)
    expected = Average().merged([load_file(path / WEIGHTS) for path in (first, second)], {})
    merged = [name for name in found if "running_" not in name and "tracked" not in name]
    assert all(torch.equal(found[name], expected[name]) for name in merged)


def test_a_rule_of_a_file_merges_and_is_recorded(
    inputs: Path, tmp_path: Path, merge: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "magmax.py", tmp_path / "out"
    file.write_text(MAGMAX)
    more = ("--rule-file", file, "--base", inputs / "plain", "--set", "scale=0.25,1")
    made = [Path(path) for path in merge(out, "magmax", *more)]
    assert [path.name for path in made] == ["scale-0.25", "scale-1"]
    one, other, base, found = (
        load_file(path / WEIGHTS)
        for path in (inputs / "one", inputs / "other", inputs / "plain", made[1])
    )
    for name, start in base.items():
        first, second = one[name] - start, other[name] - start
        change = torch.where(second.abs() > first.abs(), second, first)
        torch.testing.assert_close(found[name], start + change)
    code = read_manifest(made[1], "checkpoint")["identity"]["method_code"]
    assert code["merge-magmax"]["file"].startswith("sha256:")
    assert "code of method merge-magmax: sha256:" in run_program(capfd, "inspect", made[1]).out
    file.write_text(f"{MAGMAX}\n# changed")
    words = (inputs / "one", inputs / "other", "--rule", "magmax", *more[:4], "--set", "scale=1")
    again = run_program(capfd, "merge", *words, "-o", made[1])
    check_refused(again, "merge", 4, "method_code.merge-magmax.file")


@pytest.mark.parametrize(
    ("old", "new", "exit_code", "said"),
    [
        (MAGMAX, "import", 3, "line 1: SyntaxError"),
        ("gather", "gathr", 3, "magmax.py:23: MagMax.merged: AttributeError: "),
        ('"magmax"', '"ties"', 3, "'ties' is built in"),
        ('"magmax"', '"other"', 2, "'magmax'"),
        ("@dataclass", "# @dataclass", 3, "dataclass"),
        ("return merged", "return 1", 3, "by name"),
        ("return merged", "return {}", 3, "lacks the tensor"),
        ("return merged", "return {n: t.long() for n, t in merged.items()}", 3, "torch.int64"),
        ("largest)[0]", "largest)", 3, "(1, 8)"),
        (BODY, "        return {n: t.zero_() for n, t in base.items()}\n", 3, "copies"),
    ],
)
def test_mistakes_in_a_rule_of_a_file_are_one_line(
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    old: str,
    new: str,
    exit_code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("magmax.py").write_text(MAGMAX.replace(old, new))
    words = ("--rule", "magmax", "--rule-file", "magmax.py", "--base", inputs / "plain")
    ended = run_program(capfd, "merge", inputs / "one", inputs / "other", *words, "-o", "out")
    check_refused(ended, "merge", exit_code, said)
    assert not Path("out").exists()


def test_models_and_pairs_that_do_not_fit_are_refused(
    inputs: Path, resnets: Path, tmp_path: Path, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, more in (
        ("length", ("--text-length", 9)),
        ("learned", ("--temperature", "learn:0.07")),
    ):
        words = (inputs / "stream" / "00-part-0", "-o", tmp_path / name, *TINY, *MICRO, *more)
        run("train-step", *words)
    one, length, norms = (
        inputs / "one",
        tmp_path / "length",
        (resnets / "first", resnets / "second"),
    )
    for words, code, word in (
        ((one, length), 5, "text_cfg.context_length is 9"),
        ((one, inputs / "other", "--rule", "ties", "--base", length), 5, "context_length"),
        ((one, tmp_path / "learned"), 5, "--temperature"),
        ((*norms, "--batch-norm-from", make_task(tmp_path / "single", 1)), 2, "fewer than two"),
        ((*norms, "--batch-norm-from", one), 3, "not a task"),
    ):
        check_refused(
            run_program(capfd, "merge", *words, "-o", tmp_path / "o"), "merge", code, word
        )
    assert not (tmp_path / "o").exists()

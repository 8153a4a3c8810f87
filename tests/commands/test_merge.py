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
from support.checkpoints import save_encoder
from support.program import check_refused, run_program
from support.training import resnet
from torch import Tensor, nn

from vlcpctl import Task, load_model
from vlcpctl.checkpoints.merge_rules import TABLE, Average, MergeRule, ModelStock, Ties
from vlcpctl.checkpoints.model_facts import facts_of_encoder
from vlcpctl.deletion.places import Artifact
from vlcpctl.files.manifest import read_manifest
from vlcpctl.inspection.check import check
from vlcpctl.models import encoders
from vlcpctl.models.encoders import NewModelOptions
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
        (Average(weights=(1.0, 3.0)), ("--weights", "1,3")),
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


def built(directory: Path, model: str, **options: Any) -> Path:
    """A checkpoint of a new model; its own batch norms have seen something else than others."""
    encoder = encoders.build(model, NewModelOptions(**options))
    for tensor in encoder.buffers().values():
        if tensor.is_floating_point():
            tensor.data += options.get("seed", 0)
    facts = facts_of_encoder(encoder, directory.name, None)
    return save_encoder(directory, encoder, directory.name, model=facts)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """New models: `micro`, two that differ from it, two of fusion, and two with batch norms."""
    root = tmp_path_factory.mktemp("models")
    built(root / "micro", "micro")
    built(root / "length", "micro", text_length=9)
    built(root / "fixed", "micro", temperature="fixed:0.07")
    for seed in range(2):
        built(root / f"fusion-{seed}", "albef-micro", seed=seed)
        built(root / f"resnet-{seed}", resnet(root)["model"], seed=seed)
    return root


def test_fusion_models_are_averaged_too(models: Path, tmp_path: Path, run: Run) -> None:
    places = [models / "fusion-0", models / "fusion-1", tmp_path / "mean"]
    run("merge", *places[:2], "-o", places[2])
    one, other, found = (load_file(path / "model.safetensors") for path in places)
    mixed = {name: (one[name] + other[name]) / 2 for name in one}
    torch.testing.assert_close(found, mixed, rtol=1e-5, atol=1e-7)


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
    inputs: Path, models: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over two batches of five images and four, those with the lowest keys."""
    monkeypatch.setattr("vlcpctl.checkpoints.batch_norms._MOST", 9)
    monkeypatch.setattr("vlcpctl.checkpoints.batch_norms._BATCH", 5)
    first, second = models / "resnet-0", models / "resnet-1"
    merged, given = Average.merged, list[str]()  # no rule gets statistics

    def noted(rule: Average, weights: Any, base: Any) -> Any:
        given.extend(weights[0])
        return merged(rule, weights, base)

    monkeypatch.setattr(Average, "merged", noted)
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
    expected = merged(Average(), [load_file(path / WEIGHTS) for path in (first, second)], {})
    assert not [name for name in given if "running_" in name or "tracked" in name]
    assert all(torch.equal(found[name], expected[name]) for name in given)


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
    models: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    micro, length, fixed, *norms = (
        models / name for name in ("micro", "length", "fixed", "resnet-0", "resnet-1")
    )
    for words, code, word in (
        ((micro, length), 5, "text_cfg.context_length is 9"),
        ((micro, fixed, "--rule", "ties", "--base", length), 5, "context_length"),
        ((micro, fixed), 5, "--temperature"),
        (norms, 5, "--batch-norm-from TASK"),
        ((*norms, "--batch-norm-from", make_task(tmp_path / "single", 1)), 2, "fewer than two"),
        ((*norms, "--batch-norm-from", micro), 3, "not a task"),
    ):
        ended = run_program(capfd, "merge", *words, "-o", tmp_path / "o")
        check_refused(ended, "merge", code, word)
    assert not (tmp_path / "o").exists()

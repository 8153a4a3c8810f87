"""The recipe of CTP trains, evaluates and names what the paper's Tables 1 and 6 do."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from support.recipe_lines import (
    DATA,
    RECIPES,
    dry_run_of,
    options_of,
    options_of_command,
    train_request,
)

from vlcpctl.data.emoji9.pairs import PairSettings, write_pairs
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import make_stream
from vlcpctl.data.tasks.task import open_stream
from vlcpctl.jobs.script import CommandLine
from vlcpctl.report.report import read_facts
from vlcpctl.testing.tiny_stream import make_image

CTP = "ctp_p9d.sh"
RUNS = {
    *("joint", "seqf", "si", "mas", "ewc", "afec", "lwf", "rwalk", "ctp"),
    *("mof", "lucir", "er", "kmeans", "icarl", "ctp+er"),
}
BUFFERS = {
    "er": "reservoir",
    "ctp+er": "reservoir",
    "mof": "herding",
    "icarl": "herding",
    "lucir": "herding",
    "kmeans": "kmeans",
}
MODES = {"P9D": ("--data", DATA), "Emoji-9": ("--emoji9",)}


def dry_run(*options: str) -> list[CommandLine]:
    return dry_run_of(CTP, *options)


@pytest.fixture
def p9d() -> list[CommandLine]:
    return dry_run(*MODES["P9D"])


@pytest.mark.parametrize("mode", MODES)
def test_every_step_has_a_model_of_ctp(mode: str) -> None:
    wanted = "albef-base" if mode == "P9D" else "albef-tiny"
    for given in options_of_command(dry_run(*MODES[mode]), "train-step"):
        request = train_request(given)
        assert request.settings.model in (wanted, "tiny" if request.previous else wanted)


def test_both_orders_have_all_fifteen_runs(p9d: list[CommandLine]) -> None:
    for order in ("default", "reversed"):
        steps = [options_of(line) for line in p9d if line.words[0] == "train-step"]
        names = Counter(
            one["run"] or one["method"] for one in steps if str(one["out"]).startswith(f"{order}/")
        )
        assert names == {name: 1 if name == "joint" else 9 for name in RUNS}


def test_each_method_has_the_buffer_of_the_paper(p9d: list[CommandLine]) -> None:
    found = {}
    for line in p9d:
        if line.words[0] == "buffer":
            given = options_of(line)
            assert (given["size"], given["variant"], given["seed"]) == ("10000", "ctp", 42)
            found[given["out"].parts[2]] = given["policy"]
    assert found == BUFFERS
    replayed = {
        options_of(line)["run"]
        for line in p9d
        if line.words[0] == "train-step" and options_of(line)["buffer"]
    }
    assert replayed == BUFFERS.keys()


def test_each_run_is_evaluated_by_both_protocols_and_reported(p9d: list[CommandLine]) -> None:
    rows = {
        (given["out"], given["protocol"], given["gallery"])
        for line in p9d
        if line.words[0] == "eval-retrieval" and (given := options_of(line))
    }
    protocols = {"cross": "cross-modal", "multi": "multi-modal"}
    assert rows == {
        (Path(f"{order}/seed0/{run}.{short}.ndjson"), protocol, "both")
        for order in ("default", "reversed")
        for run in RUNS
        for short, protocol in protocols.items()
    }
    reports = [options_of(line) for line in p9d if line.words[0] == "forgetting-report"]
    assert sorted(row for report in reports for row in report["rows"]) == sorted(
        str(out) for out, _, _ in rows
    )


def test_the_authors_variants_are_set(p9d: list[CommandLine]) -> None:
    found: dict[str, set[str]] = {}
    for line in p9d:
        if line.words[0] == "train-step":
            given = options_of(line)
            found.setdefault(given["method"], set()).update(given["set"] or ())
    assert found == {
        **{name: {f"{name}.variant=ctp"} for name in ("si", "mas", "ewc", "afec", "rwalk")},
        "lucir": {"lucir.variant=ctp"},
        **{name: {f"{name}.target=channels"} for name in ("lwf", "icarl")},
        "ctp": {"ctp.keep_queue=true", "ctp.positives=process"},
        **{name: set() for name in ("joint", "seqf", "er")},
    }


def test_words_for_first_and_for_every_step_are_passed_on() -> None:
    words = ("--methods", "seqf", "--first", "--pretrained none", "--train", "--workers 3")
    steps = [options_of(line) for line in dry_run(*MODES["P9D"], "--orders", "default", *words)]
    steps = [one for one in steps if "method" in one]
    assert [one["pretrained"] for one in steps] == ["none", *[None] * 8]
    assert {one["workers"] for one in steps} == {3}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give --data DIR"),
        (("--data",), "--data needs a value"),
        (("--emoji9", "--methods", "ewcc"), "unknown method 'ewcc'"),
        (("--emoji9", "--orders", "random"), "unknown order 'random'"),
        (("--emoji9", "--speed", "9"), "unknown option '--speed'"),
    ],
)
def test_words_that_mean_nothing_are_refused(words: tuple[str, ...], message: str) -> None:
    ended = subprocess.run(
        ["bash", RECIPES / CTP, "--dry-run", *words], check=False, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr


def split_as_printed(lines: list[CommandLine], source: Path, out: Path) -> list[str]:
    """The directories that the recipe's own split line makes of a source."""
    (line,) = [line for line in lines if line.words[0] == "split"]
    given = options_of(line)
    wanted = ("by", "split_column", "label_column", "order")
    make_stream(SplitOptions(sources=[str(source)], **{name: given[name] for name in wanted}), out)
    return [task.slug for task in open_stream(out)]


def trained_on(lines: list[CommandLine]) -> list[str]:
    return [options_of(line)["tasks"][0].name for line in lines if line.words[0] == "train-step"]


INDUSTRIES = (
    *("家居用品", "家装家饰", "食品/保健", "美容护理", "服饰鞋包"),
    *("车品配件", "母婴", "运动/户外", "3C数码"),
)


def make_p9d(root: Path) -> Path:
    """P9D with one product of each industry."""
    products = {
        name: {str(number): {"title": f"product {number}", "cate_name": "c"}}
        for number, name in enumerate(INDUSTRIES)
    }
    (root / "train_images").mkdir()
    for number in range(len(INDUSTRIES)):
        (root / f"train_images/{number}.jpg").write_bytes(make_image(number, 8, "JPEG"))
    (root / "train.json").write_text(json.dumps(products, ensure_ascii=False), encoding="utf-8")
    return root


@pytest.mark.parametrize("order", ["default", "reversed"])
def test_the_industries_get_the_directories_that_are_trained_on(tmp_path: Path, order: str) -> None:
    lines = dry_run(*MODES["P9D"], "--orders", order, "--methods", "seqf")
    assert split_as_printed(lines, make_p9d(tmp_path), tmp_path / "stream") == trained_on(lines)
    names = [task.name for task in open_stream(tmp_path / "stream")]
    assert names == [*(INDUSTRIES if order == "default" else reversed(INDUSTRIES))]


@pytest.mark.slow
@pytest.mark.parametrize("order", ["default", "reversed"])
def test_the_emoji_groups_get_the_directories_that_are_trained_on(
    tmp_path: Path, order: str
) -> None:
    write_pairs(tmp_path / "pairs.parquet", PairSettings(views=2, size=8))
    lines = dry_run(*MODES["Emoji-9"], "--orders", order, "--methods", "seqf")
    made = split_as_printed(lines, tmp_path / "pairs.parquet", tmp_path / "stream")
    assert made == trained_on(lines)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_part_of_the_recipe_runs_from_end_to_end(tmp_path: Path) -> None:
    words = ("--emoji9", "--out", tmp_path, "--methods", "ctp+er mof", "--split", "--take 40")
    few = ("--train", "--steps 1 --batch-size 8", "--jobs", "1")
    subprocess.run(["bash", RECIPES / CTP, *words, *few], check=True, capture_output=True)
    facts = read_facts((tmp_path / "default/report/facts.csv").read_text())
    found = {(one["protocol"], one["run"]) for one in facts if one["metric"] == "merged_final"}
    assert found == {
        (protocol, run) for protocol in ("cross-modal", "multi-modal") for run in ("ctp+er", "mof")
    }

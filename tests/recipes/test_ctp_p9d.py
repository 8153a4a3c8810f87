"""The recipe of CTP trains on the tasks that its own split makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.recipe_lines import DATA, dry_run_of, options_of_command

from vlcpctl.data.emoji9.pairs import PairSettings, write_pairs
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import make_stream
from vlcpctl.data.tasks.task import open_stream
from vlcpctl.testing.tiny_stream import make_image

INDUSTRIES = (
    *("家居用品", "家装家饰", "食品/保健", "美容护理", "服饰鞋包"),
    *("车品配件", "母婴", "运动/户外", "3C数码"),
)
ORDERS = ("default", "reversed")


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


def names_of_tasks(source: Path, out: Path, order: str, *words: str) -> list[str]:
    """The tasks that the recipe's split line makes, which must be those that it trains on."""
    lines = dry_run_of("ctp_p9d.sh", "--orders", order, "--methods", "seqf", *words)
    (given,) = options_of_command(lines, "split")
    wanted = ("by", "split_column", "label_column", "order")
    make_stream(SplitOptions(sources=[str(source)], **{name: given[name] for name in wanted}), out)
    trained = [one["tasks"][0].name for one in options_of_command(lines, "train-step")]
    assert [task.slug for task in open_stream(out)] == trained
    return [task.name for task in open_stream(out)]


@pytest.mark.parametrize("order", ORDERS)
def test_the_industries_get_the_directories_that_are_trained_on(tmp_path: Path, order: str) -> None:
    found = names_of_tasks(make_p9d(tmp_path), tmp_path / "stream", order, "--data", DATA)
    assert found == [*(INDUSTRIES if order == "default" else reversed(INDUSTRIES))]


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_the_emoji_groups_get_the_directories_that_are_trained_on(
    tmp_path: Path, order: str
) -> None:
    write_pairs(tmp_path / "pairs.parquet", PairSettings(views=2, size=8))
    assert names_of_tasks(tmp_path / "pairs.parquet", tmp_path / "stream", order, "--emoji9")

"""`split --not`: pairs of a deletion and of other tasks are left out and counted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.pair_files import write_parquet

from vlcpctl.core.errors import BadInput, OutputExists
from vlcpctl.data.splitting.leaving_out import (
    KNOWN,
    LeftOut,
    LeftOutList,
    add_to_stop_list,
    read_stop_list,
    stop_list_path,
)
from vlcpctl.data.splitting.request import SplitOptions
from vlcpctl.data.splitting.stream import make_stream
from vlcpctl.data.tasks.keys import Keys
from vlcpctl.data.tasks.samples import Pair
from vlcpctl.data.tasks.task import open_stream
from vlcpctl.files.manifest import read_manifest
from vlcpctl.testing.tiny_stream import make_image

Split = Callable[..., Path]


@pytest.fixture
def split(tmp_path: Path) -> Split:
    """Split rows into a stream of one task of this name, without a hold-out."""

    def run(name: str, listed: list[dict[str, Any]], *left_out: Path, **options: Any) -> Path:
        source = write_parquet(tmp_path / f"{name}.parquet", listed)
        given = {"by": f"all:{name}", "holdout": "none", **options}
        given.setdefault("not_", list(left_out))
        make_stream(SplitOptions(sources=[str(source)], **given), tmp_path / name)
        return tmp_path / name

    return run


def pairs(first: int, count: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"image": make_image(number, 8), "caption": f"c{number}", "group": "a", **more}
        for number in range(first, first + count)
    ]


def captions_in(stream: Path) -> list[str]:
    (task,) = open_stream(stream)
    found = task.split("train")
    return [found.captions(row)[0] for row in range(len(found))]


def stop_list(state: Path, *selectors: dict[str, str], keys: tuple[str, ...] = ()) -> Path:
    state.mkdir(exist_ok=True)
    path = stop_list_path(state, "0" * 32)
    add_to_stop_list(path, "0" * 32, selectors, keys)
    return path


def digest(data: bytes | str) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def key_of(stream: Path, caption: str) -> str:
    (task,) = open_stream(stream)
    return task.split("train").keys[captions_in(stream).index(caption)]


def test_pairs_of_a_task_and_of_a_stream_are_left_out_and_counted(split: Split) -> None:
    first = split("first", pairs(0, 3))
    second = split("second", pairs(3, 2))
    (task,) = open_stream(second)
    found = split("third", pairs(0, 8), first, task.path)
    assert captions_in(found) == ["c5", "c6", "c7"]
    manifest = read_manifest(found, "stream")
    assert manifest["left_out"] == {"known": {"first": 3, "second": 2}}
    assert manifest["read"] == 8
    assert manifest["skipped"] == {}
    assert not (found / "skipped.ndjson").exists()


def test_deleted_pairs_are_named_by_key_image_and_kept_value(split: Split, tmp_path: Path) -> None:
    listed = [*pairs(0, 6, customer="a"), *pairs(6, 1, customer="4711")]
    key = key_of(split("before", listed), "c2")
    image = digest(listed[4]["image"])
    value = {"by": "where", "column": "customer", "sha256": digest("4711")}
    label = {"by": "where", "column": "label", "sha256": digest("a")}
    path = stop_list(
        *(tmp_path / "prod", {"by": "key", "key": key_of(tmp_path / "before", "c1")}, value, label),
        {"by": "sha256", "sha256": image},
        {"by": "source-key", "sha256": digest("somebody")},
        keys=(key,),
    )
    assert digest("somebody") not in path.read_text()
    # Another caption makes another pair of the same image, which the image still names.
    listed[4] = {**listed[4], "caption": "another"}
    found = split("after", listed, path, keep_columns="customer", label_column="group")
    assert captions_in(found) == ["c0", "c3", "c5"]
    assert read_manifest(found, "stream")["left_out"] == {"deleted": {"0" * 32: 4}}
    texts = "".join(path.read_text() for path in found.rglob("*.json"))
    assert key not in texts


def test_repeats_of_a_deleted_pair_are_not_listed(split: Split, tmp_path: Path) -> None:
    listed = pairs(0, 4)
    key = key_of(split("before", listed), "c0")
    found = split("after", [*listed, listed[0], listed[1]], stop_list(tmp_path, keys=(key,)),
                  max_skip="50%")  # fmt: skip
    assert key not in (found / "skipped.ndjson").read_text()
    assert read_manifest(found, "stream")["skipped"] == {"duplicate": 1}
    assert read_manifest(found, "stream")["left_out"] == {"deleted": {"0" * 32: 2}}


def test_the_lists_are_part_of_the_identity_in_any_order(split: Split) -> None:
    first, second = split("first", pairs(0, 3)), split("second", pairs(2, 3), holdout="test=0.5")
    out = split("third", pairs(0, 8), first, second)
    before = read_manifest(out, "stream")
    assert read_manifest(split("third", pairs(0, 8), second, first), "stream") == before
    for given in ({"not_": [second]}, {"not_test_images": (str(second),)}):
        with pytest.raises(OutputExists, match="not"):
            split("third", pairs(0, 8), **{"not_": [first, second], **given})
    assert read_manifest(first, "stream")["identity"]["not"] is None
    assert {"left_out", "not_test_images"}.isdisjoint(read_manifest(first, "stream"))


def test_nothing_is_written_if_nothing_is_left(split: Split, tmp_path: Path) -> None:
    first = split("first", pairs(0, 3))
    for option, said in (
        ("not_", "no pair is left to split: 3 of 3"),
        ("not_test_images", "no test"),
    ):
        with pytest.raises(BadInput, match=said):
            split("again", pairs(0, 3), **{option: (str(first),)})
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"keys": ["0" * 32]}, "has changed since it was written"),
        ({"schema": "vlcpctl.task/1"}, "is neither a receipt"),
        ({"schema": "vlcpctl.receipt/1", "state": "pending"}, "was interrupted; run its"),
    ],
)
def test_damaged_lists_are_refused(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = stop_list(tmp_path, keys=("1" * 32,))
    assert list(read_stop_list(path).keys) == ["1" * 32]
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BadInput, match=says):
        read_stop_list(path)


def test_a_stop_list_keeps_the_keys_of_earlier_deletions(tmp_path: Path) -> None:
    (tmp_path / "deleted").mkdir()
    left = tmp_path / "deleted" / f".{'0' * 32}.json.tmp-1"
    left.touch()
    stop_list(tmp_path, keys=("1" * 32,))
    assert list(read_stop_list(stop_list(tmp_path, keys=("2" * 32,))).keys) == ["1" * 32, "2" * 32]
    assert not left.exists()


def test_keys_are_found_by_both_halves_and_count_for_the_first_list() -> None:
    raw = np.zeros((5, 16), np.uint8)
    raw[:, 15] = [1, 2, 3, 4, 5]
    keys = Keys(raw)
    lists = [LeftOutList(KNOWN, "a", "a", keys[2:4]), LeftOutList(KNOWN, "b", "b", keys[1:3])]
    samples = [Pair(0, None, b"", [], None, None, None, key=key) for key in keys]
    assert LeftOut(lists).places(samples).tolist() == [-1, 1, 0, 0, -1]
    assert LeftOut([]).places(samples).tolist() == [-1] * 5
    assert LeftOut(lists).places([]).tolist() == []


def test_pairs_for_training_with_test_images_of_others_are_left_out_and_counted(
    split: Split, capfd: pytest.CaptureFixture[str]
) -> None:
    tested = split("tested", pairs(0, 3), holdout="test=1.0")
    others = [{**one, "caption": "other words"} for one in pairs(0, 5)]
    found = split("found", others, not_test_images=(str(tested),))
    (task,) = open_stream(found)
    assert task.counts == {"train": 2}
    manifest = read_manifest(found, "stream")
    assert manifest["left_out"] == {"leaked": {"tested": 3}}
    assert "3 of 5 pairs left out: 3 with test images of tested" in capfd.readouterr().err
    # What is held out is tested in two places, which does no harm.
    held = split("held", others, holdout="test=1.0", not_test_images=(str(tested),))
    assert read_manifest(held, "stream")["left_out"] == {}
    assert open_stream(held)[0].counts == {"test": 5}


def test_pairs_for_training_with_test_images_of_their_own_stream_are_left_out(split: Split) -> None:
    rows = [
        *pairs(0, 2, part="test"),
        *({**one, "caption": "other words"} for one in pairs(1, 3, part="train")),
    ]
    given = {"split_column": "part", "holdout": None}
    plain = split("plain", rows, **given)
    assert open_stream(plain)[0].counts == {"train": 3, "test": 2}
    assert "left_out" not in read_manifest(plain, "stream")
    found = split("found", rows, **given, not_test_images=("self",))
    assert open_stream(found)[0].counts == {"train": 2, "test": 2}
    assert read_manifest(found, "stream")["left_out"] == {"leaked": {"self": 1}}

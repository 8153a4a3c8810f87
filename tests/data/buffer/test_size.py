"""Sizes of buffers: what --size, --of and --add mean, and which of them contradict each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlcpctl.core.errors import UsageError
from vlcpctl.data.buffer.policies import BufferSize, check_policy, parse_size
from vlcpctl.data.tasks.task import Task, open_stream, open_task
from vlcpctl.testing.tiny_stream import make_stream, make_task


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return open_task(make_task(tmp_path_factory.mktemp("sizes") / "task", 2))


def test_what_is_written_says_what_is_meant(task: Task) -> None:
    assert parse_size("500", None, None, task) == BufferSize(count=500, text=500)
    assert parse_size("5%", None, None, task) == BufferSize(share=0.05, text="5%")
    assert parse_size("5%", "2000", None, task) == BufferSize(count=100, text="5%", of=2000)
    assert parse_size(None, None, 7, task) == BufferSize(add=7, text="+7")


def test_share_of_the_stream_counts_its_training_images(tmp_path: Path) -> None:
    first = open_stream(make_stream(tmp_path / "stream", tasks=3, n=10, test=2))[0]
    assert parse_size("50%", "stream", None, first) == BufferSize(
        count=15, text="50%", of=30, is_of_stream=True
    )


def test_share_of_the_stream_needs_one(task: Task) -> None:
    with pytest.raises(UsageError, match="is not inside a stream directory"):
        parse_size("50%", "stream", None, task)


REFUSED = [
    *((size, None, None, "--size") for size in ("0", "-3", "1.5", "", "0%", "101%", "nan%")),
    *((size, None, None, "--size") for size in (str(2**63), "9" * 5000)),
    ("5%", str(2**63), None, "--of"),
    (None, None, None, "--size is missing"),
    ("10", "100", None, "--of has no effect"),
    ("10", None, 5, "cannot be combined with --size"),
    ("5%", "zero", None, "--of is 'zero'"),
]


@pytest.mark.parametrize(("size", "of", "add", "said"), REFUSED, ids=range(len(REFUSED)))
def test_sizes_that_are_none_or_contradict_each_other_are_refused(
    task: Task, size: str | None, of: str | None, add: int | None, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        parse_size(size, of, add, task)


@pytest.mark.parametrize(
    ("policy", "adds", "has_checkpoint", "message"),
    [
        ("resevoir", False, False, "did you mean 'reservoir'"),
        ("herding", False, False, "needs --checkpoint"),
        ("kmeans", False, False, "needs --checkpoint"),
        ("ring", False, True, "--checkpoint has no effect"),
        ("ring", True, False, "--add works only with --policy random"),
    ],
)
def test_policy_goes_with_its_own_options(
    policy: str, adds: bool, has_checkpoint: bool, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        check_policy(policy, adds=adds, has_checkpoint=has_checkpoint)

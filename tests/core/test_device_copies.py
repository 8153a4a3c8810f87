"""Copies one item ahead: what waits for what, and nothing at all on a CPU."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from vlcpctl.core import device_copies
from vlcpctl.core.device_copies import Move, copied_ahead, to_device, to_host

CUDA = torch.device("cuda")


def one(tensor: Tensor, move: Move) -> Tensor:
    return move(tensor)


def test_on_a_cpu_items_stay_what_they_are() -> None:
    def never(item: Tensor, _move: Move) -> Tensor:
        raise AssertionError

    items = [torch.zeros(2), torch.ones(2)]
    found = list(copied_ahead(items, torch.device("cpu"), never))
    assert [a is b for a, b in zip(items, found, strict=True)] == [True, True]


def test_the_reader_is_closed_with_the_copies() -> None:
    closed = []

    def read() -> Generator[Tensor]:
        try:
            yield from (torch.zeros(1) for _ in range(3))
        finally:
            closed.append(True)

    copies = copied_ahead(read(), torch.device("cpu"), one)
    next(copies)
    copies.close()
    assert closed


class Fakes:
    """Streams and events that record what is done with them, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.current = "main"
        self.count = {"copies": 0, "step": 0}

    def event(self, *, blocking: bool = False) -> Any:
        kind, log = "step" if blocking else "copies", self.log
        self.count[kind] += 1
        name = f"{kind} {self.count[kind]}"

        class Event:
            def record(self, stream: Any) -> None:
                log.append(f"{stream.name}: {name} recorded")

            def synchronize(self) -> None:
                log.append(f"host waits for {name}")

            def __str__(self) -> str:
                return name

        return Event()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done on a pretended GPU, whose tensors are those of the CPU."""
    fakes = Fakes()

    class Stream:
        def __init__(self, name: str) -> None:
            self.name = name

        def wait_event(self, event: Any) -> None:
            fakes.log.append(f"{self.name} waits for {event}")

    @contextmanager
    def within(stream: Stream) -> Iterator[None]:
        fakes.current, before = stream.name, fakes.current
        yield
        fakes.current = before

    def copied(tensor: Tensor, _device: torch.device) -> Tensor:
        fakes.log.append(f"{fakes.current}: copy {tensor.item()}")
        return tensor

    monkeypatch.setattr(torch.cuda, "Stream", lambda _device: Stream("side"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: Stream("main"))
    monkeypatch.setattr(torch.cuda, "stream", within)
    monkeypatch.setattr(torch.cuda, "Event", fakes.event)
    monkeypatch.setattr(device_copies, "to_device", copied)
    monkeypatch.setattr(
        Tensor,
        "record_stream",
        lambda tensor, stream: fakes.log.append(f"{stream.name} uses {tensor.item()}"),
    )
    return fakes.log


def test_on_a_gpu_copies_are_one_ahead_and_the_consumer_at_most_one(log: list[str]) -> None:
    items = map(torch.tensor, range(4))
    log.extend(f"step with {item.item()}" for item in copied_ahead(items, CUDA, one))
    assert log == [
        "side: copy 0",
        "side: copies 1 recorded",
        "side: copy 1",
        "side: copies 2 recorded",
        "main waits for copies 1",
        "main uses 0",
        "step with 0",
        "main: step 1 recorded",
        "side: copy 2",
        "side: copies 3 recorded",
        "main waits for copies 2",
        "main uses 1",
        "step with 1",
        "main: step 2 recorded",
        "host waits for step 1",
        "side: copy 3",
        "side: copies 4 recorded",
        "main waits for copies 3",
        "main uses 2",
        "step with 2",
        "main: step 3 recorded",
        "host waits for step 2",
        "main waits for copies 4",
        "main uses 3",
        "step with 3",
    ]


@pytest.mark.usefixtures("log")
def test_one_item_is_yielded_and_none_gives_none() -> None:
    assert len(list(copied_ahead([torch.tensor(5)], CUDA, one))) == 1
    assert list(copied_ahead([], CUDA, one)) == []


def test_another_device_is_copied_to_without_streams() -> None:
    (found,) = copied_ahead([torch.zeros(3)], torch.device("meta"), one)
    assert found.device.type == "meta"


def test_parts_of_a_cpu_become_arrays() -> None:
    parts = [torch.zeros(2, 3), torch.ones(1, 3)]
    assert [array.shape for array in to_host(parts)] == [(2, 3), (1, 3)]
    assert list(to_host([])) == []


def test_a_tensor_on_its_device_is_not_copied() -> None:
    tensor = torch.zeros(2)
    assert to_device(tensor, torch.device("cpu")) is tensor


@pytest.fixture
def a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")


@pytest.mark.gpu
@pytest.mark.usefixtures("a_gpu")
def test_on_a_real_gpu_items_arrive_in_order_and_unchanged() -> None:
    items = [torch.full((1024, 1024), number) for number in range(12)]
    seen = []
    for item in copied_ahead(items, CUDA, one):
        assert item.device.type == "cuda"
        seen.append((item.double() @ item.double()).trace())  # work that outlasts the copies
    assert [value.item() for value in seen] == [1024.0**2 * number**2 for number in range(12)]


@pytest.mark.gpu
@pytest.mark.usefixtures("a_gpu")
def test_arrays_of_a_gpu_come_in_order_and_stay_what_they_are() -> None:
    parts = (torch.full((2, 2), float(number), device="cuda") for number in range(5))
    assert [array[0, 0] for array in list(to_host(parts))] == [0, 1, 2, 3, 4]

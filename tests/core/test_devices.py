"""The device that an option names, what decides its last bits, and copies one item ahead."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from vlcpctl.core import devices
from vlcpctl.core.devices import (
    Move,
    arithmetic_facts,
    copied_ahead,
    to_device,
    to_host,
    torch_device,
)
from vlcpctl.core.errors import UsageError

CUDA = torch.device("cuda")


@pytest.fixture
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("_no_gpu")
def test_a_device_that_is_not_there_is_an_error() -> None:
    assert torch_device("auto") == torch_device("cpu") == torch.device("cpu")
    with pytest.raises(UsageError, match="use --device cpu"):
        torch_device("cuda")
    for name in ("gpu", "cuda:x", "cuda0", "cuda:-1"):
        with pytest.raises(UsageError, match="cuda:N"):
            torch_device(name)


def test_a_gpu_has_a_number_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert torch_device("cuda:1") == torch.device("cuda:1")
    assert torch_device("cuda") == torch.device("cuda")
    with pytest.raises(UsageError, match="cuda:0 to cuda:1"):
        torch_device("cuda:2")


PROCESSOR = """\
processor\t: 0
cpu family\t: 25
model\t\t: 1
model name\t: AMD EPYC
flags\t\t: fpu sse4_2 avx2 avx

processor\t: 1
model name\t: AMD EPYC
"""


def _of(monkeypatch: pytest.MonkeyPatch, place: Path, text: str) -> dict[str, Any]:
    place.write_text(text)
    monkeypatch.setattr(devices, "_CPUINFO", place)
    return arithmetic_facts(torch.device("cpu"))


def test_a_processor_is_known_by_name_model_and_instructions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    facts = _of(monkeypatch, tmp_path / "cpuinfo", PROCESSOR)
    assert facts["device"] == "AMD EPYC (cpu family 25, model 1)"
    assert facts["instructions"] == torch.backends.cpu.get_cpu_capability()
    assert facts["vectors"] == "avx avx2 sse4_2"
    for old, new in (("model\t\t: 1", "model\t\t: 17"), ("avx2 avx", "avx2 avx avx512f")):
        assert _of(monkeypatch, tmp_path / "cpuinfo", PROCESSOR.replace(old, new)) != facts
    monkeypatch.setattr(devices, "_CPUINFO", tmp_path / "none")  # another system than Linux
    assert arithmetic_facts(torch.device("cpu"))["device"]


def test_versions_of_libraries_and_their_variables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = arithmetic_facts(torch.device("cpu"))
    names = {"torch", "pillow", "numpy", "open_clip_torch", "timm", "transformers", "tokenizers"}
    assert facts["versions"].keys() == names
    assert facts["versions"]["torch"] == torch.__version__
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    found = {"environment": {"ONEDNN_MAX_CPU_ISA": "AVX2"}}
    assert arithmetic_facts(torch.device("cpu")) == {**facts, **found}


def test_the_gpu_of_the_device_counts_and_no_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device}")
    facts = arithmetic_facts(torch.device("cuda:1"))
    assert (facts["device"], "vectors" in facts) == ("GPU cuda:1", False)


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
    monkeypatch.setattr(devices, "to_device", copied)
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

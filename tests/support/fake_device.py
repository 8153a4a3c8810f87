"""A pretended accelerator: tensors on `meta`, which have shapes and a device but no values.

torch's kernels for `meta` compute shapes, so whole training steps run without a GPU. Tensors on the
CPU keep their values, since some of them decide shapes; therefore these are plain meta tensors, and
not FakeTensorMode, in which tensors on the CPU have no values either.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import vlcpctl
from vlcpctl.training.run import TrainRun

META = torch.device("meta")
PACKAGE = f"{Path(vlcpctl.__file__).parent}/"
ATEN = torch.ops.aten

# The modules that look up the device of a run.
USERS = ("vlcpctl.training.train_step", "vlcpctl.models.encoders")

# Operations that take a tensor of the CPU beside others: scalars are passed to kernels by value.
TAKES_SCALARS = {ATEN.where, ATEN.masked_fill, ATEN.masked_fill_, ATEN.fill_, ATEN.lift_fresh}


class MixedDevicesError(AssertionError):
    """An operation got tensors of both devices, which a GPU would refuse."""


class FakeDevice(TorchDispatchMode):
    """Within it, tensors of mixed devices raise, and `syncs` counts waits for the device.

    A wait is any of: reading a value (`item`, `tolist`, `bool`, `int`, an index), copying to the
    CPU, an operation whose shape depends on values (`nonzero`, an index by a mask), and copying
    from the CPU other than by `core.devices.to_device`: torch then waits for all work of the
    GPU's stream. What is read are ones.
    """

    def __init__(self) -> None:
        init: Callable[[], None] = super().__init__
        init()
        self.syncs: Counter[str] = Counter()  # by operation and place in the package

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operation."""
        kwargs, packet = kwargs or {}, func.overloadpacket
        if _is_composite(func):  # in inference mode they arrive here as they are
            with self:
                return func.decompose(*args, **kwargs)
        tensors = [*_tensors((args, kwargs))]
        there = [one for one in tensors if one.device.type == "meta"]
        if _copies(packet, kwargs, tensors):
            return self._copied(func, args, kwargs, tensors)
        if not there:
            return func(*args, **kwargs)
        reader = _READERS.get(packet)
        if reader is not None:
            self._count(packet)
            return reader(*args)
        if packet in (ATEN.index, ATEN.index_put, ATEN.index_put_):
            return self._indexed(func, args, kwargs)
        if packet is ATEN.lift_fresh:  # torch.tensor(..., device=...) copies Python's numbers
            self._count(packet)
        _refuse_mix(func, tensors)
        if packet is ATEN._fused_sgd_:  # torch has no kernel of it for meta
            return None
        return _on_cpu(func, args, kwargs) if _is_pure(func) else func(*args, **kwargs)

    def _copied(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]
    ) -> Any:
        """`to` and `copy_`: they may have tensors of both devices."""
        in_place = func.overloadpacket is ATEN.copy_
        source = tensors[-1] if in_place else tensors[0]
        goal = (
            tensors[0].device if in_place else torch.device(kwargs.get("device") or source.device)
        )
        waits = not (args[2:3] == (True,) if in_place else kwargs.get("non_blocking"))
        if source.device == goal or (goal.type == "meta" and source.dim() == 0 and in_place):
            return func(*args, **kwargs)
        if goal.type == "meta":
            if waits:
                self._count("copy to the device")
            return func(*args, **kwargs)
        self._count("copy to the CPU")
        if in_place:
            return tensors[0].fill_(1)
        return torch.ones(source.shape, dtype=kwargs.get("dtype") or source.dtype)

    def _indexed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        indices: list[Tensor | None] = []
        for index in args[1]:
            if index is None:
                indices.append(None)
                continue
            if index.device != args[0].device:
                self._count("index from the other device")
            if index.dtype in (torch.bool, torch.uint8):
                self._count("index by a mask")
                indices += _everything(index)
            else:
                indices.append(index.to(META))
        values = [one for one in args[2:3] if isinstance(one, Tensor)]
        _refuse_mix(func, [args[0], *values])
        return func(args[0], indices, *args[2:], **kwargs)

    def _count(self, what: object) -> None:
        self.syncs[f"{what} in {_place()}"] += 1


def _everything(mask: Tensor) -> list[Tensor]:
    """The indices of all elements, as if the mask were true everywhere."""
    return [torch.empty(mask.numel(), dtype=torch.int64, device=META) for _ in mask.shape]


_READERS: dict[Any, Callable[..., Any]] = {
    ATEN._local_scalar_dense: lambda one: torch.ones((), dtype=one.dtype).item(),
    ATEN.equal: lambda one, other: True,
    ATEN.nonzero: lambda one: one.new_empty((one.numel(), one.dim()), dtype=torch.int64),
    ATEN.masked_select: lambda one, mask: one.new_empty(one.numel()),
}


def _on_cpu(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Results on the device of an operation that changes none of its arguments.

    Their shapes are found with zeros on the CPU: many of torch's kernels for meta are written in
    Python, and take a hundred times as long.
    """

    def here(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            made = torch.empty_strided(leaf.size(), leaf.stride(), dtype=leaf.dtype)
            return made.zero_()
        return torch.device("cpu") if leaf == META else leaf

    def there(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return torch.empty_strided(leaf.size(), leaf.stride(), dtype=leaf.dtype, device=META)

    args, kwargs = _mapped(here, (args, kwargs))
    return _mapped(there, func(*args, **kwargs))


def _tensors(value: object) -> Iterator[Tensor]:
    """The tensors among arguments; torch's own trees take most of the time of a small step."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors([*value.values()])


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """The arguments or results with each that is not a list, tuple or dict mapped."""
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        mapped = [_mapped(function, one) for one in value]
        return mapped if isinstance(value, list) else tuple(mapped)
    if isinstance(value, dict):
        return {name: _mapped(function, one) for name, one in value.items()}
    return function(value)


@cache
def _is_pure(func: Any) -> bool:
    """Whether an operation only reads its arguments, and returns no views of them."""
    schema = func._schema
    return not schema.is_mutable and not any(one.alias_info for one in schema.returns)


@cache
def _is_composite(func: Any) -> bool:
    """Whether an operation is made of others by torch itself, such as `to` and `linear`."""
    return bool(
        torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    )


def _copies(packet: Any, kwargs: Mapping[str, Any], tensors: list[Tensor]) -> bool:
    """Whether an operation may copy between devices."""
    return packet is ATEN.copy_ or (packet is ATEN._to_copy and "device" in kwargs)


def _refuse_mix(func: Any, tensors: list[Tensor]) -> None:
    """Raise MixedDevicesError for a tensor of the CPU, but a scalar of a pointwise operation."""
    scalars_may = torch.Tag.pointwise in func.tags or func.overloadpacket in TAKES_SCALARS
    wrong = [
        one for one in tensors if one.device.type != "meta" and not (scalars_may and one.dim() == 0)
    ]
    if wrong:
        shapes = ", ".join(str(tuple(one.shape)) for one in wrong)
        raise MixedDevicesError(f"{func} in {_place()} got tensors of the CPU, of shape {shapes}")


def _place() -> str:
    """The innermost function of the package that is being called, as `methods/ctp.py:loss`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(PACKAGE):
            return f"{path.removeprefix(PACKAGE)}:{frame.f_code.co_name}"
        frame = frame.f_back
    return "a test"


def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `meta` the device of every run and evaluation."""
    for module in USERS:
        monkeypatch.setattr(f"{module}.torch_device", lambda name: META)
    # torch.autocast refuses meta.
    monkeypatch.setattr(TrainRun, "autocast", lambda run: nullcontext())

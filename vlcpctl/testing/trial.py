"""A method's hooks on two tiny tasks, before a run of hours calls them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vlcpctl.core.console import silenced
from vlcpctl.core.method import Method
from vlcpctl.methods.plugins.registry import MethodRegistry
from vlcpctl.testing.battery import make_world, request, with_fusion_model
from vlcpctl.training.train_step import train_step


def try_methods(methods: Sequence[Method], registry: MethodRegistry, *, is_fusion: bool) -> None:
    """Train a model of a few thousand weights with these methods for a few steps of two tasks.

    Raises what a run would, such as BadInput for a mistake in a hook.
    """
    names = "+".join(method.name for method in methods)
    with tempfile.TemporaryDirectory() as directory, silenced():
        world = make_world(Path(directory))
        world = with_fusion_model(world) if is_fusion else world
        for number in range(2):
            step = request(world, names, number, Path(directory), buffered=False, registry=registry)
            train_step(replace(step, methods=tuple(methods)))

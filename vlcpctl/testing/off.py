"""A method that its own settings turn off, and plain training in its place: the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vlcpctl.core.method import Method
from vlcpctl.methods.plugins.registry import MethodRegistry
from vlcpctl.testing.battery import TrainingWorld, policy_of, request
from vlcpctl.training.methods import compose, settings_of_methods
from vlcpctl.training.presets import resolve
from vlcpctl.training.train_step import train_step


@dataclass(frozen=True)
class TurnedOff:
    """A method with the assignments in `Method.off`, and what it should be equal to."""

    method: Method
    world: TrainingWorld
    registry: MethodRegistry

    @property
    def policy(self) -> str:
        """The policy of the buffer that it replays, in both trainings; "" if it has no buffer."""
        needs_one = self.method.needs(first=False).buffer
        return policy_of([self.method]) or ("reservoir" if needs_one else "")

    @property
    def plain(self) -> str:
        """The method that it should be equal to: fine-tuning, or replay if it has a buffer."""
        return "er" if self.policy else "seqf"

    def trained(self, root: Path) -> bytes:
        """Its weights after two tasks."""
        name = self.method.name
        return self._trained(name, [f"{name}.{one}" for one in self.method.off], root)

    def trained_plain(self, root: Path) -> bytes:
        """The weights after two tasks of plain training with the same settings."""
        return self._trained(self.plain, (), root)

    def _trained(self, name: str, assignments: Sequence[str], root: Path) -> bytes:
        methods = compose(name, assignments, self.registry)
        own = settings_of_methods([self.method])
        settings, _ = resolve("tiny", self.world.flags, own)
        for number in range(2):
            step = request(self.world, name, number, root, buffered=False, registry=self.registry)
            buffer = self.world.buffers[self.policy][number - 1] if number and self.policy else None
            needs = [method.needs(first=not number) for method in methods]
            reference = step.reference if any(need.reference for need in needs) else None
            step = replace(step, methods=methods, buffer=buffer, reference=reference)
            train_step(replace(step, settings=settings))
        (weights,) = (root / "01").glob("*.safetensors")
        return weights.read_bytes()

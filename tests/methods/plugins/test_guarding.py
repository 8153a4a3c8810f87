"""Mistakes in the hooks of a method of one's own: a line with file, class and hook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.program import run_program

from vlcpctl.core.errors import BadInput
from vlcpctl.methods.plugins.method_file import load_method_file
from vlcpctl.testing.tiny_stream import make_stream

HEAD = """
from dataclasses import dataclass
from typing import ClassVar
from vlcpctl.core.method import Method, hyper

@dataclass(frozen=True, kw_only=True)
class Fd(Method):
    name: ClassVar[str] = "fd"
    title: ClassVar[str] = "Distil features"
    preset: ClassVar[str] = "tiny"

"""
LOSS = "    def loss(self, run, batch, out):\n        "
HOW = ("--preset", "tiny", "--model", "micro", "--batch-size", 4, "--steps", 1, "-q")


def hooks_of(path: Path, body: str) -> Any:
    path.write_text(HEAD + body)
    return load_method_file(path).methods["fd"]()


@pytest.mark.parametrize(
    ("body", "line", "said"),
    [
        ("return None", 12, "Fd.loss: AttributeError"),
        ("return {'a': 1.5}, {}", 12, "term 'a' must be a tensor"),
        ("return {'a': out.detach().sum()}", 12, "term 'a' has no gradient"),
        ("return missing", 13, "Fd.loss: NameError: name 'missing' is not defined"),
        ("return run.teachr", 13, "Fd.loss: AttributeError: 'NoneType' object has no"),
        ("raise SystemExit(3)", 13, "Fd.loss: SystemExit: 3"),
        ("return far(out)\n\ndef far(out):\n    return out['x']", 16, "from line 13: Fd.loss: "),
    ],
)
def test_a_mistake_is_one_line_of_the_file(tmp_path: Path, body: str, line: int, said: str) -> None:
    method = hooks_of(tmp_path / "fd.py", f"{LOSS}{body}\n")
    with pytest.raises(BadInput) as refused:
        method.loss(None, None, torch.ones(3, 2, requires_grad=True))
    text = str(refused.value)
    assert text.startswith(f"{tmp_path}/fd.py:{line}")
    assert said in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("returned", "names", "values"),
    [
        ("{}, {'kept': out}", set(), {"kept"}),
        ("{'a': out.sum()}", {"a"}, set()),
        ("{'a': out.new_zeros(())}", {"a"}, set()),
        ("{'a': out.sum(), 'b': out.detach().norm()}", {"a", "b"}, set()),
        ("{'a': out.new_tensor(float('nan'))}", {"a"}, set()),
    ],
)
def test_terms_come_with_values_or_alone(
    tmp_path: Path, returned: str, names: set[str], values: set[str]
) -> None:
    method = hooks_of(tmp_path / "fd.py", f"{LOSS}return {returned}\n")
    terms, beside = method.loss(None, None, torch.ones(3, 2, requires_grad=True))
    assert (set(terms), set(beside)) == (names, values)


def test_declarations_and_starts_of_slots_are_guarded(tmp_path: Path) -> None:
    body = """    def needs(self):
        pass

    def slots(self, *, first):
        from vlcpctl.core.method import Slot
        return (Slot(name="seen", lifetime="task", start=self._zeros),)

    def _zeros(self, run):
        return run.wieghts
"""
    method = hooks_of(tmp_path / "fd.py", body)
    with pytest.raises(BadInput, match=r"fd\.py:12: Fd\.needs: TypeError: "):
        method.needs(first=True)
    (slot,) = method.slots(first=True)
    with pytest.raises(BadInput, match=r"fd\.py:20: slot seen: AttributeError"):
        slot.start(None)


def test_a_decorated_hook_is_guarded_too(tmp_path: Path) -> None:
    decorator = """
    def _twice(function):
        import functools
        @functools.wraps(function)
        def inner(*arguments):
            return function(*arguments)
        return inner

    @_twice
"""
    method = hooks_of(tmp_path / "fd.py", f"{decorator}{LOSS}return run.step_\n")
    with pytest.raises(BadInput, match=r"fd\.py:22, from line 17: Fd\.loss: AttributeError"):
        method.loss(None, None, torch.ones(3, 2))


@pytest.mark.parametrize(("body", "code"), [("out.scele", 3), ("{'a': out.image.sum()}", 0)])
def test_a_dry_run_calls_the_hooks_on_a_tiny_stream(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], body: str, code: int
) -> None:
    task = next(make_stream(tmp_path / "stream", 1, 12).glob("0*"))
    (tmp_path / "fd.py").write_text(f"{HEAD}{LOSS}return {body}\n")
    how = (*HOW[:-1], "--method", "fd", "--method-file", tmp_path / "fd.py", "--dry-run")
    ended = run_program(capfd, "train-step", task, "-o", tmp_path / "out", *how)
    assert ended.code == code
    last = ended.err.splitlines()[-1]
    assert (f"{tmp_path}/fd.py:13: Fd.loss: " if code else "hooks of fd") in last
    assert not (tmp_path / "out").exists()

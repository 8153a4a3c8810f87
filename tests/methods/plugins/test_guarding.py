"""Mistakes in the hooks of a method of one's own: a line with file, class and hook."""

from __future__ import annotations

import re
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


class Run:
    """In place of the run that training gives."""

    step = 0


def hooks_of(path: Path, body: str) -> Any:
    path.write_text(HEAD + body)
    return load_method_file(path).methods["fd"]()


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("1.5", "Fd.loss must return the terms by name, or (terms, values), not a float"),
        ("None", "Fd.loss must return the terms by name, or (terms, values), not None"),
        ("({}, {}, {})", "or (terms, values), not a tuple of 3"),
        ("{'a': 1.5}, {}", "Fd.loss: term 'a' must be a tensor, not a float"),
        ("{'a': out}", "Fd.loss: term 'a' must be one number, not a tensor of 3 x 2"),
        ("run.teachr", "fd.py:13: Fd.loss: unknown attribute of run: 'teachr'"),
        ("run.step_", "unknown attribute of run: 'step_'; did you mean 'step'? (known: anchor, "),
        ("missing", "fd.py:13: Fd.loss: NameError: name 'missing' is not defined"),
        ("out @ out", "fd.py:13: Fd.loss: RuntimeError: "),
        ("1 / 0", "fd.py:13: Fd.loss: ZeroDivisionError: division by zero"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, returned: str, said: str) -> None:
    method = hooks_of(tmp_path / "fd.py", f"{LOSS}return {returned}\n")
    with pytest.raises(BadInput) as refused:
        method.loss(Run(), None, torch.ones(3, 2))
    assert said in str(refused.value)
    assert str(refused.value).startswith(f"{tmp_path}/fd.py:")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return {}, {'a': out.sum()}", "fd.py:12: Fd.loss returns no term, but values that have"),
        ("assert out is None", "fd.py:13: Fd.loss: AssertionError: assert out is None"),
        ("raise SystemExit(3)", "fd.py:13: Fd.loss: SystemExit: 3"),
        ("return 1.0", "fd.py:12: Fd.loss must return the terms by name"),
    ],
)
def test_what_would_be_ignored_or_end_the_program_is_one_line(
    tmp_path: Path, body: str, said: str
) -> None:
    method = hooks_of(tmp_path / "fd.py", f"{LOSS}{body}\n")
    with pytest.raises(BadInput) as refused:
        method.loss(Run(), None, torch.ones(3, 2, requires_grad=True))
    assert said in str(refused.value)


def test_arguments_in_another_order_are_refused_when_it_is_loaded(tmp_path: Path) -> None:
    body = "    def loss(self, batch, run, out):\n        return {}\n"
    said = "Fd.loss must take (self, run, batch, out), not (self, batch, run, out)"
    with pytest.raises(BadInput, match=re.escape(said)):
        hooks_of(tmp_path / "fd.py", body)
    hooks_of(tmp_path / "own.py", "    def loss(self, r, pairs, o):\n        return {}\n")


def test_no_term_and_no_values_is_a_loss_of_nothing(tmp_path: Path) -> None:
    method = hooks_of(tmp_path / "fd.py", f"{LOSS}return {{}}, {{'kept': out}}\n")
    assert method.loss(Run(), None, torch.ones(3, 2, requires_grad=True))[0] == {}
    method = hooks_of(tmp_path / "none.py", f"{LOSS}return {{}}, None\n")
    assert method.loss(Run(), None, torch.ones(3, 2)) == ({}, None)


@pytest.mark.parametrize("term", ["out.detach().sum()", "out.sum().data", "out.new_tensor(2)"])
def test_a_term_without_gradient_is_refused(tmp_path: Path, term: str) -> None:
    method = hooks_of(tmp_path / "fd.py", f"{LOSS}return {{'a': {term}}}\n")
    out = torch.ones(3, 2, requires_grad=True)
    with pytest.raises(BadInput, match="term 'a' has no gradient, so that"):
        method.loss(Run(), None, out)
    with torch.no_grad():
        assert method.loss(Run(), None, out)[0]["a"] > 0


def test_a_term_may_be_there_for_its_curve_alone(tmp_path: Path) -> None:
    returned = "return {'a': out.sum(), 'b': out.detach().norm(), 'c': 0 * out.sum() / 0}"
    method = hooks_of(tmp_path / "fd.py", f"{LOSS}{returned}\n")
    assert set(method.loss(Run(), None, torch.ones(3, 2, requires_grad=True))[0]) == {*"abc"}
    nan = hooks_of(tmp_path / "nan.py", f"{LOSS}return {{'a': out.new_tensor(float('nan'))}}\n")
    assert nan.loss(Run(), None, torch.ones(3, 2, requires_grad=True))[0]["a"].isnan()


def test_a_hook_may_come_from_a_class_that_is_no_method(tmp_path: Path) -> None:
    shared = (
        "class Shared:\n    def loss(self, run, batch, out):\n        return {}\n\n\n@dataclass"
    )
    text = HEAD.replace("@dataclass", shared, 1).replace("Fd(Method)", "Fd(Shared, Method)")
    (tmp_path / "fd.py").write_text(text + "    def helper(self):\n        return 2\n")
    assert load_method_file(tmp_path / "fd.py").methods["fd"]().helper() == 2


def test_a_term_of_zero_may_be_a_constant(tmp_path: Path) -> None:
    method = hooks_of(tmp_path / "fd.py", f"{LOSS}return {{'a': out.new_zeros(())}}\n")
    assert method.loss(Run(), None, torch.ones(3, 2, requires_grad=True))[0] == {"a": 0}


def test_a_class_none_of_whose_functions_is_called_is_refused(tmp_path: Path) -> None:
    body = "    def compute_loss(self, run, batch, out):\n        return {'a': out.sum()}\n"
    said = "fd.py:12: Fd trains as seqf does: nothing calls compute_loss, which is not a hook; the"
    with pytest.raises(BadInput, match=said):
        hooks_of(tmp_path / "fd.py", body)
    hooks_of(tmp_path / "settings.py", "    settings: ClassVar[dict] = {'replay': 'share=0.5'}\n")
    (tmp_path / "of_ours.py").write_text(
        HEAD.replace("method import Method", "method import Method as _").replace(
            "import dataclass", "import dataclass\nfrom vlcpctl.methods.lwf import Lwf as Method"
        )
        + body
    )
    assert load_method_file(tmp_path / "of_ours.py").methods["fd"]().strength == 1


def test_terms_alone_are_enough(tmp_path: Path) -> None:
    method = hooks_of(tmp_path / "fd.py", f"{LOSS}return {{'a': out.sum()}}\n")
    terms, values = method.loss(Run(), None, torch.ones(3, 2, requires_grad=True))
    assert (terms["a"].item(), values) == (6, {})


def test_a_hook_with_other_arguments_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    body = "    def after_step(self, run, batch):\n        pass\n"
    with pytest.raises(BadInput) as refused:
        hooks_of(tmp_path / "fd.py", body)
    assert str(refused.value) == (
        f"{tmp_path}/fd.py:12: Fd.after_step must take (self, run, batch, aux, *, stepped), not "
        "(self, run, batch)"
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("def needs(self):", "fd.py:12: Fd.needs must take (self, *, first), not (self)"),
        ("def losses(self, run, batch, out):", "Fd.losses is never called; did you mean loss?"),
        ("def phase(self):", "Fd.phase is never called; did you mean phases?"),
    ],
)
def test_what_would_never_be_called_is_refused_when_it_is_loaded(
    tmp_path: Path, body: str, said: str
) -> None:
    with pytest.raises(BadInput) as refused:
        hooks_of(tmp_path / "fd.py", f"    {body}\n        pass\n")
    assert said in str(refused.value)


def test_a_function_of_ones_own_is_no_hook(tmp_path: Path) -> None:
    body = "    def _losses(self):\n        return 1\n\n    def distance(self):\n        return 2\n"
    body += f"\n{LOSS}return {{}}\n"
    assert hooks_of(tmp_path / "fd.py", body).distance() == 2


@pytest.mark.parametrize(
    ("hook", "returned", "said"),
    [
        ("needs", "{}", "Fd.needs must return Needs, not a dict"),
        ("needs", "Needs(teacher=True)", "fd.py:14: Fd.needs: TypeError: "),
        ("slots", "[]", "Fd.slots must return a tuple of Slot, not a list"),
        ("slots", "(1,)", "Fd.slots must return a tuple of Slot, not a tuple of 1"),
        (
            "slots",
            "(__import__('vlcpctl').core.method.Slot(name='s', lifetime='x', start=int),)",
            "the lifetime of slot 's' must be 'task' or 'stream', not 'x'",
        ),
        ("phases", "None", "Fd.phases must return a tuple of Phase, not None"),
        ("per_step", "(1,)", "Fd.per_step must return a tuple of str, not a tuple of 1"),
    ],
)
def test_a_wrong_declaration_is_one_line(
    tmp_path: Path, hook: str, returned: str, said: str
) -> None:
    body = f"    def {hook}(self, *, first):\n        from vlcpctl.core.method import Needs\n"
    method = hooks_of(tmp_path / "fd.py", f"{body}        return {returned}\n")
    with pytest.raises(BadInput) as refused:
        getattr(method, hook)(first=True)
    assert said in str(refused.value)


def test_penalties_come_with_their_gradients(tmp_path: Path) -> None:
    body = "    def after_reference(self, run, grads):\n        return {}\n"
    method = hooks_of(tmp_path / "fd.py", body)
    said = r"Fd.after_reference must return \(terms, gradients\), both by name, not a dict"
    with pytest.raises(BadInput, match=said):
        method.after_reference(None, {})


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
    with pytest.raises(
        BadInput, match=r"fd\.py:22, from line 17: Fd\.loss: unknown attribute of run: 'step_'"
    ):
        method.loss(Run(), None, torch.ones(3, 2))


def test_the_start_of_a_slot_gives_tensors(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task = next(make_stream(tmp_path / "stream", 1, 12).glob("0*"))
    body = """    def slots(self, *, first):
        from vlcpctl.core.method import Slot
        return (Slot(name="seen", lifetime="stream", start=lambda run: 3),)
"""
    (tmp_path / "fd.py").write_text(HEAD + body)
    how = (*HOW, "--method", "fd", "--method-file", tmp_path / "fd.py")
    ended = run_program(capfd, "train-step", task, "-o", tmp_path / "out", *how)
    said = "method fd: the start of slot 'seen' must return tensors by name, not int"
    assert (ended.code, said in ended.err.splitlines()[-1]) == (3, True), ended.err


def test_a_mistake_in_the_start_of_a_slot_is_one_line(tmp_path: Path) -> None:
    body = """    def slots(self, *, first):
        from vlcpctl.core.method import Slot
        return (Slot(name="seen", lifetime="task", start=self._zeros),)

    def _zeros(self, run):
        return run.wieghts
"""
    (slot,) = hooks_of(tmp_path / "fd.py", body).slots(first=True)
    said = r"fd\.py:17: the start of slot 'seen': unknown attribute of run: 'wieghts'; did you mean"
    with pytest.raises(BadInput, match=said):
        slot.start(Run())


def test_the_line_of_a_function_that_a_hook_calls_is_named(tmp_path: Path) -> None:
    body = f"{LOSS}return distance(out)\n\ndef distance(out):\n    return out['image']\n"
    with pytest.raises(BadInput, match=r"fd\.py:16, from line 13: Fd\.loss: IndexError: "):
        hooks_of(tmp_path / "fd.py", body).loss(Run(), None, torch.ones(3, 2))


def test_a_training_ends_with_the_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    task = next(make_stream(tmp_path / "stream", 1, 12).glob("0*"))
    (tmp_path / "fd.py").write_text(f"{HEAD}{LOSS}return out.imege\n")
    how = (*HOW, "--method", "fd", "--method-file", tmp_path / "fd.py")
    ended = run_program(capfd, "train-step", task, "-o", tmp_path / "out", *how)
    assert ended.code == 3
    assert ended.err.splitlines()[-1].startswith(
        f"vlcpctl train-step: {tmp_path}/fd.py:13: Fd.loss: unknown attribute of out: 'imege'; did "
        "you mean 'image'? (known: "
    )


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
    if code:
        assert f"{tmp_path}/fd.py:13: Fd.loss: unknown attribute of out: 'scele'" in last
    else:
        assert (last, ended.out) == (
            "the hooks of fd ran on two tiny tasks",
            f"{tmp_path / 'out'}\n",
        )
    assert not (tmp_path / "out").exists()

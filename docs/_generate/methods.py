"""The pages of the methods, from what they declare and the formulas that they call."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import vlcpctl
from _generate.markdown import block, entry, prose
from _generate.markdown import table as table_of
from vlcpctl.commands.methods import bibtex, cited, describe
from vlcpctl.core.method import TRAIN, Method, Needs, Phase
from vlcpctl.methods import TABLE
from vlcpctl.training.config.presets import INSTEAD, presets_that_set

PAGES = Path(__file__).parents[1] / "methods"
WHEN = "**When to use it:**"  # the start of a paragraph of every method's page
LOSSES = Path(vlcpctl.__file__).parent / "losses"
NEEDS = {
    "buffer": "a buffer of earlier pairs (`--buffer`)",
    "stored_features": "the projections of its pairs, stored by `vlcpctl buffer --store-features`",
    "policy": "a buffer whose pairs were chosen by a certain policy",
    "reference": "pairs beside those to learn, on which it keeps what a frozen model can do "
    "(`--reference`)",
    "reference_gradient": "the gradient of the loss on those pairs alone",
    "previous": "the embeddings of the previous model, frozen: a forward pass of it for every "
    "batch, or `--targets` from `vlcpctl distill`",
    "previous_weights": "the weights of the previous model",
    "previous_tokens": "the tokens of the previous model, for fusion models only",
    "fusion": "a fusion model",
    "pseudo_texts": "negative texts: generated during training, or `--pseudo-texts`",
}
STATE = (
    "A slot holds tensors besides the model. One that is kept to the next task is part of the "
    "checkpoint, as `method/{name}/SLOT.safetensors`."
)
MASKED_WORDS = "- the prediction of masked words, `mlm`, with a fusion model only"
SHORT = {
    "previous_weights": "previous weights",
    "reference_gradient": "",
    "previous_tokens": "",  # with a fusion model only
    "stored_features": "stored features",
    "policy": "",  # of the buffer
    "pseudo_texts": "negative texts",
}


def facts_of(method: type[Method]) -> dict[str, Any]:
    """What `vlcpctl methods NAME --json` prints; AttributeError naming what it does not declare."""
    for name in ("name", "title", "preset"):
        if not hasattr(method, name):
            raise AttributeError(f"{method.__module__}.{method.__name__} does not declare {name!r}")
    return describe(method)


def table() -> str:
    """Every method: name, title and papers, when to use it, needs; the names link to its page."""
    rows = []
    for method in TABLE.values():
        facts = facts_of(method)
        papers = "; ".join(f"[{cited(paper)}]({paper.url})" for paper in method.papers)
        title = prose(method.title) + (f" ({papers})" if papers else "")
        needs = ", ".join(filter(None, (SHORT.get(one, one) for one in facts["needs"])))
        rows.append((_linked(method.name, ""), title, when(method.name), needs))
    return table_of(("name", "", "when to use it", "needs"), rows)


def _preset(name: str) -> str:
    usual = INSTEAD.get(name)
    instead = f" (without `--preset`: `{usual}`, with a dual encoder)" if usual else ""
    return f"Its preset is `{name}`{instead}, see [presets](../reference/presets.md)."


def when_table(*names: str) -> str:
    """When to use some of the methods, for a page of the guides."""
    rows = [(_linked(name, "../methods/"), when(name)) for name in names]
    return table_of(("method", "when to use it"), rows)


def when(name: str) -> str:
    """The paragraph of a method's page that says when to use it, on one line.

    Raises ValueError if the page does not have one.
    """
    for paragraph in (PAGES / f"{name}.md").read_text(encoding="utf-8").split("\n\n"):
        if paragraph.startswith(WHEN):
            return " ".join(paragraph.removeprefix(WHEN).split())
    raise ValueError(f"docs/methods/{name}.md has no paragraph that starts with {WHEN!r}")


def _linked(name: str, link: str) -> str:
    return f"[`{name}`]({link}{name}.md)"


def head(name: str) -> str:
    """The title of a method and its papers."""
    method = TABLE[name]
    papers = "; ".join(f"[{cited(paper)}]({paper.url})" for paper in method.papers)
    return f"**{prose(facts_of(method)['title'])}.**" + (f" {papers}." if papers else "")


def page(name: str) -> str:
    """Everything else about a method that the code declares."""
    method = TABLE[name]
    facts = facts_of(method)
    parts = ["## In a command line", block(_command_line(method, facts))]
    parts += [_preset(facts["preset"])]
    parts += [prose(_sentence(f"The plan notes: {method.note}"))] if method.note else []
    parts += ["## Needs" if method.from_unseen else "## Needs after the first task", _needs(method)]
    parts += ["## Hyper-parameters", _parameters(facts)]
    parts += ["## Loss terms", _terms(method)]
    parts += _formulas(method)
    parts += ["## State and passes", _state(method), *_passes(method)]
    parts += _hooks(facts)
    if method.papers:
        parts += ["## Papers", *(block(bibtex(paper), "bibtex") for paper in method.papers)]
    return "\n\n".join(parts)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _command_line(method: type[Method], facts: dict[str, Any]) -> str:
    if method.from_unseen:
        return f"vlcpctl train-step TASK... -o OUT --method {method.name}"
    words = f"vlcpctl train-step TASK -o OUT --method {method.name} --previous CHECKPOINT"
    given = ("buffer", "reference")
    return words + "".join(f" --{one} {one.upper()}" for one in given if one in facts["needs"])


def _needs(method: type[Method]) -> str:
    needs: Needs = method().needs(first=False)
    found = [name for name in vars_of(needs) if getattr(needs, name)]
    if not found and method.from_unseen:
        return (
            "The data of all tasks; `--previous` may be a model that was trained on none of them."
        )
    if not found:
        return "Nothing but the checkpoint that it starts from."
    lines = [NEEDS.get(name, f"`{name}`") for name in found]
    policy = [f"the policy `{needs.policy}` for this buffer"] if needs.policy else []
    lines = [line for name, line in zip(found, lines, strict=True) if name != "policy"] + policy
    return "\n".join(f"- {line}" for line in lines)


def vars_of(needs: Needs) -> list[str]:
    """The names of all needs."""
    return list(needs.__dataclass_fields__)


def _parameters(facts: dict[str, Any]) -> str:
    if not facts["parameters"]:
        return "None."
    return "\n".join(_parameter(facts["name"], one) for one in facts["parameters"])


def _parameter(method: str, one: dict[str, Any]) -> str:
    other = presets_that_set(f"{method}.{one['name']}")
    default = str(one["default"]).lower() if isinstance(one["default"], bool) else one["default"]
    about = one["help"]
    about += f" One of {', '.join(one['choices'])}." if one["choices"] else ""
    about += f" Within {one['within']}." if one["within"] else ""
    return entry(
        f"{method}.{one['name']}={default}",
        prose(about),
        f"Origin: {prose(_sentence(one['origin']))}",
        prose(_sentence(other[0].upper() + other[1:])) if other else "",
        prose(_sentence(f"A good value depends on {one['depends']}")) if one["depends"] else "",
    )


def _sources(method: type[Method]) -> Iterator[ast.AST]:
    """The code of a method's class, of its bases and of the functions that these name."""
    for one in method.__mro__:
        if one is not Method and issubclass(one, Method):
            yield ast.parse(textwrap.dedent(inspect.getsource(one)))


def _terms(method: type[Method]) -> str:
    found = dict.fromkeys(name for tree in _sources(method) for name in _term_names(tree))
    found |= dict.fromkeys(one.term for one in getattr(method(), "penalties", ()))
    lines = [] if method.replaces_base else ["- the contrastive loss, `contrastive`"]
    lines += [MASKED_WORDS, *(f"- `{method.name}/{name}`" for name in found)]
    replaced = " Its own terms replace the contrastive loss." if method.replaces_base else ""
    where = f"As they are named in `metrics.jsonl` and by `vlcpctl inspect`.{replaced}"
    return "\n".join([where, "", *lines])


def _term_names(tree: ast.AST) -> Iterator[str]:
    """The keys of the terms that functions returning `Terms` build."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and "Terms" in ast.unparse(
            function.returns or tree
        ):
            for node in ast.walk(function):
                yield from _keys(node)


def _keys(node: ast.AST) -> Iterator[str]:
    values: list[ast.expr] = []
    if isinstance(node, ast.Return) and node.value is not None:
        first = node.value.elts[0] if isinstance(node.value, ast.Tuple) else node.value
        values = [first]
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Name) and target.id == "terms" and node.value is not None:
            values = [node.value]
        if isinstance(target, ast.Subscript) and ast.unparse(target.value) == "terms":
            yield ast.literal_eval(target.slice)
    for value in values:
        if isinstance(value, ast.Dict):
            yield from (key.value for key in value.keys if isinstance(key, ast.Constant))


def _formulas(method: type[Method]) -> list[str]:
    """The functions of `losses` that it calls, with the equations that their docstrings name."""
    names = dict.fromkeys(
        found[1] for tree in _sources(method) for found in _CALL.finditer(ast.unparse(tree))
    )
    entries = [entry(f"losses.{name}", prose(_about(*name.split(".")))) for name in names]
    return ["## Formulas", "\n".join(entries)] if entries else []


def _about(module: str, function: str) -> str:
    """The first paragraph of a docstring, read from the file: importing it takes torch."""
    tree = ast.parse((LOSSES / f"{module}.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == function:
            return (ast.get_docstring(node) or "").split("\n\n")[0]
    raise ValueError(f"losses.{module} has no {function!r}")


_CALL = re.compile(r"\blosses\.([a-z]\w*\.[a-z]\w*)")


def _state(method: type[Method]) -> str:
    one = method()
    slots = {slot.name: slot for first in (True, False) for slot in one.slots(first=first)}
    if not slots:
        return "It keeps no state of its own."
    tasks = {first: {slot.name for slot in one.slots(first=first)} for first in (True, False)}
    rows = []
    for name, slot in slots.items():
        when = "all" if name in tasks[True] & tasks[False] else "the first"
        when = "after the first" if name not in tasks[True] else when
        kept = "to the next task" if slot.lifetime == "stream" else "during a task"
        rows.append((f"`{name}`", when, kept))
    return f"{STATE.format(name=method.name)}\n\n{table_of(('slot', 'in tasks', 'is kept'), rows)}"


def _passes(method: type[Method]) -> list[str]:
    phases = method().phases(first=False)
    more = [_phase(method, phase) for phase in phases if phase.name != TRAIN.name]
    lines = [f"- {one}" for one in more] or ["- none besides training"]
    if method.keeps:
        lines.append(f"- the slot `{method.keeps}` is saved as the model, not the trained weights")
    if method.writes_weights:
        lines.append("- it writes into the trained weights before steps")
    after = "" if method.from_unseen else " in a task after the first"
    return [f"Passes over the data{after}:", "\n".join(lines)]


def _phase(method: type[Method], phase: Phase) -> str:
    has_loss = method.loss is not Method.loss or method.token_loss is not Method.token_loss
    passes = "one pass" if phase.each_epoch or phase.epochs == 1 else f"{phase.epochs} passes"
    when = "before each training epoch" if phase.each_epoch else "after training"
    measures = "gradients" if phase.contrasts or has_loss else "the model, without gradients"
    does = "trains" if phase.trains else f"measures {measures}"
    what = f" the slot `{phase.weights}`" if phase.weights and phase.trains else ""
    return f"`{method.name}/{phase.name}`: {passes} {when}, which {does}{what}"


def _hooks(facts: dict[str, Any]) -> list[str]:
    hooks = ", ".join(f"`{one}`" for one in facts["hooks"]) or "none"
    return [f"Hooks that it overrides: {hooks}."]

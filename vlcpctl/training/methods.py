"""Parse `--method a+b` and `--set a.x=1` into methods with hyper-parameters. Torch-free."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from vlcpctl.core.errors import UsageError, unknown_name
from vlcpctl.core.method import Method
from vlcpctl.core.options import lies_within
from vlcpctl.core.words import parse_number, parse_whole_number
from vlcpctl.methods.plugins.registry import MethodRegistry
from vlcpctl.training.presets import ASKS_FOR, INSTEAD, hyper_of_preset, parse_scale

_LARGEST = 2**31 - 1  # of whole numbers: torch cannot size a tensor by much larger ones


def compose(
    names: str, assignments: Sequence[str] = (), registry: MethodRegistry | None = None
) -> tuple[Method, ...]:
    """The methods of `a+b` with the `assignments` of --set, sorted by name.

    Sorted, so that a+b and b+a are the same run. They are found in `registry`, by default among the
    built-in and the installed ones. Raises UsageError for an unknown method or hyper-parameter, a
    value outside its interval, or methods that cannot be combined, and BadInput for a plug-in that
    cannot be loaded.

    >>> [method.name for method in compose("lwf+ctp", ["ctp.m=0.5"])]
    ['ctp', 'lwf']
    """
    if "," in names:
        raise UsageError(f"--method {names}: + joins methods: {names.replace(',', '+')}")
    chosen = names.replace("der++", "derpp").split("+")  # the paper's name; + joins methods
    registry = registry or MethodRegistry()
    classes = {name: registry.find(name) for name in chosen}
    if len(classes) < len(chosen):
        raise UsageError(f"--method {names} names a method twice")
    values = _by_method(classes, assignments)
    methods = tuple(classes[name](**values[name]) for name in sorted(classes))
    _refuse_clashes(methods)
    return methods


def compose_with(
    preset: str,
    names: str,
    assignments: Sequence[str] = (),
    registry: MethodRegistry | None = None,
) -> tuple[tuple[Method, ...], dict[str, str]]:
    """The methods as `compose` makes them, with what the preset sets of them unless --set does.

    Also the origin of each value that the preset sets, by METHOD.PARAMETER.

    >>> compose_with("tiny", "ctp")[1], compose_with("tiny", "ctp", ["ctp.queue=256"])[1]
    ({'ctp.queue': 'preset tiny, chosen on the validation split of Emoji-9'}, {})
    """
    given = {assignment.partition("=")[0] for assignment in assignments}
    found = {
        assignment: source
        for assignment, source in hyper_of_preset(preset, names.split("+")).items()
        if given.isdisjoint({path := assignment.partition("=")[0], ASKS_FOR.get(path)})
    }
    methods = compose(names, (*found, *assignments), registry)
    origins = {one.partition("=")[0]: f"preset {preset}, {found[one]}" for one in found}
    return methods, origins


def hyper_of(methods: Sequence[Method]) -> dict[str, dict[str, Any]]:
    """The hyper-parameters of every method: method name to field name to value."""
    return {method.name: dataclasses.asdict(method) for method in methods}


def preset_of(methods: Sequence[Method], before: str | None = None) -> str:
    """The default preset: that of the first method with a paper, else of the first method.

    CTP's has a fusion model: without --preset, a dual encoder takes its place, unless `before`, the
    preset of the previous checkpoint, is CTP's.

    >>> preset_of(compose("er")), preset_of(compose("er"), before="ctp")
    ('ctp-dual', 'ctp')
    """
    found = next((method.preset for method in methods if method.papers), methods[0].preset)
    return found if found == before else INSTEAD.get(found, found)


def settings_of_methods(methods: Sequence[Method]) -> dict[str, Any]:
    """The training settings that methods set over the preset, such as DER's replay share."""
    return {name: value for method in methods for name, value in method.settings.items()}


def _by_method(
    classes: Mapping[str, type[Method]], assignments: Sequence[str]
) -> dict[str, dict[str, Any]]:
    values: dict[str, dict[str, Any]] = {name: {} for name in classes}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        name, dot, parameter = path.partition(".")
        if not (equals and dot):
            owner = next((one for one in classes if path in _hyper_names(classes[one])), None)
            guess = f"; did you mean {owner}.{assignment}?" if equals and owner else ""
            raise UsageError(
                f"--set {assignment!r} is not of the form METHOD.PARAMETER=VALUE{guess}"
            )
        if name not in values:
            raise UsageError(
                f"--set {assignment} has no effect: {name!r} is not in --method {'+'.join(classes)}"
            )
        given = f"--set {assignment}"
        values[name][parameter] = parse_hyper(classes[name], name, parameter, text, given)
    return values


def _hyper_names(method: type[Method]) -> list[str]:
    return [field.name for field in dataclasses.fields(method)]


def parse_hyper(owner: type, name: str, parameter: str, text: str, given: str) -> Any:
    """The value of a hyper-parameter of a class of this name; `given` is the option for messages.

    Raises UsageError for an unknown one, or a value that it cannot have.
    """
    fields = {field.name: field for field in dataclasses.fields(owner) if field.metadata}
    if parameter not in fields:
        raise UsageError(unknown_name(f"hyper-parameter of {name}:", parameter, fields))
    field = fields[parameter]
    choices = field.metadata["choices"]
    if choices and text not in choices:
        raise UsageError(unknown_name(f"value of {name}.{parameter}:", text, choices))
    kind: type = type(field.default)
    try:
        value = _PARSERS.get(kind, kind)(text)
    except ValueError as error:
        raise UsageError(f"{given}: {error}") from error
    if kind is int and abs(value) > _LARGEST:
        raise UsageError(f"{given}: the value is too large; at most {_LARGEST} is possible")
    interval = field.metadata["within"]
    if interval and not lies_within(value, interval):
        raise UsageError(f"{given}: the value must be within {interval}")
    return value


def _boolean(text: str) -> bool:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    raise ValueError(f"{text!r} is neither true nor false")


def _claims(method: Method, claim: str) -> bool:
    """Whether a method has such an effect; `keeps` names a slot that its settings may leave out."""
    if claim == "keeps":
        return method.keeps in {slot.name for slot in method.slots(first=False)}
    return bool(getattr(method, claim))


_PARSERS: dict[type, Callable[[str], Any]] = {
    bool: _boolean,
    int: parse_whole_number,
    float: parse_number,
}


def _refuse_clashes(methods: Sequence[Method]) -> None:
    for claim, what in (
        ("replaces_base", "replace the contrastive loss"),
        ("writes_weights", "overwrite the weights"),
        ("keeps", "store other weights than the trained ones"),
    ):
        names = [method.name for method in methods if _claims(method, claim)]
        if len(names) > 1:
            raise UsageError(f"{' and '.join(names)} both {what}; they cannot be combined")


def refuse_idle_scale(methods: Sequence[Method], text: str) -> None:
    """Raise UsageError if `--scale-per-step` has nothing to scale, or lacks a number of steps."""
    names = "+".join(method.name for method in methods)
    having = [method for method in methods if method.per_step(first=False)]
    if not having:
        raise UsageError(
            f"--scale-per-step has no effect with --method {names}: with its current settings it "
            "averages no weights at each step"
        )
    unpublished = [method for method in having if not method.steps_per_task]
    if parse_scale(text) is None and unpublished:
        method = unpublished[0]
        share = f"{method.name}.{method.per_step(first=False)[0]}"
        raise UsageError(
            f"--scale-per-step paper: no paper gives {share}; give the number of steps that it was "
            "chosen for"
        )


def scaled(
    methods: Sequence[Method], text: str | None, steps: int, *, first: bool
) -> tuple[Method, ...]:
    """The methods with their shares per step scaled to a training of `steps`.

    `text` is the value of `--scale-per-step`; None changes nothing.
    """
    if text is None:
        return tuple(methods)
    found = []
    for method in methods:
        chosen_for = parse_scale(text) or method.steps_per_task
        shares = {name: getattr(method, name) for name in method.per_step(first=first)}
        # As much is kept over these steps as the share keeps over those that it was chosen for.
        new = {name: float(one ** (chosen_for / steps)) for name, one in shares.items()}
        found.append(dataclasses.replace(method, **new))
    return tuple(found)


def scale_lines(
    methods: Sequence[Method], text: str | None, steps: int, *, first: bool
) -> Iterator[str]:
    """What `--scale-per-step` changes, a line per hyper-parameter, for the plan."""
    if text is None:
        return
    for method, other in zip(methods, scaled(methods, text, steps, first=first), strict=True):
        for name in method.per_step(first=first):
            yield (
                f"{method.name}.{name} {getattr(method, name):.6g} at "
                f"{parse_scale(text) or method.steps_per_task} "
                f"steps -> {getattr(other, name):.6g} at {steps} steps"
            )

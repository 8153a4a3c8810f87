"""What a column of a published table shows: METRIC[@FIELD=GLOB,...], as in --fail-if."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from vlcpctl.core.errors import BadInput, unknown_name
from vlcpctl.metrics.angles import WHOLE
from vlcpctl.metrics.definitions import DEFINITIONS
from vlcpctl.report.gates.grammar import split_at_commas

Kind = Literal["summary", "key", "drop", "angle", "degrees", "config"]
Pairs = tuple[tuple[str, str], ...]

DROP, DEGREES, CONFIG = "drop", "degrees", "config"
NAMES = ("evaluator", "protocol", "split", "run", "method", "gallery", "data")
STEPS = ("step", "since")
LAST, BEFORE = "last", "start"

_ANGLE = re.compile(r"(sam|ram)_(image|text)|imav_(i2t|t2i)")
_ANGLE_KEY = re.compile(rf"({_ANGLE.pattern})_(mean|\d+_\d+)")
# Keys that the evaluators of this program write.
_KEY = re.compile(r"(i2t|t2i)_r(\d+|mean)|rm|map_\d+|acc\d+|top\d+|mean_per_class_recall")
_OF_MODEL = ("evaluator", "protocol", "split", "run", "method")
# Which fields narrow the choice of a metric; config.NAME does for all.
_TAKES: dict[Kind, tuple[str, ...]] = {
    "summary": (*_OF_MODEL, "gallery"),
    "key": (*_OF_MODEL, "gallery", "data", "step"),
    "drop": (*_OF_MODEL, "data"),
    "angle": ("evaluator", "split", "run", "method", "data", *STEPS),
    "degrees": ("evaluator", "split", "run", "method", "data", *STEPS),
    "config": (*_OF_MODEL, "data", "step"),
}
# Summaries that are means over tasks of a number of each task: with data=, that of one task.
OF_ONE_TASK = ("bwt_gem", "fr_dha")


@dataclass(frozen=True)
class Metric:
    """A metric: a summary or drop in a metric key, a key, a share of angles or a setting.

    `key` is the metric key, the measure of the angles or the name of the setting; `low` and `high`
    bound the angles, in degrees.
    """

    kind: Kind
    key: str
    summary: str | None = None
    low: int = 0
    high: int = WHOLE

    def takes(self, field: str) -> bool:
        """Whether a selector of this field narrows the choice."""
        is_of_task = field == "data" and self.summary in OF_ONE_TASK
        return field.startswith(f"{CONFIG}.") or is_of_task or field in _TAKES[self.kind]


def parse_metric(text: str, where: str, keys: Collection[str] = ()) -> Metric:
    """The metric of this text; `keys` are known metric keys, beside those of the evaluators.

    Raises BadInput, which names `where`, for a metric that is unknown or lacks a part.
    """
    name, _, rest = text.partition(".")
    if text in keys or _KEY.fullmatch(text):
        return Metric("key", text)
    if _ANGLE_KEY.fullmatch(text):
        return Metric("angle", text)
    if name == CONFIG and rest:
        return Metric("config", rest)
    if name == DEGREES:
        return _degrees(rest, where)
    if name not in DEFINITIONS and name != DROP:
        known = [*DEFINITIONS, DROP, f"{DEGREES}.MEASURE.LOW.HIGH", f"{CONFIG}.NAME", *keys]
        raise BadInput(f"{where}: {unknown_name('metric', text, known)}")
    if not rest:
        raise BadInput(f"{where}: {name} needs a metric key, such as {name}.rm")
    if not (rest in keys or _KEY.fullmatch(rest)):
        raise BadInput(f"{where}: {unknown_name('metric key', rest, ['rm', 'acc1', *keys])}")
    return Metric("drop", rest) if name == DROP else Metric("summary", rest, name)


def _degrees(text: str, where: str) -> Metric:
    """The share of the angles of a measure that are in a range."""
    found = re.fullmatch(rf"({_ANGLE.pattern})\.(\d+)\.(\d+)", text)
    low, high = (int(found[found.re.groups - 1]), int(found[found.re.groups])) if found else (0, 0)
    if found is None or not low < high <= WHOLE:
        raise BadInput(
            f"{where}: {DEGREES}.{text} is not {DEGREES}.MEASURE.LOW.HIGH, such as "
            f"{DEGREES}.sam_image.0.5; angles are in whole degrees from 0 to {WHOLE}"
        )
    return Metric("degrees", found[1], None, low, high)


def parse_selectors(text: str, where: str) -> Pairs:
    """(field, glob) pairs of FIELD=GLOB,...; a comma inside brackets is part of a glob.

    Raises BadInput, which names `where`, for another form, an unknown field, a field that is given
    twice, or a step that is not a number, "last" or "start".
    """
    found: dict[str, str] = {}
    for part in split_at_commas(text) if text else []:
        field, equals, glob = part.partition("=")
        if not equals or not glob:
            raise BadInput(f"{where}: {part!r} is not FIELD=GLOB; write a comma in a name as [,]")
        if field in found:
            raise BadInput(f"{where}: {field}= is given twice")
        _check_field(field, glob, where)
        found[field] = glob
    return tuple(found.items())


def _check_field(field: str, glob: str, where: str) -> None:
    if field in NAMES or (field.startswith(f"{CONFIG}.") and field != f"{CONFIG}."):
        return
    if field not in STEPS:
        known = [*NAMES, *STEPS, f"{CONFIG}.NAME"]
        raise BadInput(f"{where}: {unknown_name('field', field, known)}")
    if not (re.fullmatch(r"[0-9]{1,9}", glob) or glob == BEFORE or (field, glob) == ("step", LAST)):
        words = f"{LAST}, {BEFORE}" if field == "step" else BEFORE
        raise BadInput(f"{where}: {field}={glob} is not {words} or a step counted from 0")


def parse_column(text: str, where: str, keys: Collection[str] = ()) -> tuple[Metric, Pairs]:
    """The metric and selectors of METRIC[@FIELD=GLOB,...].

    Raises BadInput as the parsers of both do, and for a field that the metric does not take.
    """
    name, at, rest = text.partition("@")
    if at and not rest:
        raise BadInput(f"{where}: {text!r} has no selector after the @")
    metric, pairs = parse_metric(name, where, keys), parse_selectors(rest, where)
    for field, _ in pairs:
        if not metric.takes(field):
            raise BadInput(f"{where}: {name} takes no {field}=")
    if metric.kind == "key" and "data" in dict(pairs) and dict(pairs).get("gallery") == "merged":
        raise BadInput(f"{where}: a merged gallery is of several data sets and takes no data=")
    return metric, pairs

"""METRIC[@FIELD=GLOB,...]: the language that selects facts of a report.

`--fail-if` has :OP:VALUE behind it, `--best` compares settings by it, and a column of a published
table shows what it selects.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from vlcpctl.core.errors import BadInput, UsageError, VlcpError, unknown_name
from vlcpctl.metrics.angles import WHOLE
from vlcpctl.metrics.calibration import METRICS
from vlcpctl.metrics.definitions import DEFINITIONS

Kind = Literal["summary", "key", "drop", "angle", "degrees", "config"]
Pairs = tuple[tuple[str, str], ...]  # (field, glob)

NAMES = ("evaluator", "protocol", "split", "run", "method", "gallery", "data")
STEPS = ("step", "since")
# Largest drops, of which a condition is about one for each run.
WORST = ("worst_drop", "step_drop", "worst_week")
ROLL_OUT = ("index_loss", "reembed_gain")  # what keeping an index loses, against two others
DROPS = ("drop", *WORST, "drop_low", "drop_high", *ROLL_OUT)
DROP, DEGREES, CONFIG = "drop", "degrees", "config"
LAST, BEFORE = "last", "start"

_ANGLE = re.compile(r"(sam|ram)_(image|text)|imav_(i2t|t2i)")
_ANGLE_KEY = re.compile(rf"({_ANGLE.pattern})_(mean|\d+_\d+)")
_RECALL = re.compile(r"r@([0-9]+|mean)", re.IGNORECASE)  # as papers write it
_DEGREES = re.compile(rf"degrees\.({_ANGLE.pattern})\.(?P<low>\d+)\.(?P<high>\d+)")
# Keys that the evaluators of this program write.
_KEY = re.compile(
    r"(i2t|t2i)_r(\d+|mean)|rm|map_\d+|acc\d+|top\d+|mean_per_class_recall|" + "|".join(METRICS)
)
# A set of characters as `fnmatch` reads it, or any one character.
_GLOB_PART = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)
_OF_MODEL = ("evaluator", "protocol", "split", "run", "method")
# Which fields narrow the choice of a column's metric; config.NAME does for all.
_TAKES: dict[Kind, tuple[str, ...]] = {
    "summary": (*_OF_MODEL, "gallery"),
    "key": (*_OF_MODEL, "gallery", "data", "step"),
    "drop": (*_OF_MODEL, "data"),
    "angle": ("evaluator", "split", "run", "method", "data", *STEPS),
    "degrees": ("evaluator", "split", "run", "method", "data", *STEPS),
    "config": (*_OF_MODEL, "data", "step"),
}
# Summaries that are means over tasks of a number of each task: with data=, that of one task.
_OF_ONE_TASK = ("bwt_gem", "fr_dha")


@dataclass(frozen=True)
class Metric:
    """A metric: a summary or drop in a metric key, a key, a share of angles or a setting.

    `name` is that of a summary or drop. `key` is the metric key (None: the main one of each track),
    the measure of the angles or the name of the setting; `low` and `high` bound the angles, in
    degrees.
    """

    kind: Kind
    key: str | None
    name: str | None = None
    low: int = 0
    high: int = WHOLE

    @property
    def text(self) -> str:
        """The metric as it was given: such as "bwt_gem.t2i_r1" or "rm"."""
        return ".".join(part for part in (self.name, self.key) if part)

    def takes(self, field: str) -> bool:
        """Whether a selector of this field narrows the choice of a column."""
        is_of_task = field == "data" and self.name in _OF_ONE_TASK
        return field.startswith(f"{CONFIG}.") or is_of_task or field in _TAKES[self.kind]


@dataclass(frozen=True)
class Dialect:
    """What one use of the language accepts, and the error that it raises for the rest.

    Columns of published tables show angles and settings, too. Their files are read with rows of any
    evaluator, so that each names its metric key, which the rows need not have.
    """

    error: type[VlcpError]
    drops: tuple[str, ...]
    fields: tuple[str, ...]
    is_column: bool

    def has_key(self, text: str, keys: Collection[str]) -> bool:
        """Whether the text is a metric key; `keys` are those of the rows."""
        return text in keys or (self.is_column and _KEY.fullmatch(text) is not None)

    def has_field(self, name: str) -> bool:
        """Whether a selector may be of this field."""
        is_setting = name.startswith(f"{CONFIG}.") and name != f"{CONFIG}."
        return name in self.fields or (self.is_column and is_setting)


CONDITION = Dialect(UsageError, DROPS, NAMES, is_column=False)
COLUMN = Dialect(BadInput, (DROP,), (*NAMES, *STEPS, f"{CONFIG}.NAME"), is_column=True)


def parse(
    text: str, where: str, keys: Collection[str], dialect: Dialect = CONDITION
) -> tuple[Metric, Pairs]:
    """The metric and selectors of METRIC[@FIELD=GLOB,...]; `keys` are the metric keys of the rows.

    Names may contain any character: the selectors start behind the longest known metric, and a
    comma or bracket in a pattern is written [,] or [[]. Raises the error of the dialect, which
    names `where`, for another form, an unknown metric or field, or one that the metric does not
    take.

    >>> metric, selectors = parse("drop.acc1@data=a:b*,run=x", "--fail-if", ["rm", "acc1"])
    >>> metric.name, metric.key, selectors
    ('drop', 'acc1', (('data', 'a:b*'), ('run', 'x')))
    """
    ends = [len(text), *(place for place in range(len(text) - 1, -1, -1) if text[place] == "@")]
    for end in ends:
        metric = _known(text[:end], keys, dialect)
        if metric is not None:
            break
    else:
        name = text if _RECALL.match(text) else text.partition("@")[0]
        raise dialect.error(f"{where}: {_why_unknown(name, keys, dialect)}")
    selectors = parse_selectors(text[end + 1 :], where, dialect) if end < len(text) else ()
    given = dict(selectors)
    if dialect.is_column:
        for field in given:
            if not metric.takes(field):
                raise dialect.error(f"{where}: {text[:end]} takes no {field}=")
        if metric.kind == "key" and "data" in given and given.get("gallery") == "merged":
            raise dialect.error(
                f"{where}: a merged gallery is of several data sets and takes no data="
            )
    elif metric.kind == "summary" and "data" in given:
        raise dialect.error(
            f"{where}: {metric.name} is computed over all tasks of a run and takes no data=; "
            f"use {metric.key or 'a metric key'}@data=... or drop@data=... for single data sets"
        )
    return metric, selectors


def _known(text: str, keys: Collection[str], dialect: Dialect) -> Metric | None:
    """The metric of this text, if there is such a one."""
    name, _, key = text.partition(".")
    if dialect.has_key(text, keys):
        return Metric("key", text)
    if name in DEFINITIONS or name in dialect.drops:
        is_whole = dialect.has_key(key, keys) or (text == name and not dialect.is_column)
        kind: Kind = "summary" if name in DEFINITIONS else "drop"
        return Metric(kind, key or None, name) if is_whole else None
    if not dialect.is_column:
        return None
    if _ANGLE_KEY.fullmatch(text):
        return Metric("angle", text)
    if name == CONFIG and key and "@" not in key:
        return Metric("config", key)
    found = _DEGREES.fullmatch(text)
    low, high = (int(found["low"]), int(found["high"])) if found else (0, 0)
    return Metric("degrees", found[1], None, low, high) if found and low < high <= WHOLE else None


def _why_unknown(text: str, keys: Collection[str], dialect: Dialect) -> str:
    if recall := _RECALL.match(text):
        wanted = f"_r{recall[1].lower()}"
        meant = [key for key in sorted(keys) if key.endswith(wanted)] or ["i2t_r1", "t2i_r1"]
        return f"{recall[0]} has the name {' or '.join(meant)} here; rm is the mean of all recalls"
    name, dot, key = text.partition(".")
    if dialect.is_column and name == DEGREES:
        return (
            f"{text} is not {DEGREES}.MEASURE.LOW.HIGH, such as {DEGREES}.sam_image.0.5; "
            f"angles are in whole degrees from 0 to {WHOLE}"
        )
    if dot and dialect.has_key(name, keys):
        return (
            f"{name} is a metric key, to which no .{key} can be added; use {name}, or a summary of "
            f"it such as own_final.{name}"
        )
    if name not in DEFINITIONS and name not in dialect.drops:
        more = (f"{DEGREES}.MEASURE.LOW.HIGH", f"{CONFIG}.NAME") if dialect.is_column else ()
        return unknown_name("metric", name, [*DEFINITIONS, *dialect.drops, *more, *keys])
    if dialect.is_column and not key:
        return f"{name} needs a metric key, such as {name}.rm"
    usual = ("rm", "acc1") if dialect.is_column else ()
    return unknown_name("metric key", key, [*usual, *keys])


def parse_selectors(text: str, where: str, dialect: Dialect) -> Pairs:
    """(field, glob) pairs of FIELD=GLOB,...; a comma inside brackets is part of a glob.

    Raises the error of the dialect, which names `where`, for another form, an unknown field, a
    field that is given twice, or a step that is not a number, "last" or "start".
    """
    found: dict[str, str] = {}
    for part in _parts(text):
        field, equals, glob = part.partition("=")
        if not equals:
            raise dialect.error(
                f"{where}: {part!r} is not FIELD=GLOB; write a comma in a name as [,]"
            )
        if not dialect.has_field(field):
            raise dialect.error(f"{where}: {unknown_name('field', field, dialect.fields)}")
        if field in found:
            advice = "" if dialect.is_column else "; use two conditions"
            raise dialect.error(f"{where}: {field}= is given twice{advice}")
        if not glob:
            raise dialect.error(f"{where}: {field}= has no pattern; * matches every name")
        words = (LAST, BEFORE) if field == "step" else (BEFORE,)
        if field in STEPS and glob not in words and not re.fullmatch("[0-9]{1,9}", glob):
            raise dialect.error(
                f"{where}: {field}={glob} is not {', '.join(words)} or a step counted from 0"
            )
        found[field] = glob
    return tuple(found.items())


def _parts(text: str) -> list[str]:
    """The parts of a text between commas; a comma inside brackets is part of a glob.

    >>> _parts("data=a[,]b,run=x")
    ['data=a[,]b', 'run=x']
    """
    parts = [""]
    for found in _GLOB_PART.findall(text):
        if found == ",":
            parts.append("")
        else:
            parts[-1] += found
    return parts

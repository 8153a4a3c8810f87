"""Reference tables: rows, manifests, presets, exit codes."""

from __future__ import annotations

from _generate import manifest_fields
from _generate.markdown import prose, table
from vlcpctl.core import errors
from vlcpctl.core.options import options_of
from vlcpctl.files.rows import Row
from vlcpctl.metrics.definitions import DEFINITIONS, LEGEND
from vlcpctl.training.config.presets import names, preset
from vlcpctl.training.config.settings import PRESET, Settings


def exit_codes() -> str:
    """Every exit code with its meaning."""
    cells = [(str(code), prose(text)) for code, text in errors.exit_codes().items()]
    return table(("code", "meaning"), cells)


def presets() -> str:
    """The values of every preset, each with its origin, and those of options that one lacks."""
    return "\n\n".join([*(_preset(name) for name in names()), _defaults()])


def _preset(name: str) -> str:
    rows = []
    found = preset(name)
    for setting, value in found.settings.items():
        origin = found.sources.get(setting, "the paper")
        rows.append((f"`--{setting.replace('_', '-')}`", f"`{_shown(value)}`", prose(origin)))
    for assignment, source in found.hyper.items():
        rows.append(("`--set`", f"`{assignment}`", prose(source)))
    return f"## {name}\n\n" + table(("option", "value", "origin"), rows)


def _defaults() -> str:
    """The defaults of the options that some presets set and others do not."""
    several = [preset(name).settings for name in names()]
    given = dict.fromkeys(setting for values in several for setting in values)
    required = set.intersection(*(set(values) for values in several))
    rows = [
        (f"`--{name.replace('_', '-')}`", _default(name)) for name in given if name not in required
    ]
    head = "An option that a preset does not list has this value:"
    return f"## Defaults\n\n{head}\n\n" + table(("option", "default"), rows)


def _default(name: str) -> str:
    """The value of a setting that no preset has, or in words where it comes from then."""
    row, value = options_of(Settings)[name][0], getattr(Settings, name)
    words = row.otherwise.removeprefix(PRESET).removeprefix(", or ")
    return prose(words) if value in (None, "") and words else f"`{_shown(value)}`"


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def rows() -> str:
    """The fields of rows that reports read."""
    described = manifest_fields.described(Row)
    return table(("field", ""), [(f"`{name}`", text) for name, text in described.items()])


def definitions() -> str:
    """The metrics of learning and forgetting that reports compute."""
    cells = [
        (f"`{one.name}`", f"`{one.formula}`", prose(one.reading), prose(one.source))
        for one in DEFINITIONS.values()
    ]
    return f"{prose(LEGEND)}\n\n{table(('name', 'formula', 'reading', 'source'), cells)}"


def manifests() -> str:
    """The fields of every manifest, and of the other JSON files."""
    common = [(f"`{name}`", text) for name, text in manifest_fields.COMMON.items()]
    parts = ["## Fields that manifests share", table(("field", ""), common)]
    kinds = {**manifest_fields.KINDS, **manifest_fields.RECORDS}
    return "\n\n".join([*parts, *(_kind(name, kind) for name, kind in kinds.items())])


def _kind(name: str, kind: manifest_fields.Kind) -> str:
    shared = ", ".join(f"`{one}`" for one in kind.common)
    cells = [(f"`{field}`", text) for field, text in kind.fields.items()]
    return (
        f"## {kind.file}\n\n{kind.what} Schema `vlcpctl.{name}/1`. It has {shared}, and:\n\n"
        + table(("field", ""), cells)
    )

"""Reference tables: rows, manifests, presets, exit codes."""

from __future__ import annotations

from _generate.markdown import prose, table
from vlcpctl.core.errors import VlcpError
from vlcpctl.training.config.presets import PRESETS, source_of

_CODES = {
    0: "Done.",
    1: "Something else failed, such as a full disk.",
    129: "Ended by SIGHUP, nothing saved.",
    130: "Interrupted by Ctrl-C, nothing saved.",
    141: "The program that read stdout closed it (broken pipe).",
    143: "Ended by SIGTERM, nothing saved.",
}


def exit_codes() -> str:
    """Every exit code with its meaning."""
    codes = dict(_CODES)
    for error in VlcpError.__subclasses__():
        if error.__module__ == VlcpError.__module__:
            codes[error.exit_code] = (error.__doc__ or "").splitlines()[0]
    return table(("code", ""), [(str(code), prose(codes[code])) for code in sorted(codes)])


def presets() -> str:
    """The values of every preset, each with its origin."""
    return "\n\n".join(_preset(name) for name in PRESETS)


def _preset(name: str) -> str:
    rows = []
    for setting, value in PRESETS[name].items():
        origin = source_of(name, setting).removeprefix(", ") or "the paper"
        rows.append((f"`--{setting.replace('_', '-')}`", f"`{_shown(value)}`", prose(origin)))
    return f"## {name}\n\n" + table(("option", "value", "origin"), rows)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def rows() -> str:
    return ""


def manifests() -> str:
    return ""

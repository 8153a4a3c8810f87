"""Fills the generated parts of pages while Sphinx reads them, and writes the pages of commands.

A page names a part, and words for it, in a comment on a line of its own:
`<!-- generated: method ctp -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from _generate import commands, methods, published_tables, reference
from vlcpctl.commands import COMMANDS

DOCS = Path(__file__).parents[1]
PARTS: dict[str, Callable[..., str]] = {
    "methods": methods.table,
    "when-to-use": methods.when_table,
    "method-head": methods.head,
    "method": methods.page,
    "rows": reference.rows,
    "definitions": reference.definitions,
    "manifests": reference.manifests,
    "presets": reference.presets,
    "published-tables": published_tables.catalogue,
    "exit-codes": reference.exit_codes,
    "functions": commands.functions,
}
_MARK = re.compile(r"^<!-- generated: (.+) -->$", re.MULTILINE)


def filled(text: str) -> str:
    """A page with its parts; KeyError if it names an unknown one."""

    def part(found: re.Match[str]) -> str:
        name, *words = found[1].split()
        return PARTS[name](*words).strip()

    return _MARK.sub(part, text)


def write_commands(folder: Path) -> None:
    """Write the page of every command, and their list, into a folder; pages of others go."""
    folder.mkdir(exist_ok=True)
    texts = {f"{name}.md": f"# vlcpctl {name}\n\n{commands.page(name)}\n" for name in COMMANDS}
    texts["index.md"] = commands.index()
    for path in folder.glob("*.md"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        # One that is as it was keeps its time, and Sphinx does not read it again.
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _generated(_app: Sphinx, env: BuildEnvironment, *_: object) -> list[str]:
    """The pages with generated parts, which are read again in every build."""
    return [name for name in env.found_docs if _MARK.search(env.doc2path(name).read_text("utf-8"))]


def setup(app: Sphinx) -> None:
    """Connect all of it to a build."""
    app.connect("config-inited", lambda app, _: write_commands(Path(app.srcdir) / "commands"))
    app.connect("env-get-outdated", _generated)
    app.connect("source-read", _fill)


def _fill(_app: Sphinx, _name: str, source: list[str]) -> None:
    source[0] = filled(source[0])

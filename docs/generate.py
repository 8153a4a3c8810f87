"""Writes the generated parts of README.md and of these pages, by cog.

    python docs/generate.py           writes them, and a page for each new command or method
    python docs/generate.py --check   exits with 1 if a page is missing, or anything not current

A block of a page names one of `PARTS`:

    <!-- [[[cog
    import sys; sys.path.append("docs"); import generate; generate.part("method", "ctp")
    ]]] -->
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections.abc import Callable
from pathlib import Path
from string import Template

from _generate import (
    claims,
    commands,
    methods,
    protect,
    published_tables,
    reference,
    styles,
)
from cogapp import Cog

from vlcpctl.commands import COMMANDS
from vlcpctl.methods import TABLE

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PARTS: dict[str, Callable[..., str]] = {
    "claims": claims.table,
    "claims in words": claims.sentences,
    "styles": styles.table,
    "protect": protect.table,
    "commands": commands.table,
    "command": commands.page,
    "methods": methods.table,
    "methods linked": methods.linked_table,
    "when to use": methods.when_table,
    "method head": methods.head,
    "method": methods.page,
    "rows": reference.rows,
    "definitions": reference.definitions,
    "manifests": reference.manifests,
    "presets": reference.presets,
    "published tables": published_tables.catalogue,
    "exit codes": reference.exit_codes,
    "quickstart": reference.quickstart,
    "functions": commands.functions,
}
TO_WRITE = "Write here what it does in plain words, when it makes sense, and what it costs."
_MARK = "[[[" + "cog"
_COMMAND = Template("""# vlcpctl $name

<!-- $mark
import sys; sys.path.append("docs"); import generate; generate.part("command", "$name")
]]] -->
<!-- [[[end]]] -->
""")
_METHOD = Template("""# $name

<!-- $mark
import sys; sys.path.append("docs"); import generate; generate.part("method head", "$name")
]]] -->
<!-- [[[end]]] -->

$to_write

$when Write here one sentence for the tables of methods.

<!-- $mark
import sys; sys.path.append("docs"); import generate; generate.part("method", "$name")
]]] -->
<!-- [[[end]]] -->
""")


def part(name: str, *words: str) -> None:
    """Write a generated part into the block that calls this; what it lacks is one line of cog's."""
    import cog  # which exists only while cog runs a block

    try:
        text = PARTS[name](*words)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        cog.error(f"{' '.join([name, *words])}: {error}")
    cog.outl(f"\n{text.strip()}\n")


def missing_pages() -> dict[Path, str]:
    """The page of every command and method that has none, with the text to start it with."""
    texts = {DOCS / "commands" / f"{name}.md": (name, _COMMAND) for name in COMMANDS}
    texts |= {DOCS / "methods" / f"{name}.md": (name, _METHOD) for name in TABLE}
    return {
        path: text.substitute(name=name, mark=_MARK, to_write=TO_WRITE, when=methods.WHEN)
        for path, (name, text) in texts.items()
        if not path.exists()
    }


def pages() -> list[Path]:
    """README.md and the pages of docs/ with a generated part."""
    found = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [path for path in found if _MARK in path.read_text(encoding="utf-8")]


def main() -> int:
    """Write or check all generated parts; the exit status."""
    parser = argparse.ArgumentParser(description="Write the generated parts of the documentation.")
    parser.add_argument(
        "--check", action="store_true", help="Change nothing; exit with 1 if stale."
    )
    check = parser.parse_args().check
    new = missing_pages()
    for path, text in new.items():
        print(f"{path.relative_to(ROOT)}: {'is missing' if check else 'new'}", file=sys.stderr)
        if not check:
            path.write_text(text, encoding="utf-8")
    said = io.StringIO()
    names = [str(path.relative_to(ROOT)) for path in pages()]
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(said):
        status = Cog().main(["cog", "--check" if check else "-r", *names])
    for line in said.getvalue().splitlines():
        if not line.startswith("Checking ") or line.endswith("(changed)"):
            print(line, file=sys.stderr)
    if check and (new or status):
        print("python docs/generate.py writes them", file=sys.stderr)
    return 1 if status or (check and new) else 0


if __name__ == "__main__":
    sys.exit(main())

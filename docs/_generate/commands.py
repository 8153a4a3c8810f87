"""The pages of the commands and the table of the functions, from the fields and docstrings."""

from __future__ import annotations

import inspect
import textwrap

from _generate.markdown import block, entry, prose
from _generate.markdown import table as table_of
from vlcpctl.api import NAMES
from vlcpctl.commands import COMMANDS, command_class
from vlcpctl.commands.command import help_rows
from vlcpctl.core.options import options_of

_RESULTS = {
    "Path": "the path of the result",
    "Rows": "rows, a list of dicts",
    "Facts": "a dict",
    "Report": "a `Report`",
    "str": "what it prints",
}


_INDEX = """# Commands

{table}

- `vlcpctl COMMAND -h` is a short help, `--help` a longer one, and `--help-all` has every option,
  as these pages do.
- Results go to stdout, everything else to stderr. Commands print the path they wrote, or rows as
  one JSON object per line. Where a command reads or writes rows or lists, `-` is stdin or stdout.
- Every option can be set with an environment variable, such as `VLCPCTL_TRAIN_STEP_LR` for `--lr`
  of `train-step`.
- `--debug`, anywhere on the command line, or `VLCPCTL_DEBUG=1` prints the traceback of an error.
- [Exit codes](../guides/troubleshooting.md#exit-codes) are the same for all commands.

```{{toctree}}
:hidden:
:glob:

*
```
"""


def index() -> str:
    """The page that lists every command with its summary."""
    rows = [(f"[vlcpctl {name}]({name}.md)", prose(one.summary)) for name, one in COMMANDS.items()]
    return _INDEX.format(table=table_of(("command", ""), rows))


def functions() -> str:
    """Every function with its command and what it returns."""
    rows = []
    for command, name in NAMES.items():
        link = f"[vlcpctl {command}](../commands/{command}.md)"
        rows.append((f"`{name}`", link, prose(COMMANDS[command].summary), _returned(command)))
    return table_of(("function", "runs", "", "returns"), rows)


def _returned(command: str) -> str:
    """What a function returns, in words."""
    from vlcpctl.api import functions

    if command == "update":
        return "the path of the checkpoint"
    name = getattr(functions, NAMES[command]).__annotations__["return"]
    return _RESULTS[name]


def page(name: str) -> str:
    """A command's page: its docstring, arguments, options and examples."""
    kind = command_class(name)
    paragraphs = inspect.cleandoc(kind.__doc__ or "").split("\n\n")
    examples = [one for one in paragraphs if one.startswith("Examples:")]
    lines = [textwrap.dedent(text.split("\n", 1)[1]) for text in examples]
    summary, *more = (_paragraph(one) for one in paragraphs if one not in examples)
    arguments = [
        f"{row.metavar}{'...' if 'list' in str(of) else ''}"
        for row, of in options_of(kind).values()
        if row.is_argument
    ]
    parts = [summary, *(block(_first(text)) for text in lines), *more]
    parts += [block(" ".join(["vlcpctl", name, "[OPTIONS]", *arguments]))]
    for section, rows in help_rows(kind, with_rare=True).items():
        entries = [entry(term, prose(text.replace("  [", " ["))) for term, text in rows]
        parts.append(f"## {section}\n\n" + "\n".join(entries))
    for text in lines:
        parts += ["## Command lines of the help", block(text)]
    return "\n\n".join(parts)


def _first(examples: str) -> str:
    """The first of several command lines, which may go on after a backslash."""
    lines = examples.splitlines()
    end = next(place for place, line in enumerate(lines) if not line.endswith("\\"))
    return "\n".join(lines[: end + 1])


def _paragraph(text: str) -> str:
    """A paragraph of a docstring; one with indented lines is shown as it is."""
    if any(line.startswith(" ") for line in text.splitlines()):
        return block(textwrap.dedent(text))
    return prose(text)

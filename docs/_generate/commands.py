"""The pages of the commands, from the options and docstrings that their help shows."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

import typer.main

from _generate.markdown import block, entry, prose
from _generate.markdown import table as table_of
from vlcpctl.cli import MANY, application
from vlcpctl.commands import COMMANDS, options


def table() -> str:
    """Every command with its summary, linked to its page."""
    rows = [(f"[vlcpctl {name}]({name}.md)", prose(one.summary)) for name, one in COMMANDS.items()]
    return table_of(("command", ""), rows)


def page(name: str) -> str:
    """A command's page: its docstring, arguments, options and examples."""
    group: Any = typer.main.get_command(application(name))
    command = group.commands[name]
    context = typer.Context(
        command, info_name=f"vlcpctl {name}", help_option_names=["-h", "--help"]
    )
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    examples = [one for one in paragraphs if one.startswith("Examples:")]
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [textwrap.dedent(text.split("\n", 1)[1]) for text in examples]
    summary, *more = (_paragraph(one) for one in paragraphs if one not in examples)
    parts = [summary, *(block(_first(text)) for text in lines), *more]
    parts += [block(f"vlcpctl {name} {usage}")]
    parts += _sections(command, context)
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


def _sections(command: Any, context: Any) -> list[str]:
    """The arguments, and the options by section as in the help."""
    sections: dict[str, list[str]] = {}
    parameters = [one for one in command.get_params(context) if not getattr(one, "hidden", False)]
    grouped = sum(one.param_type_name == "option" for one in parameters) > MANY
    for parameter in parameters:
        parameter.show_envvar = False
        term, text = parameter.get_help_record(context)
        section = "Options"
        if parameter.param_type_name == "argument":
            section, term = "Arguments", term.split(" <")[0]
        elif grouped:
            section = parameter.rich_help_panel or options.OUTPUT
        sections.setdefault(section, []).append(entry(term, prose(text.replace("  [", " ["))))
    ordered = ("Arguments", *options.PANELS, "Options")
    return [f"## {one}\n\n" + "\n".join(sections[one]) for one in ordered if one in sections]

"""The top of a report: the verdict on all conditions, each condition, baselines and guards."""

from __future__ import annotations

from vlcpctl.core.markdown import escaped
from vlcpctl.report.document import Document, verdicts_table
from vlcpctl.report.gates.verdicts import overall
from vlcpctl.report.markup import Markup, element, joined
from vlcpctl.report.render.html_table import html_table
from vlcpctl.report.render.markdown import bullets, table_text

# Beside words and the form of the border, so that nothing depends on colour.
_MARKS = {"passes": "\u2713", "fails": "\u2717", "undefined": "?"}


def gates_html(document: Document) -> Markup:
    """The verdicts as HTML, with a line about all of them first."""
    compared = joined(*(element("p", line, class_="about") for line in document.compared_with()))
    if not document.verdicts:
        return compared
    words = overall(document.verdicts)
    name, rest = words.split(":", 1)
    line = element(
        "p",
        element("span", f"{_MARKS[name]} ", aria_hidden="true"),
        element("b", name.capitalize()),
        f":{rest}",
        class_=f"verdict {name}",
    )
    return joined(line, compared, html_table(verdicts_table(document.verdicts)))


def gates_markdown(document: Document) -> list[str]:
    """The same as blocks of Markdown."""
    lines = document.compared_with()
    compared = [bullets(lines)] if lines else []
    if not document.verdicts:
        return compared
    line = f"**{escaped(overall(document.verdicts))}**"
    return [line, *compared, table_text(verdicts_table(document.verdicts))]

"""Jinja templates of pages: every value that is not itself markup is escaped and made printable."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from vlcpctl.core.printable import printable
from vlcpctl.report.markup import Markup

if TYPE_CHECKING:
    import jinja2

_BREAK = re.compile(r"\n\s*")


@cache
def _template(name: str) -> jinja2.Template:
    """A file of `templates`; line breaks and indentation in it are not part of the page."""
    import jinja2

    text = files("vlcpctl.report").joinpath("templates", name).read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, finalize=_as_markup, undefined=jinja2.StrictUndefined
    )
    return environment.from_string(_BREAK.sub("", text))


def _as_markup(value: object) -> object:
    return value if hasattr(value, "__html__") else Markup(escape(printable(value)))


def render(template: str, macro: str, *values: Any) -> Markup:
    """What a macro of a template makes of these values."""
    return Markup(getattr(_template(template).module, macro)(*values))

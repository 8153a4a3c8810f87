"""A report as a Python object, which a notebook shows."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

# The page's scripts run as those of another site: they cannot reach the notebook around it.
_FRAME = (
    '<iframe title="report" srcdoc="{}" sandbox="allow-scripts" allow="clipboard-write" '
    'style="width: 100%; height: 40em; border: 1px solid #8886"></iframe>'
)


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report of learning and forgetting, which a notebook shows.

    `path` is its directory, None if it was made without `out`; `summary` is its summary.json,
    `facts` are the lines of its facts.csv, one for each number (0.3 wrote none), and `page`
    is its report.html.
    """

    path: Path | None
    summary: dict[str, Any] = field(repr=False)
    page: str = field(repr=False)
    facts: list[dict[str, Any]] = field(repr=False)

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Report:
        """The report in a directory. Raises BadInput if it cannot be read."""
        from vlcpctl.files.inputs import read_json_object, reading
        from vlcpctl.report.report import FACTS, read_facts

        path = Path(path)
        summary = read_json_object(path / "summary.json")
        with reading(path / "report.html"):
            page = (path / "report.html").read_text(encoding="utf-8")
        place = path / FACTS
        facts = read_facts(place.read_text(encoding="utf-8")) if place.exists() else []
        return cls(path=path, summary=summary, page=page, facts=facts)

    def _repr_html_(self) -> str:
        return _FRAME.format(html.escape(self.page))

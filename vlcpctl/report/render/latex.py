r"""Tables as LaTeX: a complete table environment for the packages booktabs and siunitx."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from vlcpctl.core.words import printable
from vlcpctl.report.scores.paper_names import meanings, paper_name, with_paper_names
from vlcpctl.report.tables.table import (
    UNDEFINED,
    Column,
    Table,
    TableCell,
    upper_headings,
)

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    **{char: f"\\{char}" for char in "&%$#_{}"},
}
# Two of these become one character in a font: en dashes, quotation marks.
_JOINED = re.compile(r"([-`',])(?=\1)")
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")
_ARROWS = {None: "", True: r" $\uparrow$", False: r" $\downarrow$"}
_WORDS = {"run": "Run", "method": "Method", "seeds": "Seeds"}
_WAYS = {"i2t": "Image to text", "t2i": "Text to image", "both": "Both"}
_LATIN = range(0x250)  # what pdfLaTeX reads without further packages, more or less
_MANY = 8  # columns of numbers; more are set smaller
_WIDE = 70  # characters of a line that may be wider than a page
_HEAD = r"% Needs \usepackage{booktabs} and \usepackage{siunitx}."
_WIDE_HEAD = r"% Needs \usepackage{booktabs}, \usepackage{siunitx} and \usepackage{graphicx}."
_FIT = (
    r"% A table wider than the text is made smaller; on a page sideways (pdflscape) it is larger."
)
_FOREIGN = "% Has characters that pdfLaTeX cannot set; LuaLaTeX can with a font that has them."
_FITTED = (
    r"  \end{lrbox}",
    r"  \ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi",
)
_SET_UP = (
    r"\sisetup{detect-weight = true, separate-uncertainty = true, retain-explicit-plus = true}"
)


def table_latex(table: Table, label: str) -> str:
    """The table as a table environment with its title as the caption, notes below.

    Keys of metrics have the names and arrows of papers. Numbers are in S columns with a deviation
    as +-, the best of a column is bold. A table that may be wider than the text is scaled down to
    its width, if it is, by graphicx.
    """
    meaning = ""
    if not table.is_ordered:  # the tables of papers have their own headings
        meaning = meanings(column.name for column in table.columns if column.is_number)
        table = replace(table, columns=tuple(map(_in_papers, table.columns)))
    count = len(table.columns)
    has_many = count - table.keys > _MANY
    size = r"\scriptsize\setlength{\tabcolsep}{2.5pt}" if has_many else r"\small"
    is_wide = _characters(table) > _WIDE
    formats = [_format(column, cells) for column, cells in _by_column(table)]
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{escaped(with_paper_names(table.title))}}}",
        rf"  \label{{tab:{label}}}",
        f"  {size}",
        f"  {_SET_UP}",
        *([r"  \begin{lrbox}{0}"] if is_wide else []),
        r"  \begin{tabular}{",
        *(f"    {one}" for one in formats),
        "  }",
        r"    \toprule",
        *(f"    {line}" for line in _heads(table.columns, has_arrows=not table.is_ordered)),
        *(f"    {line}" for line in _body(table, formats)),
        r"    \bottomrule",
        r"  \end{tabular}",
        *(_FITTED if is_wide else []),
        *_notes([*table.notes, *([meaning] if meaning else [])]),
        r"\end{table}",
    ]
    is_foreign = any(ord(char) not in _LATIN for line in lines for char in line)
    head = [_WIDE_HEAD, _FIT] if is_wide else [_HEAD]
    return "\n".join([*head, *([_FOREIGN] if is_foreign else []), *lines]) + "\n"


def _characters(table: Table) -> int:
    """The characters of a line, with two for the space after each column."""
    return sum(
        2 + max([len(column.name), *(len(cell.line) for cell in cells)])
        for column, cells in _by_column(table)
    )


def escaped(text: str) -> str:
    r"""The text on one line as LaTeX shows it literally.

    >>> escaped("50 % of a_b -- {x}")
    '50 \\% of a\\_b -{}- \\{x\\}'
    """
    line = " ".join(printable(text).split())
    return _JOINED.sub(r"\1{}", "".join(_SPECIAL.get(char, char) for char in line))


def _by_column(table: Table) -> Iterable[tuple[Column, list[TableCell]]]:
    rows = [row for group in table.groups for row in group.rows]
    return ((column, [row[place] for row in rows]) for place, column in enumerate(table.columns))


def _format(column: Column, cells: Sequence[TableCell]) -> str:
    """A column of numbers that are aligned at the decimal marker, or one of words."""
    numbers = [cell for cell in cells if _NUMBER.fullmatch(cell.text)]
    if not column.is_number or not numbers:
        return "c" if column.is_number else "l"
    signs = {cell.text[0] for cell in numbers} & {"-", "+"}
    parts = [cell.text.lstrip("-+").partition(".") for cell in numbers]
    whole, decimals = max(len(one[0]) for one in parts), max(len(one[2]) for one in parts)
    sds = [len(cell.sd.replace(".", "").lstrip("0")) for cell in numbers if cell.sd]
    sd = f"({max(1, *sds)})" if sds else ""
    sign = "-" if signs else ""
    return f"S[table-format={sign}{whole}{f'.{decimals}' if decimals else ''}{sd}]"


def _heads(columns: Sequence[Column], *, has_arrows: bool) -> Iterable[str]:
    """The heading, below upper ones with a rule under each."""
    spans = upper_headings(columns)
    if spans:
        cells = [
            rf"\multicolumn{{{count}}}{{c}}{{{escaped(over)}}}" if over else " & " * (count - 1)
            for over, count in spans
        ]
        yield f"{' & '.join(cells)} \\\\"
        yield " ".join(_rules(spans))
    heads = (_head(column, has_arrow=has_arrows) for column in columns)
    yield f"{' & '.join(heads)} \\\\"


def _rules(spans: Iterable[tuple[str, int]]) -> Iterable[str]:
    first = 1
    for over, count in spans:
        if over:
            yield rf"\cmidrule(lr){{{first}-{first + count - 1}}}"
        first += count


def _head(column: Column, *, has_arrow: bool) -> str:
    """The heading in braces: a column of numbers would read it as one."""
    arrow = _ARROWS[column.higher_is_better] if has_arrow else ""
    return f"{{{escaped(column.name)}{arrow}}}"


def _body(table: Table, formats: Sequence[str]) -> Iterable[str]:
    for group in table.groups:
        yield r"\midrule"
        if group.name:
            name = rf"\textit{{{escaped(group.name)}}}"
            yield rf"\multicolumn{{{len(table.columns)}}}{{l}}{{{name}}} \\"
        for number, row in enumerate(group.rows):
            if table.is_ordered and number and row[0].text:
                yield r"\addlinespace"
            cells = (_cell(cell, form) for cell, form in zip(row, formats, strict=True))
            yield f"{' & '.join(cells)} \\\\"


def _cell(cell: TableCell, form: str) -> str:
    is_bold = cell.is_best or cell.is_strong
    if form.startswith("S") and _NUMBER.fullmatch(cell.text):
        number = f"{cell.text} +- {cell.sd}" if cell.sd else cell.text
        return rf"\bfseries {number}" if is_bold else number
    text = "--" if cell.text == UNDEFINED and cell.is_faint else escaped(cell.line)
    if is_bold and text:
        text = rf"\textbf{{{text}}}"
    # Braces also keep a bracket at the start of a line from being an argument of the line before.
    return f"{{{text}}}" if text and (form.startswith("S") or text[0] in "[*") else text


def _notes(notes: Sequence[str]) -> Iterable[str]:
    """One small paragraph, so that they take few lines of a page."""
    if notes:
        yield r"  \par\smallskip"
        yield r"  \begin{minipage}{\linewidth}\scriptsize"
        yield f"    {escaped('; '.join(notes))}"
        yield r"  \end{minipage}"


def _in_papers(column: Column) -> Column:
    """The column under the name that papers print, one direction of retrieval under a heading."""
    # A column of words may have the name of a run, such as in the table of settings.
    found = paper_name(column.name) if column.is_number else None
    over, name = found or ("", _WORDS.get(column.name, column.name))
    return replace(column, name=name, over=column.over or _WAYS.get(over, ""))

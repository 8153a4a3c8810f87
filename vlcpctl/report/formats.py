"""A table as text for a terminal, as Markdown, CSV and LaTeX; verdicts as JUnit XML."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from vlcpctl.core.console import emit, results
from vlcpctl.core.words import as_markdown, printable
from vlcpctl.report.facts import WORST
from vlcpctl.report.gates import Verdict, names_tracks
from vlcpctl.report.table import UNDEFINED, Table, TableCell, upper_headings

if TYPE_CHECKING:
    from rich.text import Text

_NAMES = {  # of summaries in papers
    "own_learned": "Learned",
    "own_final": "Final",
    "merged_final": "Final",
    "bwt_gem": "BWT",
    "bwt_incclip": "BWT (IncCLIP)",
    "bwt_ctp": "BWT (CTP)",
    "forgetting_max": "Forgetting",
    "fr_dha": "FR",
    "fwt_gem": "FWT",
    "transfer_zscl": "Transfer",
    "avg_zscl": "Avg.",
    "last_zscl": "Last",
    "ka_fomo": "KA",
    "zs_fomo": "ZS",
    "mean_per_class_recall": "Mean per class",
    "pair_recall": "Pair recall",
    "pair_precision": "Pair precision",
    "pair_calibration": "Pair calibration",
    "rm": "R@mean",
    "change": "Change",
}
_KEY = re.compile(r"(?:(i2t|t2i)_)?(rmean|r(?=\d)|acc(?=\d)|top(?=\d)|map_(?=\d))(\d*)")
_STEMS = {"rmean": "R@mean", "r": "R@", "acc": "Top-", "top": "Top-", "map_": "mAP@"}
_KEY_WORD = re.compile(rf"\b(?:{_KEY.pattern}|{'|'.join(_NAMES)})\b")

_UNLIMITED = 10**4  # width if stdout is not a terminal
_NOTE_WIDTH = 100  # at most
_GAP = 2  # blanks between columns
_ROOM = 28  # of two numbers with deviations

# What would start a list or a rule at the start of a line of Markdown.
_START = re.compile(r"^([-+=]|\d+(?=[.)]))")
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")  # the last four: full-width forms
_SAFE = re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?((?: to)? [-+]?[0-9.]+(e[-+]?[0-9]+)?)*")

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
_NEEDS = r"% Needs \usepackage{booktabs} and \usepackage{graphicx}."
_FITTED = r"  \ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi"
SUITE = "vlcpctl forgetting-report"
JUNIT_HEAD = f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="{SUITE}"'
_NO_XML = re.compile("[\ufffe\uffff]")  # what XML 1.0 excludes and `printable` keeps


def paper_name(key: str) -> str:
    """The name that papers print for a key of a metric or a summary; any other word as it is.

    >>> paper_name("i2t_r1"), paper_name("rm"), paper_name("fr_dha"), paper_name("run")
    ('i2t R@1', 'R@mean', 'FR', 'run')
    """
    match = _KEY.fullmatch(key)
    if match is None:
        return _NAMES.get(key, key)
    return " ".join(filter(None, (match[1], f"{_STEMS[match[2]]}{match[3]}")))


def with_paper_names(text: str) -> str:
    """The text with every key of a metric replaced by its name.

    >>> with_paper_names("Forgetting in rm, own galleries")
    'Forgetting in R@mean, own galleries'
    """
    return _KEY_WORD.sub(lambda word: paper_name(word[0]), text)


def print_report(notes: Iterable[str], sections: Iterable[tuple[str, list[Table]]]) -> None:
    """Print each section's heading and tables on stdout, then the notes."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=results(), highlight=False)
    width = console.width if console.is_terminal else _UNLIMITED

    def show(text: Text) -> None:
        if console.is_terminal:
            console.print(text, soft_wrap=True)
        else:  # rich would exit with 1, not 141, when the reader of a pipe has gone
            for line in text.plain.split("\n"):
                emit(line)

    for heading, tables in sections:
        if heading:
            show(Text(f"{printable(heading)}\n", "bold underline"))
        for table in tables:
            show(styled(table, width))
    for note in notes:
        show(Text(_wrapped(f"note: {printable(note)}", width)))


def styled(table: Table, width: int = _UNLIMITED) -> Text:
    """The table as styled lines of at most `width` terminal cells; unsafe text is escaped.

    Columns that do not fit are in further blocks, each with the key columns; the last has the
    notes. (A table of rich would shrink every column until no number can be read.)
    """
    from rich.text import Text

    names = [TableCell(column.name, is_faint=True) for column in table.columns]
    widths = _widths(table, names, width)

    def line(cells: Sequence[TableCell], places: Sequence[int]) -> Text:
        """Cells aligned in their columns, a name that is too long cut with an ellipsis."""
        texts = []
        for at in places:
            style = "bold" if cells[at].is_strong else "dim" if cells[at].is_faint else ""
            text = Text(printable(cells[at].line), style, overflow="ellipsis")
            text.align("right" if table.columns[at].is_number else "left", widths[at])
            texts.append(text)
        joined = Text(" " * _GAP).join(texts)
        joined.rstrip()
        return joined

    lines = []
    for places in _blocks(widths, table.keys, width):
        rule = Text("-" * _room([widths[at] for at in places]), "dim")
        lines += [Text(printable(table.title), "bold"), rule]
        first, upper = 0, []
        for over, count in upper_headings([table.columns[at] for at in places]):
            room = _room([widths[at] for at in places[first : first + count]])
            upper.append(f" {printable(over)} ".center(room, "-")[:room] if over else " " * room)
            first += count
        lines += [Text((" " * _GAP).join(upper).rstrip(), "dim")] if upper else []
        lines.append(line(names, places))
        for group in table.groups:
            lines += [rule, *([Text(printable(group.name), "italic")] if group.name else [])]
            lines += [line(row, places) for row in group.rows]
        lines += [rule, Text()]
    text = Text("\n").join(lines)
    for note in table.notes:
        text.append(_wrapped(printable(note), width), "dim")
    return text


def _widths(table: Table, names: Sequence[TableCell], width: int) -> list[int]:
    """Terminal cells of each column; the first takes what leaves room for numbers."""
    from rich.cells import cell_len

    columns = zip(names, *(row for group in table.groups for row in group.rows), strict=True)
    widths = [max(cell_len(printable(cell.line)) for cell in cells) for cells in columns]
    widths[0] = min(widths[0], max(width // 2, width - _ROOM))
    first = 0
    for over, count in upper_headings(table.columns):
        missing = len(f" {printable(over)} ") - _room(widths[first : first + count]) if over else 0
        widths[first] += max(0, missing)
        first += count
    return widths


def _room(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _blocks(widths: Sequence[int], keys: int, width: int) -> list[list[int]]:
    """The places of the columns in as few blocks as fit, the keys in each."""
    blocks = [[*range(keys)]]
    for place in range(keys, len(widths)):
        is_full = _room([widths[at] for at in (*blocks[-1], place)]) > width
        if is_full and len(blocks[-1]) > keys:
            blocks.append([*range(keys)])
        blocks[-1].append(place)
    return blocks


def _wrapped(note: str, width: int) -> str:
    return textwrap.fill(note, min(width, _NOTE_WIDTH), subsequent_indent="  ") + "\n"


def table_markdown(table: Table) -> str:
    """The table under a heading, and its notes as a list."""
    heads = [as_markdown(column.title) for column in table.columns]
    marks = ["---:" if column.is_number else ":---" for column in table.columns]
    lines = [heads, marks]
    for group in table.groups:
        if group.name:
            lines.append([f"*{as_markdown(group.name)}*"] + [""] * (len(heads) - 1))
        lines += [[_markdown_cell(cell) for cell in row] for row in group.rows]
    notes = ["", markdown_list(table.notes)] if table.notes else []
    found = [f"| {' | '.join(cells)} |" for cells in lines]
    return "\n".join([f"### {as_markdown(table.title)}", "", *found, *notes])


def markdown_list(lines: Iterable[str]) -> str:
    """The lines as a list."""
    return "\n".join(f"- {markdown_line(line)}" for line in lines)


def markdown_line(text: str) -> str:
    """The escaped text for the start of a line: "1. a" is not the first item of a list."""
    # A number starts a list because of the mark behind it, so the mark is escaped.
    return _START.sub(
        lambda found: f"{found[0]}\\" if found[0].isdigit() else f"\\{found[0]}", as_markdown(text)
    )


def _markdown_cell(cell: TableCell) -> str:
    text = cell.line if cell.value is not None else as_markdown(cell.line)
    return f"**{text}**" if text and cell.is_strong else text


def records_csv(fields: Sequence[str], records: Iterable[Mapping[str, object]]) -> str:
    """A header and one line for each record; blank: none."""
    return csv_text([fields, *([_value(one.get(name)) for name in fields] for one in records)])


def _value(value: object) -> str:
    return "" if value is None else number_text(value) if isinstance(value, float) else str(value)


def number_text(value: float) -> str:
    """The number with six decimals at most."""
    return repr(round(value, 6) + 0.0)


def table_csv(table: Table) -> str:
    """A header and one line for each row; numbers are not rounded as they are shown.

    A column with deviations is followed by them, and `group` has the headings of groups of rows.
    Keys of metrics have the names of papers.
    """
    rows = [(group.name, row) for group in table.groups for row in group.rows]
    has_groups = any(group.name for group in table.groups)
    has_sd = [any(row[place].sd for _, row in rows) for place in range(len(table.columns))]
    head = ["group"] if has_groups else []
    for column, has in zip(table.columns, has_sd, strict=True):
        is_key = column.is_number and not column.over
        name = paper_name(column.name) if is_key else column.title
        head += [name, f"{name} sd"] if has else [name]
    lines = [head]
    for group, row in rows:
        line = [group] if has_groups else []
        for cell, has in zip(row, has_sd, strict=True):
            word = "" if cell.text == UNDEFINED else cell.text
            text = word if cell.value is None else number_text(cell.value)
            line += [text, cell.sd] if has else [text]
        lines.append(line)
    return csv_text(lines)


def csv_text(lines: Iterable[Iterable[str]]) -> str:
    """The lines as CSV, in which a spreadsheet computes nothing."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows(map(_safe, line) for line in lines)
    return file.getvalue()


@lru_cache(maxsize=10_000)  # most lines repeat what those before them have
def _safe(text: str) -> str:
    return literal(printable(text))


def literal(text: str) -> str:
    """The text, with an apostrophe if a spreadsheet would compute it.

    >>> literal("=1+1"), literal("-1.5"), literal("-1.20 to 3.40")
    ("'=1+1", '-1.5', '-1.20 to 3.40')
    """
    return f"'{text}" if _FORMULA.match(text) and not _SAFE.fullmatch(text) else text


def table_latex(table: Table, label: str, names: Mapping[str, str] | None = None) -> str:
    """The table as a table environment, for booktabs: the title is its caption.

    Keys of metrics have the names and arrows of papers, runs those of `names`, the best of a column
    is bold. A table that is wider than the text is made smaller.
    """
    # The tables of papers have their own headings.
    named = str if table.is_ordered else with_paper_names
    places = "".join("r" if one.is_number else "l" for one in table.columns)
    # One small paragraph, so that they take few lines of a page.
    notes = latex(named("; ".join(table.notes)))
    below = rf"  \par\smallskip\begin{{minipage}}{{\linewidth}}\scriptsize {notes}\end{{minipage}}"
    lines = [
        _NEEDS,
        r"\begin{table}",
        r"  \centering\small",
        rf"  \caption{{{latex(with_paper_names(table.title))}}}",
        rf"  \label{{tab:{label}}}",
        r"  \begin{lrbox}{0}",
        rf"  \begin{{tabular}}{{{places}}}",
        r"    \toprule",
        *(f"    {line}" for line in _heads(table)),
        *(f"    {line}" for line in _body(table, names or {})),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"  \end{lrbox}",
        _FITTED,
        *([below] if notes else []),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def latex(text: str) -> str:
    r"""The text on one line as LaTeX shows it literally.

    >>> latex("50 % of a_b -- {x}")
    '50 \\% of a\\_b -{}- \\{x\\}'
    """
    line = " ".join(printable(text).split())
    return _JOINED.sub(r"\1{}", "".join(_SPECIAL.get(char, char) for char in line))


def _heads(table: Table) -> Iterator[str]:
    """The heading, below upper ones with a rule under each."""
    cells, rules, first = [], [], 1
    for over, count in upper_headings(table.columns):
        cells.append(rf"\multicolumn{{{count}}}{{c}}{{{latex(over)}}}")
        rules += [rf"\cmidrule(lr){{{first}-{first + count - 1}}}"] if over else []
        first += count
    if rules:
        yield f"{' & '.join(cells)} \\\\"
        yield " ".join(rules)
    names = [latex(column.name) for column in table.columns]
    if not table.is_ordered:
        # A column of words may have the name of a run, such as in the table of settings.
        names = [
            latex(paper_name(one.name)) + _ARROWS[one.higher_is_better] if one.is_number else name
            for one, name in zip(table.columns, names, strict=True)
        ]
    yield f"{' & '.join(names)} \\\\"


def _body(table: Table, names: Mapping[str, str]) -> Iterator[str]:
    for group in table.groups:
        yield r"\midrule"
        if group.name:
            name = rf"\textit{{{latex(group.name)}}}"
            yield rf"\multicolumn{{{len(table.columns)}}}{{l}}{{{name}}} \\"
        for number, row in enumerate(group.rows):
            if table.is_ordered and number and row[0].text:
                yield r"\addlinespace"
            yield f"{' & '.join(_latex_cell(cell, names) for cell in row)} \\\\"


def _latex_cell(cell: TableCell, names: Mapping[str, str]) -> str:
    if _NUMBER.fullmatch(cell.text):
        number = rf"\mathbf{{{cell.text}}}" if cell.is_strong else cell.text
        return rf"${number} \pm {cell.sd}$" if cell.sd else f"${number}$"
    text = names.get(cell.text, cell.line)
    text = "--" if cell.text == UNDEFINED and cell.is_faint else latex(text)
    if cell.is_strong and text:
        text = rf"\textbf{{{text}}}"
    # A bracket at the start of a line would be an argument of the line before.
    return f"{{{text}}}" if text and text[0] in "[*" else text


def junit(verdicts: Sequence[Verdict]) -> str:
    """One test suite, and a test case for each verdict; runs are classes.

    A condition that holds is a failure, one that is undefined an error.
    """
    counts = {
        "tests": len(verdicts),
        "failures": sum(one.holds for one in verdicts),
        "errors": sum(not one.passes and not one.holds for one in verdicts),
        "skipped": 0,
    }
    # Nobody waits for a comparison; readers expect a time.
    about = {"name": SUITE, **{k: str(v) for k, v in counts.items()}, "time": "0.000"}
    root = ET.Element("testsuites", about)
    suite = ET.SubElement(root, "testsuite", about)
    tracks = names_tracks(verdicts)
    for one in verdicts:
        data = f" on {one.data}" if one.data is not None else ""
        track = f" ({one.track})" if tracks and one.track else ""
        # The data of the worst may be another every time, and a case keeps its name.
        is_worst = one.metric.partition(".")[0] in WORST
        name = one.condition if is_worst else f"{one.condition}: {one.metric}{data}{track}"
        named = {"classname": _xml(f"vlcpctl.{one.run}"), "name": _xml(name), "time": "0.000"}
        case = ET.SubElement(suite, "testcase", named)
        text = _xml(one.sentence(names_track=tracks))
        if one.passes:
            ET.SubElement(case, "system-out").text = text
            continue
        kind, type_ = ("failure", "gate") if one.holds else ("error", "undefined")
        ET.SubElement(case, kind, {"message": text, "type": type_}).text = text
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _xml(text: str) -> str:
    """The text on one line, of characters that XML can contain."""
    return _NO_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", printable(text))

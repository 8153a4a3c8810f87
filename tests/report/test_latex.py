"""LaTeX tables: aligned numbers, spanning headings, nothing that a name could break."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from vlcpctl.report.formats import latex, table_latex
from vlcpctl.report.table import Column, RowGroup, Table, TableCell

_BEST = TableCell("-51.00", "12.4", -51.0, is_best=True)
TABLE = Table(
    "Recall & forgetting in %",
    (
        Column("run", is_number=False),
        Column("R@1", over="Image to text"),
        Column("R@5", over="Image to text"),
        Column("kind"),
    ),
    (
        RowGroup("", ((TableCell("joint"), TableCell("70.12"), TableCell(""), TableCell("yes")),)),
        RowGroup(
            "Memory_free",
            (
                (TableCell("[a] 50%"), _BEST, TableCell("+1.5"), TableCell("-")),
                (
                    TableCell("b_c"),
                    TableCell("-", is_faint=True),
                    TableCell("100.0"),
                    TableCell(""),
                ),
            ),
        ),
    ),
    ("positive = forgetting -- see #2",),
)


def test_numbers_are_aligned_and_headings_in_braces() -> None:
    text = table_latex(TABLE, "mine")
    assert "S[table-format=-2.2(3)]" in text
    assert "S[table-format=-3.1]" in text
    assert r"\multicolumn{2}{c}{Image to text}" in text
    assert r"\cmidrule(lr){2-3}" in text
    assert r"{Run} & {R@1} & {R@5} & {kind} \\" in text
    assert r"{[a] 50\%} & \bfseries -51.00 +- 12.4 & +1.5 & - \\" in text
    assert r"b\_c & {--} & 100.0 &  \\" in text
    assert r"\multicolumn{4}{l}{\textit{Memory\_free}} \\" in text
    assert r"\caption{Recall \& forgetting in \%}" in text
    assert r"\label{tab:mine}" in text


def _wide(columns: int, runs: int = 2) -> Table:
    heads = (Column("run", is_number=False), *(Column(f"R@{n}") for n in range(columns)))
    cells = [TableCell("50.00", "1.41", 50.0)] * columns
    rows = tuple((TableCell(f"a run {number}"), *cells) for number in range(runs))
    return Table("wide", heads, (RowGroup("", rows),))


def test_a_table_is_scaled_to_the_text_if_it_is_wider() -> None:
    text = table_latex(_wide(12), "b")
    parts = (r"\begin{lrbox}{0}", r"\begin{tabular}", r"\end{lrbox}", r"\resizebox{\linewidth}")
    assert sorted(parts, key=text.index) == [*parts]


def test_groups_are_apart_and_notes_are_below() -> None:
    text = table_latex(TABLE, "mine")
    assert text.count(r"\midrule") == 2
    assert text.index(r"\bottomrule") < text.index(r"positive = forgetting -{}- see \#2")
    ordered = replace(_wide(3), is_ordered=True)
    assert table_latex(ordered, "a").count(r"\addlinespace") == 1  # before the second row
    assert r"\addlinespace" not in text


def test_metrics_have_the_names_and_arrows_of_papers() -> None:
    keys = {"i2t_r1": True, "i2t_rmean": True, "t2i_r10": True, "rm": True, "fr_dha": False}
    heads = (
        Column("run", is_number=False),
        *(Column(k, higher_is_better=v) for k, v in keys.items()),
    )
    cells = (TableCell("a"), *(TableCell("1.00", value=1.0) for _ in keys))
    notes, readings = ("two", "notes"), ("fr_dha: percent; positive = forgetting",)
    table = Table("Loss in rm", heads, (RowGroup("", (cells,)),), notes, readings=readings)
    text = table_latex(table, "loss")
    up, down = r" $\uparrow$", r" $\downarrow$"
    assert (
        rf"{{Run}} & {{R@1{up}}} & {{R@mean{up}}} & {{R@10{up}}} & {{R@mean{up}}} & {{FR{down}}} "
        in text
    )
    for over in (r"\multicolumn{2}{c}{Image to text}", r"\multicolumn{1}{c}{Both}"):
        assert over in text
    assert r"\caption{Loss in R@mean}" in text
    meaning = "R@mean: mean of R@1, R@5 and R@10; FR: percent of what was learned (DHA)"
    assert f" two; notes; {meaning}" in text
    published = table_latex(replace(table, is_ordered=True), "loss")
    assert "{fr\\_dha}" in published
    assert "arrow" not in published


def test_no_text_is_a_command() -> None:
    assert latex("\\input{x} $y$ ~^ a--b ``q''") == (
        r"\textbackslash{}input\{x\} \$y\$ \textasciitilde{}\textasciicircum{} a-{}-b `{}`q'{}'"
    )


def _compiled(texts: list[str], place: Path) -> str:
    """The log of pdflatex for a document with these tables; fails if it ends with an error."""
    lines = [
        r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{booktabs,siunitx,graphicx}",
        r"\begin{document}",
        *texts,
        r"\end{document}",
    ]
    (place / "doc.tex").write_text("\n".join(lines), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "doc.tex"]
    done = subprocess.run(command, cwd=place, capture_output=True, check=False)
    text = done.stdout.decode(errors="replace")
    assert done.returncode == 0, text[-3000:]
    return text


@pytest.mark.slow
def test_tables_compile(tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("needs pdflatex")
    name = "".join(chr(code) for code in range(32, 127)) + "[x] *y --- ?` !` ,, << >> \\\\"
    cells = (TableCell(name), *(TableCell(name) for _ in TABLE.columns[1:]))
    odd = Table(name, TABLE.columns, (RowGroup(name, (cells, cells)),), (name,))
    made = [table_latex(one, str(place)) for place, one in enumerate((TABLE, odd, _wide(12)))]
    log = _compiled(made, tmp_path)
    widths = re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide", log)
    assert len(widths) < 3  # the name without spaces, in the caption and the note of `odd`
    assert "undefined" not in log.lower().replace("undefined references", "")
    assert (tmp_path / "doc.pdf").stat().st_size > 10_000

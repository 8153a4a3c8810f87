from __future__ import annotations

import re

import pytest

from vlcpctl.core.errors import BadInput, UsageError
from vlcpctl.report.published.definition import load_table, parse_table, shipped_names

EXAMPLE = """
schema = "vlcpctl.table/1"
paper = "Example"
citation = "Doe et al., Journal 2020"
number = "Table 1"
caption = "final scores"
data = "Three tasks"
decimals = 1
command = "bash recipes/example.sh --data DIR"
notes = ["trained for fewer steps"]
select = "protocol=cross-modal"

[[columns]]
id = "i2t"
header = ["Recall", "I2T R@1"]
select = "i2t_r1@gallery=merged"
better = "higher"
counts = { n_images = 30 }

[[columns]]
id = "t2i"
header = ["Recall", "T2I R@1"]
select = "t2i_r1@gallery=merged"

[[columns]]
id = "mean"
header = ["Mean"]
mean_of = ["i2t", "t2i"]

[[rows]]
group = "Memory-free"
name = "SeqF"
run = "seqf"
printed = [10.0, 20.0, 15.0]

[[rows]]
group = "Memory-free"
name = "LwF"
run = ""
printed = [11.0, "", ""]
sd = [0.1, "", ""]
"""


def parsed(text: str = EXAMPLE):
    return parse_table(text.encode(), "my.toml", "my")


def test_an_example_is_read() -> None:
    table = parsed()
    assert table.title == "Example, Table 1: final scores"
    assert table.emoji9 == "bash recipes/example.sh --emoji9"
    assert [column.metric and column.metric.key for column in table.columns] == [
        "i2t_r1",
        "t2i_r1",
        None,
    ]
    assert table.rows[1].printed == (11.0, None, None)
    assert table.rows[1].sd == (0.1, None, None)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("better =", "betters =", "column 1: unknown key 'betters'; did you mean 'better'?"),
        ("caption =", "title =", "unknown key 'title'"),
        ("table/1", "table/2", "schema is 'vlcpctl.table/2', not 'vlcpctl.table/1'"),
        ("15.0]", "15.0, 1.0]", "row 1 (SeqF): printed has 4 cells, but there are 3 columns"),
        ("[0.1,", "[-0.1,", "row 2 (LwF): sd contains -0.1, not a number from 0"),
        ("[0.1,", "[nan,", "row 2 (LwF): sd contains nan, not a number or text"),
        ("[0.1,", "[true,", ".sd[0]`"),
        ('"t2i_r1@', '"t2i_rl@', "column 2 (t2i): unknown metric 't2i_rl'"),
        ('"t2i_r1@', '"bwt_gem@', "bwt_gem needs a metric key, such as bwt_gem.rm"),
        ('"t2i_r1@', '"bwt_gem.x@', "unknown metric key 'x'"),
        ('"t2i_r1@gallery', '"t2i_r1@galery', "unknown field 'galery'; did you mean 'gallery'?"),
        ('"t2i_r1@gallery', '"t2i_r1@since', "since=merged is not start or a step"),
        ('"t2i_r1@gallery=merged', '"t2i_r1@since=0', "t2i_r1 takes no since="),
        ('"t2i_r1@gallery=merged', '"t2i_r1@data=x,gallery=merged', "takes no data="),
        ('"t2i_r1@gallery=merged', '"bwt_ctp.rm@data=x', "bwt_ctp.rm takes no data="),
        ('"t2i_r1@gallery=merged', '"t2i_r1@', "'' is not FIELD=GLOB"),
        ('"t2i_r1@gallery=merged', '"t2i_r1@step=x', "step=x is not last, start or a step"),
        ('"t2i_r1@gallery=merged', '"degrees.sam_image.5.5', "MEASURE.LOW.HIGH"),
        ('"t2i_r1@gallery=merged', '"config.', "unknown metric 'config'"),
        ("cross-modal", "a,protocol=b", "protocol= is given twice"),
        ("protocol=cross-modal", "protocol", "'protocol' is not FIELD=GLOB"),
        ('id = "t2i"', 'id = "i2t"', "columns have 2 times the id 'i2t'"),
        ('id = "t2i"', 'id = "a b"', "an id has 1 to 60 letters"),
        ('name = "LwF"', 'name = "SeqF"', "rows of group 'Memory-free' have 2 times the name"),
        ('"i2t", "t2i"]\n', '"i2t", "x"]\n', "column mean, mean_of: unknown name 'x'"),
        ('"i2t", "t2i"]\n', '"mean"]\n', "mean_of contains the name itself"),
        ('["Mean"]', '["a", "b", "c"]', "header has 3 levels"),
        ('"higher"', '"more"', "unknown better 'more'"),
        ("n_images = 30", "n_image = 30", "unknown count 'n_image'"),
        ("n_images = 30", "n_images = 'x'", ".counts[...]`"),
        ("decimals = 1", "decimals = 9", "decimals is 9, not between 0 and 6"),
        ("caption = ", "caption = = ", "is not a TOML file"),
        ('caption = "final scores"', "", "field `caption`"),
    ],
)  # fmt: skip
def test_each_mistake_is_one_line(old: str, new: str, message: str) -> None:
    assert EXAMPLE.count(old)
    with pytest.raises(BadInput) as found:
        parsed(EXAMPLE.replace(old, new, 1) if old != "caption =" else EXAMPLE.replace(old, new))
    assert message in str(found.value)
    assert str(found.value).startswith("my.toml")
    assert "\n" not in str(found.value)


def test_a_file_of_ones_own_and_an_unknown_name(tmp_path) -> None:
    (tmp_path / "mine.toml").write_text(EXAMPLE)
    assert load_table(str(tmp_path / "mine.toml")).name == "mine"
    with pytest.raises(BadInput, match=r"cannot read .*other.toml: No such file or directory"):
        load_table(str(tmp_path / "other.toml"))
    with pytest.raises(UsageError, match=r"--table: unknown table 'ctp-99'.*ends in .toml"):
        load_table("ctp-99")


@pytest.mark.parametrize("name", shipped_names())
def test_every_shipped_table_is_read(name: str) -> None:
    table = load_table(name)
    assert table.command
    assert table.citation


WAYS = EXAMPLE.replace('"i2t_r1@gallery=merged"', '"{way}_r1@run={name}*"').replace(
    'name = "SeqF"\n', 'name = "SeqF"\nvalues = { way = "t2i", name = "seqf" }\n'
)


def test_a_row_fills_the_placeholders_of_columns() -> None:
    table = parsed(WAYS)
    seqf, lwf = table.rows
    i2t, t2i, mean = (seqf.own(column) for column in table.columns)
    assert i2t.metric is not None
    assert (i2t.metric.key, i2t.selectors) == ("t2i_r1", (("run", "seqf*"),))
    assert (t2i, mean) == table.columns[1:]
    assert lwf.own(table.columns[0]).metric is None  # of no run


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('way = "t2i", ', "", "row 1 (SeqF): values lacks 'way', which column i2t uses"),
        ('way = "t2i"', 'way = "up"', "row 1 (SeqF), column i2t: unknown metric 'up_r1'"),
        ('way = "t2i"', "way = 2", ".values[...]`"),
        ('way = "t2i"', 'way = "t2i", to = ""', "row 1 (SeqF): no column uses 'to' of values"),
    ],
)
def test_values_must_fit_the_placeholders(old: str, new: str, message: str) -> None:
    with pytest.raises(BadInput, match=re.escape(message)):
        parsed(WAYS.replace(old, new))

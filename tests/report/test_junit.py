"""The verdicts as JUnit XML: what readers of such files expect, for any name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlcpctl.core.errors import BadInput, OutputExists, UsageError
from vlcpctl.report.formats import junit
from vlcpctl.report.gates import Verdict
from vlcpctl.report.write import check_junit_path, is_junit, write_junit


def _verdict(run: str = "weekly", value: float | None = 5.0, **fields: Any) -> Verdict:
    usual = Verdict(
        condition="drop:gt:3",
        run=run,
        metric="drop.rm",
        value=value,
        holds=value is not None and value > 3,
        undefined=None if value is not None else "it lacks rows",
        data="coco",
        track="retrieval, cross-modal, test split",
        bound=3.0,
        passes=value is not None and value <= 3,
    )
    return replace(usual, **fields)


FAILS, PASSES = _verdict(), _verdict(value=1.0)
UNDEFINED = _verdict(value=None)
EXCUSED = _verdict(value=None, is_early=True, passes=True, data=None)


@pytest.mark.parametrize("verdict", [FAILS, PASSES, UNDEFINED, EXCUSED])
def test_a_recorded_verdict_makes_the_same_case(verdict: Verdict) -> None:
    recorded = json.loads(json.dumps(verdict.as_json()))
    assert Verdict.read(recorded, "verdict.json") == verdict
    with pytest.raises(BadInput, match=r"verdict\.json: .*holds`"):
        Verdict.read({**recorded, "holds": "no"}, "verdict.json")


def _check(root: ET.Element) -> None:
    """What the schemas that circulate for JUnit files have in common."""
    assert root.tag == "testsuites"
    (suite,) = root
    assert suite.tag == "testsuite"
    cases = list(suite)
    count = {name: len(suite.findall(f"testcase/{name}")) for name in ("failure", "error")}
    for one in (root, suite):
        assert set(one.attrib) == {"name", "tests", "failures", "errors", "skipped", "time"}
        assert int(one.attrib["tests"]) == len(cases)
        assert int(one.attrib["failures"]) == count["failure"]
        assert int(one.attrib["errors"]) == count["error"]
        assert float(one.attrib["time"]) >= 0
    for case in cases:
        assert case.tag == "testcase"
        assert set(case.attrib) == {"name", "classname", "time"}
        (outcome,) = case
        assert outcome.tag in {"failure", "error", "system-out"}
        if outcome.tag != "system-out":
            assert set(outcome.attrib) == {"message", "type"}
        assert outcome.text


def test_every_verdict_is_a_test_case() -> None:
    root = ET.fromstring(junit([FAILS, PASSES, UNDEFINED, EXCUSED]))
    _check(root)
    assert root.attrib["tests"] == "4"
    failing, passing, undefined, excused = root[0]
    assert failing.attrib["classname"] == "vlcpctl.weekly"
    assert failing.attrib["name"] == "drop:gt:3: drop.rm on coco"
    assert failing[0].tag == "failure"
    assert failing[0].attrib["message"] == "weekly: drop.rm on coco = 5.0000 > 3"
    assert (passing[0].tag, passing[0].text) == (
        "system-out",
        "weekly: drop.rm on coco = 1.0000, not > 3",
    )
    assert undefined[0].tag == "error"
    assert undefined[0].attrib["message"].endswith("is undefined, it lacks rows")
    assert excused[0].tag == "system-out"
    assert "not defined yet (1 task)" in str(excused[0].text)


def test_the_name_of_a_case_is_unique_and_does_not_change() -> None:
    galleries = [_verdict(data=None, metric=metric) for metric in ("own_final", "merged_final")]
    names = [case.attrib["name"] for case in ET.fromstring(junit(galleries))[0]]
    assert len(set(names)) == 2
    worst = [
        _verdict(condition="worst_drop:gt:3", metric="worst_drop.rm", data=data)
        for data in ("coco", "flickr")
    ]
    names = [case.attrib["name"] for case in ET.fromstring(junit(worst))[0]]
    assert names == ["worst_drop:gt:3"] * 2


@given(name=st.text(st.characters(codec=None), min_size=1))  # lone surrogates, too
def test_the_document_is_valid_for_any_name(name: str) -> None:
    verdict = _verdict(name, data=name, undefined=name, track=name, value=None)
    text = junit([verdict])
    _check(ET.fromstring(text.encode("utf-8")))
    for char in text:
        assert char == "\n" or " " <= char <= "\ud7ff" or char >= "\ue000", ascii(char)
        assert char not in "\ufffe\uffff"


def test_a_file_of_ours_is_replaced_and_no_copy_stays(tmp_path: Path) -> None:
    out = tmp_path / "new" / "gates.xml"
    write_junit([FAILS], out)
    assert is_junit(out)
    write_junit([PASSES], out)
    assert ET.fromstring(out.read_text()).attrib["failures"] == "0"
    assert [path.name for path in out.parent.iterdir()] == ["gates.xml"]


@pytest.mark.parametrize("text", ["mine", '<testsuites name="pytest"></testsuites>'])
def test_a_foreign_file_is_refused(tmp_path: Path, text: str) -> None:
    out = tmp_path / "gates.xml"
    out.write_text(text)
    for act in (lambda: check_junit_path(out, None), lambda: write_junit([FAILS], out)):
        with pytest.raises(OutputExists, match="already exists"):
            act()
    assert out.read_text() == text


def test_a_file_inside_the_report_is_refused(tmp_path: Path) -> None:
    report = tmp_path / "report"
    for out in (report, report / "gates.xml", report / "a" / ".." / "b.xml"):
        with pytest.raises(UsageError, match="is inside --out"):
            check_junit_path(out, report)
    check_junit_path(tmp_path / "report.xml", report)

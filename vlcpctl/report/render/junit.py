"""The verdicts of --fail-if as JUnit XML, which CI systems show as tests."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from vlcpctl.core.errors import UsageError
from vlcpctl.core.words import printable
from vlcpctl.files.outputs import is_pipe_or_device, new_file, refuse_foreign
from vlcpctl.report.facts.language import WORST
from vlcpctl.report.gates.verdicts import Verdict, names_tracks

SUITE = "vlcpctl forgetting-report"

_HEAD = f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="{SUITE}"'
_NO_XML = re.compile("[\ufffe\uffff]")  # what XML 1.0 excludes and `printable` keeps


def check_junit_path(out: Path, report: Path | None) -> None:
    """Refuse a path where `write_junit` may not write, before anything else is written.

    Raises OutputExists if another file is there, and UsageError if it is inside the report.
    """
    real = Path(os.path.realpath(out))
    if report and Path(os.path.realpath(report)) in (real, *real.parents):
        raise UsageError(
            f"--junit {out} is inside --out {report}, which is replaced as a whole; choose a path "
            "outside it"
        )
    if not is_pipe_or_device(out):
        refuse_foreign(out, is_junit, is_file=True)


def write_junit(verdicts: Sequence[Verdict], out: Path) -> None:
    """Write the verdicts to a file, which replaces an earlier one of this kind.

    Raises OutputExists if another file is at `out`, and OSError if it cannot be written.
    """
    # A copy of the old file would be found by a pattern such as **/*.xml, and counted as well.
    with new_file(out, is_junit, keeps=False) as temporary:
        temporary.write_text(junit(verdicts), encoding="utf-8")


def is_junit(path: Path) -> bool:
    """Whether a file starts as those that `write_junit` writes."""
    with path.open("rb") as file:
        return file.read(len(_HEAD)) == _HEAD.encode()


def junit(verdicts: Sequence[Verdict]) -> str:
    """A document with one test suite, and a test case for each verdict.

    A condition that holds is a failure, one that is undefined an error. Runs are classes.
    """
    counts = {
        "tests": len(verdicts),
        "failures": sum(one.holds for one in verdicts),
        "errors": sum(_is_error(one) for one in verdicts),
        "skipped": 0,
    }
    attributes = {"name": SUITE, **{name: str(count) for name, count in counts.items()}}
    attributes["time"] = "0.000"  # nobody waits for a comparison; readers expect the attribute
    root = ET.Element("testsuites", attributes)
    suite = ET.SubElement(root, "testsuite", attributes)
    tracks = names_tracks(verdicts)
    for verdict in verdicts:
        _add_case(suite, verdict, names_track=tracks)
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _add_case(suite: ET.Element, verdict: Verdict, *, names_track: bool) -> None:
    name = _name(verdict, names_track=names_track)
    attributes = {"classname": _text(f"vlcpctl.{verdict.run}"), "name": _text(name)}
    case = ET.SubElement(suite, "testcase", {**attributes, "time": "0.000"})
    sentence = verdict.sentence(names_track=names_track)
    if not verdict.passes and verdict.advice:
        sentence = f"{sentence}; {verdict.advice}"
    if verdict.passes:
        ET.SubElement(case, "system-out").text = _text(sentence)
        return
    kind = "error" if _is_error(verdict) else "failure"
    attributes = {"message": _text(sentence), "type": "undefined" if _is_error(verdict) else "gate"}
    ET.SubElement(case, kind, attributes).text = _text(sentence)


def _name(verdict: Verdict, *, names_track: bool) -> str:
    """The name of a case, which is unique in a run and the same for every run of a pipeline."""
    if verdict.metric.partition(".")[0] in WORST:  # its data may be another one every time
        return verdict.condition
    data = f" on {verdict.data}" if verdict.data is not None else ""
    track = f" ({verdict.track})" if names_track and verdict.track else ""
    return f"{verdict.condition}: {verdict.metric}{data}{track}"


def _is_error(verdict: Verdict) -> bool:
    return not verdict.passes and not verdict.holds


def _text(text: str) -> str:
    """The text on one line, of characters that XML can contain."""
    return _NO_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", printable(text))

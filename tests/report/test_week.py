"""The page of a week: what it says, from facts that are made up here."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import Any

import numpy as np
import pytest
from support.hostile_names import HOSTILE, Tags

from vlcpctl.report.forgotten import Change, Tally
from vlcpctl.report.gates import Verdict
from vlcpctl.report.report import Document, ReportRequest
from vlcpctl.report.rollout import NEITHER
from vlcpctl.report.table import Column, RowGroup, Table, TableCell
from vlcpctl.report.week import MOST_LOST, Moved, Part, Week, _Found

EMPTY = Document((), ReportRequest(), (), (), (), (), (), ())
OF_WEEK = Week.__dataclass_fields__.keys()


def verdict(**changed: Any) -> Verdict:
    """A loss of 2.4 that may be above its bound."""
    found: dict[str, Any] = {
        "condition": "worst_drop:gt:2",
        "run": "prod",
        "metric": "worst_drop.rm",
        "value": 2.4,
        "holds": False,
        "undefined": None,
        "data": "00-golden",
        "bound": 2.0,
        "passes": True,
        "against": "baseline",
        "samples": 50,
        "low": -0.5,
        "high": 5.3,
        "chance": 3.5,
        "is_resolved": False,
        "is_clear": False,
    }
    return Verdict(**{**found, **changed})


KEPT = verdict(value=0.4, low=-0.8, high=1.6, is_resolved=True)
FAILS = verdict(value=9.0, low=6.0, high=12.0, holds=True, passes=False, is_clear=True)
PLAIN = verdict(against=None, low=None, high=None, chance=None, is_resolved=None)


def curve(*values: float) -> tuple[str, Any]:
    return "contrastive", np.array([np.arange(len(values)), values], np.float64)


def lost(count: int = 3, name: str = "00-golden", **changed: Any) -> list[Tally]:
    """A guard that lost this many queries each way."""
    about = {"caption": None, "label": None, "then": 1, "wrong": "b" * 32, "wrong_caption": None}
    shown = tuple(
        Change(**{**about, "key": f"{place:032x}", "now": 99 - place, **changed})
        for place in range(count)
    )
    track = ("retrieval", "cross-modal", "", "test")
    return [
        Tally(track, "prod", 0, (0,), name, 1, 2, way, 40, 30, 28, count, 1, shown)
        for way in ("i2t", "t2i")
    ]


def facts(**changed: Any) -> _Found:
    """Week 3 of a state, accepted but not resolved."""
    about: dict[str, Any] = {
        "state": "prod",
        "number": 3,
        "date": "2026-07-04 12:03 UTC",
        "page": "prod/weeks/0003/report/week.html",
        "sources": ["week3.parquet"],
        "model": "tiny, ctp, checkpoint abc",
        "accepted": True,
        "settings": {"lr": ("0.0001", "0.002")},
        "data": {
            "sources": ("week2.parquet", "week3.parquet"),
            "train images": ("360", "340"),
            "test": ("40", "40"),
        },
        "seconds": 203.0,
        "disk": 99_000_000,
    }
    computed: dict[str, Any] = {
        "learned": [Moved("learned: week 3", "week 2", 13.8, 17.8)],
        "kept": [Moved("kept: mean of 2 weeks", "learning", 26.3, 38.0, 8.0, 15.4, 240, 2.0)],
        "guards": [Moved("00-golden", "the start", 80.3, 77.9, -5.3, 0.5, 50, 2.0)],
        "lost": lost(),
        "loss": curve(*[4.0] * 4, 3.0, *[float("nan"), 2.0] * 20),
        "roll_out": None,
        "names": {"00-week-0001": "week 1"},
    }
    verdicts = tuple(changed.pop("verdicts", [verdict()]))
    week = Week(**about | {name: one for name, one in changed.items() if name in OF_WEEK})
    found = _Found(week, replace(EMPTY, verdicts=verdicts), ())
    found.__dict__.update(computed | {k: v for k, v in changed.items() if k not in OF_WEEK})
    found.__dict__.update(_earlier=lambda _: [])
    return found


def text_of(page: str) -> str:
    """The words of a page, without markup, style and minus signs."""
    page = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).replace("\u2212", "-").split())


def test_the_page_and_the_terminal_say_the_same() -> None:
    guards = [Moved(f"{n:02d}-guard-{'x' * 60}", "the start", 80, 79 - n) for n in range(20)]
    warned = [f"whether week {n} was learned {'cannot be told ' * 12}" for n in range(3)]
    gained = [replace(KEPT, value=-value, data=f"g{value:g}") for value in (1.0, 2.0, 3.0, 4.0)]
    judged = [*gained, replace(KEPT, data="loser")]
    crowded = facts(guards=guards, verdicts=judged, warnings=warned)
    lines, text = crowded.lines(), text_of(crowded.page())
    assert max(map(len, lines)) <= 80
    said = " ".join(" ".join(lines).split())
    assert said.startswith("prod, week 3: accepted (2026-07-04")
    for one in (*warned, *(text for part in crowded.parts() for text in part.said)):
        assert " ".join(one.split()) in said
        assert " ".join(one.split()) in text
    assert [part.name for part in crowded.parts()] == ["changed", "lost", "loss", "cost"]
    changed = "lr 0.002 (was 0.0001); sources week3.parquet (was week2.parquet), train images 340"
    assert f"changed {changed} (was 360), test 40 lost" in said
    assert "loss contrastive 3.80 at first, 2.00 at the end" in said
    assert "loser lost 0.4" in said
    assert ("gained 4.0" in said, "gained 4.0" in text) == (False, True), "gains come last"
    assert "... the rest is on the page" in said
    assert ("19-guard" in said, "00-guard" in said) == (True, False), "those that lost most"
    assert lines[-1] == "  page      prod/weeks/0003/report/week.html"


def test_a_rejected_week_is_not_deployed_and_says_why() -> None:
    gate = verdict(condition="rm:lt:60", metric="rm", value=50.0, data="00-golden", against=None)
    rejected = facts(accepted=False, verdicts=[KEPT, FAILS, replace(gate, passes=False)])
    text = text_of(rejected.page())
    assert "Rejected do not deploy it: the state stays at week 2" in text
    assert "00-golden lost 9.0 since the start (95 % 6.0 to 12.0), bound 2" in text
    assert "rm on 00-golden is 50.0, bound < 60" in text
    assert "lost 0.4" not in text, "what did not reject it is not a reason"
    first = facts(number=1, accepted=False, verdicts=[FAILS])
    assert "the state stays at the start" in text_of(first.page())


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ([KEPT], "accepted"),
        ([KEPT, PLAIN], "accepted"),
        ([KEPT, verdict()], "accepted, not resolved"),
        ([replace(KEPT, metric="rm", is_resolved=None), KEPT], "accepted"),
        ([], "accepted"),
    ],
)
def test_a_week_is_rejected_accepted_or_not_resolved(verdicts: list[Verdict], said: str) -> None:
    assert facts(verdicts=verdicts).verdict == said
    within = "every loss plus 1.96" in " ".join(facts(verdicts=verdicts).reasons())
    assert within == (bool(verdicts) and said == "accepted" and PLAIN not in verdicts)


def test_without_ranks_no_interval_is_made_up() -> None:
    bare = [Moved("00-golden", "the start", 80.3, 77.9)]
    plain = facts(verdicts=[PLAIN], guards=bare, kept=[], learned=[], lost=[])
    page = plain.page()
    assert "some losses have no interval" in text_of(page)
    assert 'class="interval"' not in page
    assert "80.3 77.9 -2.4 - " in text_of(page)
    assert "unknown: no ranks were saved" in page
    assert 'class="interval"' in facts().page()


def test_the_first_week_is_compared_with_the_start_alone() -> None:
    first = facts(number=1, settings={}, data={"sources": ("-", "a")})
    assert next(first.parts()).said == ["first week; sources a"]
    text = text_of(first.page())
    assert "since last week" not in text
    assert "week 0" not in text


def test_a_bar_shows_the_change_its_interval_and_the_bound() -> None:
    one = Moved("g", "the start", 50.0, 48.0, -4.0, 0.0, bound=5.0)
    found = facts(guards=[one], kept=[], learned=[])
    (line,) = (line for line in found.lines() if line.startswith("  g "))
    assert line.endswith("-2.0  ! ----o----")
    for drawn in ('"M-76 1v14"', '"M-60.8 8H0"', 'cx="-30.4"'):
        assert drawn in found.page()


def test_the_roll_out_is_there_if_the_report_has_it() -> None:
    rows = (RowGroup("", ((TableCell("keep it"),),)),)
    table = Table("Roll-out", (Column("index"),), rows, ("prod, index by x: the index can stay",))
    first = next(facts(roll_out=table).parts())
    assert first[:2] == Part("roll-out", ["the index can stay"])[:2]
    assert "keep it" in first.shown
    neither = facts(roll_out=replace(table, notes=(f"prod, index by x: {NEITHER}; 8.3",)))
    assert not [line for line in neither.lines() if "may be deployed" in line]


def test_lost_queries_are_taken_from_each_guard_in_turn() -> None:
    page = facts(lost=[*lost(15), *lost(15, "01-silver")]).page()
    shown = re.findall("<b>(\\d+)</b><span> (.*?)</span>", page)
    deepest = [str(99 - place) for place in range(MOST_LOST // 4)] * 2
    assert shown == [(rank, name) for name in ("00-golden", "01-silver") for rank in deepest]
    assert "20 queries of 60" in page


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_are_text(name: str) -> None:
    hostile = facts(
        state=name,
        sources=[name],
        model=name,
        verdicts=[verdict(data=name, run=name), verdict(value=None, condition=f"{name}:gt:2")],
        warnings=[name],
        remarks=[name],
        learned=[],
        kept=[],
        guards=[Moved(name, name, 80.3, 77.9, -5.3, 0.5, 50, 2.0)],
        settings={name: (name, f"{name} now")},
        data={name: (name, name)},
        lost=lost(name=name, wrong=name, key=name),
        loss=(name, curve(4.0, 2.0)[1]),
    )
    usual = facts(warnings=["w"], learned=[], lost=lost(wrong=None))
    page = hostile.page()
    assert Tags(page).found <= Tags(usual.page()).found | Tags(facts().page()).found
    assert page.replace("\n", "").isprintable()
    assert "".join(hostile.lines()).isprintable()


def test_the_same_facts_give_the_same_page_with_its_moments_marked() -> None:
    page = facts().page()
    assert facts().page() == page
    later = facts(date="2027-01-01 00:00 UTC", seconds=9.0).page()
    assert later != page
    times = re.compile("<time>.*?</time>")
    assert times.sub("", later) == times.sub("", page)

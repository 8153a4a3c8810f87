"""Weeks that nobody watches: cron's habits, mistakes and breakdowns, and what the state is after.

Each kind of week has a function; a story is a list of them. At the end the state is whole, its
ledger tells what was done, and every pair that was given is in a week or known to be left out.
"""

from __future__ import annotations

import itertools
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.pair_files import write_parquet
from support.processes import exit_code_of, run_line, start_child
from support.production import FAILS, PASSES, bodies, killed_at, write_week
from support.program import ProgramResult

from vlcpctl.data.splitting.leaving_out import read_lists, read_stop_list, stop_lists_in
from vlcpctl.data.tasks.task import open_task
from vlcpctl.production.checking import check_state
from vlcpctl.production.layout import Layout
from vlcpctl.production.state import read_state

Run = Callable[..., ProgramResult]
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="children can outlive a killed parent"
)


@dataclass
class Story:
    """A state, the files of its weeks, and what has been done with it so far."""

    run: Run
    state: Path
    golden: Path
    files: Path
    kills: Iterator[str]
    told: list[str] = field(default_factory=list)  # actions that the ledger must have, in order
    given: set[str] = field(default_factory=set)  # keys of all pairs that were to be trained on
    taken_back: set[str] = field(default_factory=set)  # of rejected weeks
    number: int = 1  # of the last file

    @property
    def place(self) -> Layout:
        return Layout(self.state)

    def file(self) -> Path:
        """Pairs that no other week has."""
        self.number += 1
        return write_week(self.files / f"w{self.number}.parquet", self.number)

    def update(self, *words: object, code: int = 0) -> ProgramResult:
        done = self.run("update", *words, "--state", self.state, *PASSES, "-q")
        assert done.code == code, done.err
        return done

    def accepted(self, *files: object) -> None:
        """An update with these files makes the next week."""
        before = read_state(self.place).last
        self.update(*files)
        assert read_state(self.place).last == before + 1
        self.told += ["started", "accepted"]
        self.remember(self.place.week(before + 1))

    def remember(self, week: Path) -> None:
        self.given |= keys_of(week)


def keys_of(week: Path) -> set[str]:
    (task,) = (week / "stream").glob("00-*")
    opened = open_task(task)
    return {key for name in opened.manifest.splits for key in opened.split(name).keys}


def a_file(story: Story) -> None:
    story.accepted(story.file())


def two_files_at_once(story: Story) -> None:
    story.accepted(story.file(), story.file())


def the_same_again(story: Story) -> None:
    before = read_state(story.place).last
    story.update(story.files / f"w{story.number}.parquet")
    assert read_state(story.place).last == before


def corrected(story: Story) -> None:
    """The last file once more, with another caption of most pairs."""
    rows = pq.read_table(story.files / f"w{story.number}.parquet").to_pylist()
    for number, row in enumerate(rows[:20]):
        row["caption"] = [f"corrected {story.number} {number}"]
    story.accepted(write_parquet(story.files / "corrected.parquet", rows))


def a_bad_week(story: Story) -> None:
    """It is rejected; the next file is accepted, and says that it is in no week."""
    bad = story.file()
    done = story.run("update", bad, "--state", story.state, *FAILS, "-q")
    assert done.code == 7, done.err
    story.told += ["started", "rejected"]
    story.taken_back |= keys_of(story.place.pending)
    good = story.file()
    assert "in no later week" in story.update(good).err
    story.told += ["started", "accepted"]
    story.remember(story.place.week(read_state(story.place).last))


def the_bad_week_again(story: Story) -> None:
    a_bad_week(story)
    rejected = story.place.rejected()[-1]
    done = story.update("--redo", rejected.relative_to(story.state))
    assert done.code == 0, done.err
    story.told += ["redo started", "redone"]
    keys = keys_of(story.place.week(read_state(story.place).last))
    story.given |= keys
    story.taken_back -= keys


def a_leak(story: Story) -> None:
    """A smaller hold-out trains on images that the guard holds out, unless they are left out."""
    guard = open_task(story.golden).split("test")
    rows = pq.read_table(story.file()).to_pylist()
    leaks = [
        {**rows[0], "image": guard.image(at), "caption": [f"leak {story.number} {at}"]}
        for at in range(len(guard))
    ]
    file = write_parquet(story.files / "leak.parquet", [*rows, *leaks])
    smaller = ("--holdout", "test=0.1")
    assert "have a test image" in story.update(file, *smaller, code=3).err
    story.told.append("started")
    story.accepted(file, *smaller, "--drop-leaks")  # another setting is another week
    story.accepted(story.file(), "--holdout", "test=0.3", "--refuse-leaks")


def a_deletion(story: Story) -> None:
    last = read_state(story.place).last
    keys = sorted(keys_of(story.place.week(last)))[:2]
    (story.files / "keys").write_text("\n".join(keys))
    done = story.run("forget", "--keys", story.files / "keys", story.state, "-q")
    assert done.code == 0, done.err
    story.told.append("forgotten")


def back_and_again(story: Story) -> None:
    """The last week is taken back, and made again from its pairs."""
    last = read_state(story.place).last
    assert story.run("update", "--state", story.state, "--rollback", last - 1).code == 0
    story.update("--redo", last)
    story.told += ["rolled back", "redo started", "redone"]


def a_full_disk(story: Story) -> None:
    """No file can become larger than 20 kB; later the same line goes on."""
    file, log = story.file(), story.files / "log"
    words = ["update", file, "--state", story.state, *PASSES, "-q"]

    def without_room(_rank: int) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        run_line(words, log)

    assert exit_code_of(start_child(without_room)) not in {0, 7}
    story.accepted(file)


def a_killed_machine(story: Story) -> None:
    file, point = story.file(), next(story.kills)
    words = ["update", file, "--state", story.state, *PASSES, "-q"]
    before = read_state(story.place).last
    assert killed_at(point, words, story.files / "log") < 0, point
    story.update(file)
    assert read_state(story.place).last == before + 1
    story.told += ["started", "accepted"]
    story.remember(story.place.week(before + 1))


def a_restored_copy(story: Story) -> None:
    """The state is lost; a copy without links is put in its place."""
    copy = story.files / "backup"
    shutil.copytree(story.state, copy, symlinks=False)
    shutil.rmtree(story.state)
    shutil.move(copy, story.state)
    assert story.run("check", story.state, "--repair", "-q").code == 0
    assert (story.state / "current").is_symlink()


KINDS = (
    *(a_file, two_files_at_once, the_same_again, corrected, the_bad_week_again, a_killed_machine),
    *(a_deletion, back_and_again, a_full_disk, a_restored_copy, a_bad_week, a_leak),
)
KILLS = (
    *("line 0", "after line 1", "step=1", "after line 3", "line 5", "judged", "moved", "recorded"),
    *("pointed", "accepted"),
)


@pytest.fixture
def story(run: Run, place: Path, state: Path, tmp_path: Path) -> Story:
    golden = place / "golden/00-golden"
    found = Story(run, state, golden, tmp_path, itertools.cycle(KILLS), ["started", "accepted"])
    found.remember(found.place.week(1))
    return found


def test_ten_weeks(story: Story) -> None:
    tell(story, [two_files_at_once, a_killed_machine, a_deletion, a_bad_week])


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_year(story: Story) -> None:
    """52 weeks, with disk for four of them."""
    story.update(story.file(), "--keep", "4")
    story.told += ["started", "accepted"]
    story.remember(story.place.week(2))
    kinds = itertools.cycle(KINDS)
    while read_state(story.place).last < 52:
        next(kinds)(story)
    tell(story, [])
    assert sum(story.place.is_trimmed(number) for number in range(1, 53)) >= 46


def tell(story: Story, kinds: list[Callable[[Story], None]]) -> None:
    """Do these weeks, and check what is left of them."""
    for kind in kinds:
        kind(story)
    assert list(check_state(story.state, deep=True)) == []
    assert [one["action"] for one in bodies(story.state)] == story.told
    place, state = story.place, read_state(story.place)
    paths = [place.known(week.number) for week in state.weeks]
    known = {str(key) for one in read_lists(paths) for key in one.keys}
    deleted = {key for path in stop_lists_in(story.state) for key in read_stop_list(path).keys}
    assert story.given - deleted <= known
    # --keep removes the pairs of one that was made again from them.
    kept = [week for week in place.rejected() if (week / "stream").exists()]
    rejected = {key for week in kept for key in keys_of(week)}
    assert story.taken_back - deleted <= rejected
    assert (story.state / "current").resolve() == (place.week(state.last) / "checkpoint").resolve()

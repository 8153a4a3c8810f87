"""Years of weeks of every kind on one state, without a model: what always holds of it.

The lines run for real, but for trainings and the scores of evaluations.
"""

from __future__ import annotations

import gc
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.production import FAILS, PASSES, actions, events, killed_at, week_words, write_week
from support.program import ProgramResult
from support.stub import Stub

from vlcpctl.data.tasks.task import open_task
from vlcpctl.production.check import check_state
from vlcpctl.production.state import State, has_pairs

Run = Callable[..., ProgramResult]
PAIRS = 12  # of a week
POINTS = 24  # at which a call is killed, or it ends before
UNCLEAR = ("--fail-if", "rm@data=00-golden:lt:45", "--set", "update.retries=1")
KINDS = (
    *("accept", "accept", "accept", "reject", "judge again", "train again", "redo", "roll back"),
    *("take back", "keep", "forget", "bad data", "killed", "killed", "nothing new"),
)


class Years:
    """A state, the numbers of the data of its accepted weeks, and what has been deleted."""

    def __init__(self, root: Path, place: Path, state: Path, seed: int, *, is_short: bool) -> None:
        self.root, self.place, self.state, self.random = root, place, state, Random(seed)
        like = State.read(state).made(State.read(state).head()[1], "checkpoint")
        self.runner = Stub(Path(shutil.copytree(like, root / "like")), is_short=is_short)
        self.head, self.taken, self.deleted = [1], list[int](), set[str]()
        self.inodes: dict[Path, int] = {}
        self.numbers, self.kills = count(1000 * seed), 0  # weeks of another year may be bad

    def call(self, wanted: int, *words: object, kill: bool = False) -> None:
        """Run a line; with `kill`, after it was killed at one of the points that it observes."""
        log = self.root / "log"
        if kill:
            at = self.random.randrange(POINTS)
            code = killed_at(at, words, log, self.runner)
            self.kills += code == -signal.SIGKILL
            assert code in (-signal.SIGKILL, wanted), Path(f"{log}.err").read_text()
        code = killed_at(-1, words, log, self.runner)
        assert code == wanted, (words, code, Path(f"{log}.err").read_text()[-3000:])

    def week(
        self, wanted: int, *more: object, number: int | None = None, kill: bool = False
    ) -> int:
        """Give the data of a week; its number."""
        number = next(self.numbers) if number is None else number
        path = self.place / f"week-{number}.parquet"
        if not path.exists():
            write_week(path, number, PAIRS)
        words = [*week_words(self.place, self.state, number), *(more or PASSES), "-q"]
        self.call(wanted, *words, kill=kill)
        if wanted == 0 and number not in self.head:
            self.head.append(number)
        return number

    def check(self) -> None:
        """What holds after each call."""
        state = State.read(self.state)
        names = [one.names[0] for one in state.head()[1:]]
        assert names == [f"{self.place.name}/week-{one}.parquet" for one in self.head]
        events(self.state)  # numbered without a gap
        link = self.state / "current"
        assert link.resolve() == state.made(state.head()[-1], "checkpoint").resolve()
        state.verify(state.head()[-1])
        for one in state.attempts.values():
            if (path := state.place(one)).exists():
                inode = path.stat().st_ino
                assert self.inodes.setdefault(path, inode) == inode, path
        for path in (self.state / "attempts").glob("*/stream/*/task.json"):
            task = open_task(path.parent)
            keys = {key for name in task.counts for key in task.split(name).keys}
            assert not self.deleted & keys, path

    # A week, or what is done in it.

    def accept(self) -> None:
        self.week(0)

    def reject(self) -> None:
        self.week(7, *FAILS)

    def judge_again(self) -> None:
        number = self.week(7, *FAILS)
        self.week(0, number=number)

    def train_again(self) -> None:
        """The first training of a week with --lr is bad, and the mean of both is not."""
        self.week(0, *UNCLEAR, "--lr", "0.5")
        state = State.read(self.state)
        assert state.head()[-1].draw == 1
        self.week(0, *PASSES, "--lr", "none", "--set", "update.retries=0")

    def redo(self) -> None:
        state = State.read(self.state)
        whole = [one.week for one in state.head()[1:] if not state.trimmed(one).exists()]
        first = max(whole[-min(2, len(whole))], min(whole) + (min(whole) > 1))
        if first <= state.last:
            steps = 2 + state.event["number"] % 7
            self.call(0, "update", "--state", self.state, "--redo", first, "--steps", steps, "-q")

    def roll_back(self) -> None:
        state = State.read(self.state)
        whole = [one.week for one in state.head()[1:-1] if not state.trimmed(one).exists()]
        if whole:
            to = self.random.choice(whole[-2:])
            self.call(0, "update", "--state", self.state, "--rollback", to)
            self.taken = self.head[to:]
            del self.head[to:]

    def take_back(self) -> None:
        """The same data after a rollback ask for --redo or a reason."""
        if not self.taken:
            self.roll_back()
        if self.taken and self.taken[0] not in self.head:
            number, self.taken = self.taken[0], []
            self.week(4, number=number)
            self.week(0, *PASSES, "--reason", "it was right", number=number)

    def keep(self) -> None:
        self.week(0, *PASSES, "--keep", self.random.choice([2, 4, 6]))

    def forget(self) -> None:
        state = State.read(self.state)
        one = self.random.choice(state.head()[-3:])
        if has_pairs(state, one):
            keys = open_task(state.task(one)).split("train").keys
            key = keys[self.random.randrange(len(keys))]
            self.call(0, "forget", self.state, "--key", key, "-q")
            self.deleted.add(key)

    def bad_data(self) -> None:
        """Images that are none, of half of the pairs."""
        number = next(self.numbers)
        path = write_week(self.place / f"week-{number}.parquet", number, PAIRS)
        rows = pq.read_table(path).to_pylist()
        rows = [one | {"image": b"GIF"} if at % 2 else one for at, one in enumerate(rows)]
        pq.write_table(pa.Table.from_pylist(rows), path)
        self.week(6, number=number)

    def killed(self) -> None:
        self.week(*self.random.choice([(0, *PASSES), (7, *FAILS)]), kill=True)

    def nothing_new(self) -> None:
        part = self.root / "part.parquet"
        pq.write_table(pq.read_table(self.place / f"week-{self.head[-1]}.parquet")[:5], part)
        self.call(0, "update", part, "--state", self.state, "-q")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("weeks", "often"), [(52, 1), (150, 10)])
def test_what_always_holds_of_a_state(
    run: Run, place: Path, state: Path, tmp_path: Path, weeks: int, often: int
) -> None:
    """With one of all kinds in so many weeks; the others are accepted, and have short reports."""
    assert run(*week_words(place, state, 2), "-q").code == 0  # imports what each child needs
    assert run("update", "--state", state, "--rollback", "1").code == 0
    gc.freeze()  # what a fork then need not copy
    years = Years(tmp_path, place, state, weeks, is_short=often > 1)
    how = ("--set", "split.holdout-most=50%")  # each week has test images
    years.week(0, *PASSES, *how, "--holdout", "test=4")
    order = [*KINDS, *years.random.choices(KINDS, k=weeks // often)][: weeks // often]
    order = [*order, *["accept"] * (weeks - len(order))]
    years.random.shuffle(order)
    for number, kind in enumerate(order):
        getattr(years, kind.replace(" ", "_"))()
        years.check()
        if number % 20 == 0:
            assert list(check_state(state, deep=False)) == [], kind
    assert list(check_state(state, deep=True)) == []
    done = Counter(actions(state))
    assert {"rejected", "trained again", "redone", "rolled back", "forgotten"} <= {*done}
    assert years.kills
    print(f"{weeks} weeks: {dict(done)}, {years.kills} kills, {len(years.head)} in the head")

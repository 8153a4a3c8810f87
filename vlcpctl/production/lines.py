"""The command lines of an update, as `vlcpctl batch` takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vlcpctl.core.staging import Staging
from vlcpctl.data.tasks.facts import read_task
from vlcpctl.jobs.script import CommandLine
from vlcpctl.production.guards import guard_patterns
from vlcpctl.production.layout import TASK, Layout, shown_path
from vlcpctl.production.left_out import TRAIN, StopLists
from vlcpctl.production.settings import Settings
from vlcpctl.production.state import State, guard_ids, unmeasured

Words = list[str]

# The names of files of rows and ranks: of guards for the new checkpoint, and for the start.
GUARDS, START, CLASSES = "guards", "start", "-classes"

_EARLIER = "earlier"  # the task that the first buffer is filled from
_PRETRAINED = "open_clip:"


@dataclass(frozen=True, kw_only=True)
class Call:
    """What a call of `update` adds to the settings, and does not keep."""

    data: Sequence[str]  # the sources of the new pairs
    fresh_state: bool = False
    readmit: Sequence[Path] = ()  # stop lists of which nothing is left out
    accept_inexact: bool = False
    junit: Path | None = None
    log: Sequence[str] = ()  # values of --log
    quiet: bool = False


@dataclass(frozen=True)
class Lines:
    """Makes the lines of one state directory with these settings."""

    place: Layout
    state: State
    settings: Settings
    call: Call

    def of_start(self) -> list[CommandLine]:
        """The lines that make the start: its checkpoint, the first buffer, the rows of guards."""
        return self._numbered(self._start_lines())

    def _start_lines(self) -> list[Words]:
        start, given = self.place.start, self.state.start
        lines: list[Words] = []
        if is_pretrained(given.given):
            lines.append(["import-checkpoint", given.given, "-o", str(start / "checkpoint")])
        if given.buffer_from:
            task = start / "stream" / f"00-{_EARLIER}"
            stop = StopLists.of(self.place, ()).paths
            lines.append(self._split(given.buffer_from, start / "stream", _EARLIER, stop))
            lines.append(self._buffer(task, start, None))
        lines += self._guards(self.settings, [start / "checkpoint"], start, GUARDS)
        return lines

    def of_week(self) -> list[CommandLine]:
        """The lines of the next week; the last one is the report, whose exit code decides."""
        number, pending = self.state.last + 1, self.place.pending
        task = self._task(pending, number)
        last = self.place.week(self.state.last)
        start = self.place.start / "checkpoint"
        # Evaluations before the training, so that a mistake in them does not cost one.
        before = list(dict.fromkeys([start, last / "checkpoint"]))
        new = [pending / "checkpoint"]
        emptied = self.emptied()
        known = [week for week in range(1, number) if week not in emptied]
        weeks = [self._task(self.place.week(week), week) for week in known]
        lines = [
            self._split(
                self.call.data,
                pending / "stream",
                task.name.removeprefix("00-"),
                self.left_out(),
            ),
            self._retrieval([task], before, pending, "before"),
            *self._guards(unmeasured(self.state, self.settings), [start], pending, START),
            self._train(task, last, pending),
            self._buffer(task, pending, self._buffer_of(self.state.last)),
            self._retrieval([*weeks, task], new, pending, "weeks"),
            *self._guards(self.settings, new, pending, GUARDS),
        ]
        return self._numbered([*lines, self._report(lines)])

    def left_out(self) -> list[Path]:
        """What the split of the week leaves out: stop lists, and the tasks of accepted weeks.

        Raises UsageError and BadInput as `StopLists.of` does.
        """
        skips_known = self.settings.known != TRAIN
        weeks = range(1, self.state.last + 1) if skips_known else ()
        tasks = [self._task(self.place.week(week), week) for week in weeks]
        return [*StopLists.of(self.place, self.call.readmit).paths, *tasks]

    def emptied(self) -> list[int]:
        """The weeks that nothing can be evaluated on: `vlcpctl forget` has removed all their tests.

        Raises BadInput if the manifest of a week cannot be read.
        """
        weeks = range(1, self.state.last + 1)
        tasks = (read_task(self._task(self.place.week(week), week)) for week in weeks)
        tests = (task.splits.get("test") for task in tasks)
        return [week for week, test in zip(weeks, tests, strict=True) if test and not test.images]

    def _numbered(self, lines: Sequence[Words]) -> list[CommandLine]:
        quiet = ["-q"] if self.call.quiet else []
        return [
            CommandLine(number, (*words, *quiet)) for number, words in enumerate(lines, start=1)
        ]

    def _task(self, week: Path, number: int) -> Path:
        return week / "stream" / TASK.format(number)

    def _buffer_of(self, week: int) -> Path | None:
        if week == 0 and not self.state.start.buffer_from:
            return None
        return self.place.week(week) / "buffer"

    def _split(self, data: Sequence[str], out: Path, name: str, left_out: Sequence[Path]) -> Words:
        how = self.settings
        sources = [f"./{one}" if one.startswith("-") else one for one in data]
        words = ["split", *sources, "-o", str(out), "--by", f"all:{name}"]
        words += _options(
            ("--holdout", how.holdout_rule),
            ("--split-column", how.split_column),
            ("--holdout-most", how.holdout_share),
            ("--keep-columns", how.keep_columns),
            ("--image-column", how.image_column),
            ("--caption-column", how.caption_column),
            *(("--image-root", shown_path(self.place.root, one)) for one in how.image_root),
            ("--max-skip", how.max_skip),
            *(("--not", one) for one in left_out),
        )
        return words + self._seed()

    def _train(self, task: Path, last: Path, pending: Path) -> Words:
        how = self.settings
        words = ["train-step", str(task), "-o", str(pending / "checkpoint")]
        words += ["--method", how.method, "--preset", how.preset, "--run", how.run]
        words += ["--previous", str(last / "checkpoint")]
        words += _options(
            *(
                ("--method-file", shown_path(self.place.root, file.path))
                for file in how.method_files
            ),
            ("--buffer", self._buffer_of(self.state.last)),
            *(("--set", one) for one in how.assignments),
            *((f"--{name.replace('_', '-')}", one) for name, one in how.of_training().items()),
        )
        words += ["--fresh-state"] if self.call.fresh_state else []
        # Refused without a saved state, as when the same command goes on after the training.
        is_inexact = self.call.accept_inexact and has_saved_state(pending)
        words += ["--accept-inexact"] if is_inexact else []
        return words + self._seed() + self._machine() + self._log()

    def _buffer(self, task: Path, out: Path, previous: Path | None) -> Words:
        how = self.settings
        words = ["buffer", str(task), "-o", str(out / "buffer")]
        words += _options(("--previous", previous))
        words += ["--policy", how.buffer_policy, "--size", how.buffer_size]
        if how.buffer_needs_checkpoint:
            words += ["--checkpoint", str(out / "checkpoint"), *self._machine(workers=False)]
        words += ["--store-features"] if how.stores_features else []
        return words + self._seed()

    def _retrieval(
        self, tasks: Sequence[Path], checkpoints: Sequence[Path], out: Path, name: str
    ) -> Words:
        words = ["eval-retrieval", *map(str, tasks)]
        words += _options(*(("--checkpoint", one) for one in checkpoints))
        return [*words, "-o", str(_rows(out, name)), *self._machine(), *self._log()]

    def _guards(
        self, settings: Settings, checkpoints: Sequence[Path], out: Path, name: str
    ) -> Iterator[Words]:
        """The evaluations of these guards, with the ranks that intervals are computed from."""
        root = self.place.root
        if settings.guards:
            paths = [shown_path(root, guard.path) for guard in settings.guards]
            ranks = ["--save-ranks", str(_ranks(out, name))]
            yield [*self._retrieval(paths, checkpoints, out, name), *ranks]
        if settings.classes:
            name = f"{name}{CLASSES}"
            words = ["eval-zeroshot", *(str(_class_word(root, one)) for one in settings.classes)]
            words += _options(*(("--checkpoint", one) for one in checkpoints))
            words += _options(("--data", settings.data and shown_path(root, settings.data)))
            words += ["-o", str(_rows(out, name)), "--save-ranks", str(_ranks(out, name))]
            yield words + self._machine() + self._log()

    def _report(self, lines: Sequence[Words]) -> Words:
        """The report over the rows of the start, of all accepted weeks, and of these lines.

        Of the ranks, those of the start and of the new checkpoint: only these two are compared.
        """
        how, accepted = self.settings, range(self.state.last + 1)
        new = [*([] if self.state.start.ready else self._start_lines()), *lines]
        new = [words for words in new if words[0].startswith("eval-")]
        rows = [one for week in accepted for one in self._files(week, "rows", "*.ndjson")]
        ranks = [
            one
            for week in accepted
            for one in self._files(week, "ranks", f"{START}*.parquet" if week else "*.parquet")
        ]
        words = ["forgetting-report", *rows, *(_value(one, "-o") for one in new)]
        # Only this run: a start that was trained on tasks is a run of its own, in the same rows.
        words += ["-o", str(self.place.pending / "report"), "--run", how.run]
        # `update` shows the page of the week instead of its tables.
        words += [] if self.call.quiet else ["-q"]
        of_new = (_value(one, "--save-ranks") for one in new if "--save-ranks" in one)
        words += _options(
            *(("--ranks", one) for one in (*ranks, *of_new)),
            *(("--guard", one) for one in self._patterns()),
            *(("--fail-if", one) for one in how.gates),
            ("--undefined", how.undefined_gates if how.undefined_gates != "error" else None),
            ("--junit", self.call.junit),
        )
        # The number before the name of a week is that in the run.
        gone = (f"*{TASK.format(week).removeprefix('00')}" for week in self.emptied())
        return words + _options(*(("--without", one) for one in gone))

    def _patterns(self) -> list[str]:
        """Patterns of the guards, if there were others in earlier weeks."""
        is_all = self.state.measured <= set(guard_ids(self.settings))
        return [] if is_all else guard_patterns(self.place.root, self.settings)

    def _files(self, week: int, below: str, pattern: str) -> list[str]:
        """Files of an accepted week, or of the start if it is complete, that still count.

        Those of guards do if there still are guards of their kind.
        """
        if week == 0 and not self.state.start.ready:
            return []
        found = sorted((self.place.week(week) / below).glob(pattern))
        kinds: dict[str, Sequence[object]] = dict.fromkeys((GUARDS, START), self.settings.guards)
        kinds |= {f"{kind}{CLASSES}": self.settings.classes for kind in (GUARDS, START)}
        return [str(one) for one in found if kinds.get(one.stem, True)]

    def _seed(self) -> Words:
        return ["--seed", str(self.settings.seed)] if self.settings.seed else []

    def _log(self) -> Words:
        return _options(*(("--log", one) for one in self.call.log))

    def _machine(self, *, workers: bool = True) -> Words:
        how = self.settings
        return _options(
            ("--device", how.device if how.device != "auto" else None),
            ("--workers", how.workers if workers else None),
            ("--threads", how.threads if how.threads != 1 else None),
        )


def has_saved_state(pending: Path) -> bool:
    """Whether the training of a week was interrupted after it had saved its state."""
    return any(Staging(pending / "checkpoint").partial.glob("at-*"))


def is_pretrained(init: str) -> bool:
    """Whether --init names pretrained weights rather than a checkpoint directory."""
    return init.startswith(_PRETRAINED)


def _options(*pairs: tuple[str, object]) -> Words:
    """The words of these options; those whose value is None are left out."""
    return [word for name, value in pairs if value is not None for word in (name, str(value))]


def _value(words: Words, option: str) -> str:
    return words[words.index(option) + 1]


def _rows(directory: Path, name: str) -> Path:
    return directory / "rows" / f"{name}.ndjson"


def _ranks(directory: Path, name: str) -> Path:
    return directory / "ranks" / f"{name}.parquet"


def _class_word(root: Path, recorded: str) -> Path | str:
    """A data set of --guard-classes as it is given to `eval-zeroshot`: a path, or its name."""
    kind, _, word = recorded.partition(":")
    return shown_path(root, word) if kind == "path" else word

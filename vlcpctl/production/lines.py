"""The command lines of an update, as `vlcpctl batch` takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Protocol

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.model_facts import has_batch_norms
from vlcpctl.core.words import shown
from vlcpctl.data.buffer.policies import NEEDS_FEATURES, WITHOUT_ASKING, most_considered
from vlcpctl.data.splitting.leaving_out import SELF
from vlcpctl.data.tasks.facts import read_task
from vlcpctl.files.outputs import Output
from vlcpctl.jobs.script import CommandLine
from vlcpctl.metrics.chance import WEEKS_A_YEAR
from vlcpctl.production.attempt import Attempt, trained_in
from vlcpctl.production.deploying import BASE, LATEST, MERGED, merge_words
from vlcpctl.production.guards import class_tasks, guard_patterns
from vlcpctl.production.layout import TASK, TRAINED, Layout, local_source, shown_path
from vlcpctl.production.left_out import TRAIN, StopLists
from vlcpctl.production.settings import Settings
from vlcpctl.production.state import State, guard_ids, unmeasured
from vlcpctl.training.state import STATE

Words = list[str]

# The names of files of rows and ranks: of guards for the new checkpoint, and for the start; of the
# week before its training; and of all weeks for the new checkpoint.
GUARDS, START, CLASSES = "guards", "start", "-classes"
BEFORE, WEEKS = "before", "weeks"
INDEX = ("index-kept", "index-grown", "index-rebuilt")  # what becomes of the deployed index

_RECENT = 12  # the last weeks, which every checkpoint is evaluated on
_OLDER = 40  # the most earlier weeks that a model is evaluated on besides
_EARLIER = "earlier"  # the task that the first buffer is filled from
PRETRAINED = "open_clip:"


class RunLines(Protocol):
    """Runs command lines; `run_lines` of update.py but for tests."""

    def __call__(self, lines: Sequence[CommandLine]) -> tuple[CommandLine, int] | None:
        """Run the lines one after the other; the first that failed, with its exit code."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """What a call of `update` adds to the settings, and does not keep."""

    data: Sequence[str]  # the sources of the new pairs
    fresh_state: bool = False
    readmit: Sequence[Path] = ()  # stop lists of which nothing is left out
    accept_inexact: bool = False
    small_guard: bool = False
    junit: Path | None = None
    log: Sequence[str] = ()  # values of --log
    quiet: bool = False
    reason: str | None = None  # for the ledger
    again: bool = False  # whether `data` is the task of a week that is made again


@dataclass(frozen=True)
class Lines:
    """Makes the lines of one state directory with these settings."""

    place: Layout
    state: State
    settings: Settings
    call: Call
    attempt: int = 0  # of the training of the week

    def of_start(self) -> list[CommandLine]:
        """The lines that make the start: its checkpoint, the first buffer, the rows of guards."""
        return self._numbered(self._start_lines())

    def _start_lines(self) -> list[Words]:
        start, given = self.place.start, self.state.start
        lines: list[Words] = []
        if is_pretrained(given.given):
            lines.append(["import-checkpoint", given.given, "-o", str(start / "checkpoint")])
        if given.buffer_from:
            task = self.earlier
            stop = StopLists.of(self.place, ()).paths
            data = [local_source(one) for one in given.buffer_from]
            words = self._split(self.settings, data, start / "stream", _EARLIER, stop)
            lines.append(words)
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
        evaluated = evaluated_weeks(self.state.last)
        known = [week for week in evaluated if week not in self.emptied]
        weeks = [self._task(self.place.week(week), week) for week in known]
        lines = [
            self._split(
                self.of_data,
                self.call.data,
                pending / "stream",
                task.name.removeprefix("00-"),
                self.left_out(),
            ),
            self._with_ranks([task], before, pending, BEFORE) + self._sample(),
            *self._guards(unmeasured(self.state, self.settings), [start], pending, START),
            self._train(task, pending),
            *self._merge(task, pending),
            self._buffer(task, pending, self.buffer_of(self.state.last)),
            self._with_ranks([*weeks, task], new, pending, WEEKS) + self._sample(),
            *self._guards(self.settings, new, pending, GUARDS),
            *self._roll_out(pending, task),
        ]
        return self._numbered([*lines, self._report(lines)])

    def from_training(self) -> list[CommandLine]:
        """The lines of the next week from its training on."""
        lines = self.of_week()
        first = next(at for at, one in enumerate(lines) if one.words[0] == "train-step")
        return lines[first:]

    def of_training(self, directory: Path) -> Iterator[Path]:
        """What of a week another training makes again, but for its report; the checkpoint last."""
        for name in (WEEKS, GUARDS, f"{GUARDS}{CLASSES}", *INDEX):
            yield rows_file(directory, name)
            yield ranks_file(directory, name)
        if self.settings.buffer_needs_checkpoint:
            yield directory / "buffer"
        yield directory / "checkpoint"
        if self.settings.merges:
            yield directory / TRAINED

    @property
    def of_data(self) -> Settings:
        """The settings for the data of this call: a week that is made again keeps its splits."""
        if not self.call.again:
            return self.settings
        kept = ",".join(read_task(Path(self.call.data[0])).kept_columns)
        return replace(
            self.settings,
            split_column="split",
            keep_columns=kept or None,
            image_column=None,
            caption_column=None,
            image_root=(),
        )

    def left_out(self) -> list[Path]:
        """What the split of the week leaves out: stop lists, and the tasks of accepted weeks.

        Raises UsageError and BadInput as `StopLists.of` does.
        """
        skips_known = self.settings.known != TRAIN
        weeks = range(1, self.state.last + 1) if skips_known else ()
        known = [self.place.known(week) for week in weeks]
        return [*StopLists.of(self.place, self.call.readmit).paths, *known]

    @cached_property
    def emptied(self) -> list[int]:
        """The weeks that nothing can be evaluated on: `vlcpctl forget` has removed all their tests.

        Raises BadInput if the manifest of a week cannot be read.
        """
        weeks = range(1, self.state.last + 1)
        tasks = (read_task(self._task(self.place.week(week), week)) for week in weeks)
        tests = (task.splits.get("test") for task in tasks)
        return [week for week, test in zip(weeks, tests, strict=True) if test and not test.images]

    @property
    def earlier(self) -> Path:
        """The task that --buffer-from becomes."""
        return self.place.start / "stream" / f"00-{_EARLIER}"

    @property
    def new(self) -> Path:
        """The task of the pending week."""
        return self._task(self.place.pending, self.state.last + 1)

    def weeks(self) -> dict[str, Path]:
        """The tasks of the accepted weeks, by the words for them."""
        weeks = range(1, self.state.last + 1)
        return {f"week {week}": self._task(self.place.week(week), week) for week in weeks}

    def guards(self, settings: Settings) -> dict[str, Path]:
        """The tasks of --guard and --guard-classes in these settings, by the words for them."""
        root = self.place.root
        tasks = {one.name: shown_path(root, one.path) for one in settings.guards}
        tasks |= class_tasks(root, settings)
        return {f"guard {name}": path for name, path in tasks.items()}

    @property
    def reference(self) -> Path | None:
        """The task of --reference; None without it."""
        recorded = self.settings.reference
        return None if recorded is None else shown_path(self.place.root, recorded.path)

    def _numbered(self, lines: Sequence[Words]) -> list[CommandLine]:
        quiet = ["-q"] if self.call.quiet else []
        return [
            CommandLine(number, (*self._with_urls(words), *quiet))
            for number, words in enumerate(lines, start=1)
        ]

    def _with_urls(self, words: Words) -> Words:
        """The words with URLs for what is in an object store, and the cache to read it through."""
        found = [shown(word) for word in words]
        if found == words:
            return words
        how = self.settings
        return [*found, *_options(("--cache", how.cache))]

    def _task(self, week: Path, number: int) -> Path:
        return week / "stream" / TASK.format(number)

    def buffer_of(self, week: int) -> Path | None:
        """The buffer of an accepted week, or of the start (0); None without one."""
        if week == 0 and not self.state.start.buffer_from:
            return None
        return self.place.week(week) / "buffer"

    def _split(
        self, how: Settings, data: Sequence[str], out: Path, name: str, left_out: Sequence[Path]
    ) -> Words:
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
        if how.drop_leaks:
            tests = [*self.guards(how).values(), *self.weeks().values()]
            itself = [SELF] if how.split_column is not None else []
            words += _options(*(("--not-test-images", one) for one in (*tests, *itself)))
        # An image that no decoder reads would end the training, whatever --max-skip allows.
        return [*words, "--decode", *self._seed()]

    def _train(self, task: Path, pending: Path) -> Words:
        how, buffer = self.settings, self.buffer_of(self.state.last)
        out = pending / (TRAINED if how.merges else "checkpoint")
        words = ["train-step", str(task), "-o", str(out)]
        words += ["--method", how.method, "--preset", how.preset, "--run", how.run]
        words += ["--previous", str(self._previous())]
        words += _options(
            *(
                ("--method-file", shown_path(self.place.root, file.path))
                for file in how.method_files
            ),
            ("--buffer", buffer),
            ("--reference", self.reference),
            *(("--set", one) for one in how.assignments),
            *(
                (f"--{name.replace('_', '-')}", one)
                for name, one in how.of_training(has_buffer=buffer is not None).items()
            ),
        )
        words += ["--fresh-state"] if self.call.fresh_state else []
        words += ["--attempt", str(self.attempt)] if self.attempt else []
        # Refused without a saved state, as when the same command goes on after the training.
        is_inexact = self.call.accept_inexact and has_saved_state(pending)
        words += ["--accept-inexact"] if is_inexact else []
        return [*words, *self._seed(), *self._machine(), *how.train_options, *self._log()]

    def _previous(self) -> Path:
        """The checkpoint that the week is trained from."""
        last = self.place.week(self.state.last)
        if self.settings.start_from == LATEST:
            return trained_in(last)
        return (self.place.start if self.settings.start_from == BASE else last) / "checkpoint"

    def _merge(self, task: Path, pending: Path) -> Iterator[Words]:
        """What makes the checkpoint to deploy, if it is not the trained one itself."""
        how, last = self.settings, self.place.week(self.state.last) / "checkpoint"
        if not how.merges:
            return
        words = ["merge", str(last), str(pending / TRAINED), "-o", str(pending / "checkpoint")]
        words += [*merge_words(how.deploy, self._weeks_in_mean()), "--run", how.run]
        words += ["--batch-norm-from", str(task)] if self._has_batch_norms else []
        yield words + _options(("--threads", how.threads if how.threads != 1 else None))

    def _weeks_in_mean(self) -> int:
        """How many of the last accepted weeks have deployed the mean since the start."""
        weeks = (Attempt.read(self.place.week(one)) for one in range(self.state.last, 0, -1))
        return sum(1 for _ in takewhile(lambda one: one.settings.deploy == MERGED, weeks))

    def _buffer(self, task: Path, out: Path, previous: Path | None) -> Words:
        how = self.settings
        words = ["buffer", str(task), "-o", str(out / "buffer")]
        words += _options(("--previous", previous))
        words += ["--policy", how.buffer_policy, "--size", how.buffer_size]
        if how.buffer_policy in NEEDS_FEATURES and how.buffer_size.isdecimal():
            # A state that keeps so many has asked for it: a week must not end here after training.
            wanted = most_considered(int(how.buffer_size))
            words += ["--candidates", str(wanted)] if wanted > WITHOUT_ASKING else []
        if how.buffer_needs_checkpoint:
            words += ["--checkpoint", str(self._continued(out)), *self._machine(workers=False)]
        words += ["--store-features"] if how.stores_features else []
        return words + self._seed()

    def _continued(self, out: Path) -> Path:
        """The checkpoint of the pending week, or of the start, that the next week continues."""
        how = self.settings
        is_trained = out == self.place.pending and how.merges and how.start_from == LATEST
        return out / (TRAINED if is_trained else "checkpoint")

    def _retrieval(
        self, tasks: Sequence[Path], checkpoints: Sequence[Path], out: Path, name: str
    ) -> Words:
        words = ["eval-retrieval", *map(str, tasks)]
        words += _options(*(("--checkpoint", one) for one in checkpoints))
        return [*words, "-o", str(rows_file(out, name)), *self._machine(), *self._log()]

    def _with_ranks(
        self, tasks: Sequence[Path], checkpoints: Sequence[Path], out: Path, name: str
    ) -> Words:
        """An evaluation with the ranks that intervals are computed from."""
        words = self._retrieval(tasks, checkpoints, out, name)
        return [*words, "--save-ranks", str(ranks_file(out, name))]

    def _guards(
        self, settings: Settings, checkpoints: Sequence[Path], out: Path, name: str
    ) -> Iterator[Words]:
        """The evaluations of these guards."""
        root = self.place.root
        if settings.guards:
            paths = [shown_path(root, guard.path) for guard in settings.guards]
            words = self._with_ranks(paths, checkpoints, out, name) + self._distractors()
            yield words + self._cache()
        if settings.classes:
            name = f"{name}{CLASSES}"
            words = ["eval-zeroshot", *(str(_class_word(root, one)) for one in settings.classes)]
            words += _options(*(("--checkpoint", one) for one in checkpoints))
            words += _options(("--data", settings.data and shown_path(root, settings.data)))
            words += ["-o", str(rows_file(out, name)), "--save-ranks", str(ranks_file(out, name))]
            yield words + self._machine() + self._log()

    def _roll_out(self, pending: Path, task: Path) -> Iterator[Words]:
        """What users of the deployed index get if it stays, gets the new items, or is built again.

        The gallery has the guard's items and those of the week.
        """
        week = self.settings.index_week
        if week is None or not self.settings.guards or not self._is_dual:
            return
        old = self.place.week(week) / "checkpoint"
        new = pending / "checkpoint"
        choices = (([old, new], old, None), ([new], old, "query"), ([new], new, None))
        paths = [shown_path(self.place.root, guard.path) for guard in self.settings.guards]
        for name, (queries, gallery, by) in zip(INDEX, choices, strict=True):
            words = self._with_ranks(paths, queries, pending, name)
            words += ["--gallery-checkpoint", str(gallery), *self._distractors(task)]
            yield words + _options(("--distractors-by", by)) + self._cache()

    @property
    def _is_dual(self) -> bool:
        """Whether images and texts have embeddings of their own, which an index can store."""
        start = self._known_start()
        model = None if start is None else CheckpointManifest.read(start).model
        return start is None or (model is not None and model.get("family") == "dual")

    @property
    def _has_batch_norms(self) -> bool:
        """Whether merged weights need statistics of their own."""
        start = self._known_start()  # of a pretrained model they are seen once it is there
        return start is not None and has_batch_norms(start)

    def _known_start(self) -> Path | None:
        """The checkpoint of the start; None before a pretrained one is imported."""
        start, given = self.place.start / "checkpoint", self.state.start.given
        if start.exists():
            return start
        return None if is_pretrained(given) else Path(given)

    def _sample(self) -> Words:
        """How many images of a week are evaluated."""
        return _options(("--sample", self.settings.evaluated))

    def _cache(self) -> Words:
        """Where the embeddings of guards are: each model embeds them once."""
        return ["--embedding-cache", str(self.place.embeddings)]

    def _distractors(self, *more: Path) -> Words:
        """The tasks that make the galleries of guards larger."""
        root = self.place.root
        paths = [*(shown_path(root, one.path) for one in self.settings.distractors), *more]
        return _options(*(("--distractors", one) for one in paths))

    def _report(self, lines: Sequence[Words]) -> Words:
        """The report over the rows of the start, of all accepted weeks, and of these lines.

        Of the ranks on guards, those of the start, the last week and the new checkpoint: only these
        are compared. On each week, the model that had learned it is, too.
        """
        how, accepted = self.settings, range(self.state.last + 1)
        new = [*([] if self.state.start.ready else self._start_lines()), *lines]
        new = [words for words in new if words[0].startswith("eval-")]
        rows = [one for week in accepted for one in self._files(week, "rows", "*.ndjson")]
        ranks = [
            one
            for week in accepted
            for one in self._files(week, "ranks", "*.parquet")
            if week in {0, self.state.last} or Path(one).stem.removesuffix(CLASSES) != GUARDS
        ]
        words = ["forgetting-report", *rows, *(_value(one, "-o") for one in new)]
        # Only this run: a start that was trained on tasks is a run of its own, in the same rows.
        words += ["-o", str(self.place.pending / "report"), "--run", how.run]
        # `update` shows the page of the week instead of its tables.
        words += [] if self.call.quiet else ["-q"]
        of_new = [_value(one, "--save-ranks") for one in new if "--save-ranks" in one]
        ranks += of_new
        words += _options(
            *(("--ranks", one) for one in ranks),
            *(("--guard", one) for one in self._patterns()),
            *(("--fail-if", one) for one in how.gates),
            *self._rule(ranks),
            ("--junit", self.call.junit),
        )
        # No metric over all weeks counts those that the new checkpoint is not evaluated on.
        counted = set(evaluated_weeks(self.state.last)).difference(self.emptied)
        is_whole = counted >= set(range(1, self.state.last + 1))
        return words + ([] if is_whole else ["--allow-missing"])

    def _rule(self, ranks: Sequence[str]) -> Iterator[tuple[str, object]]:
        """How the conditions are judged; against chance only where there are ranks."""
        how = self.settings
        yield "--undefined", how.undefined_gates if how.undefined_gates != "error" else None
        if ranks and how.gates:
            a_year = how.false_alarms
            yield "--false-alarms", None if a_year is None else f"{a_year / WEEKS_A_YEAR:.6g}"

    def _patterns(self) -> list[str]:
        """Patterns of the guards, if there were others in earlier weeks."""
        is_all = self.state.measured <= set(guard_ids(self.settings))
        return [] if is_all else guard_patterns(self.place.root, self.settings)

    def _files(self, week: int, below: str, pattern: str) -> list[str]:
        """Files of an accepted week, or of the start if it is complete, that still count.

        Those of guards do if there still are guards of their kind. Those of an index are of one
        week.
        """
        if week == 0 and not self.state.start.ready:
            return []
        found = sorted((self.place.week(week) / below).glob(pattern))
        kinds: dict[str, Sequence[object]] = dict.fromkeys((GUARDS, START), self.settings.guards)
        kinds |= {f"{kind}{CLASSES}": self.settings.classes for kind in (GUARDS, START)}
        kinds |= dict.fromkeys(INDEX, ())
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


def evaluated_weeks(last: int) -> list[int]:
    """The weeks that a model is evaluated on after `last` weeks were accepted.

    They are the last twelve and, of the older ones, at most forty: all, or every second, fourth,
    eighth and so on. A week that is left out is so for ever, so that of each week that a model is
    evaluated on, the model before it was, too.

    >>> evaluated_weeks(3)
    [1, 2, 3]
    >>> [week for week in evaluated_weeks(150) if week < 30]
    [4, 8, 12, 16, 20, 24, 28]
    """
    older = max(0, last - _RECENT)
    every = 1
    while older // every > _OLDER:
        every *= 2
    return [*range(every, older + 1, every), *range(older + 1, last + 1)]


def has_saved_state(pending: Path) -> bool:
    """Whether the training of a week was interrupted after it had saved its state."""
    places = (pending / TRAINED, pending / "checkpoint")
    return any((Output(place).partial / STATE).exists() for place in places)


def is_pretrained(init: str) -> bool:
    """Whether --init names pretrained weights rather than a checkpoint directory."""
    return init.startswith(PRETRAINED)


def _options(*pairs: tuple[str, object]) -> Words:
    """The words of these options; those whose value is None are left out."""
    return [word for name, value in pairs if value is not None for word in (name, str(value))]


def _value(words: Words, option: str) -> str:
    return words[words.index(option) + 1]


def rows_file(directory: Path, name: str) -> Path:
    """The rows of a week, or of the start, that one line wrote."""
    return directory / "rows" / f"{name}.ndjson"


def ranks_file(directory: Path, name: str) -> Path:
    """The ranks of the same line."""
    return directory / "ranks" / f"{name}.parquet"


def _class_word(root: Path, recorded: str) -> Path | str:
    """A data set of --guard-classes as it is given to `eval-zeroshot`: a path, or its name."""
    kind, _, word = recorded.partition(":")
    return shown_path(root, word) if kind == "path" else word

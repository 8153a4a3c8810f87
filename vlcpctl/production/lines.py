"""The command lines of a week, as `vlcpctl batch` takes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Final

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.model_facts import has_batch_norms
from vlcpctl.core.words import shown
from vlcpctl.data.buffer.policies import NEEDS_FEATURES, WITHOUT_ASKING, most_considered
from vlcpctl.data.splitting.leaving_out import SELF, stop_lists_in
from vlcpctl.data.tasks.facts import read_task
from vlcpctl.files.manifest import kind_of
from vlcpctl.files.outputs import new_part
from vlcpctl.jobs.script import CommandLine
from vlcpctl.models.checkpoint_files import OPEN_CLIP
from vlcpctl.production.guards import class_tasks, galleries_of, guard_ids, guard_patterns
from vlcpctl.production.options import UpdateOptions
from vlcpctl.production.settings import LATEST, MERGED, Settings, merge_words
from vlcpctl.production.state import EARLIER, TRAINED, Attempt, State
from vlcpctl.report.report import ReportRequest

Words = list[str]

# The names of files of rows and ranks: of guards for the new checkpoint, and for the start; of the
# week before its training; and of all weeks for the new checkpoint.
GUARDS, START, CLASSES = "guards", "start", "-classes"
BEFORE, WEEKS = "before", "weeks"
INDEX: Final = ("index-kept", "index-grown", "index-rebuilt")  # what becomes of the deployed index
MACHINE = ("device", "workers", "threads")

_OTHER_SEED = 1 << 20  # is added to that of a run, of which no other row has it
_RECENT = 12  # the last weeks, which every checkpoint is evaluated on
_OLDER = 40  # the most earlier weeks that a model is evaluated on besides


@dataclass(frozen=True)
class Report:
    """What a report is made of, and where it is written."""

    rows: list[str]
    ranks: list[str]
    request: ReportRequest
    out: Path


@dataclass(frozen=True)
class Lines:
    """Makes the lines of an attempt after `head`, which is empty for the start.

    `data` are the sources, of one that is made again the task of the earlier attempt; None: the
    attempt has its pairs.
    """

    state: State
    head: Sequence[Attempt]
    made: Attempt
    settings: Settings
    request: UpdateOptions
    data: Sequence[str] | None

    def of_start(self) -> list[CommandLine]:
        """The lines that make the start: its checkpoint, the first buffer, the rows of guards."""
        init, made = str(self.request.init), self.made
        checkpoint, lines = self.state.made(made, "checkpoint"), list[Words]()
        if is_imported(init):
            words = ["import-checkpoint", init, "-o", str(checkpoint)]
            lines.append(words + _options(("--model", self.request.model)))
        if self.data:
            lines += self._split(EARLIER, stop_lists_in(self.state.root))
            lines.append(self._buffer(None))
        lines += self._guards([checkpoint], self.state.made(made, ""), GUARDS)
        return self._numbered(lines)

    def of_week(self) -> list[CommandLine]:
        """The lines of the week; the last one is the report, whose exit code decides."""
        return self._numbered([*self._making, self._report()])

    @cached_property
    def _making(self) -> list[Words]:
        """The lines of the week but for the report."""
        made, state, last = self.made, self.state, self.head[-1]
        task, place = state.task(made), state.place(made)
        # Evaluations before the training, so that a mistake in them does not cost one.
        start = [state.made(self.head[0], "checkpoint")]
        before = list(dict.fromkeys([*start, state.made(last, "checkpoint")]))
        new, out = [state.made(made, "checkpoint")], state.made(made, "")
        weeks = [state.task(self.head[one]) for one in self.evaluated]
        return [
            *self._split(f"week-{made.week:04d}", self.left_out()),
            [*self._retrieval([task], before, place, BEFORE), *self._own("sample")],
            *self._guards(start, place, START, self.unmeasured),
            self._train(task),
            *self._merge(task),
            self._buffer(self.buffer_of(last)),
            [*self._retrieval([*weeks, task], new, out, WEEKS), *self._own("sample")],
            *self._guards(new, out, GUARDS),
            *self._roll_out(task),
        ]

    def left_out(self) -> list[Path]:
        """What the split of the week leaves out: stop lists, and the tasks of accepted weeks."""
        return [*stop_lists_in(self.state.root), *map(self.state.known, self.head[1:])]

    @cached_property
    def evaluated(self) -> list[int]:
        """The earlier weeks that the new model is evaluated on: those that still have tests."""
        return [one for one in evaluated_weeks(len(self.head) - 1) if one not in self.emptied]

    @cached_property
    def emptied(self) -> list[int]:
        """The weeks of which `vlcpctl forget` has removed all tests."""
        tests = (read_task(self.state.task(one)).splits.get("test") for one in self.head[1:])
        return [week for week, test in enumerate(tests, 1) if test and not test.images]

    @cached_property
    def unmeasured(self) -> list[str]:
        """The ids of the guards that the start was not evaluated on yet."""
        known = {one for attempt in self.head for one in attempt.measured}
        return [one for one in guard_ids(self.state.root, self.settings) if one not in known]

    def tests(self) -> dict[str, Path]:
        """The tasks of the guards and of the accepted weeks, by the words for them."""
        root = self.state.root
        guards = {read_task(one).slug: one for one in self.settings.paths(root, "guard")}
        guards |= class_tasks(root, self.settings)
        found = {f"guard {name}": path for name, path in guards.items()}
        return found | {f"week {one.week}": self.state.task(one) for one in self.head[1:]}

    def buffer_of(self, attempt: Attempt) -> Path | None:
        """The buffer of an accepted week, or of the start; None without one."""
        return self.state.made(attempt, "buffer") if attempt.has_data else None

    def _numbered(self, lines: Sequence[Words]) -> list[CommandLine]:
        quiet = ["-q"] if self.request.quiet else []
        found = []
        for number, words in enumerate(lines, 1):
            named = [shown(word) for word in words]  # URLs of what is in an object store
            cache = [] if named == words else _options(("--cache", self.settings.own("cache")))
            found.append(CommandLine(number, (*named, *cache, *quiet)))
        return found

    def _split(self, name: str, left_out: Sequence[Path]) -> Iterator[Words]:
        if self.data is None:
            return
        out = self.state.place(self.made) / "stream"
        sources = [f"./{one}" if one.startswith("-") else one for one in self.data]
        words = ["split", *sources, "-o", str(out), "--by", f"all:{name}"]
        if all(kind_of(Path(one)) == "task" for one in self.data):  # its pairs keep their split
            kept = read_task(Path(self.data[0])).kept_columns
            words += _options(
                ("--split-column", "split"), ("--keep-columns", ",".join(kept) or None)
            )
        else:
            words += self.settings.words("split", self.state.root, ["holdout-most"])
            words += _options(("--holdout-most", self.settings.holdout_share))
        words += _options(*(("--not", one) for one in left_out))
        if self.settings.own("drop-leaks"):
            itself = [SELF] if "--split-column" in words else []
            words += _options(
                *(("--not-test-images", one) for one in (*self.tests().values(), *itself))
            )
        # An image that no decoder reads would end the training, whatever --max-skip allows.
        yield [*words, "--decode", *self._own("seed")]

    def _train(self, task: Path) -> Words:
        how, last = self.settings, self.head[-1]
        buffer, previous = self.buffer_of(last), self.state.made(last, "checkpoint")
        if how.start_from == LATEST:
            previous = self.state.trained(last)
        elif how.start_from != MERGED:
            previous = self.state.made(self.head[0], "checkpoint")
        words = ["train-step", str(task), "-o", str(self.state.trained(self.made))]
        words += ["--run", str(how.own("run")), "--previous", str(previous)]
        words += _options(
            *(("--method-file", one) for one in how.files),
            ("--buffer", buffer),
            *(("--reference", one) for one in how.paths(self.state.root, "reference")),
            ("--attempt", self.made.draw or None),
        )
        without = ["replay"] if buffer is None or how.methods_decide_replay else []
        words += how.words("train-step", self.state.root, without)
        return [*words, *self._own("seed", *MACHINE), *self._log]

    def _merge(self, task: Path) -> Iterator[Words]:
        """What makes the checkpoint to deploy, if it is not the trained one itself."""
        how, state = self.settings, self.state
        if how.deploy == LATEST:
            return
        models = state.made(self.head[-1], "checkpoint"), state.made(self.made, TRAINED)
        merging = takewhile(
            lambda one: one.settings["update"].get("deploy") == MERGED, self.head[:0:-1]
        )
        out = ["-o", str(state.made(self.made, "checkpoint")), "--run", str(how.own("run"))]
        words = ["merge", *map(str, models), *out, *merge_words(how.deploy, len(list(merging)))]
        words += ["--batch-norm-from", str(task)] if has_batch_norms(self._start) else []
        yield words + self._own("threads")

    def _buffer(self, previous: Path | None) -> Words:
        how, size = self.settings, self.settings.sections["buffer"]["size"]
        words = ["buffer", str(self.state.task(self.made)), "-o"]
        words += [str(self.state.made(self.made, "buffer")), *_options(("--previous", previous))]
        words += ["--policy", how.policy, "--size", size]
        if how.policy in NEEDS_FEATURES and size.isdecimal():
            # A state that keeps so many has asked for it: a week must not end after its training.
            wanted = most_considered(int(size))
            words += ["--candidates", str(wanted)] if wanted > WITHOUT_ASKING else []
        if how.buffer_needs_checkpoint:
            is_latest = how.start_from == LATEST  # the next week continues what is trained
            of = self.state.trained if is_latest else lambda one: self.state.made(one, "checkpoint")
            words += ["--checkpoint", str(of(self.made)), *self._own("device", "threads")]
        words += ["--store-features"] if how.stores_features else []
        return words + self._own("seed")

    def _retrieval(
        self, tasks: Sequence[Path], checkpoints: Sequence[Path], out: Path, name: str
    ) -> Words:
        """An evaluation with the ranks that intervals are computed from."""
        words = ["eval-retrieval", *map(str, tasks)]
        words += _options(*(("--checkpoint", one) for one in checkpoints))
        return [*words, *_rows_and_ranks(out, name), *self._own(*MACHINE), *self._log]

    def _guards(
        self,
        checkpoints: Sequence[Path],
        out: Path,
        name: str,
        only: Sequence[str] | None = None,
    ) -> Iterator[Words]:
        """The evaluations of the guards, or of those with `only` these ids."""
        root, ids = self.state.root, guard_ids(self.state.root, self.settings)
        every = [*self.settings.paths(root, "guard"), *self.settings.classes(root)]
        tasks = self.settings.own("guard", [])
        wanted = [(at, one) for at, one in enumerate(every) if only is None or ids[at] in only]
        if paths := [Path(one) for at, one in wanted if at < len(tasks)]:
            words = self._retrieval(paths, checkpoints, out, name) + self._distractors()
            yield [*words, "--embedding-cache", str(self.state.embeddings)]
        if classes := [str(one) for at, one in wanted if at >= len(tasks)]:
            words = ["eval-zeroshot", *classes]
            words += _options(*(("--checkpoint", one) for one in checkpoints))
            words += _options(("--data", self.settings.own("data")))
            words += _rows_and_ranks(out, f"{name}{CLASSES}")
            yield words + self._own(*MACHINE) + self._log

    def _roll_out(self, task: Path) -> Iterator[Words]:
        """What users of the deployed index get if it stays, gets the new items, or is built again.

        The gallery has the guard's items and those of the week. Only models whose images and texts
        have embeddings of their own have an index.
        """
        week, guards = self.settings.index_week, self.settings.paths(self.state.root, "guard")
        model = CheckpointManifest.read(self._start).model if self._start.exists() else None
        if week is None or not guards or (model is not None and model.get("family") != "dual"):
            return
        old = self.state.made(self.head[week], "checkpoint")
        new, out = self.state.made(self.made, "checkpoint"), self.state.made(self.made, "")
        choices = (([old, new], old, None), ([new], old, "query"), ([new], new, None))
        for name, (queries, gallery, by) in zip(INDEX, choices, strict=True):
            words = self._retrieval(guards, queries, out, name)
            words += ["--gallery-checkpoint", str(gallery), *self._distractors(task)]
            words += _options(("--distractors-by", by))
            yield [*words, "--embedding-cache", str(self.state.embeddings)]

    @property
    def _start(self) -> Path:
        return self.state.made(self.head[0], "checkpoint")

    def _distractors(self, *more: Path) -> Words:
        """The tasks that make the galleries of guards larger."""
        paths = [*self.settings.paths(self.state.root, "distractors"), *more]
        return _options(*(("--distractors", one) for one in paths))

    @cached_property
    def report(self) -> Report:
        """The report over the rows of the start, of all accepted weeks, and of this one.

        Of the ranks on guards, those of the start, the last week and the new checkpoint: only these
        are compared. On each week, the model that had learned it is, too.
        """
        how, start = self.settings, list[CommandLine]()
        if not self.head[0].counted:  # of a dry run
            start = replace(self, head=[], made=self.head[0]).of_start()
        every = [*(list(one.words) for one in start), *self._making]
        new = [words for words in every if words[0].startswith("eval-")]
        found = self.counting
        compared = {self.head[0].id, self.head[-1].id}
        rows = [str(path) for _, path in found if path.suffix == ".ndjson"]
        ranks = [
            str(path)
            for one, path in found
            if path.suffix == ".parquet"
            and (one.id in compared or path.stem.removesuffix(CLASSES) != GUARDS)
        ]
        new_rows = [value_of(words, "-o") for words in new]
        new_ranks = [value_of(words, "--save-ranks") for words in new]
        if self.made.draw:  # the mean of both trainings is judged
            first = str(self.state.made(replace(self.made, draw=0), ""))
            own = str(self.state.made(self.made, ""))
            new_rows = [*(one.replace(own, first) for one in new_rows), str(self.second)]
            new_ranks += [one.replace(own, first) for one in new_ranks if own in one]
        ranks += new_ranks
        known, root = {one for each in self.head for one in each.measured}, self.state.root
        # If there were other guards in earlier weeks, those of now are named.
        is_all = known <= {*guard_ids(root, how)}
        request = ReportRequest(
            # Only this run: a start that was trained on tasks is a run of its own.
            runs=[str(how.own("run"))],
            fail_if=how.gates,
            guards=[] if is_all else guard_patterns(root, how),
            undefined=how.undefined,
            false_alarms=how.false_alarms if ranks and how.gates else None,
            # No metric over all weeks counts those that the new checkpoint is not evaluated on.
            allow_missing=len(self.evaluated) < len(self.head) - 1,
            allow_mixed=["seed"] if self.made.draw else [],
        )
        return Report([*rows, *new_rows], ranks, request, self.state.made(self.made, "report"))

    def _report(self) -> Words:
        """The line of the report, which prints nothing: the page is shown instead."""
        report = self.report
        words = ["forgetting-report", *report.rows, "-o", str(report.out)]
        words += ["--run", report.request.runs[0]]
        words += [] if self.request.quiet else ["-q"]  # each line has it then
        words += _options(
            *(("--ranks", one) for one in report.ranks),
            *(("--guard", one) for one in report.request.guards),
            *(("--fail-if", one) for one in report.request.fail_if),
            ("--undefined", "pass" if report.request.undefined == "pass" else None),
            ("--false-alarms", report.request.false_alarms),
            ("--junit", self.request.junit),
            *(("--allow-mixed", one) for one in report.request.allow_mixed),
        )
        return [*words, *(["--allow-missing"] if report.request.allow_missing else [])]

    @cached_property
    def counting(self) -> list[tuple[Attempt, Path]]:
        """The rows and ranks of the start and of accepted weeks that the report takes.

        Not those on guards where there are none any more, and in galleries of other distractors.
        """
        how = self.settings
        kinds: Mapping[str, object] = {
            **dict.fromkeys((GUARDS, START), how.own("guard")),
            **dict.fromkeys((f"{GUARDS}{CLASSES}", f"{START}{CLASSES}"), how.own("guard-classes")),
            **dict.fromkeys(INDEX),
        }
        now, of_guards = galleries_of(self.made), (GUARDS, START, *INDEX)
        every = [(one, path) for one in self.head for path in counting_files(self.state, one)]
        found = [(one, path) for one, path in every if kinds.get(path.stem, True)]
        return [x for x in found if x[1].stem not in of_guards or galleries_of(x[0]) == now]

    @property
    def second(self) -> Path:
        """The rows of the second training as those of another seed, see `write_second_seed`."""
        return self.state.made(self.made, "second.ndjson")

    @property
    def _log(self) -> Words:
        return _options(*(("--log", one) for one in self.request.log))

    def _own(self, *names: str) -> Words:
        """The options of these names, as the section `update` has them."""
        return _options(*((f"--{name}", self.settings.own(name)) for name in names))


def counting_files(state: State, attempt: Attempt) -> list[Path]:
    """The rows and ranks of an accepted attempt; those of trainings that were lost are not."""
    places = state.place(attempt), state.made(attempt, "")
    rows = [one for place in places for one in sorted(place.glob("rows/*.ndjson"))]
    return [*rows, *(one for place in places for one in sorted(place.glob("ranks/*.parquet")))]


def write_second_seed(lines: Lines) -> None:
    """Write `second.ndjson` beside the second training, if it is one; nothing for a first one.

    It has the rows of the accepted weeks and those of this training with another seed. The report
    takes them beside the rows of the first training, and averages over both.
    """
    state, made, found = lines.state, lines.made, list[str]()
    if not made.draw:
        return
    for path in (*(path for _, path in lines.counting), *counting_files(state, made)):
        for line in path.read_text().splitlines() if path.suffix == ".ndjson" else ():
            row = json.loads(line)
            if row.get("run") == lines.settings.own("run") and row.get("step") is not None:
                row = {**row, "seed": int(row["seed"]) + _OTHER_SEED}
                found.append(json.dumps(row, ensure_ascii=False) + "\n")
    with new_part(lines.second) as temporary:
        temporary.write_text("".join(found), encoding="utf-8")


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


def is_imported(init: str) -> bool:
    """Whether --init is not a checkpoint of ours, which import-checkpoint makes one."""
    return init.startswith(OPEN_CLIP) or kind_of(Path(init)) != "checkpoint"


def value_of(words: Sequence[str], option: str) -> str:
    """The value of an option of a line."""
    return words[words.index(option) + 1]


def rows_file(directory: Path, name: str) -> Path:
    """The rows that one line of an attempt wrote."""
    return directory / "rows" / f"{name}.ndjson"


def ranks_file(directory: Path, name: str) -> Path:
    """The ranks of the same line."""
    return directory / "ranks" / f"{name}.parquet"


def _rows_and_ranks(out: Path, name: str) -> Words:
    return ["-o", str(rows_file(out, name)), "--save-ranks", str(ranks_file(out, name))]


def _options(*pairs: tuple[str, object]) -> Words:
    """The words of these options; those whose value is None are left out."""
    return [word for name, value in pairs if value is not None for word in (name, str(value))]

"""`vlcpctl update`: the weekly job of a model in production."""

from __future__ import annotations

import json
from pathlib import Path

from vlcpctl.commands.shared import Json, Shared
from vlcpctl.core import console
from vlcpctl.core.errors import UsageError
from vlcpctl.core.options import like, options_of, spelled, value_of
from vlcpctl.production.options import UpdateOptions

_BESIDE_ROLLBACK = {"state", "quiet", "dry_run", "json", "wait", "rollback", "reason"}
_NOT_BESIDE_REDO = {"init", "model", "buffer_from", "sources"}


class Update(UpdateOptions, Json):
    r"""Update a model in production with the new data of a week.

    Splits the data, trains from the last accepted checkpoint with the last accepted buffer,
    updates the buffer, evaluates the new checkpoint on the guards and on the test parts of all
    weeks, writes a report and judges it. If no condition is true, the week is accepted:
    DIR/current is a link to its checkpoint. Otherwise it is rejected with exit code 7, and
    DIR/current stays; with code 3, a condition is undefined, and nothing is accepted. Each week is
    made in a directory of its own, DIR/attempts/0007, which never moves, also that of a rejected
    one. Its report/week.html has the verdict in words, what was lost, and what changed.
    DIR/events.ndjson has a line for each of these actions.

    A rejected week that did not clearly lose more than a bound is trained once more with other
    draws, and the mean of both trainings is judged.

    The first call needs --init and writes all settings to DIR/update.toml: later calls need only
    NEW_DATA and --state. An option that is given with a week is kept there once the week is
    accepted, in place of all its earlier values: give every --fail-if and --guard that is to stay.
    Options without a name here are set in the file, or by --set, such as
    --set train-step.precision=bf16, buffer.size=5% or update.index-week=2; none takes one back to
    its default. What runs code is given with each call. If the command is interrupted, run it
    again: it resumes.

    NEW_DATA, guards and other data may be URLs of an object store, such as s3://bucket/week.parquet;
    DIR and --init are local.

    Pairs that an accepted week has already are left out, and so are those that 'vlcpctl forget' has
    deleted from DIR. They are counted. If nothing is left, no week is made and the exit code is 0.

    Before anything is trained, the images of the training pairs, and of --buffer-from, are compared
    with the test images of the guards and of all weeks. Leaks end the update with exit code 3; with
    --drop-leaks they are left out and counted.

    If --on-accept or --on-reject fails, the exit code is 9 and nothing is taken back; the same
    command runs it again.

    Examples:
      vlcpctl update week1.parquet --state prod --init runs/production \
          --buffer-from 2025.parquet --guard golden/00-all
      vlcpctl update week2.parquet --state prod
      vlcpctl update week3.parquet --state prod --fail-if worst_drop:gt:1 \
          --fail-if bwt_gem:lt:-1
      vlcpctl update --state prod --rollback 1
      vlcpctl update --state prod --redo 2 --lr 1e-5
      vlcpctl inspect prod
    """

    wait: float | None = like(Shared, "wait", default=None)

    def execute(self) -> None:
        self._refuse_beside()
        from vlcpctl.files.outputs import check_output_path
        from vlcpctl.production.hooks import refuse_in_hook
        from vlcpctl.production.week import dry_run, run_line, update
        from vlcpctl.tracking.trackers import destinations

        destinations(self.log)
        inputs = [Path(one) for one in (*self.sources, *self.buffer_from, self.init) if one]
        check_output_path(self.state, [one for one in inputs if one.exists()], "--state")
        if self.dry_run:
            for line in dry_run(self):
                console.emit(line)
            return
        refuse_in_hook(self.state)
        made = update(self, run_line)
        if self.json:
            found = [one.as_json() for one in made]
            console.emit(json.dumps(found if self.redo else found[0], ensure_ascii=False))
        elif made[-1].accepted:
            console.emit(made[-1].checkpoint)
        made[-1].refuse(quiet=self.quiet)

    def _refuse_beside(self) -> None:
        """Raise UsageError for what has no effect beside --rollback or --redo, or without data."""
        option, others = "", set[str]()
        if self.rollback is not None:
            option, others = "rollback", {*options_of(Update)} - _BESIDE_ROLLBACK
        elif self.redo is not None:
            option, others = "redo", _NOT_BESIDE_REDO
        elif not self.sources:
            raise UsageError("NEW_DATA is missing; see 'vlcpctl update --help'")
        for name in sorted(others):
            if value_of(self, name) not in (None, False):
                row, _ = options_of(Update)[name]
                raise UsageError(f"{spelled(name, row)} has no effect with --{option}")

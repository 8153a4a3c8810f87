"""`vlcpctl inspect`: show what an artifact is and what it was made from."""

from __future__ import annotations

from vlcpctl.commands.shared import Json, Quiet
from vlcpctl.core.options import OnePath, argument


class Inspect(Quiet, Json):
    """Show what an artifact is, and follow its parents back to the raw data.

    Parents are found by their content id in the surrounding directories. For a stream, its tasks
    are listed. For a train-step that has not finished, its progress, rate, time left and last loss
    terms are printed; it may run on another machine.

    For a state directory of update, five lines have the last week, the current checkpoint, the
    verdict, the pending week and its page; settings, the last eight weeks and the last five events
    are below, and --json has all of them. If DIR/current is not the link that update has made, the
    exit code is 3.

    Examples:
      vlcpctl inspect stream
      vlcpctl inspect prod
      watch vlcpctl inspect run/01
      vlcpctl inspect --json runs/ctp/task-2 | jq .parents
    """

    path: OnePath = argument(
        "PATH",
        "Stream, task, buffer, checkpoint (or the --out of a train-step that is running), targets, "
        "pseudo texts or state of update",
        kw_only=False,
    )

    def execute(self) -> None:
        from functools import partial
        from json import dumps

        from vlcpctl.core.console import emit
        from vlcpctl.core.errors import BadInput
        from vlcpctl.core.words import as_given
        from vlcpctl.inspection.lineage import describe, lines
        from vlcpctl.inspection.unfinished import lines_of_run, run_facts
        from vlcpctl.production.describe import describe_state, state_lines
        from vlcpctl.production.state import is_state

        if is_state(self.path):
            facts, text = (found := describe_state(self.path)), state_lines(found)
        elif (running := run_facts(self.path)) is not None:
            facts, text = running, lines_of_run(running)
        else:
            facts, text = (
                (found := describe(self.path)),
                lines(found, partial(as_given, given=[self.path])),
            )
        if self.json:
            emit(dumps(facts, ensure_ascii=False))
        else:
            for line in text:
                emit(line)
        if facts.get("problem") is not None:
            raise BadInput(facts["problem"])

"""`vlcpctl inspect`: show what an artifact is and what it was made from."""

from __future__ import annotations

from vlcpctl.commands.shared import Json, Quiet
from vlcpctl.core.options import MaybePath, OnePath, argument, like, option
from vlcpctl.data.splitting.request import SplitOptions


class Inspect(Quiet, Json):
    """Show what an artifact is, and follow its parents back to the raw data.

    Parents are found by their content id in the surrounding directories. For a stream, its tasks
    are listed. For a train-step that has not finished, its progress, rate, time left and last loss
    terms are printed; it may run on another machine.

    For a state directory of update, five lines have the last week, the current checkpoint, the
    verdict, the pending week and its page; settings, the last eight weeks and the last five events
    are below, and --json has all of them. If DIR/current is not the link that update has made, the
    exit code is 3.

    --pairs looks into the pairs of data or a task: which columns are used, how many captions and
    words they have, sizes of images, what repeats. --html writes a page with 48 of them, to be
    looked at before anything is trained: captions that do not belong to their images show there.

    Examples:
      vlcpctl inspect stream
      vlcpctl inspect pairs.parquet --pairs --html pairs.html
      vlcpctl inspect prod
      watch vlcpctl inspect run/01
      vlcpctl inspect --json runs/ctp/task-2 | jq .parents
    """

    path: OnePath = argument(
        "PATH",
        "Stream, task, buffer, checkpoint (or the --out of a train-step that is running), targets, "
        "pseudo texts or state of update; with --pairs data of any form that split reads",
        kw_only=False,
    )
    pairs: int | None = option(
        "Look into the first N pairs",
        "[N]",
        otherwise="show the artifact; without N 10000",
        within="[1, inf)",
        usual=True,
    )
    html: MaybePath = option(
        "Page to write, with 48 of the pairs that --pairs looks at",
        "FILE",
        writes=True,
        goes_with=("pairs",),
        usual=True,
    )
    image_column: str | None = like(SplitOptions, "image_column", goes_with=("pairs",))
    caption_column: str | None = like(SplitOptions, "caption_column", goes_with=("pairs",))

    def execute(self) -> None:
        if self.pairs is None:
            self._show_artifact()
        else:
            self._show_pairs(self.pairs)

    def _show_pairs(self, most: int) -> None:
        from json import dumps

        from vlcpctl.core.console import emit
        from vlcpctl.data.sources.pairs import Columns
        from vlcpctl.files.outputs import new_file
        from vlcpctl.inspection.contents import contact_sheet, is_sheet, lines, look

        columns = Columns(image=self.image_column, caption=self.caption_column)

        def show() -> None:
            for line in [dumps(facts, ensure_ascii=False)] if self.json else lines(facts, shown):
                emit(line)

        if self.html is None:
            facts, shown = look(self.path, most, columns)
            show()
            return
        with new_file(self.html, is_sheet, keeps=False) as file:
            facts, shown = look(self.path, most, columns)
            file.write_text(contact_sheet(facts, shown), encoding="utf-8")
        show()

    def _show_artifact(self) -> None:
        from functools import partial
        from json import dumps

        from vlcpctl.core.console import emit
        from vlcpctl.core.errors import BadInput
        from vlcpctl.core.words import as_given
        from vlcpctl.inspection.lineage import describe, lines
        from vlcpctl.inspection.unfinished import lines_of_run, run_facts
        from vlcpctl.production.overview import state_facts, state_lines
        from vlcpctl.production.state import State, is_state

        if is_state(self.path):
            state = State.read(self.path)
            facts, text = (found := state_facts(state)), state_lines(state, found)
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

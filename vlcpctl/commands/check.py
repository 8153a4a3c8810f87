"""`vlcpctl check`: verify artifacts against their manifests, and look for flaws in their data."""

from __future__ import annotations

from vlcpctl.commands.shared import Json, Quiet
from vlcpctl.core.options import Paths, argument, option, switch
from vlcpctl.core.words import counted


class Check(Quiet, Json):
    """Verify artifacts against their manifests: print one problem per line, exit 3 if there is any.

    Without --deep, manifests, indexes and tar headers are compared with each other, the end of
    every tar is checked, and large files are hashed only if they were touched since they were last
    verified. With --deep, every image and caption is compared with the index, and every content id
    with the parts it was computed from.

    Flaws in the data are printed as warnings, which do not change the exit code unless --strict is
    given: test images that are also training images, within a task, across tasks and across all
    PATHs; captions that several images share; galleries of at most 10 images or captions; splits
    of one class.

    A state directory of 'vlcpctl update' is verified whole: DIR/current, DIR/update.toml, every
    attempt, also rejected and rolled-back ones, whether DIR/events.ndjson has every event, and that
    no deleted pair is left.

    Examples:
      vlcpctl check stream
      vlcpctl check prod
      vlcpctl check --deep stream/02-animals-nature runs/ctp/task-2
      vlcpctl check --strict --near-duplicates 4 stream buffer
    """

    paths: Paths = argument(
        "PATH",
        "Stream, task, buffer, checkpoint, targets, pseudo texts or state of update",
        kw_only=False,
    )
    deep: bool = switch("Read and hash every byte, whether verified before or not")
    near_duplicates: int | None = option(
        "Also report images whose 64-bit perceptual hash differs from that of a training image "
        "in at most BITS bits, such as 4",
        "BITS",
        otherwise="only exact copies",
        within="[0, 8]",
    )
    strict: bool = switch("Exit with code 3 for warnings, too")

    def execute(self) -> None:
        from vlcpctl.core.console import say
        from vlcpctl.core.errors import BadInput
        from vlcpctl.inspection.check import check, findings
        from vlcpctl.inspection.leaks import require_image_hashes
        from vlcpctl.production.check import check_state
        from vlcpctl.production.state import is_state

        states = [path for path in self.paths if is_state(path)]
        others = [path for path in self.paths if path not in states]
        if self.near_duplicates is not None:
            require_image_hashes()
        problems = warnings = 0
        for path in self.paths:
            for problem in (check_state if path in states else check)(path, deep=self.deep):
                self._show(problem, {"path": str(path), "problem": problem})
                problems += 1
        for finding in findings(others, near_bits=self.near_duplicates):
            facts = {
                "path": str(finding.path),
                "warning": finding.text,
                "kind": finding.kind,
                "count": finding.count,
                "example": finding.example,
            }
            self._show(f"warning: {finding.path}: {finding.text}", facts)
            warnings += 1
        counts = ((problems, "problem"), (warnings, "warning"))
        found = [counted(count, noun) for count, noun in counts if count]
        if problems or (self.strict and warnings):
            raise BadInput(f"{' and '.join(found)} found in {', '.join(map(str, self.paths))}")
        say(f"no problems found{f', {found[0]}' if found else ''}")

    def _show(self, line: str, facts: dict[str, object]) -> None:
        from json import dumps

        from vlcpctl.core.console import emit, emit_wrapped

        if self.json:
            emit(dumps(facts))
        else:
            emit_wrapped(line, "  ")

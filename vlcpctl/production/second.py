"""The rows of a week's second training as those of another seed, so that the mean is judged."""

from __future__ import annotations

import json

from vlcpctl.files.outputs import new_part
from vlcpctl.production.lines import Lines, counting_files

_SEED = 1 << 20  # is added to that of the run, which no other row of it has


def write_second_seed(lines: Lines) -> None:
    """Write `second.ndjson` beside the second training, if it is one; nothing for a first one.

    It has the rows of the accepted weeks and those of this training with another seed. The report
    takes them beside the rows of the first training, and averages over both.
    """
    state, made = lines.state, lines.made
    if not made.draw:
        return
    run, texts = lines.settings.own("run"), []
    for path in (*(path for _, path in lines.counting), *counting_files(state, made)):
        if path.suffix == ".ndjson":
            texts += [_as_second(line, run) for line in path.read_text().splitlines()]
    with new_part(lines.second) as temporary:
        temporary.write_text("".join(filter(None, texts)), encoding="utf-8")


def _as_second(line: str, run: str) -> str:
    """A row of this run with another seed, as a line; "" for one of another run."""
    row = json.loads(line)
    if row.get("run") != run or row.get("step") is None:
        return ""
    return json.dumps({**row, "seed": int(row["seed"]) + _SEED}, ensure_ascii=False) + "\n"

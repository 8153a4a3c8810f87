"""The start of a state, before a week is accepted."""

from __future__ import annotations

from pathlib import Path

from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.files.manifest import read_manifest
from vlcpctl.files.outputs import Output
from vlcpctl.production.layout import Layout
from vlcpctl.production.lines import Call, Lines
from vlcpctl.production.settings import Settings
from vlcpctl.production.start import make_start
from vlcpctl.production.state import Start, State


def test_the_link_names_the_start_until_a_week_is_accepted(tmp_path: Path) -> None:
    model, place = tmp_path / "model", Layout(tmp_path / "prod")
    model.mkdir()
    place.root.mkdir()
    (model / "weights").write_text("as given")
    CheckpointManifest(identity={}, run="r", method="seqf").write(model, {}, {})
    source, settings = str(read_manifest(model, "checkpoint")["content"]), Settings(run="shop")
    start = Start(given=str(model), source=source, buffer_from=(), settings=settings)
    state = State(start=start, settings=settings)
    with Output(place.root).locked():
        made = make_start(Lines(place, state, settings, Call(data=[])), lambda _lines: None)
    assert (made.start.ready, made.checkpoint) == (True, source)
    assert place.current.readlink() == Path("start/checkpoint")
    with (model / "weights").open("r+") as edited:
        edited.write("changed ")
    assert (place.start / "checkpoint/weights").read_text() == "as given"

"""A request reaches a process that has not loaded the file: the code travels with it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from support.method_files import write_method

from vlcpctl.methods.plugins.registry import MethodRegistry
from vlcpctl.training.methods import compose
from vlcpctl.training.request import TrainRequest
from vlcpctl.training.settings import Settings


def test_another_process_gets_the_code_that_was_read(tmp_path: Path) -> None:
    path = write_method(tmp_path / "mine.py")
    methods = compose("mine+ewc", ["mine.strength=3"], MethodRegistry.of([path]))
    request = TrainRequest(tasks=(), out=tmp_path, methods=methods, settings=Settings())
    pickled = tmp_path / "request.pickle"
    pickled.write_bytes(pickle.dumps(request))
    path.write_text("edited since")
    code = (
        "import pickle, sys\n"
        "from vlcpctl.methods.plugins.registry import facts_of\n"
        "request = pickle.loads(open(sys.argv[1], 'rb').read())\n"
        "print(request.method_name, request.methods[1].strength, facts_of(request.methods))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, pickled], capture_output=True, text=True, check=False
    )
    digest = MethodRegistry.of([write_method(path)]).files[0].digest
    wanted = f"ewc+mine 3.0 {{'mine': {{'file': '{digest}'}}}}\n"
    assert (found.stdout, found.stderr) == (wanted, "")


def test_a_request_without_files_is_copied_as_before(tmp_path: Path) -> None:
    request = TrainRequest(tasks=(), out=tmp_path, methods=compose("ctp"), settings=Settings())
    copied = pickle.loads(pickle.dumps(request))
    assert copied.methods == request.methods
    assert vars(copied.settings) == vars(request.settings)
    assert replace(request, seed=3).seed == 3

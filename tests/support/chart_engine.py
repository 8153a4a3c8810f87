"""Charts of tests are converted in a process of their own, so that tests can fork.

The engine of vl_convert starts threads, which a forked child does not have: it would wait for them
for ever. No command forks after it has drawn a chart; a process of pytest does both.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import subprocess
import sys
from types import ModuleType
from typing import Any

NAME = "vl_convert"
SERVE = f"""
import json, sys
import {NAME}
for line in sys.stdin:
    spec, options = json.loads(line)
    try:
        found = {{"svg": {NAME}.vegalite_to_svg(spec, **options)}}
    except ValueError as error:
        found = {{"error": str(error)}}
    print(json.dumps(found), flush=True)
"""


class ChartEngine(ModuleType):
    """Stands for vl_convert in this process; a forked child uses vl_convert itself."""

    def __init__(self) -> None:
        super().__init__(NAME)
        self._owner = os.getpid()
        self._server: subprocess.Popen[str] | None = None

    def vegalite_to_svg(self, spec: dict[str, Any], **options: Any) -> str:
        """As vl_convert.vegalite_to_svg, whose options are passed on."""
        if os.getpid() != self._owner:
            sys.modules.pop(NAME, None)
            text: str = importlib.import_module(NAME).vegalite_to_svg(spec, **options)
            return text
        if self._server is None or self._server.poll() is not None:
            self._server = self._started()  # a test may end all children of its process
        server = self._server
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps([spec, options]) + "\n")
        server.stdin.flush()
        found = json.loads(server.stdout.readline())
        if "error" in found:
            raise ValueError(found["error"])
        return str(found["svg"])

    def _started(self) -> subprocess.Popen[str]:
        server = subprocess.Popen(
            [sys.executable, "-c", SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        atexit.register(self._end, server)
        return server

    def _end(self, server: subprocess.Popen[str]) -> None:
        if os.getpid() == self._owner:  # a forked child that ends is not
            server.communicate()  # closes its input, so that it ends


def install() -> None:
    """From now on, `import vl_convert` in this process is this module."""
    sys.modules[NAME] = ChartEngine()

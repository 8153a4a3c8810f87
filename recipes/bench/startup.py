"""What it costs to start: commands on next to no data, beside typer's and the libraries' imports.

python recipes/bench/startup.py [--rounds 5]

The rivals are a typer program that prints one line, and `import torch, open_clip`. Bytecode is
written during the first round, which does not count.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from turns import in_turns, show

from vlcpctl.core.console import emit

LIBRARIES = "import torch, open_clip"
BARE = """
import typer
app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)

@app.command()
def run() -> None:
    print("done")

app()
"""
STEP = "train-step stream/00-part-0 --method seqf --preset tiny --steps 1 --quiet --force"
PLACE = (
    "sample emoji9 -o pairs --views 1 --size 32 --limit 20",
    "split pairs -o stream --by iid --tasks 2 --holdout test=0.3",
    f"{STEP} --model tiny -o dual",
)
PLAIN = {
    "--help": "--help",
    "--version": "--version",
    "train-step --help": "train-step --help",
    "check, 1 task": "check stream/00-part-0",
    "buffer, 4 pairs": "buffer stream/00-part-0 --size 4 -o buffer --force",
    "split, 40 pairs": "split pairs -o again --by iid --tasks 2 --force",
}
WITH_MODELS = {
    "train-step, 1 step, dual encoder": f"{STEP} --model tiny -o dual-1",
    "train-step, 1 step, fusion model": f"{STEP} --model albef-tiny -o fusion-1",
    "eval-retrieval, 1 task": "eval-retrieval stream/00-part-0 --checkpoint dual -o rows --force",
}


def main() -> None:
    """Print the seconds of each command, and their ratios to the rival of its kind."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as directory:
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(directory) / "bytecode")
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[1:])
        os.chdir(directory)
        Path("bare.py").write_text(BARE, encoding="utf-8")
        for line in PLACE:
            subprocess.run(_words(line), check=True, capture_output=True)
        bare = {"bare typer": [sys.executable, "bare.py"]}
        plain = {name: _words(line) for name, line in PLAIN.items()}
        show(in_turns({**bare, **plain}, rounds=rounds), "bare typer")
        emit("")
        libraries = {LIBRARIES: [sys.executable, "-c", LIBRARIES]}
        models = {name: _words(line) for name, line in WITH_MODELS.items()}
        show(in_turns({**libraries, **models}, rounds=rounds), LIBRARIES)
        os.chdir("/")


def _words(line: str) -> list[str]:
    return [sys.executable, "-m", "vlcpctl", *line.split()]


if __name__ == "__main__":
    main()

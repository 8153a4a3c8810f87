"""Breaks lines of the package, one at a time in a copy, and asks whether the tests notice.

python recipes/mutants.py                     60 breaks, drawn with a seed over all rooms
python recipes/mutants.py --seed 2 --only 17  one of another draw, with what pytest prints

A break swaps an operator, changes a constant, returns nothing, or leaves out a call. Messages,
annotations and assertions are not broken. Its tests are the examples in the file, the test files
that import the module, and those of its room, until one fails or the time is over. With --all, a
break that survives these faces the others of the default tests too, in eight times the time.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAIRS = (
    (ast.And, ast.Or), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE), (ast.Add, ast.Sub),
)  # fmt: skip
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    **dict(PAIRS), **{right: left for left, right in PAIRS}, ast.Mult: ast.Div, ast.In: ast.Is,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Add,
}  # fmt: skip
TELLING = {"say", "warn", "log", "emit", "emit_wrapped"}  # calls that only tell what happens
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
DEFAULT = ("-m", "not slow and not gpu and not net")


class Break(NamedTuple):
    """A line of a file, what was there, and what stands in its place."""

    file: str
    line: int
    old: str
    new: str
    source: str  # of the whole file, with the break


def main() -> None:
    """Draw breaks and try them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--only", type=int, help="the number of one break")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=240, help="seconds of tests for a break")
    parser.add_argument("--all", action="store_true", help="then run all default tests as well")
    args = parser.parse_args()
    drawn = list(enumerate(draw(ROOT, args.seed, args.count), start=1))
    chosen = [one for one in drawn if args.only in {None, one[0]}]
    with ThreadPoolExecutor(args.jobs) as pool:
        results = pool.map(lambda one: tried(one[1], args.limit, everything=args.all), chosen)
        for (number, broken), (result, text) in zip(chosen, results, strict=True):
            print(f"{number} {broken.file}:{broken.line} {result}", flush=True)
            if args.only or result != "killed":
                print(f"  - {broken.old}\n  + {broken.new}", flush=True)
            if args.only:
                print(text)


def draw(root: Path, seed: int, count: int) -> list[Break]:
    """So many breaks of different lines, the rooms in turn."""
    rng = random.Random(seed)
    files = sorted((root / "vlcpctl").rglob("*.py"))
    rooms = sorted({one.relative_to(root).parts[1] for one in files if one.name != "__init__.py"})
    found: dict[str, list[Break]] = {}
    for path in files:
        room = path.relative_to(root).parts[1]
        found.setdefault(room, []).extend(breaks(path, root))
    drawn: dict[tuple[str, int], Break] = {}
    while len(drawn) < count:
        room = rooms[len(drawn) % len(rooms)]
        one = rng.choice(found[room])
        drawn.setdefault((one.file, one.line), one)
    return [drawn[at] for at in sorted(drawn)]


def breaks(path: Path, root: Path) -> Iterator[Break]:
    """All breaks of a file."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    for node in live_nodes(ast.parse(source)):
        new = broken(node)
        if new is None or node.lineno != node.end_lineno:
            continue
        line = lines[node.lineno - 1]
        text = line.encode()
        whole = text[: node.col_offset] + new.encode() + text[node.end_col_offset :]
        changed = [*lines[: node.lineno - 1], whole.decode(), *lines[node.lineno :]]
        name = str(path.relative_to(root))
        yield Break(name, node.lineno, line.strip(), whole.decode().strip(), "".join(changed))


def live_nodes(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """The expressions and statements that a test could notice."""
    for field, value in ast.iter_fields(tree):
        if field in {"annotation", "returns", "decorator_list"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not is_silent(child):
                if isinstance(child, ast.expr | ast.stmt):
                    yield child
                yield from live_nodes(child)


def is_silent(node: ast.AST) -> bool:
    """Whether this is a message, `strict=`, an assertion, or the value of a hidden name."""
    if isinstance(node, ast.Expr):
        return is_silent(node.value)
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).rpartition(".")[2].strip("_") in TELLING
    if isinstance(node, ast.keyword):
        return node.arg in {"strict", "encoding"}
    return isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert)


def broken(node: ast.AST) -> str | None:
    """The text for a node with the break; None for one that no rule breaks."""
    text = None
    match node:
        case ast.Expr(value=ast.Call()):
            text = "pass"
        case ast.Return(value=ast.expr()):
            text = "return None"
        case ast.Constant(value=bool(value)):
            text = str(not value)
        case ast.Constant(value=int(number)):
            text = str(number + 1)
        case ast.Compare(ops=[one]) if type(one) in SWAPS:
            text = ast.unparse(ast.Compare(node.left, [SWAPS[type(one)]()], node.comparators))  # type: ignore[list-item]
        case ast.BoolOp(op=one):
            text = f"({ast.unparse(ast.BoolOp(SWAPS[type(one)](), node.values))})"  # type: ignore[arg-type]
        case ast.BinOp(op=one) if type(one) in SWAPS:
            text = f"({ast.unparse(ast.BinOp(node.left, SWAPS[type(one)](), node.right))})"  # type: ignore[arg-type]
    return text


def tests_of(file: str, root: Path) -> list[str]:
    """What to run for a file, the nearest first."""
    package, _, module = file.removesuffix(".py").replace("/", ".").rpartition(".")
    imports = re.compile(rf"{package}\.{module}\b|from {package} import .*\b{module}\b")
    room = root / "tests" / file.split("/")[1]
    tests = sorted((root / "tests").rglob("test_*.py"))
    near = [one for one in tests if imports.search(one.read_text(encoding="utf-8"))]
    names = [str(one.relative_to(root)) for one in near]
    examples = [file] if ">>>" in (root / file).read_text(encoding="utf-8") else []
    return [*examples, *names, *([f"tests/{room.name}"] if room.is_dir() else [])]


def tried(one: Break, limit: float, *, everything: bool) -> tuple[str, str]:
    """Whether the tests killed or survived a break, and what they printed."""
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place)
        left_out = shutil.ignore_patterns(".git", ".venv", ".*_cache", "runs", "__pycache__")
        shutil.copytree(ROOT, tree, ignore=left_out, dirs_exist_ok=True)
        (tree / one.file).write_text(one.source, encoding="utf-8")
        result, text = run_tests(tree, tests_of(one.file, tree), limit)
        if everything and result == "SURVIVED":
            result, text = run_tests(tree, [], 8 * limit)
    return result, text


def run_tests(tree: Path, tests: list[str], limit: float) -> tuple[str, str]:
    """Whether these tests kill what is broken in a tree (no names: all), and what they print."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, *PYTEST, *DEFAULT, *tests], cwd=tree, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            text, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            text = "the time is over"
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode == 0 or text == "the time is over":
        return "SURVIVED" if process.returncode == 0 else "undecided: the time is over", text
    return "killed", text


if __name__ == "__main__":
    main()

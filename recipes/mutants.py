"""Breaks lines of the package, one at a time in a copy, and asks whether the tests notice.

python recipes/mutants.py draw             draw the breaks of recipes/mutants.jsonl, with a seed
python recipes/mutants.py run              try those without a result; when stopped, it resumes
python recipes/mutants.py run --only 3 17  try these, and print what pytest printed
python recipes/mutants.py run --again      try the survivors without a note, with the tests of today

A break changes one line, by one of four rules: another operator, another constant, another value
returned, a call left out. What a break cannot change for a test is not drawn: annotations,
docstrings, the texts of messages, `strict=` and `assert`, and lines of CUDA.

The tests of a break are the default tests of its subject that execute the line, in child processes
too, as coverage measured them before; and the examples in its docstrings. Files that import the
module run first, then the cheapest, as far as the limit of CPU seconds allows; `left_out` lists the
others.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import cache_from_source
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from coverage import CoverageData

ROOT = Path(__file__).parents[1]
LIST = ROOT / "recipes" / "mutants.jsonl"
SUBJECTS = {  # where the tests of a package are
    "production": ["tests/production"],
    "deletion": ["tests/deletion", "tests/production/test_deletion.py"],
    "checkpoints": [
        "tests/checkpoints",
        "tests/commands/test_merge.py",
        "tests/inspection/test_check.py",
        *("tests/export/test_models.py", "tests/training/adaptation/test_model.py"),
        "tests/models/test_hub.py",
    ],
    "training": ["tests/training"],
}
KINDS = ("operator", "constant", "return", "call")
SWAPS = {"and": "or", "or": "and", "in": "not in", "not in": "in", "is": "is not", "is not": "is"}
SWAPS |= {"==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">"}
SWAPS |= {"+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "+"}
RETURNS = {  # what a function of this type returns instead
    "bool": ("False", "True"),
    "int": ("0",),
    "float": ("0.0",),
    "str": ('""',),
    "list": ("[]",),
    "dict": ("{}",),
    "Mapping": ("{}",),
    "set": ("set()",),
    "frozenset": ("frozenset()",),
    "Sequence": ("()",),
    "Iterable": ("()",),
}
MESSAGES = {"say", "warn", "log", "emit", "observe"}  # calls that only tell what happens
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider")
DEFAULT = ("-m", "not slow and not gpu and not net")
COVERAGE = "[run]\nsource = vlcpctl\nparallel = true\npatch = fork, _exit\n"  # children count too
HANGS_S = 1800


class Break(NamedTuple):
    """A line of a file, its text, and the text that would replace it."""

    kind: str
    file: str
    line: int
    text: str
    broken: str


def main() -> None:
    """Draw breaks, or try them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("act", choices=("draw", "run"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="breaks by their numbers")
    parser.add_argument("--again", action="store_true", help="survivors without a note")
    parser.add_argument("--limit", type=float, default=150, help="CPU seconds of tests for a break")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "mutants")
    args = parser.parse_args()
    if args.act == "draw":
        write_list([{"number": n, **one._asdict()} for n, one in enumerate(draw(args), start=1)])
        return
    rows = [json.loads(line) for line in LIST.read_text().splitlines()]
    tree = copy_tree(args.work / "tree")
    for row in chosen(rows, args):
        row["after" if "before" in row else "before"] = outcome = attempt(row, tree, args)
        print(row["number"], outcome["result"], outcome.get("by", ""), flush=True)
        write_list(rows)


def draw(args: argparse.Namespace) -> list[Break]:
    """So many breaks, packages and kinds in turn, at most one of a line."""
    found = [one for package in SUBJECTS for one in candidates(package)]
    rng, drawn = random.Random(args.seed), []
    for turn in range(args.count):
        cycle, place = divmod(turn, len(SUBJECTS))
        package, kind = list(SUBJECTS)[place], KINDS[(cycle + place) % len(KINDS)]
        taken = {one[1:3] for one in drawn}
        mine = [one for one in found if one.kind == kind and one[1:3] not in taken]
        drawn.append(rng.choice([one for one in mine if one.file.split("/")[1] == package]))
    return sorted(drawn, key=lambda one: one[1:3])


def candidates(package: str) -> Iterator[Break]:
    """All breaks of the files of a package that compile, in the order of the files."""
    for path in sorted((ROOT / "vlcpctl" / package).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        lines = source.splitlines()
        for kind, line, start, end, text in sorted(set(changes(ast.parse(source), source))):
            old = lines[line - 1]
            new = old[:start] + text + old[end:]
            whole = [*lines[: line - 1], new, *lines[line:]]
            if "cuda" not in old and new != old and compiles(whole):
                yield Break(kind, str(path.relative_to(ROOT)), line, old, new)


def compiles(lines: Sequence[str]) -> bool:
    """Whether these lines are Python."""
    try:
        compile("\n".join(lines), "<broken>", "exec")
    except SyntaxError:
        return False
    return True


Change = tuple[str, int, int, int, str]  # kind, line, columns from and to, the new text


def changes(tree: ast.Module, source: str) -> Iterator[Change]:
    """What the rules would change."""
    lines = source.splitlines()
    types = {
        statement: ast.unparse(function.returns)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.returns
        for statement in ast.walk(function)
        if isinstance(statement, ast.Return)
    }
    for node in live_nodes(tree):
        if getattr(node, "lineno", 0) != getattr(node, "end_lineno", 1):
            yield from operators(node, lines) if isinstance(node, PAIRS) else ()
        elif isinstance(node, ast.Constant):
            yield from constants(node)
        elif isinstance(node, ast.Return):
            yield from returns(node, types.get(node, ""))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield "call", node.lineno, node.col_offset, node.end_col_offset or 0, "pass"
        else:
            yield from operators(node, lines)


PAIRS = (ast.BoolOp, ast.Compare, ast.BinOp)


def live_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that a test could notice."""
    for field, value in ast.iter_fields(tree):
        if field in {"annotation", "returns", "decorator_list"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not is_silent(child):
                yield child
                yield from live_nodes(child)


def is_silent(node: ast.AST) -> bool:
    """Whether this is a message, `strict=`, an assertion, or a list of names."""
    if isinstance(node, ast.Expr):
        return is_silent(node.value)
    if isinstance(node, ast.Call):
        words = ast.unparse(node.func).rpartition(".")[2].strip("_").split("_")
        return words[0] in MESSAGES
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0]) == "__all__"
    if isinstance(node, ast.keyword):
        return node.arg == "strict"
    return isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert)


def operators(node: ast.AST, lines: Sequence[str]) -> Iterator[Change]:
    """Another operator; of comparisons at a limit the one with or without it; `not` left out."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "operator", node.lineno, node.col_offset, node.operand.col_offset, ""
        return
    for left, right in pairs(node):
        start, end = left.end_col_offset or 0, right.col_offset
        between = lines[right.lineno - 1][start:end]
        symbol = between.strip(" ()")
        # Paths are joined by `/`.
        joins = symbol == "/" and any("import Path" in line for line in lines)
        if left.end_lineno == right.lineno and symbol in SWAPS and not joins:
            new = between.replace(symbol, SWAPS[symbol], 1)
            yield "operator", right.lineno, start, end, new


def pairs(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The two sides of each operator of an expression."""
    if isinstance(node, ast.BinOp):
        yield node.left, node.right
    elif isinstance(node, ast.BoolOp):
        yield from pairwise(node.values)
    elif isinstance(node, ast.Compare):
        yield from pairwise([node.left, *node.comparators])


def constants(node: ast.Constant) -> Iterator[Change]:
    """The other truth value; an integer and one more; half as much again of a fraction."""
    if not isinstance(node.value, bool | int | float):
        return
    new = not node.value if isinstance(node.value, bool) else node.value + 1
    if isinstance(node.value, float):
        new = node.value * 1.5
    yield "constant", node.lineno, node.col_offset, node.end_col_offset or 0, repr(new)


def returns(node: ast.Return, annotation: str) -> Iterator[Change]:
    """Nothing, in its type; no return where there was one without a value; a tensor twice."""
    start, end = node.col_offset, node.end_col_offset or 0
    if node.value is None:
        yield "return", node.lineno, start, end, "pass"
        return
    values = RETURNS.get(annotation.partition("[")[0], ())
    if annotation.endswith("| None"):
        values = ("None",)
    elif annotation.endswith(", ...]"):
        values = ("()",)
    elif annotation == "Tensor":
        values = (f"2 * ({ast.unparse(node.value)})",)
    for value in values:
        yield "return", node.lineno, start, end, f"return {value}"


def write_list(rows: Sequence[dict[str, Any]]) -> None:
    """The list, one break a line; readers never see half of it."""
    temporary = LIST.with_suffix(".part")
    temporary.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    temporary.replace(LIST)


def copy_tree(tree: Path) -> Path:
    """A copy of the files that git knows, or would know."""
    known = subprocess.check_output(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, text=True
    )
    shutil.rmtree(tree, ignore_errors=True)
    for name in known.split("\0"):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    return tree


def chosen(rows: Sequence[dict[str, Any]], args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The breaks to try."""
    for row in rows:
        if args.only:
            wanted = row["number"] in args.only
        elif args.again:
            last = row.get("after", row.get("before", {}))
            wanted = last.get("result") == "survived" and "note" not in row
        else:
            wanted = "before" not in row
        if wanted:
            yield row


def attempt(row: dict[str, Any], tree: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Try one break: which tests ran, and which one failed if any did."""
    path = tree / row["file"]
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    place = nearest(lines, row)
    if place is None:
        return {"result": "gone"}
    files, left_out = tests_of(row["file"], place + 1, tree, args)
    if ">>>" in source:
        files.insert(0, row["file"])
    outcome: dict[str, Any] = {"ran": files, **({"left_out": left_out} if left_out else {})}
    if not files:
        return {"result": "survived", **outcome}
    lines[place] = row["broken"]
    write_source(path, "\n".join([*lines, ""]))
    try:
        code, text, seconds = run_tests([*PYTEST, *DEFAULT, *files], tree)
    finally:
        write_source(path, source)
    if args.only:
        print(text)
    if code == 0:
        return {"result": "survived", **outcome, "cpu_s": seconds}
    failed = re.search(r"^(?:FAILED|ERROR) ([^\s\[]+)", text, re.M)
    return {"result": "killed", "by": failed[1] if failed else f"exit code {code}"}


def nearest(lines: Sequence[str], row: dict[str, Any]) -> int | None:
    """Where the line of a break stands today."""
    places = [place for place, line in enumerate(lines) if line == row["text"]]
    return min(places, key=lambda place: abs(place + 1 - row["line"]), default=None)


def write_source(path: Path, text: str) -> None:
    """The file, and no bytecode of another one of the same second and size."""
    path.write_text(text, encoding="utf-8")
    Path(cache_from_source(str(path))).unlink(missing_ok=True)


def tests_of(
    file: str, line: int, tree: Path, args: argparse.Namespace
) -> tuple[list[str], list[str]]:
    """The test files that execute a line, in their order, and those above the limit."""
    code = digest(sorted((tree / "vlcpctl").rglob("*.py")))
    names = SUBJECTS[file.split("/")[1]]
    found = [one for name in names for one in (tree / name).rglob("test_*.py")]
    paths = sorted({*found, *(tree / name for name in names if name.endswith(".py"))})
    package, _, module = file.removesuffix(".py").replace("/", ".").rpartition(".")
    imports = re.compile(rf"{package}\.{module} import|from {package} import {module}\b")
    costs: list[tuple[bool, float, str]] = []
    for path in paths:
        entry = args.work / f"{digest([path])}-{code}.json"
        if not entry.exists():
            entry.write_text(json.dumps(measured(path, tree, args.work)))
        measure = json.loads(entry.read_text())
        if line in measure["lines"].get(file, ()):
            is_far = imports.search(path.read_text()) is None
            costs.append((is_far, measure["cpu_s"], str(path.relative_to(tree))))
    runs, left_out, spent = [], [], 0.0
    for _, seconds, name in sorted(costs):
        spent += seconds
        (runs if spent <= args.limit or not runs else left_out).append(name)
    return runs, left_out


def digest(paths: Sequence[Path]) -> str:
    """A digest of files."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def measured(path: Path, tree: Path, work: Path) -> dict[str, Any]:
    """The lines of the package that a file of tests executes, and its CPU seconds."""
    with tempfile.TemporaryDirectory(dir=work) as directory:
        config, data = Path(directory) / "rc", Path(directory) / "data"
        config.write_text(COVERAGE)
        words = ["-m", "coverage", "run", f"--rcfile={config}", f"--data-file={data}"]
        code, text, seconds = run_tests([*words, *PYTEST, *DEFAULT, str(path)], tree)
        if code not in {0, 5}:  # 5: no default tests
            raise SystemExit(f"{path} fails without a break:\n{text}")
        lines: dict[str, set[int]] = {}
        for part in Path(directory).glob("data.*"):
            read = CoverageData(str(part))
            read.read()
            for file in read.measured_files():
                name = str(Path(file).relative_to(tree))
                lines.setdefault(name, set()).update(read.lines(file) or ())
    print(f"{path.relative_to(tree)}: {seconds:.0f} CPU seconds", flush=True)
    return {"cpu_s": seconds, "lines": {name: sorted(ones) for name, ones in lines.items()}}


def run_tests(words: Sequence[str], tree: Path) -> tuple[int, str, float]:
    """Exit code, output and CPU seconds of Python in the copy; nothing that it started stays."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=tree,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,  # so that its children can be ended with it
        )
        try:
            code = process.wait(HANGS_S)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        text = output.read()
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
    return code, text, round(seconds, 1)


if __name__ == "__main__":
    main()

"""The house rules that no linter holds: names, words, and what the README shows."""

from __future__ import annotations

import difflib
import itertools
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from vlcpctl.commands import COMMANDS
from vlcpctl.methods import TABLE

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "vlcpctl"
SOURCES = sorted(PACKAGE.rglob("*.py"))
READ_BY_USERS = [
    *SOURCES,
    *(path for path in (ROOT / "recipes").iterdir() if path.is_file() and path.suffix != ".png"),
    *(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts),
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "pyproject.toml")),
]
# Absolute paths of one machine.
OWN_PATHS = re.compile(r"(?<![\w.}])/(?:work|root|home|opt)/")
MAX_IGNORES = 10
DISTINCT_SHARE = 0.6


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def lines_of(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Every line, after its place: FILE:LINE."""
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            yield f"{name_of(path)}:{number}", line


def test_every_module_starts_with_a_docstring() -> None:
    """The first line says what the file is for."""
    found = [
        name_of(path)
        for path in SOURCES
        if not re.match(r'r?"""[^\n]+', path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_code_and_messages_are_plain_ascii() -> None:
    assert not [f"{place}: {line}" for place, line in lines_of(SOURCES) if not line.isascii()]


def test_split_messages_do_not_glue_words() -> None:
    """`"no such file" "in the index"` prints `fileinthe`."""
    joint = re.compile(r"""[A-Za-z,.;:]["']\n\s+f?["'][A-Za-z(]""")
    found = [
        f"{name_of(path)}: {glued!r}"
        for path in SOURCES
        for glued in joint.findall(path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_few_types_are_ignored() -> None:
    found = lines_of(SOURCES)
    ignores = [f"{place}: {line.strip()}" for place, line in found if "type: ignore" in line]
    assert len(ignores) <= MAX_IGNORES, "\n".join(ignores)


def test_methods_are_not_copies_of_each_other() -> None:
    """Of any two, at least 60 % of the shorter one's lines of code are its own.

    What four or more methods say is the form of a declaration, and not counted.
    """
    lines = {name: code_lines(PACKAGE / "methods" / f"{name}.py") for name in TABLE}
    users = Counter(line for body in lines.values() for line in set(body))
    bodies = {name: [line for line in body if users[line] < 4] for name, body in lines.items()}
    for (one, first), (other, second) in itertools.combinations(bodies.items(), 2):
        matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
        shared = sum(block.size for block in matcher.get_matching_blocks())
        own = 1 - shared / max(1, min(len(first), len(second)))
        assert own >= DISTINCT_SHARE or shared < 15, f"{one} and {other} share {shared} lines"


def code_lines(path: Path) -> list[str]:
    """The lines below the imports, blank ones dropped."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        line for line in lines if line and not line.startswith(("import ", "from ", "#", '"""'))
    ]


def test_every_command_has_a_file_of_its_name() -> None:
    for name in COMMANDS:
        assert (PACKAGE / "commands" / f"{name.replace('-', '_')}.py").is_file(), name


def test_the_readme_opens_with_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"```console\n(.*?)```", readme, re.S)
    commands = [line.split("#")[0].strip() for line in code[0].splitlines()]
    assert commands == ["bash recipes/quickstart.sh", "bash recipes/test.sh"]
    for command in commands:
        assert (ROOT / command.split()[1]).is_file()


def test_no_path_of_one_machine_is_in_the_product() -> None:
    found = [f"{at}: {line}" for at, line in lines_of(READ_BY_USERS) if OWN_PATHS.search(line)]
    assert not found


def test_every_recipe_is_a_shell_script_without_mistakes_of_syntax() -> None:
    for path in (ROOT / "recipes").glob("*.sh"):
        subprocess.run(["bash", "-n", path], check=True)


def test_constraints_are_plain_pins_of_third_parties() -> None:
    lines = (ROOT / "recipes" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    for line in lines:
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line), line
        assert not line.startswith(("nvidia-", "cuda-", "triton", "vlcpctl")), line

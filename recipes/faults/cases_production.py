"""State directories of `update` that were copied, moved, edited or given by another path."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from case import Table, both, cut, removed, written
from world import STATE_WEEK

PRODUCTION = Table("A state of update was copied, moved or edited")
_SAME = "update pairs.parquet --state prod"  # the data of week 1
# The pairs of the file are those of week 1.
_NEXT = f"update more.parquet {STATE_WEEK} --known train"
_ROLLBACK = "update --state prod --rollback 0"


def _add(fault: str, command: str, code: int, **more: object) -> None:
    PRODUCTION.add(fault, command, code, **{"out": "prod", **more})


def _renamed(name: str, to: str) -> Callable[[Path], None]:
    def prepare(world: Path) -> None:
        (world / name).rename(world / to)

    return prepare


def _copied(name: str, to: str) -> Callable[[Path], None]:
    def prepare(world: Path) -> None:
        shutil.copytree(world / name, world / to, symlinks=True, dirs_exist_ok=True)

    return prepare


def _linked(name: str, to: str) -> Callable[[Path], None]:
    def prepare(world: Path) -> None:
        (world / name).unlink(missing_ok=True)
        (world / name).symlink_to(to)

    return prepare


def _without_links(world: Path) -> None:
    """What `cp -rL` or an object store makes of a state."""
    shutil.copytree(world / "prod", world / "restored")
    shutil.rmtree(world / "prod")
    (world / "restored").rename(world / "prod")


def _later(world: Path) -> None:
    """A state with a setting of a later version, sealed as that would do."""
    from vlcpctl.production.records import STATE, write_record

    path = world / "prod/state.json"
    found = json.loads(path.read_text())
    found["settings"]["rehearsal"] = 1
    names = found.keys() - {"schema", "seal", "made_by"}
    write_record(path, STATE, {name: found[name] for name in names})


_add("nothing", _SAME, 0)
_add("nothing", _NEXT, 0)
for _what, _fault in {
    "restored without its links": _without_links,
    "current is a file": both(removed("prod/current"), written("prod/current", "x")),
    "current is a link to another week": _linked("prod/current", "start/checkpoint"),
    "current is a link to nothing": _linked("prod/current", "weeks/0009/checkpoint"),
}.items():
    for _line, _code in ((_SAME, 4), (_NEXT, 4), (_ROLLBACK, 4), ("inspect prod", 3)):
        _add(_what, _line, _code, prepare=_fault, says="move it away with 'mv prod/current")
for _line in (_SAME, _ROLLBACK, "inspect prod"):
    _add("no current", _line, 0, prepare=removed("prod/current"))
for _number, _says in (("0002", "was made as week 1"), ("0007", "is not in state.json")):
    _fault = _copied("prod/weeks/0001", f"prod/weeks/{_number}")
    for _line in (_SAME, _NEXT, _ROLLBACK):
        _add(f"a copy of week 1 as {_number}", _line, 3, prepare=_fault, says=_says)
_add("week.json removed", _SAME, 0, prepare=removed("prod/weeks/0001/week.json"))
for _line in (_SAME, _NEXT, _ROLLBACK, "inspect prod"):
    _add("a setting of a later version", _line, 3, prepare=_later, says="by a later version")
    _add("state.json cut short", _line, 3, prepare=cut("prod/state.json"), says="state.json")
    _add("state.json nested deep", _line, 3, prepare=written("prod/state.json", "[" * 10**5))
_add(
    "a file of the user in pending",
    _ROLLBACK,
    0,
    prepare=written("prod/pending/notes.txt", "mine"),
    says="keeps what update has not made: notes.txt",
)
for _line in (_SAME, _NEXT):
    _there = both(_renamed("prod", "disk"), _linked("prod", "disk"))
    _add("a link to another place", _line, 0, prepare=_there, out="disk")
    _dash = _line.replace("--state prod", "--state ./-d")
    _add("a dash before the name", _dash, 0, prepare=_renamed("prod", "-d"), out="-d")
_add(
    "a killed update of version 0.2.0",
    _SAME,
    0,
    prepare=both(
        written(".prod.vlcpctl/made-by-vlcpctl", ""),
        written(".prod.vlcpctl/writing-host-1/checkpoint/x", ""),
    ),
)
_add("--accept-inexact without an unfinished week", f"{_NEXT} --accept-inexact", 2)
_add(
    "another artifact as --state",
    "update more.parquet --state ctp --init start",
    4,
    out="ctp",
    says="is not a state directory",
)
for _delay in (2.5, 4.0, 6.0):
    _add(
        f"killed after {_delay} s",
        "",
        0,
        bash=f"$vlcpctl {_NEXT} -q & p=$!; sleep {_delay}; kill -9 $p 2>/dev/null; wait $p "
        f"2>/dev/null; $vlcpctl {_NEXT} -q >/dev/null && "
        "[ -z \"$(find . -name 'writing-*' -o -name '*.tmp-*')\" ]",
    )
_add(
    "two paths of one state at once",
    "",
    0,
    bash=f"ln -s prod link; $vlcpctl {_NEXT} -q & a=$!; $vlcpctl "
    f"{_NEXT.replace('--state prod', '--state link')} -q & b=$!; wait $a; x=$?; wait $b; y=$?; "
    "rm link; echo $x $y >&2; [ $x$y = 04 ] || [ $x$y = 40 ]",
)

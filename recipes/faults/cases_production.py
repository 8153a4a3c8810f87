"""State directories of `update` that were copied, moved, edited or given by another path."""

from __future__ import annotations

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


_add("nothing", _SAME, 0)
_add("nothing", _NEXT, 0)
for _what, _fault in {
    "restored without its links": _without_links,
    "current is a file": both(removed("prod/current"), written("prod/current", "x")),
    "current is a link to another place": _linked("prod/current", "start/checkpoint"),
    "current is a link to no attempt": _linked("prod/current", "attempts/0009/checkpoint"),
}.items():
    for _line, _code in ((_SAME, 0), (_NEXT, 0), (_ROLLBACK, 0), ("inspect prod", 3)):
        _add(_what, _line, _code, prepare=_fault)
for _line in (_SAME, _ROLLBACK):
    _add("no current", _line, 0, prepare=removed("prod/current"))
for _line in (_SAME, _NEXT, _ROLLBACK, "inspect prod"):
    _add("state.json cut short", _line, 3, prepare=cut("prod/state.json"), says="state.json")
    _add("state.json nested deep", _line, 3, prepare=written("prod/state.json", "[" * 10**5))
for _line in (_SAME, _NEXT):
    _there = both(_renamed("prod", "disk"), _linked("prod", "disk"))
    _add("a link to another place", _line, 0, prepare=_there, out="disk")
    _dash = _line.replace("--state prod", "--state ./-d")
    _add("a dash before the name", _dash, 0, prepare=_renamed("prod", "-d"), out="-d")
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

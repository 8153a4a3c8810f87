"""Kills, signals, closed streams, limits, full disks, and two processes with one output."""

from __future__ import annotations

from case import Table
from world import A, B

SIGNALS = Table("Signals and streams")
LIMITS = Table("Limits and disks")
TOGETHER = Table("Two processes, one output")
KILLS = Table("kill -9, then the same command again")
_TRAIN = (
    f"train-step {A} -o out --method ctp --preset tiny --model micro --batch-size 4 "
    "--steps 40 --save-every 5"
)
_SHORT = {
    "split": "split pairs.parquet -o out --by iid --tasks 3",
    "buffer": f"buffer {A} -o out --policy ring --size 8",
    "train-step": _TRAIN,
    "eval-retrieval": f"eval-retrieval {A} {B} --checkpoint ctp -o out",
    "distill": f"distill {B} --teacher ctp -o out",
    "merge": "merge ctp ctp1 -o out --weights 1,1",
    "forgetting-report": "forgetting-report rows.ndjson -o out",
    "sample": "sample emoji9 -o out --size 32 --limit 40",
    "spatial-report": f"spatial-report {A} --checkpoint ctp --checkpoint ctp1 -o out",
    "export data": f"export {A} --to hf -o out",
    "export model": "export ctp --to hf-model -o out",
}
_CODES = {"INT": 130, "TERM": 143, "HUP": 129}
for _signal, _code in _CODES.items():
    for _name in ("split", "train-step", "eval-retrieval", "forgetting-report"):
        for _delay in (0.05, 0.3, 0.8, 2.0):
            SIGNALS.add(
                f"SIG{_signal} after {_delay} s", "", (0, _code, 75),
                bash=f"$vlcpctl {_SHORT[_name]} -q & p=$!; sleep {_delay}; "
                f"kill -{_signal} $p 2>/dev/null; wait $p",
            )  # fmt: skip
# Not sooner: while Python itself starts, a signal is Python's.
for _delay in (0.5, 0.9, 2.0, 3.0):
    SIGNALS.add(
        f"SIGINT twice after {_delay} s", "", (0, 130, 75),
        bash=f"set -m; $vlcpctl {_TRAIN} -q & p=$!; sleep {_delay}; kill -INT $p; sleep 0.02; "
        "kill -INT $p 2>/dev/null; wait $p",
    )  # fmt: skip
for _streams in (">&-", "2>&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"):
    for _name in ("split", "train-step", "eval-retrieval", "forgetting-report"):
        SIGNALS.add(f"{_streams} closed", "", 0, bash=f"$vlcpctl {_SHORT[_name]} {_streams}")
for _name in ("eval-retrieval", "forgetting-report"):
    SIGNALS.add(
        "the reader of stdout goes away", "", (0, 141),
        bash=f"$vlcpctl {_SHORT[_name].replace('-o out', '')} -q | true; exit ${{PIPESTATUS[0]}}",
        out="none",
    )  # fmt: skip
SIGNALS.add("-h to a full device", "", 1, bash="$vlcpctl train-step -h >/dev/full")
SIGNALS.add("--version to a full device", "", 1, bash="$vlcpctl --version >/dev/full")
SIGNALS.add("--help to a full device", "", 1, bash="$vlcpctl --help >/dev/full")
SIGNALS.add(
    "rows to a full device",
    "",
    1,
    bash=f"$vlcpctl eval-retrieval {A} --checkpoint ctp -q >/dev/full",
    out="none",
)
SIGNALS.add("stderr to a full device", "", 0, bash=f"$vlcpctl {_SHORT['split']} 2>/dev/full")

for _name, _line in _SHORT.items():
    LIMITS.add(
        "files of at most 20 kB",
        "",
        (0, 1),  # some outputs are smaller
        bash=f"trap '' XFSZ; ulimit -f 20; $vlcpctl {_line} -q --force",
    )
    LIMITS.add(
        "no file may be opened above 12", "", (0, 1), bash=f"ulimit -n 12; $vlcpctl {_line} -q"
    )
LIMITS.cases = [
    c
    for c in LIMITS.cases
    if not (
        "20 kB" in c.fault
        and any(n in c.bash for n in ("buffer", "forgetting", "eval-", "spatial"))
    )
]
for _name in ("split", "buffer", "distill", "eval-retrieval", "train-step"):
    for _megabytes in (1200, 2500, 6000):
        LIMITS.add(
            f"address space of {_megabytes} MB",
            "",
            (0, 1),
            bash=f"ulimit -v {_megabytes}000; timeout 50 $vlcpctl {_SHORT[_name]} -q",
        )
LIMITS.add(
    "a directory without room: /dev/full as parent",
    "",
    (1, 2, 4),
    bash=f"$vlcpctl {_SHORT['buffer'].replace('-o out', '-o /dev/full/x')}",
)
LIMITS.add(
    "an output that is not UTF-8",
    "",
    (0, 2),
    out="none",
    bash=f"$vlcpctl {_TRAIN.replace('-o out', '')} -q -o $'b\\xff\\xfe' && rm -r $'b\\xff\\xfe'",
)

for _name, _line in _SHORT.items():
    TOGETHER.add(
        "the same command twice at once", "", 0,
        bash=f"$vlcpctl {_line} -q & a=$!; $vlcpctl {_line} -q & b=$!; wait $a; x=$?; wait $b; "
        "y=$?; echo $x $y >&2; [ $x = 0 ] || [ $y = 0 ] || exit 9; "
        "for c in $x $y; do [ $c = 0 ] || [ $c = 4 ] || exit 8; done; "
        f"$vlcpctl {_line} -q >/dev/null",
    )  # fmt: skip
_OTHER = {
    "split": "--seed 1",
    "buffer": "--seed 1",
    "train-step": "--lr 0.001",
    "forgetting-report": "--allow-missing --title other",
    "merge": "--weights 3,1",
}
for _name in ("split", "buffer", "train-step"):
    TOGETHER.add(
        "other settings, at once", "", 0,
        bash=f"$vlcpctl {_SHORT[_name]} -q & a=$!; $vlcpctl {_SHORT[_name]} {_OTHER[_name]} -q & "
        "b=$!; wait $a; x=$?; wait $b; y=$?; echo $x $y >&2; "
        "[ $x$y = 04 ] || [ $x$y = 40 ]",
    )  # fmt: skip
    TOGETHER.add(
        "the same command waits", "", 0,
        bash=f"$vlcpctl {_SHORT[_name]} -q & a=$!; sleep 0.5; $vlcpctl {_SHORT[_name]} -q --wait "
        "60 & b=$!; wait $a; x=$?; wait $b; y=$?; echo $x $y >&2; [ $x$y = 00 ]",
    )  # fmt: skip
for _name, _line in _SHORT.items():
    for _delay in (0.6, 1.2, 2.2):
        KILLS.add(
            f"after {_delay} s", "", 0,
            bash=f"$vlcpctl {_line} -q & p=$!; sleep {_delay}; kill -9 $p 2>/dev/null; "
            f"wait $p 2>/dev/null; $vlcpctl {_line} -q >/dev/null && "
            "[ -z \"$(find . -name 'writing-*' -o -name '*.tmp-*')\" ]",
        )  # fmt: skip

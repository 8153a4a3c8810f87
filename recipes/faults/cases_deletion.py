"""Deletion requests that are wrong or interrupted, and data that come again after one."""

from __future__ import annotations

import json

from case import Table, written
from cases_state import BOMB

DELETION = Table("Deletion requests, and data that come again")
_RECEIPT = {"schema": "vlcpctl.receipt/1", "state": "finished", "request": "0" * 32}
_RECEIPT |= {"selectors": [], "keys": []}
_LABEL = "--where label=face-smiling"

DELETION.add("no pair", "forget --where label=nosuch s", 3, says="no pair under s matches", out="s")
DELETION.add("no column", "forget --where customer=1 s", 3, says="no index has a column", out="s")
DELETION.add(
    "two of three conditions select nothing",
    f"forget {_LABEL} --where label=nosuch --source-key nobody s",
    3,
    says="matches --source-key nobody, --where label=nosuch;",
    out="s",
)
DELETION.add(
    "the same, with --missing-ok", "", 0,
    bash="mkdir out && cp -r s out/s && $vlcpctl forget --where label=face-smiling "
    "--source-key nobody --missing-ok out && $vlcpctl check --deep out/s",
)  # fmt: skip
for _what, _data in {
    "empty": "",
    "a list": "[]",
    "nested 100,000 deep": BOMB,
    "not UTF-8": b"\xff{}",
    "an empty object": "{}",
    "another schema": json.dumps({**_RECEIPT, "schema": "vlcpctl.task/1"}),
    "pending": json.dumps({**_RECEIPT, "state": "pending"}),
    "without keys": json.dumps({**_RECEIPT, "keys": None}),
    "with a number as a key": json.dumps({**_RECEIPT, "keys": [1]}),
    "with a key of other letters": json.dumps({**_RECEIPT, "keys": ["z" * 32]}),
    "with a condition of no kind": json.dumps({**_RECEIPT, "selectors": [{"key": "0"}]}),
    "with text as a condition": json.dumps({**_RECEIPT, "selectors": ["a"]}),
    "a stop list without a seal": json.dumps({**_RECEIPT, "schema": "vlcpctl.stop-list/1"}),
}.items():
    DELETION.add(
        f"--not: a receipt {_what}",
        "split pairs.parquet -o out --by all:x --not r.json",
        3,
        prepare=written("r.json", _data),
        says="r.json",
    )
for _what, _path in {"that is missing": "nowhere", "of a report": "report"}.items():
    DELETION.add(
        f"--not: a path {_what}",
        f"split pairs.parquet -o out --by all:x --not {_path}",
        3,
        says=_path,
    )
DELETION.add(
    "--not: all pairs",
    "split pairs.parquet -o out --by column:group --not s",
    3,
    says="no pair is left to split",
)
for _delay in (0.4, 0.8, 1.2, 1.6):
    DELETION.add(
        f"forget is killed after {_delay} s, and run again", "", 0,
        bash="mkdir out && cp -r s out/s && "
        f"{{ $vlcpctl forget {_LABEL} out -q & p=$!; sleep {_delay}; kill -9 $p 2>/dev/null; "
        f"wait $p 2>/dev/null; $vlcpctl forget {_LABEL} out -q && "
        "$vlcpctl check --deep out/s && ! grep -rq '\"pending\"' out/receipts; }",
    )  # fmt: skip

_WEEK = (
    'mkdir out && $vlcpctl sample emoji9 -o out/1.parquet --size 32 --limit 20 --groups "Objects" '
    "-q && $vlcpctl update out/1.parquet --state out/prod --init ctp --preset tiny --batch-size 4 "
    "--steps 2 --holdout test=0.3 --keep-columns emoji --fail-if none -q && "
)
_FORGET = "$vlcpctl forget --where emoji=👓 out/prod -q && "
DELETION.add(
    "a week comes again after a deletion and a rollback", "", 0,
    bash=f"{_WEEK}{_FORGET}$vlcpctl update --state out/prod --rollback 0 -q && "
    "$vlcpctl update out/1.parquet --state out/prod && "
    "grep -q '\"deleted\"' out/prod/state.json",
    says="were deleted and are left out",
)  # fmt: skip
DELETION.add(
    "a week comes again with another compression", "", 0,
    bash=f"{_WEEK}python -c \"import pyarrow.parquet as p; p.write_table(p.read_table("
    "'out/1.parquet'), 'out/2.parquet', compression='gzip')\" && "
    "$vlcpctl update out/2.parquet --state out/prod && [ ! -e out/prod/attempts/0003 ]",
    says="are known from week 1 and left out: nothing is new",
)  # fmt: skip
DELETION.add(
    "settings with a week that is already accepted", "", 4,
    bash=f"{_WEEK}$vlcpctl update out/1.parquet --state out/prod --lr 0.5",
    says="so that --lr would not be applied",
    writes=True,
)  # fmt: skip
DELETION.add(
    "a stop list was edited", "", 3,
    bash=f"{_WEEK}{_FORGET}sed -i 's/\"keys\": /\"keys\":  [], \"were\": /' out/prod/deleted/* && "
    "$vlcpctl update out/1.parquet --state out/prod --force",
    says="restore it from a backup",
    writes=True,
)  # fmt: skip

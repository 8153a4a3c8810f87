#!/usr/bin/env bash
# Emoji-9 on a CPU: three methods learn nine tasks one after another; a report says what each forgot.
# The result lies in runs/quickstart, or in the directory given. Run it again to continue.
set -euo pipefail
start=$PWD
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
out=${1:-runs/quickstart}
cd "$start" && mkdir -p "$out" && cd "$out"

vlcpctl sample emoji9 -o pairs.parquet --size 32 --quiet
vlcpctl split pairs.parquet -o stream --by column:group --split-column split --quiet

# One line per step, the runs side by side: what follows a 'wait' needs what stands before it.
lines() {
  local task previous=""
  for task in $(ls stream | grep '^[0-9]'); do
    echo "train-step stream/$task -o seqf/$task --method seqf --preset tiny ${previous:+--previous seqf/$previous}"
    echo "train-step stream/$task -o ctp/$task --method ctp --preset tiny ${previous:+--previous ctp/$previous}"
    echo "train-step stream/$task -o er/$task --method er --preset tiny ${previous:+--previous er/$previous --buffer buffer/$previous}"
    echo "buffer stream/$task -o buffer/$task --policy reservoir --size 500 ${previous:+--previous buffer/$previous}"
    echo "wait"
    previous=$task
  done
  for method in seqf ctp er; do
    echo "eval-retrieval $(echo stream/[0-9]*) $(printf -- '--checkpoint %s ' $method/[0-9]*) -o $method.ndjson"
  done
}

lines | vlcpctl batch --jobs 2
vlcpctl forgetting-report seqf.ndjson ctp.ndjson er.ndjson -o report

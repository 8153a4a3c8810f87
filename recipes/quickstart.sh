#!/usr/bin/env bash
# Emoji-9 on a CPU: four methods learn nine tasks one after another (joint: all at once), and a
# report says what each forgot. The result lies in runs/quickstart, or in the directory given; the
# same command goes on where it was stopped. SEEDS="0 1 2" repeats everything with other seeds.
set -euo pipefail
start=$PWD
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
out=${1:-runs/quickstart}
cd "$start" && mkdir -p "$out" && cd "$out"

vlcpctl sample emoji9 -o pairs.parquet --size 32 --quiet >/dev/null
vlcpctl split pairs.parquet -o stream --by column:group --split-column split --quiet >/dev/null

tasks=$(cd stream && ls -d [0-9]*)
last=$(echo "$tasks" | tail -n 1)
paths=$(printf 'stream/%s ' $tasks)
steps=200

# The lines of one method and seed; 'batch' starts each when what it reads is there.
chain() {
  local method=$1 seed=$2 task previous=""
  local run="seed$seed/$method"
  for task in $tasks; do
    echo "train-step stream/$task -o $run/$task --method $method --preset tiny --steps $steps" \
      "--seed $seed ${previous:+--previous $run/$previous}" \
      "$([ "$method" = er ] && [ -n "$previous" ] && echo "--buffer $run/buffer-$previous")"
    if [ "$method" = er ]; then
      echo "buffer stream/$task -o $run/buffer-$task --policy reservoir --size 2000" \
        "--seed $seed ${previous:+--previous $run/buffer-$previous}"
    fi
    previous=$task
  done
  echo "eval-retrieval $paths $(printf -- "--checkpoint $run/%s " $tasks) --gallery both -o $run.ndjson"
}

joint() { # as many steps as a chain has in all
  local run="seed$1/joint"
  echo "train-step $paths -o $run --method joint --preset tiny --steps $((9 * steps)) --seed $1"
  echo "eval-retrieval $paths --checkpoint $run --gallery both -o $run.ndjson"
}

lines() {
  local seed method
  for seed in ${SEEDS:-0}; do
    joint "$seed"
    for method in ctp er seqf; do chain "$method" "$seed"; done
  done
}

lines | vlcpctl batch --jobs "$(getconf _NPROCESSORS_ONLN)" >/dev/null
vlcpctl forgetting-report seed*/*.ndjson -o report

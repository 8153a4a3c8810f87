#!/usr/bin/env bash
# TiC-CLIP's protocols (Garg et al., ICLR 2024): pairs cut into steps of time, and five ways to train on
# each step with the same compute. Page: docs/papers/tic.md.
#
#   bash recipes/tic.sh                a smoke run on drawn pictures: STEPS=8 of each step, SEEDS=0; a minute of one core
#   STEPS=4500 bash recipes/tic.sh --pairs PAIRS --time COLUMN --tasks 7
#   bash recipes/tic.sh --dry-run      print every command, run none; 00-time stands for the name of a step
#
#   --out DIR            where everything is written [runs/tic]
#   --protocols "A B"    sequential, patching, all, exp, equal [all five]
#   --pairs PAIRS        what 'split' reads
#   --time COLUMN        its column of times: numbers of one unit, or ISO 8601, such as 2016-05
#   --tasks N            steps of time, with as equal numbers of pairs as possible [4]
#   --split "WORDS"      options of split, such as "--split-column split"
#   --start CHECKPOINT   a model to start from [a new one]
#   --train "WORDS"      options of every train-step [--preset update; of a smoke run --preset tiny]
#   --jobs N             commands that run at once [1; of a smoke run one per core]
#
# All protocols have STEPS steps of a batch in each step of time. The first one of a new model has a warm-up of
# WARMUP=0.1 of them, and later ones none. With all, exp and equal, a buffer is shuffled with the new pairs: of all
# earlier ones; of a half of the step before, a quarter of the one before that, and so on; of as many as a step has,
# from each earlier step alike. After each step, patching keeps PATCH=0.5 of what has changed, and goes on from there.
# If it is interrupted, the same command resumes it.
set -euo pipefail
recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$recipes/pipeline.sh"

options "out protocols pairs time tasks split start train jobs" "$@"
[ -z "$emoji9" ] || fail "without --pairs it runs on Emoji-9"
known="sequential patching all exp equal"
: "${out:=runs/tic}" "${protocols:=$known}" "${tasks:=4}"
among protocol "$known" "$protocols"
if [ -n "$pairs" ]; then
  [ -n "$time" ] || fail "--pairs needs --time: the column of times"
  [ -n "${STEPS:-}" ] || fail "--pairs needs STEPS=N: the steps of training in each step of time"
  : "${jobs:=1}" "${train:=--preset update}"
else
  [ -z "$time$split" ] || fail "--time and --split have no effect without --pairs"
  : "${jobs:=$(getconf _NPROCESSORS_ONLN)}" "${train:=--preset tiny --batch-size 32}"
fi
seeds=${SEEDS:-0} train="$train --steps ${STEPS:-8}" patch=${PATCH:-0.5}
share=$(awk "BEGIN { print 100 / $tasks }") kept=$(awk "BEGIN { print 1 - $patch }")

split_lines() {
  if [ -n "$pairs" ]; then
    echo "split '$pairs' -o stream --by time:$time --tasks $tasks $split"
  else # code points stand in for time: newer emoji have higher ones
    echo "sample emoji9 -o pairs.parquet --size 32 --views 3 --limit 180"
    echo "split pairs.parquet -o stream --by time:time --tasks $tasks --split-column split"
  fi
}

# replayed PROTOCOL SEED TASK...: the lines of a buffer of earlier steps; its directory in $buffer.
replayed() {
  local protocol=$1 words="--seed $2" place=seed$2/memory-$1 age task
  shift 2
  buffer=""
  case $protocol in
    sequential | patching) return ;;
    all) words="$words --policy random --size 100%" ;;
    equal) words="$words --policy ring --size $share% --of stream" ;;
    exp) # anew for each step: what a share keeps of a step never grows, and falls with its age
      age=$#
      for task in "$@"; do
        remember "$place/$#/${task##*/}" "$task" \
          "$words --policy random --size $(awk "BEGIN { print 100 / 2 ^ $age }")%" "" "$buffer"
        buffer=$place/$#/${task##*/} age=$((age - 1))
      done
      return
      ;;
  esac
  for task in "$@"; do # the last one alone: those before are made already
    if [ "$task" = "${!#}" ]; then remember "$place/${task##*/}" "$task" "$words" "" "$buffer"; fi
    buffer=$place/${task##*/}
  done
}

learn() { # PROTOCOL SEED
  local run=seed$2/$1 from=$start warm="" past="" task to buffer
  [ -n "$start" ] || warm="--warmup ${WARMUP:-0.1}"
  for task in $streamed; do
    to=$run/${task##*/}
    [ -z "$past" ] || replayed "$1" "$2" $past
    [ "$1" != patching ] || [ -z "$from" ] || to=$run/learned-${task##*/}
    echo "train-step $task -o $to --method seqf $train ${warm:---warmup 0} --run $1 --seed $2" \
      "${from:+--previous $from} ${buffer:+--buffer $buffer}"
    if [ "$to" != "$run/${task##*/}" ]; then
      echo "merge $from $to -o $run/${task##*/} --weights $kept,$patch --run $1"
    fi
    from=$run/${task##*/} past="$past $task" warm=""
  done
  measure "$run.ndjson" "eval-retrieval $streamed $(checkpoints "$run" $streamed)"
}

lines() {
  local seed protocol
  for seed in $seeds; do
    for protocol in $protocols; do learn "$protocol" "$seed"; done
  done
  report report
}

if [ -n "$dry_run" ]; then
  streamed=$(for number in $(seq -f %02g 0 $((tasks - 1))); do printf 'stream/%s-time ' "$number"; done)
  lines=$(split_lines && lines)
  sed 's/^/vlcpctl /; s/  */ /g; s/ $//' <<<"$lines"
  echo "# python tic_table.py report"
  exit
fi
for name in pairs start; do
  case ${!name} in "" | /*) ;; *) printf -v "$name" %s "$here/${!name}" ;; esac
done
source "$recipes/environment.sh"
cd "$here" && mkdir -p "$out" && cd "$out"
if [ -z "$pairs" ]; then
  split_lines | sed -n 1p | vlcpctl batch
  python - <<'END'
import pyarrow.parquet as pq
pairs = pq.read_table("pairs.parquet")
ranks = {emoji: rank for rank, emoji in enumerate(sorted({*pairs["emoji"].to_pylist()}))}
times = [[ranks[emoji] for emoji in pairs["emoji"].to_pylist()]]
pairs = pairs if "time" in pairs.column_names else pairs.append_column("time", times)
pq.write_table(pairs, "timed.parquet")
END
  mv timed.parquet pairs.parquet
fi
split_lines | vlcpctl batch
streamed=$(printf '%s ' stream/[0-9]*) # the names of steps are their times
lines | vlcpctl batch --jobs "$jobs"
python "$recipes/tic_table.py" report | tee table.md

#!/usr/bin/env bash
# Every method on Emoji-9 under one budget: nine groups of emoji in sequence with preset tiny.
# Memory-free methods and those with a buffer are kept apart, in memory-free/ and buffered/.
#
#   bash recipes/leaderboard.sh                STEPS=80 of each task, SEEDS="0 1 2"
#   BUFFERED=1 bash recipes/leaderboard.sh     memory-free methods once more with a reservoir buffer
#   bash recipes/leaderboard.sh --dry-run      print every command, run none
#
#   --out DIR          where everything is written [runs/leaderboard]
#   --methods "A B"    some of 'vlcpctl methods' [all]
#   --jobs N           commands that run at once [one per core]
#
# Hyper-parameters are the defaults of 'vlcpctl methods', each from its own paper and tuned on other
# data: a place on this board shows how a method performs untuned. joint trains on all tasks at once,
# for as many steps as a sequence has in total. A buffer holds SIZE=2000 of some 22,000 pairs. If it is
# interrupted, the same command resumes it; with more SEEDS it trains what is missing.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/pipeline.sh"

options "out methods jobs" "$@"
[ -z "$emoji9" ] || fail "it runs on Emoji-9 always; STEPS=4 SEEDS=0 makes it short"
: "${out:=runs/leaderboard}" "${jobs:=$(getconf _NPROCESSORS_ONLN)}"

free="seqf lwf ewc mas si rwalk afec geodl ema ctp modx dha"
replaying="er icarl lucir der derpp co2l incclip"
: "${methods:=joint $free $replaying}"
among method "joint $free $replaying" "$methods"
steps=${STEPS:-80} seeds=${SEEDS:-0 1 2} size=${SIZE:-2000} tasks=$(emoji_tasks stream)

buffer_of() { # NAME SEED
  local policy=reservoir
  case $1 in
    icarl | lucir) policy=herding ;;
    der | derpp) policy="reservoir --store-features" ;;
  esac
  echo "--policy $policy --size $size --seed $2"
}

train_one() { # METHOD SEED DIR NAME "BUFFER WORDS"
  local run=$3/seed$2/$4 train="--preset tiny --steps $steps"
  if [ "$1" = joint ]; then
    echo "train-step $tasks -o $run --method joint --preset tiny --steps $((9 * steps)) --seed $2"
    measure "$run.ndjson" "eval-retrieval $tasks --checkpoint $run --gallery both"
    return
  fi
  chain "$run" "$1 --run $4 --seed $2" "$5" $tasks
  measure "$run.ndjson" "eval-retrieval $tasks $(checkpoints "$run" $tasks) --gallery both"
}

lines() {
  local seed name
  emoji_stream stream
  for seed in $seeds; do
    for name in $methods; do
      if has "$replaying" "$name"; then
        train_one "$name" "$seed" buffered "$name" "$(buffer_of "$name" "$seed")"
        continue
      fi
      train_one "$name" "$seed" memory-free "$name" ""
      # seqf with a buffer is er
      if [ -n "${BUFFERED:-}" ] && [ "$name" != joint ] && [ "$name" != seqf ]; then
        train_one "$name" "$seed" buffered "$name-buffer" "$(buffer_of "$name" "$seed")"
      fi
    done
  done
  report report
}

finish

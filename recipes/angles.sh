#!/usr/bin/env bash
# How embedding angles drift while a small model learns the groups of Emoji-9 in sequence, with seqf
# (fine-tuning) and with modx: the question of Figures 2, 3 and 8 of Mod-X's paper. Angles are measured
# on the first group, which every model has seen: on its test split, and on its training split, on
# which the paper measures the angles between image and text.
#
#   bash recipes/angles.sh                STEPS=80 of each task, SEEDS="0 1 2"
#   bash recipes/angles.sh --dry-run      print every command, run none
#
#   --out DIR          where everything is written [runs/angles]
#   --methods "A B"    [seqf modx]
#   --jobs N           commands that run at once [one per core]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/pipeline.sh"

options "out methods jobs" "$@"
[ -z "$emoji9" ] || fail "it runs on Emoji-9 always; STEPS=4 SEEDS=0 makes it short"
: "${out:=runs/angles}" "${methods:=seqf modx}" "${jobs:=$(getconf _NPROCESSORS_ONLN)}"
train="--preset tiny --steps ${STEPS:-80}"
tasks=$(emoji_tasks stream)
first_task=${tasks%% *}

lines() {
  local seed name run split
  emoji_stream stream
  for seed in ${SEEDS:-0 1 2}; do
    for name in $methods; do
      run=seed$seed/$name
      chain "$run" "$name --run $name --seed $seed" "" $tasks
      for split in test train; do
        measure "$run-angles-$split.ndjson" \
          "spatial-report $first_task --split $split $(checkpoints "$run" $tasks)"
      done
    done
  done
  report angles
}

finish

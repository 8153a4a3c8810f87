#!/usr/bin/env bash
# On a CPU, with Emoji-9: two weeks of a model in production, of which the second is rejected, and four
# methods that learn six groups in sequence (joint: all at once), with a report of what each forgot. Results
# are in runs/quickstart, or in the given directory; if it is interrupted, the same command resumes it.
# SEEDS="0 1 2" repeats the methods with other seeds.
set -euo pipefail
start=$PWD
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
out=${1:-runs/quickstart}
cd "$start" && mkdir -p "$out" && cd "$out"

# --- Two weeks: a good one, and one with a learning rate that ruins the model.
emoji() { # FILE GROUP
  vlcpctl sample emoji9 -o "$1.parquet" --size 32 --views 4 --groups "$2" --quiet >/dev/null
}
week() { # FILE OPTIONS...
  local code=0
  vlcpctl update "$1.parquet" --state prod "${@:2}" >/dev/null || code=$?
  [ $code = 0 ] || [ $code = 7 ] || exit $code
}
emoji old "Animals & Nature"
emoji week1 "Food & Drink"
emoji week2 "Activities"
vlcpctl split old.parquet -o golden --by all:golden --split-column split --quiet >/dev/null
vlcpctl train-step golden/00-golden -o model --method seqf --preset tiny --steps 300 >/dev/null
week week1 --init model --buffer-from old.parquet --guard golden/00-golden --split-column split \
  --lr 3e-4 --batch-size 64 --epochs 4
week week2 --lr 0.1
vlcpctl inspect prod | grep 'page:' >&2 # of the rejected week

# --- Four methods on six tasks.
groups="Smileys & Emotion,Animals & Nature,Food & Drink,Travel & Places,Activities,Objects"
vlcpctl sample emoji9 -o pairs.parquet --size 32 --groups "$groups" --quiet >/dev/null
vlcpctl split pairs.parquet -o stream --by column:group --split-column split --quiet >/dev/null

tasks=$(cd stream && ls -d [0-9]*)
paths=$(printf 'stream/%s ' $tasks)
steps=160
training="--preset tiny --batch-size 32"

# One task of a method's chain; 'batch' starts each line when what it reads is there.
stage() {
  local run="seed$1/$2" method=$2 task=$3 previous=$4
  echo "train-step stream/$task -o $run/$task --method $method $training --steps $steps" \
    "--seed $1 ${previous:+--previous $run/$previous}" \
    "$([ "$method" = er ] && [ -n "$previous" ] && echo "--buffer $run/buffer-$previous")"
  if [ "$method" = er ]; then
    echo "buffer stream/$task -o $run/buffer-$task --policy reservoir --size 2000" \
      "--seed $1 ${previous:+--previous $run/buffer-$previous}"
  fi
}

joint() { # as many steps as a chain has in all
  echo "train-step $paths -o seed$1/joint --method joint $training --steps $((6 * steps)) --seed $1"
}

lines() { # the chains side by side, so that no core is left without work
  local seed method task previous
  for seed in ${SEEDS:-0}; do
    joint "$seed"
    previous=""
    for task in $tasks; do
      for method in ctp er seqf; do stage "$seed" "$method" "$task" "$previous"; done
      previous=$task
    done
    for method in ctp er seqf; do
      echo "eval-retrieval $paths $(printf -- "--checkpoint seed$seed/$method/%s " $tasks)" \
        "--gallery both --save-ranks seed$seed/$method.ranks.parquet -o seed$seed/$method.ndjson"
    done
    echo "eval-retrieval $paths --checkpoint seed$seed/joint --gallery both -o seed$seed/joint.ndjson"
  done
}

lines | vlcpctl batch --jobs "$(getconf _NPROCESSORS_ONLN)" >/dev/null
vlcpctl forgetting-report seed*/*.ndjson $(printf -- '--ranks %s ' seed*/*.ranks.parquet) \
  $(printf -- '--checkpoint %s ' seed*) --images stream -o report --force

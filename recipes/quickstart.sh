#!/usr/bin/env bash
# Six groups of Emoji-9 on a CPU: four methods learn them in sequence (joint: all at once), and a report
# shows what each forgot, with pictures. Results are in runs/quickstart, or in the given directory; if it is
# interrupted, the same command resumes it. SEEDS="0 1 2" repeats everything with other seeds.
set -euo pipefail
start=$PWD
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
out=${1:-runs/quickstart}
cd "$start" && mkdir -p "$out" && cd "$out"

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
  --images stream --checkpoint . -o report --force

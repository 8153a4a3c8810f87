#!/usr/bin/env bash
# Table 3 of IncCLIP on the first four groups of Emoji-9, over three seeds: weight-norm clipping, then
# distillation, then negative texts; with the paper's temperature of the previous model and weight, and
# with those that fit a fixed temperature. Results are in runs/incclip_ablation or the given directory.
set -euo pipefail
start=$PWD
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
out=${1:-runs/incclip_ablation}
cd "$start" && mkdir -p "$out" && cd "$out"

vlcpctl sample emoji9 -o pairs.parquet --size 32 --quiet >/dev/null
vlcpctl split pairs.parquet -o stream --by column:group --split-column split --quiet >/dev/null

tasks=(00-smileys-emotion 01-people-body 02-animals-nature 03-food-drink)
train="--preset tiny"
fits="--set incclip.lambda_=1 --set incclip.tau_old=0.07"

# The options of each row; negative texts, half a batch per step, are generated from the buffer.
row() {
  case $1 in
    er) echo "--method er" ;;
    clip) echo "--method incclip --set incclip.lambda_=0 --set incclip.count=0" ;;
    clip-dist) echo "--method incclip --set incclip.count=0" ;;
    clip-dist-texts) echo "--method incclip --set incclip.count=32" ;;
    clip-dist-fits) echo "--method incclip --set incclip.count=0 $fits" ;;
    clip-dist-texts-fits) echo "--method incclip --set incclip.count=32 $fits" ;;
  esac
}

first() { # every row starts from the same model
  local run="seed$1/first" task=${tasks[0]}
  echo "train-step stream/$task -o $run --method incclip $train --steps 300 --seed $1"
  echo "buffer stream/$task -o seed$1/buffer-0 --policy reservoir --size 160 --seed $1"
  for number in 1 2; do
    echo "buffer stream/${tasks[$number]} -o seed$1/buffer-$number --policy reservoir --size 160" \
      "--seed $1 --previous seed$1/buffer-$((number - 1))"
  done
}

chain() { # of one row and seed
  local run="seed$2/$1" previous="seed$2/first" number
  for number in 1 2 3; do
    echo "train-step stream/${tasks[$number]} -o $run/$number $(row "$1") --run $1 $train" \
      "--steps 100 --seed $2 --previous $previous --buffer seed$2/buffer-$((number - 1))"
    previous=$run/$number
  done
  echo "eval-retrieval $(printf 'stream/%s ' "${tasks[@]}") --checkpoint $run/3 --gallery both" \
    "--run $1 -o $run.ndjson"
}

lines() {
  local seed name
  for seed in ${SEEDS:-0 1 2}; do
    first "$seed"
    for name in er clip clip-dist clip-dist-texts clip-dist-fits clip-dist-texts-fits; do
      chain "$name" "$seed"
    done
  done
}

lines | vlcpctl batch --jobs "$(getconf _NPROCESSORS_ONLN)" >/dev/null
vlcpctl forgetting-report --allow-missing seed*/*.ndjson -o report

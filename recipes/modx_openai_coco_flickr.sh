#!/usr/bin/env bash
# Table 11 of Mod-X (Ni et al., ICML 2023): OpenAI's CLIP ViT-B/32 continues with COCO and
# Flickr30K, shuffled together and cut into five parts. The report has the table with the printed
# values beside.
#
#   bash recipes/modx_openai_coco_flickr.sh --data DIR --weights FILE    as listed below
#   ... --data DIR --weights FILE --dry-run                print every command, run none
#   bash recipes/modx_openai_coco_flickr.sh --emoji9       few steps of a tiny model
#
#   DIR/dataset_coco.json, coco/, dataset_flickr30k.json, flickr30k/    Karpathy's lists, images
#   FILE                                       OpenAI's weights in open_clip's names (.safetensors)
#
#   --out DIR          where everything is written [runs/modx_openai_coco_flickr, its _emoji9]
#   --methods "A B"    joint, seqf, modx [all]
#   --seeds "A B"      seeds of the runs [0]
#   --nproc N          processes that train together, one per GPU [1; the paper has 8]
#   --jobs N           commands that run at once [1; --emoji9: one per core]
#   --split "WORDS"    options for every split [--max-skip 1%; --emoji9: --take 60]
#   --train "WORDS"    options for every train-step, such as "--micro-batch 70 --workers 8"
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/pipeline.sh"
source "$(dirname "${BASH_SOURCE[0]}")/modx.sh"

options "data weights out methods seeds nproc jobs split train" "$@"
[ -n "$emoji9" ] || { [ -n "$data" ] && [ -n "$weights" ]; } ||
  fail "give --data DIR (the data) and --weights FILE, or --emoji9"
settings modx_openai_coco_flickr modx-finetune
known="joint seqf modx"
: "${methods:=$known}"
among method "$known" "$methods"
start=openai
parts=$(numbered stream part 5)

lines() {
  local seed name run
  draw dataset_coco dataset_flickr30k
  split_aside
  echo "split $(source_of coco) $(source_of flickr30k) -o stream --by iid --tasks 5 $(as_split)"
  openai
  for seed in $seeds; do
    for name in $methods; do
      run=seed$seed/$name
      if [ "$name" = joint ]; then
        joint "$run" "$seed" $parts
      else
        chain "$run" "$name --run $name --seed $seed" "" $parts
        retrieval "$run" "$(checkpoints "$run" $parts)"
      fi
    done
  done
  tables=modx-11
  report report --allow-missing
}

finish data weights

#!/usr/bin/env bash
# Section 5.3 of Mod-X (Ni et al., ICML 2023): OpenAI's CLIP ViT-B/32 continues with five parts
# of ECommerce-T2I. Figure 7 and Table 8 (retrieval), Figure 11 (rotation of both modalities), Table
# 4 (b) (settings). The report has these tables with the printed values beside.
#
#   bash recipes/modx_ecommerce.sh --data DIR --weights FILE              as listed below
#   bash recipes/modx_ecommerce.sh --data DIR --weights FILE --dry-run    print every command only
#   bash recipes/modx_ecommerce.sh --emoji9                 few steps of a tiny model
#
#   DIR/dataset_ecommerce                      tars or Parquet files with images, captions, split
#   DIR/dataset_coco.json, coco/, dataset_flickr30k.json, flickr30k/    Karpathy's lists, images
#   FILE                                       OpenAI's weights in open_clip's names (.safetensors)
#
#   --out DIR          where everything is written [runs/modx_ecommerce, its _emoji9]
#   --methods "A B"    joint, seqf, ewc, modx [all]
#   --seeds "A B"      seeds of the runs [0]
#   --nproc N          processes that train together, one per GPU [1; the paper has 8]
#   --jobs N           commands that run at once [1; --emoji9: one per core]
#   --split "WORDS"    options for every split [--max-skip 1%; --emoji9: --take 60]
#   --train "WORDS"    options for every train-step, such as "--micro-batch 70 --workers 8"
#
# EWC has no Fisher information for OpenAI's data, which is not public: its penalty starts with the
# second part. ECommerce-T2I is published as lists of base64; 'split' needs image files or bytes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/pipeline.sh"
source "$(dirname "${BASH_SOURCE[0]}")/modx.sh"

options "data weights out methods seeds nproc jobs split train" "$@"
[ -n "$emoji9" ] || { [ -n "$data" ] && [ -n "$weights" ]; } ||
  fail "give --data DIR (the data) and --weights FILE, or --emoji9"
settings modx_ecommerce modx-finetune
known="joint seqf ewc modx"
: "${methods:=$known}"
among method "$known" "$methods"
aside coco flickr30k ecommerce
start=openai
parts=$(numbered stream part 5)

lines() {
  local seed name run
  draw dataset_coco dataset_flickr30k dataset_ecommerce
  split_aside
  echo "split $(source_of ecommerce) -o stream --by iid --tasks 5 $(as_split)"
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
      [ "$name" != seqf ] || measure "$run.angles.ndjson" "spatial-report" \
        "$coco --checkpoint $start $(checkpoints "$run" $parts)"
    done
  done
  tables="modx-4 modx-8 modx-fig7 modx-fig11"
  report report --allow-missing
}

finish data weights

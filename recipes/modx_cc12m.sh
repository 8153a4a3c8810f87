#!/usr/bin/env bash
# Section B.7 of Mod-X (Ni et al., ICML 2023): ten parts of CC12M from scratch. Table 9 and Figure 12
# (retrieval after each part), Table 10 (zero-shot classification and linear probe after the last).
# The report has these tables with the printed values beside.
#
#   bash recipes/modx_cc12m.sh --data DIR              DIR holds what is listed below
#   bash recipes/modx_cc12m.sh --data DIR --dry-run    print every command, run none
#   bash recipes/modx_cc12m.sh --emoji9                the same with few steps of a tiny model
#
#   dataset_cc12m              img2dataset's output, or other tars or Parquet files
#   dataset_coco.json, coco/, dataset_flickr30k.json, flickr30k/    Karpathy's lists, their images
#   benchmarks/                the five data sets of Table 10 in CLIP_benchmark's layout, ImageNet
#                              with its training images
#
#   --out DIR          where everything is written [runs/modx_cc12m, its _emoji9]
#   --methods "A B"    joint, seqf, modx [all]
#   --seeds "A B"      seeds of the runs [0]
#   --nproc N          processes that train together, one per GPU [1; the paper has 8]
#   --jobs N           commands that run at once [1; --emoji9: one per core]
#   --split "WORDS"    options for every split [--take 1000000 --max-skip 1%; --emoji9: --take 60]
#   --train "WORDS"    options for every train-step, such as "--micro-batch 70 --workers 8"
#
# The paper does not say how long it trains here; these are its 35 epochs of Section 5.2. With
# --emoji9, drawings of Emoji-9 stand in for every data set.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/pipeline.sh"
source "$(dirname "${BASH_SOURCE[0]}")/modx.sh"

options "data out methods seeds nproc jobs split train" "$@"
[ -n "$emoji9$data" ] || fail "give --data DIR, the directory with the data, or --emoji9"
settings modx_cc12m modx
known="joint seqf modx"
: "${methods:=$known}"
among method "$known" "$methods"
parts=$(numbered stream part 10)
classified cifar10 caltech101 places365 objectnet imagenet1k
pairs="--take 1000000 --holdout none"
[ -z "$emoji9" ] || pairs="--split-column split"

last_of() { # RUN "CHECKPOINTS": Table 10
  measure "$1.zeroshot.ndjson" "eval-zeroshot $classes $2"
  probe "$1" "$2"
}

lines() {
  local seed name run
  draw dataset_cc12m dataset_coco dataset_flickr30k
  draw_classified
  split_aside
  echo "split $(source_of cc12m) -o stream --by iid --tasks 10 $pairs $split"
  for seed in $seeds; do
    for name in $methods; do
      run=seed$seed/$name
      if [ "$name" = joint ]; then
        joint "$run" "$seed" $parts
        last_of "$run" "--checkpoint $run"
      else
        chain "$run" "$name --run $name --seed $seed" "" $parts
        retrieval "$run" "$(checkpoints "$run" $parts)"
        last_of "$run" "$(checkpoints "$run" stream/09-part-9)"
      fi
    done
  done
  tables="modx-9 modx-10 modx-fig12"
  report report --allow-missing
}

finish data

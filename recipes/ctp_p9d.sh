#!/usr/bin/env bash
# Table 1 and Figure 4 of CTP (Zhu et al., ICCV 2023), and Table 6 for the reversed order: fifteen
# methods learn the nine industries of P9D in sequence, as the authors' code runs them. Each order's
# report ends with its table. Tables 2, 3 and 5: ctp_ablations.sh.
#
#   bash recipes/ctp_p9d.sh --data P9D              P9D holds json/, train_images/ and gallery_images/
#   bash recipes/ctp_p9d.sh --data P9D --dry-run    print every command, run none
#   bash recipes/ctp_p9d.sh --emoji9                the same with few steps of a tiny model on a CPU
#
#   --out DIR          where everything is written [runs/ctp_p9d, runs/ctp_emoji9]
#   --orders "A B"     default, reversed [both; --emoji9: default]
#   --methods "A B"    some of the fifteen [all]
#   --seeds "A B"      seeds of the runs [0]
#   --nproc N          processes that train together, one per GPU [1; the paper has 4]
#   --jobs N           commands that run at once [1; --emoji9: one per core]
#   --split "WORDS"    options for every split [--max-skip 1%; --emoji9: --take 150]
#   --train "WORDS"    options for every train-step, such as "--micro-batch 128 --workers 8"
#   --first "WORDS"    options for those of a first task, such as "--pretrained image=FILE,text=DIR"
#
# If it is interrupted, the same command resumes it. Each order stores another copy of P9D's images.
# Initial weights are downloaded from the hubs of timm and transformers unless --first gives files.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/pipeline.sh"
source "$(dirname "${BASH_SOURCE[0]}")/p9d.sh"

options "data out orders methods seeds nproc jobs split train first" "$@"
[ -n "$emoji9$data" ] || fail "give --data DIR, the directory of P9D, or --emoji9"
: "${methods:=$compared}" "${seeds:=0}"
among method "$compared" "$methods"
[ -n "$orders" ] || orders=$([ -z "$emoji9" ] && echo "default reversed" || echo default)
among order "default reversed" "$orders"
p9d

lines() {
  local order seed method
  streams $orders
  for order in $orders; do
    for seed in $seeds; do
      for method in $methods; do train_one "$order" "$seed" "$method"; done
    done
    tables="ctp-1 ctp-fig4"
    [ "$order" = default ] || tables=ctp-6
    report "$order/report"
  done
}

finish data

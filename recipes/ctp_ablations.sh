#!/usr/bin/env bash
# Tables 2, 3 and 5 of CTP (Zhu et al., ICCV 2023): CTP without some of its terms, with other momentum
# models, and with other momenta, on the nine industries of P9D in their default order.
#
#   bash recipes/ctp_ablations.sh --data P9D              P9D holds json/, train_images/ and gallery_images/
#   bash recipes/ctp_ablations.sh --data P9D --dry-run    print every command, run none
#   bash recipes/ctp_ablations.sh --emoji9                the same with few steps of a tiny model on a CPU
#
#   --out DIR          where everything is written [runs/ctp_p9d, runs/ctp_emoji9, as ctp_p9d.sh]
#   --methods "A B"    some of the runs below [all]
#   --seeds "A B"      seeds of the runs [0]
#   --nproc N          processes that train together, one per GPU [1; the paper has 4]
#   --jobs N           commands that run at once [1; --emoji9: one per core]
#   --split "WORDS"    options for every split [--max-skip 1%; --emoji9: --take 150]
#   --train "WORDS"    options for every train-step, such as "--micro-batch 128 --workers 8"
#   --first "WORDS"    options for those of a first task, such as "--pretrained image=FILE,text=DIR"
#
# The stream, seqf, ctp and ctp+er are those of ctp_p9d.sh: in its --out, with the same options, they are
# not made again. The first task has the momentum of 0.995 in every row (appendix E.1); rows without
# momentum contrast train it as seqf does. If it is interrupted, the same command resumes it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/pipeline.sh"
source "$(dirname "${BASH_SOURCE[0]}")/p9d.sh"

options "data out methods seeds nproc jobs split train first" "$@"
[ -n "$emoji9$data" ] || fail "give --data DIR, the directory of P9D, or --emoji9"

known="seqf ctp ctp+er ctp-cmc ctp-cross ctp-cmc-cross ctp-cmc-same" # Table 2
known="$known ctp-previous ctp-current ctp-no-queue ctp-diagonal"    # Table 3
known="$known ctp-m0.7 ctp-m0.8 ctp-m0.99 ctp-m0.995"                # Table 5, with two of Table 3
: "${methods:=$known}" "${seeds:=0}"
among method "$known" "$methods"
p9d

variant() { # what a run has other than CTP
  case $1 in
    ctp-cmc) echo "ctp --set ctp.cross_modal=false --set ctp.same_modal=false" ;;
    ctp-cross) echo "ctp --set ctp.momentum=false --set ctp.same_modal=false" ;;
    ctp-cmc-cross) echo "ctp --set ctp.same_modal=false" ;;
    ctp-cmc-same) echo "ctp --set ctp.cross_modal=false" ;;
    ctp-previous | ctp-current) echo "ctp --set ctp.momentum_from=${1#ctp-}" ;;
    ctp-no-queue) echo "ctp --set ctp.queue=0" ;;
    ctp-diagonal) echo "ctp --set ctp.suppress_diagonal=false" ;;
    ctp-m*) echo "ctp --set ctp.m=${1#ctp-m}" ;;
  esac
}

lines() {
  local seed method
  streams default
  for seed in $seeds; do
    for method in $methods; do train_one default "$seed" "$method"; done
  done
  tables="ctp-2 ctp-3 ctp-5"
  report default/ablations
}

finish data

#!/usr/bin/env bash
# Table 1 of CTP (Zhu et al., ICCV 2023), and Table 6 for the reversed order: fifteen methods learn the
# nine industries of P9D in sequence, as the authors' code runs them.
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

options "data out orders methods seeds nproc jobs split train first" "$@"
[ -n "$emoji9$data" ] || fail "give --data DIR, the directory of P9D, or --emoji9"

known="joint seqf si mas ewc afec lwf rwalk ctp mof lucir er kmeans icarl ctp+er" # as in Table 1
: "${methods:=$known}" "${seeds:=0}"
among method "$known" "$methods"

if [ -n "$emoji9" ]; then
  : "${out:=runs/ctp_emoji9}" "${orders:=default}" "${split:=--take 150}"
  : "${first:=--model albef-tiny}"
  train="--preset tiny --steps 4 --batch-size 32 $train" size=100
  names=$emoji_groups
else
  : "${out:=runs/ctp_p9d}" "${orders:=default reversed}" "${split:=--max-skip 1%}"
  train="--preset ctp --nproc ${nproc:-1} $train" size=10000
  # Household, Furnishings, Food, Beauty, Clothing, Auto, Parenting, Outdoor, Electronics.
  industries=家居用品,家装家饰,食品/保健,美容护理,服饰鞋包,车品配件,母婴,运动/户外,3C数码
  names="task task task task task task task task 3c" # what is ASCII of them
fi
among order "default reversed" "$orders"

backwards() { # the words of a line, last first
  local word all=""
  for word in $1; do all="$word $all"; done
  echo "$all"
}

# The directories of an order's tasks.
tasks_of() {
  local number=0 name ordered=$names
  [ "$1" = default ] || ordered=$(backwards "$names")
  for name in $ordered; do
    printf "$1/stream/%02d-%s " "$number" "$name"
    number=$((number + 1))
  done
}

streams() {
  local order sequence=""
  [ -z "$emoji9" ] || echo "sample emoji9 -o pairs.parquet --size 32 --views 3"
  for order in $orders; do
    if [ -n "$emoji9" ]; then
      [ "$order" = default ] || sequence="--order reverse"
      echo "split pairs.parquet -o $order/stream --by column:group --split-column split" \
        "--label-column subgroup $sequence $split"
    else
      sequence=$industries
      [ "$order" = default ] || sequence=$(backwards "${industries//,/ }" | sed 's/ *$//; s/ /,/g')
      echo "split '$data' -o $order/stream --by column:industry_name --split-column split" \
        "--order $sequence $split"
    fi
  done
}

# What the authors' code does differently from the papers of the methods.
as_ctp() {
  case $1 in
    si | mas | ewc | afec | rwalk | lucir) echo "--set $1.variant=ctp" ;;
    lwf | icarl) echo "--set $1.target=channels" ;;
    ctp) echo "--set ctp.keep_queue=true --set ctp.positives=process" ;;
  esac
}

buffer_of() { # NAME SEED; the authors' draws start from random.seed(42)
  local policy
  case $1 in
    er | ctp+er) policy=reservoir ;;
    mof | icarl | lucir) policy=herding ;;
    kmeans) policy=kmeans ;;
    *) return ;;
  esac
  echo "--policy $policy --variant ctp --size $size --seed $((42 + $2))"
}

method_of() {
  case $1 in
    mof | kmeans) echo er ;;
    ctp+er) echo ctp ;;
    *) echo "$1" ;;
  esac
}

train_one() { # ORDER SEED NAME
  local run=$1/seed$2/$3 method
  if [ "$3" = joint ]; then # one run on everything
    echo "train-step $(tasks_of "$1") -o $run --method joint --seed $2 $train $first"
    evaluate "$1" "$run" "--checkpoint $run"
    return
  fi
  method=$(method_of "$3")
  method="$method --run $3 --seed $2 $(as_ctp "$method")"
  chain "$run" "$method" "$(buffer_of "$3" "$2")" $(tasks_of "$1")
  evaluate "$1" "$run" "$(checkpoints "$run" $(tasks_of "$1"))"
}

evaluate() { # ORDER RUN "CHECKPOINTS"
  measure "$2.cross.ndjson" "eval-retrieval $(tasks_of "$1") $3 --gallery both"
  measure "$2.multi.ndjson" "eval-retrieval $(tasks_of "$1") $3 --gallery both" \
    "--protocol multi-modal"
}

lines() {
  local order seed method
  streams
  for order in $orders; do
    for seed in $seeds; do
      for method in $methods; do train_one "$order" "$seed" "$method"; done
    done
    report "$order/report"
  done
}

finish data

#!/usr/bin/env bash
# Table 1 of CTP (Zhu et al., ICCV 2023), and Table 6 for the reversed order: fifteen methods learn the
# nine industries of P9D one after another, as the authors' code runs them.
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
# The same command goes on where it was stopped. Each order holds the images of P9D once more. First
# weights come from the hubs of timm and of transformers unless --first says where they lie.
set -euo pipefail
start=$PWD

fail() {
  echo "ctp_p9d.sh: $1" >&2
  exit 2
}

data="" out="" orders="" methods="" seeds=0 nproc=1 jobs="" split="" train="" first=""
dry_run="" emoji9=""
while [ $# -gt 0 ]; do
  case $1 in
    --dry-run) dry_run=1 && shift ;;
    --emoji9) emoji9=1 && shift ;;
    --data | --out | --orders | --methods | --seeds | --nproc | --jobs | --split | --train | --first)
      [ $# -gt 1 ] || fail "$1 needs a value"
      printf -v "${1#--}" %s "$2" && shift 2
      ;;
    *) fail "unknown option '$1'; the first lines of the script say what there is" ;;
  esac
done
[ -n "$emoji9$data" ] || fail "give --data DIR, where P9D lies, or --emoji9"

known="joint seqf si mas ewc afec lwf rwalk ctp mof lucir er kmeans icarl ctp+er" # as in Table 1
for method in ${methods:=$known}; do
  case " $known " in *" $method "*) ;; *) fail "unknown method '$method' (known: $known)" ;; esac
done

if [ -n "$emoji9" ]; then
  : "${out:=runs/ctp_emoji9}" "${orders:=default}" "${split:=--take 150}"
  : "${first:=--model albef-tiny}"
  train="--preset tiny --steps 4 --batch-size 32 $train" size=100
  names="smileys-emotion people-body animals-nature food-drink travel-places activities objects"
  names="$names symbols flags"
else
  : "${out:=runs/ctp_p9d}" "${orders:=default reversed}" "${split:=--max-skip 1%}"
  train="--preset ctp --nproc $nproc $train" size=10000
  # Household, Furnishings, Food, Beauty, Clothing, Auto, Parenting, Outdoor, Electronics.
  industries=家居用品,家装家饰,食品/保健,美容护理,服饰鞋包,车品配件,母婴,运动/户外,3C数码
  names="task task task task task task task task 3c" # what is ASCII of them
fi
for order in $orders; do
  case $order in default | reversed) ;; *) fail "unknown order '$order' (known: default, reversed)" ;; esac
done

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
    printf '%02d-%s ' "$number" "$name"
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

policy_of() { # of the buffer, if there is one
  case $1 in
    er | ctp+er) echo reservoir ;;
    mof | icarl | lucir) echo herding ;;
    kmeans) echo kmeans ;;
  esac
}

method_of() {
  case $1 in
    mof | kmeans) echo er ;;
    ctp+er) echo ctp ;;
    *) echo "$1" ;;
  esac
}

# The lines of one run; 'batch' starts each when what it reads is there.
chain() {
  local order=$1 seed=$2 name=$3 run="$1/seed$2/$3" task before="" previous="" method policy from
  method=$(method_of "$name") policy=$(policy_of "$name")
  for task in $(tasks_of "$order"); do
    from=$first
    if [ -n "$previous" ]; then
      from="--previous $run/$previous"
      if [ -n "$policy" ]; then # the authors' draws begin with random.seed(42)
        echo "buffer $order/stream/$previous -o $run/buffer-$previous --policy $policy" \
          "--variant ctp --size $size --seed $((42 + seed))" \
          "$([ "$policy" = reservoir ] || echo "--checkpoint $run/$previous")" \
          "${before:+--previous $run/buffer-$before}"
        from="$from --buffer $run/buffer-$previous"
      fi
    fi
    echo "train-step $order/stream/$task -o $run/$task --method $method --run $name --seed $seed" \
      "$train $(as_ctp "$method") $from"
    before=$previous previous=$task
  done
  evaluate "$order" "$run" "$(printf -- "--checkpoint $run/%s " $(tasks_of "$order"))"
}

joint() { # one run on everything
  local order=$1 run="$1/seed$2/joint"
  echo "train-step $(paths_of "$order") -o $run --method joint --seed $2 $train $first"
  evaluate "$order" "$run" "--checkpoint $run"
}

evaluate() {
  echo "eval-retrieval $(paths_of "$1") $3 --gallery both -o $2.cross.ndjson"
  echo "eval-retrieval $(paths_of "$1") $3 --gallery both --protocol multi-modal -o $2.multi.ndjson"
}

paths_of() { printf "$1/stream/%s " $(tasks_of "$1"); }

lines() {
  local order seed method rows
  streams
  for order in $orders; do
    rows=""
    for seed in $seeds; do
      for method in $methods; do
        if [ "$method" = joint ]; then joint "$order" "$seed"; else chain "$order" "$seed" "$method"; fi
        rows="$rows $order/seed$seed/$method.cross.ndjson $order/seed$seed/$method.multi.ndjson"
      done
    done
    echo "forgetting-report$rows -o $order/report"
  done
}

if [ -n "$dry_run" ]; then
  lines | sed 's/^/vlcpctl /; s/  */ /g; s/ $//'
  exit
fi

[ -z "$data" ] || data=$(cd "$data" && pwd)
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$start" && mkdir -p "$out" && cd "$out"
[ -n "$jobs" ] || jobs=$([ -z "$emoji9" ] && echo 1 || getconf _NPROCESSORS_ONLN)
lines | vlcpctl batch --jobs "$jobs"

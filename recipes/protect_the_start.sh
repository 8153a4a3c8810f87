#!/usr/bin/env bash
# What keeps the abilities of the start while six weeks are learned? Replay, distillation on reference
# pairs, merged weights, adapters, null space, and pairs of them, all with the CPU time of fine-tuning.
# Table: docs/results/protect_the_start.md.
#
#   bash recipes/protect_the_start.sh            STEPS=40 of each week for seqf, SEEDS="0 1 2"
#   bash recipes/protect_the_start.sh --dry-run  print every command, run none
#
#   --out DIR          where everything is written [runs/protect_the_start]
#   --methods "A B"    some of the rows [all]
#   --jobs N           commands that run at once [one per core]
#
# The start is a small CLIP trained on 450 emoji of Emoji-9 and imported, as a model from elsewhere would
# be. The weeks are OpenMoji's own pictures, 79 to 84 a week (production_weeks.py). What may be kept of the
# start's data is the same for all: its training pairs, replayed from a buffer or used as --reference. The
# guard is its test split. A row has as many steps as fit in the CPU time of seqf (cost_of). Every method
# has the settings of preset tiny and its own defaults; zscl-plain is zscl without its average of weights,
# lora-fast has ten times the learning rate, and gnsp-measured begins with the null space of the start's pairs.
# If it is interrupted, the same command resumes it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/pipeline.sh"

options "out methods jobs" "$@"
[ -z "$emoji9" ] || fail "it runs on Emoji-9 and OpenMoji always; STEPS=4 SEEDS=0 makes it short"
: "${out:=runs/protect_the_start}" "${jobs:=$(getconf _NPROCESSORS_ONLN)}"
trained="seqf er ctp+er zscl zscl-plain gift snd lora lora-fast gnsp gnsp-measured bct zscl+er gift+er bct+er"
merged="average ema ties model-stock" # of the weeks of seqf
patched="patched er-patched" # each week is trained from the average of what was trained before
both="er.average ctp+er.average zscl.average" # of the weeks of another row
known="$trained $merged $patched $both"
: "${methods:=$known}"
among method "$known" "$methods"
seeds=${SEEDS:-0 1 2} steps=${STEPS:-40}
train="--preset tiny --lr ${LR:-2e-4}"
guard=production/00-pairs
weeks="weeks/00-week1 weeks/01-week2 weeks/02-week3 weeks/03-week4 weeks/04-week5 weeks/05-week6"

# The CPU time of a step in percent of seqf's, of preset tiny on one core (28 November 2026, the mean of two
# rounds); that of gnsp contains its pass after each week.
cost_of() {
  case $1 in
    er | lora*) echo 105 ;;
    gnsp* | bct) echo 135 ;;
    bct+er) echo 150 ;;
    ctp+er) echo 155 ;;
    gift) echo 250 ;;
    zscl | zscl-plain | zscl+er | snd) echo 255 ;;
    gift+er) echo 270 ;;
    *) echo 100 ;;
  esac
}

words_of() { # ROW: the method, its settings and what it is given
  local words=$1 reference=""
  case $1 in *zscl* | *gift* | *snd*) reference="--reference $guard" ;; esac
  case $1 in
    lora*) words="seqf --lora 4" ;;
    zscl-plain) words="zscl --set zscl.every=0" ;;
    gnsp-measured) words=gnsp ;;
  esac
  echo "$words $reference"
}

base_lines() {
  echo "sample emoji9 -o pairs.parquet --size 32 --limit 450"
  echo "split pairs.parquet -o production --by source --split-column split"
  echo "train-step $guard -o model --method seqf --preset tiny --steps ${START_STEPS:-1500}"
  echo "import-checkpoint model -o start --run production"
  echo "split week1.parquet week2.parquet week3.parquet week4.parquet week5.parquet week6.parquet" \
    "-o weeks --by source --split-column split"
  measured start --run start
}

measured() { # CHECKPOINT WORDS...: on the guard and the weeks, and with the index of the start
  local model=$1
  shift
  echo "eval-retrieval $guard $weeks --checkpoint $model -o $model.ndjson $*"
  echo "eval-retrieval $guard --checkpoint $model --gallery-checkpoint start -o $model-index.ndjson $*"
}

chain_of() { # ROW SEED
  local memory="" train="$train --steps $((100 * steps / $(cost_of "$1"))) --seed $2 --run $1"
  local start=start held=""
  [ "$1" != lora-fast ] || train="$train --lr 2e-3"
  if [ "$1" = gnsp-measured ]; then # its null space is that of the start's pairs, from the first week on
    start=seed$2/measured
    echo "train-step $guard -o $start --method gnsp --preset tiny --lr 1e-20 --steps 1 --seed $2" \
      "--previous start --run $1-start"
  fi
  case $1 in *er) held=seed$2/buffer memory="--policy reservoir --size 20000 --seed $2" ;; esac
  chain "seed$2/$1" "$(words_of "$1")" "$memory" $weeks
}

patch_of() { # ROW SEED: the state of 'update --start-from merged --deploy ema', week by week
  local method=seqf from=start buffer=seed$2/buffer run=seed$2/$1 week past=""
  [ "$1" = patched ] || method=er
  for week in $weeks; do
    if [ "$method" = er ] && [ -n "$past" ]; then
      remember "$run/buffer-${past##*/}" "$past" "--policy reservoir --size 20000 --seed $2" "" "$buffer"
      buffer=$run/buffer-${past##*/}
    fi
    echo "train-step $week -o $run/trained-${week##*/} --method $method $train --seed $2 --run $1" \
      "--steps $((100 * steps / $(cost_of "$method"))) --previous $from" \
      "$([ "$method" = seqf ] || echo "--buffer $buffer")"
    echo "merge $from $run/trained-${week##*/} --rule ema -o $run/${week##*/} --run $1"
    from=$run/${week##*/} past=$week
  done
}

merge_of() { # ROW SEED CHAIN: the models of its weeks, or its last and the start
  local made=seed$2/$1 each
  each=$(printf "seed$2/$3/%s " ${weeks//weeks\//})
  each=${each% }
  case $1 in
    *average) echo "merge start ${each##* } -o $made --run $1" ;;
    ema) echo "merge start $each --rule ema -o $made --run $1" ;;
    *) echo "merge $each --rule $1 --base start -o $made --run $1" ;;
  esac
}

lines() {
  local seed row last=${weeks##*/}
  base_lines
  for seed in $seeds; do
    remember "seed$seed/buffer" "$guard" "--policy reservoir --size 20000 --seed $seed" "" ""
    for row in $methods; do
      if has "$trained" "$row"; then
        chain_of "$row" "$seed"
        measured "seed$seed/$row/$last"
      elif has "$patched" "$row"; then
        patch_of "$row" "$seed"
        measured "seed$seed/$row/$last"
      else
        case $row in *.*) merge_of "$row" "$seed" "${row%.*}" ;; *) merge_of "$row" "$seed" seqf ;; esac
        measured "seed$seed/$row" --run "$row"
      fi
    done
  done
}

for row in $methods; do
  if has "$merged" "$row" && ! has "$methods" seqf; then fail "$row needs seqf"; fi
  if has "$both" "$row" && ! has "$methods" "${row%.*}"; then fail "$row needs ${row%.*}"; fi
done
if [ -z "$dry_run" ]; then
  source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
  mkdir -p "$out" && python "$repository/recipes/production_weeks.py" "$out" --weeks 6
fi
finish
python "$repository/recipes/protect_table.py" . -o cells.tsv >table.md
cat table.md

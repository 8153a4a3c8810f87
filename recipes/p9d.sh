# Sourced by the recipes of CTP's tables, after pipeline.sh: P9D, or Emoji-9 instead of it, in nine
# tasks, and runs of them as the authors' code has them. A recipe may define `variant NAME`, which
# prints the method words of a run whose name is not a method of Table 1.

compared="joint seqf si mas ewc afec lwf rwalk ctp mof lucir er kmeans icarl ctp+er" # as in Table 1

p9d() { # settings of either data
  if [ -n "$emoji9" ]; then
    : "${out:=runs/ctp_emoji9}" "${split:=--take 150}" "${first:=--model albef-tiny}"
    train="--preset tiny --negatives all --steps 4 --batch-size 32 $train" size=100
    names=$emoji_groups
  else
    : "${out:=runs/ctp_p9d}" "${split:=--max-skip 1%}"
    train="--preset ctp --nproc ${nproc:-1} $train" size=10000
    # Household, Furnishings, Food, Beauty, Clothing, Auto, Parenting, Outdoor, Electronics.
    industries=家居用品,家装家饰,食品/保健,美容护理,服饰鞋包,车品配件,母婴,运动/户外,3C数码
    names="task task task task task task task task 3c" # what is ASCII of them
  fi
}

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

streams() { # ORDER...
  local order sequence=""
  [ -z "$emoji9" ] || echo "sample emoji9 -o pairs.parquet --size 32 --views 3"
  for order in "$@"; do
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

variant() { :; }

train_one() { # ORDER SEED NAME
  local run=$1/seed$2/$3 method words
  if [ "$3" = joint ]; then # one run on everything
    echo "train-step $(tasks_of "$1") -o $run --method joint --seed $2 $train $first"
    evaluate "$1" "$run" "--checkpoint $run"
    return
  fi
  words=$(variant "$3")
  method=${words%% *}
  [ -n "$method" ] || method=$(method_of "$3")
  words="$method --run $3 --seed $2 $(as_ctp "$method") ${words#"$method"}"
  chain "$run" "$words" "$(buffer_of "$3" "$2")" $(tasks_of "$1")
  evaluate "$1" "$run" "$(checkpoints "$run" $(tasks_of "$1"))"
}

evaluate() { # ORDER RUN "CHECKPOINTS"
  local words
  words="$(tasks_of "$1") $3 --gallery both --duplicates separate"
  measure "$2.cross.ndjson" "eval-retrieval $words"
  measure "$2.multi.ndjson" "eval-retrieval $words --protocol multi-modal"
}

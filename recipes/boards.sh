# Sourced by the recipes of the two boards, after pipeline.sh: what their rows are, their chains, and
# how settings are chosen. $size is that of a buffer, $rates are the learning rates, the usual one
# first; a recipe defines settings_of.

# --- Rows: what each is.
method_of() {
  case $1 in
    lwf-channels) echo "lwf --set lwf.target=channels" ;;
    mof) echo er ;;
    interpolate) echo seqf ;;
    incclip) echo "incclip --set incclip.count=4" ;; # a 16th of the batch, as in the paper
    incclip-no-texts) echo "incclip --set incclip.count=0" ;;
    *) echo "$1" ;;
  esac
}

policy_of() {
  case $1 in
    mof | icarl | lucir) echo herding ;;
    der | derpp) echo "reservoir --store-features" ;;
    er | ctp+er | lwf+er | co2l | incclip | incclip-no-texts) echo reservoir ;;
    zscl | gift) echo reference ;;
    snd) echo reference+start ;;
  esac
}

weights_of() { # SHARE of the second model: as merge takes it
  awk -v share="$1" 'BEGIN { print 1 - share "," share }'
}

as_options() { # SETTINGS: as options of train-step; the share of interpolate is none
  case $1 in
    "" | alpha=*) ;;
    *) echo "--set ${1//,/ --set }" ;;
  esac
}

# --- Chains.
reservoirs() { # SEED TASK...: buffers that do not depend on a model, for all rows
  local seed=$1 task buffer=""
  shift
  for task in "${@:1:$#-1}"; do
    echo "buffer $task -o $(reservoir "$seed" "$task") --policy reservoir --size $size" \
      "--of stream --seed $seed ${buffer:+--previous $buffer}"
    buffer=$(reservoir "$seed" "$task")
  done
}

reservoir() { # SEED TASK
  echo "reservoirs/seed$1/${2////-}"
}

# sequence RUN DIR "TRAIN WORDS" "BUFFER POLICY" SHARE SEED START TASK...: one task after another into
# DIR/TASK, from START if that is a model of the first task; with SHARE, each model is averaged with
# the one before it. The policy "reference" gives a reservoir as --reference, and "reference+start" the
# first model as --teacher, too.
sequence() {
  local name=$1 dir=$2 words=$3 policy=$4 share=$5 seed=$6 from=$7 past="" task made
  local buffer="" start=$7 held
  shift 7
  # an average is reported as "NAME alpha=SHARE"; the first model, which is none, must be too
  words="$words --run '$name${share:+ alpha=$share}'"
  for task in "$@"; do
    held=""
    if [ -n "$past" ] && [ "$policy" = reservoir ]; then
      held="--buffer $(reservoir "$seed" "$past")"
    elif [ -n "$past" ] && [ "${policy%+start}" = reference ]; then
      held="--reference $(reservoir "$seed" "$past")"
      [ "$policy" = reference ] || held="$held --teacher $start"
    elif [ -n "$past" ] && [ -n "$policy" ]; then
      remember "$dir/buffer-${past##*/}" "$past" \
        "--policy $policy --size $size --of stream --seed $seed" "$from" "$buffer"
      buffer=$dir/buffer-${past##*/}
      held="--buffer $buffer"
    fi
    if [ -n "$past" ] || [ -z "$from" ]; then
      made=$dir/${task##*/}
      [ -z "$past" ] || [ -z "$share" ] || made=$dir/trained-${task##*/}
      echo "train-step $task -o $made $words ${from:+--previous $from} $held" |
        if [ -n "$from" ]; then without_temperature; else cat; fi
      if [ "$made" != "$dir/${task##*/}" ]; then
        echo "merge $from $made --weights $(weights_of "$share") -o $dir/${task##*/}" \
          "--run '$name alpha=$share'"
      fi
      from=$dir/${task##*/}
      : "${start:=$from}"
    fi
    past=$task
  done
}

without_temperature() { sed "s/ --temperature [^ ]*//"; } # the previous model has its own

train_words() { # METHOD SETTINGS RATE SEED STEPS
  echo "--method $1 $(as_options "$2") --preset tiny --steps $5 --lr $3 --seed $4"
}

share_of() { # SETTINGS
  case $1 in alpha=*) echo "${1#alpha=}" ;; esac
}

# --- The choice, from rows of the validation split.
chosen() { # ROW FILE: its rate and settings; in a dry run before the choice, the first ones
  if [ -f "$chosen_in/$2" ]; then
    awk -F '\t' -v row="$1" '$1 == row { print $2, $3 }' "$chosen_in/$2"
  else
    set -- ${rates%% *} $(settings_of "$1")
    echo "$1 ${2#default}"
  fi
}

choose() { # FILE "LINES": from the rows that they make
  sed -n 's/^eval-retrieval .* -o //p' <<<"$2" |
    xargs python "$recipes/leaderboard_choose.py" -o "$1"
}

#!/usr/bin/env bash
# Every method on Emoji-9 under one budget, with hyper-parameters chosen as Chaudhry et al. (A-GEM,
# 2019) propose: on the first three groups, which are for nothing else. Preset tiny.
#
#   1. selection    one seed; of a strength, share or queue three values with the first learning rate, then
#                   the best one with the second; the last of the three models is measured on the
#                   validation split, and leaderboard_choose.py picks a setting of each row from
#                   validation rows alone: strengths.tsv, then chosen.tsv
#   2. the board    the other six groups from a fresh start with that setting, three seeds, measured
#                   on the test split; table.md and report/ are made from these rows
#
#   bash recipes/leaderboard.sh                STEPS=50 of each task, SEEDS="0 1 2"; 80 minutes of two cores
#   ABLATIONS=1 bash recipes/leaderboard.sh    also the runs behind the discussion, an hour more
#   ABLATIONS="ctp-all er-all" ...             some of them
#   bash recipes/leaderboard.sh --dry-run      print every command, run none
#
#   --out DIR          where everything is written [runs/leaderboard]
#   --methods "A B"    some of the rows [all]
#   --jobs N           commands that run at once [one per core]
#
# 50 steps rather than 80, and no full grid of rates and strengths, so that two cores make both tables in
# little more than an hour. With seqf, 1e-3 and 5e-4 were the best of six rates from 3e-4 to 6e-3 on the
# validation split. joint trains on all tasks at once, for as many steps as a sequence has in total. A
# buffer holds SIZE=10% of a stream. If it is interrupted, the same command resumes it; with more SEEDS
# it trains what is missing.
set -euo pipefail
recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$recipes/pipeline.sh"
source "$recipes/boards.sh"

options "out methods jobs" "$@"
[ -z "$emoji9" ] || fail "it runs on Emoji-9 always; STEPS=4 SEEDS=0 makes it short"
: "${out:=runs/leaderboard}" "${jobs:=$(getconf _NPROCESSORS_ONLN)}"

free="seqf lwf lwf-channels ewc mas si rwalk afec geodl ema dha modx ctp bct gnsp interpolate"
buffered="er mof icarl lucir ctp+er der derpp co2l incclip zscl snd gift"
: "${methods:=joint $free $buffered}"
among method "joint $free $buffered" "$methods"
steps=${STEPS:-50} seeds=${SEEDS:-0 1 2} size=${SIZE:-10%} rates=${RATES:-1e-3 5e-4} chooser=100
ablations=${ABLATIONS:-}

# --- Streams: the groups for the choice, and those of the board.
chosen_on="Smileys & Emotion,People & Body,Animals & Nature"
measured_on="Food & Drink,Travel & Places,Activities,Objects,Symbols,Flags"
first_tasks="first/00-smileys-emotion first/01-people-body first/02-animals-nature"
rest_tasks="rest/00-food-drink rest/01-travel-places rest/02-activities rest/03-objects"
rest_tasks="$rest_tasks rest/04-symbols rest/05-flags"

stream() { # NAME "GROUPS"
  echo "sample emoji9 -o $1.parquet --size 32 --val-views 1 --groups '$2'"
  echo "split $1.parquet -o $1 --by column:group --split-column split"
}

# --- Rows: what each is, and what is tried for it besides the learning rate.
# A tenth of the default, it, and ten times it; where the default is for another loss or for
# thousands of steps, three values from it on in the direction that this makes sensible. CTP's queue
# is longer than a task here is large: its length, a quarter of it, and none. ZSCL's snapshots are 100
# steps apart, twice a task: that, ten steps, and no average.
settings_of() { # the default first; a comma joins values that go together
  case $1 in
    lwf) echo lwf.strength={1,0.1,10} ;;
    lwf-channels) echo lwf.strength={1,0.1,10} ;;
    icarl) echo icarl.strength={1,0.1,10} ;;
    lucir) echo lucir.strength={1,0.1,10} ;;
    geodl) echo geodl.strength={10,1,100} ;;
    ewc) echo ewc.strength={5000,500,50000} ;;
    afec) echo afec.strength={5000,500,50000} ;;
    mas) echo mas.strength={1,0.1,10} ;;
    si) echo si.strength={1,10,100} ;;
    rwalk) echo rwalk.strength={1000,100,10} ;;
    modx) echo modx.alpha={20,2,200} ;;
    der) echo der.alpha={0.3,3,30} ;;
    derpp) echo derpp.alpha={0.3,3,30} ;;
    co2l) echo co2l.strength={1,0.1,10} ;;
    ema) echo ema.decay={0.999,0.99,0.9} ;;
    ctp | ctp+er) echo ctp.queue={1024,256,0} ;;
    dha)
      echo dha.main_share=0.995,dha.history_share=0.985 dha.main_share=0.975,dha.history_share=0.925 \
        dha.main_share=0.875,dha.history_share=0.625
      ;;
    incclip)
      echo incclip.tau_old=0.01,incclip.lambda_=5 incclip.tau_old=0.07,incclip.lambda_=5 \
        incclip.tau_old=0.07,incclip.lambda_=1
      ;;
    bct) echo bct.strength={1,0.1,10} ;;
    gnsp) echo gnsp.rho={0.15,0.5,0.9} ;;
    zscl) echo zscl.every={100,10,0} ;;
    snd) echo snd.previous={9,0.9,90} ;;
    gift) echo gift.strength={1,0.1,10} ;;
    interpolate) echo alpha={0.5,0.25,0.75} ;;
    *) echo default ;;
  esac
}

# Rows that do nothing on a first task start the choice from seqf's first model, which is theirs.
first_of() { # ROW: whose first model its chains start from; its own for each strength if ""
  case $1 in
    ema | dha | ctp | ctp+er) echo "" ;;
    ewc | mas | si | rwalk | afec | incclip | gnsp) echo "$1" ;;
    *) echo seqf ;;
  esac
}

any_of() { # WORDS WORDS: whether they have one in common
  local word
  for word in $2; do if has "$1" "$word"; then return; fi; done
  return 1
}

# --- The choice.
try_one() { # ROW RATE SETTINGS
  local row=$1 rate=$2 settings=$3 start dir words last=${first_tasks##* }
  dir=selection/$row/$rate/${settings:-default}
  if [ "$row" = joint ]; then
    words=$(train_words joint "" "$rate" "$chooser" $((3 * steps)))
    echo "train-step $first_tasks -o $dir $words --run $row:$rate:"
    choose_by "$dir.ndjson" "$dir"
    return
  fi
  start=$(first_of "$row")
  words=$(train_words "$(method_of "$row")" "$settings" "$rate" "$chooser" "$steps")
  sequence "$row:$rate:$settings" "$dir" "$words" "$(policy_of "$row")" \
    "$(share_of "$settings")" "$chooser" "${start:+selection/starts/$start/$rate}" $first_tasks
  choose_by "$dir.ndjson" "$dir/${last##*/}"
}

choose_by() { # FILE CHECKPOINT
  measure "$1" "eval-retrieval $first_tasks --checkpoint $2 --gallery merged --split val"
}

starts() { # the first models that several chains have in common
  local name rate done=""
  for name in $methods; do
    [ "$name" != joint ] || continue
    name=$(first_of "$name")
    if [ -n "$name" ] && ! has "$done" "$name"; then
      for rate in $rates; do
        echo "train-step ${first_tasks%% *} -o selection/starts/$name/$rate" \
          "$(train_words "$(method_of "$name")" "" "$rate" "$chooser" "$steps") --run start-$name"
      done
      done="$done $name"
    fi
  done
}

strength_lines() { # the first rate with every strength
  local row settings
  stream first "$chosen_on"
  stream rest "$measured_on"
  starts
  if any_of "$methods" "$reservoir_rows"; then reservoirs "$chooser" $first_tasks; fi
  for row in $methods; do
    for settings in $(settings_of "$row"); do
      try_one "$row" "${rates%% *}" "${settings#default}"
    done
  done
}

rate_lines() { # the other rate with the best strength
  local row rate settings
  for row in $methods; do
    for rate in $rates; do
      [ "$rate" != "${rates%% *}" ] || continue
      read -r _ settings <<<"$(chosen "$row" strengths.tsv)"
      try_one "$row" "$rate" "$settings"
    done
  done
}

# --- The board.
run_one() { # NAME DIR ROW METHOD SETTINGS RATE SEED STEPS "MORE WORDS"
  local run=$2/seed$7/$1 words
  words="$(train_words "$4" "$5" "$6" "$7" "$8") $9"
  sequence "$1" "$run" "$words" "$(policy_of "$3")" "$(share_of "$5")" "$7" "" $rest_tasks
  measure "$run.ndjson" "eval-retrieval $rest_tasks $(checkpoints "$run" $rest_tasks) --gallery both"
}

board() { # DIR ROW...
  local dir=$1 row seed rate settings run
  shift
  for seed in $seeds; do
    for row in "$@"; do
      read -r rate settings <<<"$(chosen "$row" chosen.tsv)"
      if [ "$row" = joint ]; then
        run=$dir/seed$seed/joint
        echo "train-step $rest_tasks -o $run --run joint" \
          "$(train_words joint "" "$rate" "$seed" $((6 * steps)))"
        measure "$run.ndjson" "eval-retrieval $rest_tasks --checkpoint $run --gallery both"
        continue
      fi
      run_one "$row" "$dir" "$row" "$(method_of "$row")" "$settings" "$rate" "$seed" "$steps" ""
    done
  done
  if [ $# -gt 0 ]; then report "report/$dir"; fi
}

# --- Ablations: NAME|ROW|METHOD|SETTINGS|MORE WORDS. The row gives buffer, rate and, for -, settings.
incclip="incclip --set incclip.count" paper="incclip.tau_old=0.01,incclip.lambda_=5"
fits="incclip.tau_old=X,incclip.lambda_=1"
ablation_table() {
  local row
  for row in ctp ctp+er; do
    echo "$row-all-default|$row|$row|ctp.queue=1024|--negatives all"
  done
  for row in ctp ctp+er lwf er; do echo "$row-all|$row|$row|-|--negatives all"; done
  echo "lwf+er|er|lwf+er|-|" # icarl with a reservoir
  echo "co2l-symmetric|co2l|co2l|-|--set co2l.asymmetric=false"
  for row in ctp ctp+er ema dha si rwalk modx der; do # the defaults
    set -- $(settings_of "$row")
    echo "$row-default|$row|$row|$1|"
  done
  echo "incclip-no-texts|incclip|$incclip=0|-|"
  echo "incclip-learned|incclip|$incclip=4|$paper|--temperature learn:0.07"
  echo "incclip-learned-no-texts|incclip|$incclip=0|$paper|--temperature learn:0.07"
  echo "incclip-learned-0.07|incclip|$incclip=4|${fits/X/0.07}|--temperature learn:0.07"
  echo "incclip-learned-0.07-no-texts|incclip|$incclip=0|${fits/X/0.07}|--temperature learn:0.07"
  echo "incclip-0.02|incclip|$incclip=4|${fits/X/0.02}|--temperature fixed:0.02"
  echo "incclip-0.02-no-texts|incclip|$incclip=0|${fits/X/0.02}|--temperature fixed:0.02"
  echo "incclip-256|incclip|$incclip=16|${fits/X/0.07}|--batch-size 256"
  echo "incclip-256-no-texts|incclip|$incclip=0|${fits/X/0.07}|--batch-size 256"
}

ablate() {
  local name row method settings more rate best count
  while IFS="|" read -r name row method settings more; do
    [ "$ablations" = 1 ] || has "$ablations" "$name" || continue
    has "$methods" "$row" || continue
    read -r rate best <<<"$(chosen "$row" chosen.tsv)"
    [ "$settings" != - ] || settings=$best
    count=$steps
    case $name in incclip-256*) count=$(((steps + 1) / 2)) ;; esac
    for seed in $seeds; do
      run_one "$name" ablations "$row" "$method" "$settings" "$rate" "$seed" "$count" "$more"
    done
  done < <(ablation_table)
  report report/ablations
}

only() { # WORDS: those that --methods has
  local word
  for word in $1; do if has "$methods" "$word"; then echo "$word"; fi; done
}

board_lines() {
  local seed
  for seed in $seeds; do
    if any_of "$methods" "$reservoir_rows" || [ -n "$ablations" ]; then
      reservoirs "$seed" $rest_tasks
    fi
  done
  board memory-free $(only "joint $free")
  board buffered $(only "$buffered")
  if [ -n "$ablations" ]; then ablate; fi
}

reservoir_rows="er ctp+er co2l incclip zscl snd gift"
names=$(ablation_table | cut -d "|" -f 1)
[ "$ablations" = 1 ] || among ablation "$(echo $names)" "$ablations"

if [ -n "$dry_run" ]; then
  chosen_in=$out
  print() { sed 's/^/vlcpctl /; s/  */ /g; s/ $//'; }
  strength_lines | print
  echo "# python leaderboard_choose.py ROWS -o strengths.tsv"
  rate_lines | print
  echo "# python leaderboard_choose.py ROWS -o chosen.tsv"
  board_lines | print
  echo "# python leaderboard_table.py report chosen.tsv > table.md"
  exit
fi

chosen_in=.
source "$recipes/environment.sh"
cd "$here" && mkdir -p "$out" && cd "$out"
strengths=$(strength_lines)
vlcpctl batch --jobs "$jobs" <<<"$strengths"
choose strengths.tsv "$strengths"
others=$(rate_lines)
[ -z "$others" ] || vlcpctl batch --jobs "$jobs" <<<"$others"
choose chosen.tsv "$strengths"$'\n'"$others"
board_lines | vlcpctl batch --jobs "$jobs"
python "$recipes/leaderboard_table.py" report chosen.tsv | tee table.md

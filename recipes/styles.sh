#!/usr/bin/env bash
# Emoji by style: methods are tested on pictures by a vendor that they have never seen in any view,
# under names that they know (make_styles.py says how it is made). Preset tiny with crops and flips.
#
#   1. the choice   one vendor (EmojiOne) is not trained on and validates; of each strength or queue several
#                   values, three seeds; leaderboard_choose.py takes the best mean: chosen.tsv
#   2. the board    all five vendors train, with these settings and other seeds; the last model is tested
#                   on the unseen style, on unseen names, on pictures it was trained on, and on a style
#                   far from all others; styles_table.py makes cells.tsv and table.md from the rows
#
#   bash recipes/styles.sh              STEPS=300 of each task, SEEDS="0 1 2 3 4", CHOOSERS="100 101 102";
#                                       about 5 hours of CPU
#   SAME_COMPUTE=1 bash recipes/styles.sh     also every method with the steps that seqf's CPU time allows
#   bash recipes/styles.sh --dry-run    print every command, run none
#
#   --out DIR          where everything is written [runs/styles]
#   --methods "A B"    some of the rows [all]
#   --packages DIR     where npm's packages are [DIR of --out; downloaded once, 13 MB]
#   --jobs N           commands that run at once [one per core]
#
# joint trains on all tasks at once, for as many steps as a sequence has in total. A buffer holds SIZE=10% of
# the stream. The rows NAME@ctp start from the first model of ctp, to tell its head start from what it
# keeps. lwf+er and ctp+er have the setting that lwf and ctp have chosen; modx has its default, and incclip, without
# negative texts, what the leaderboard has chosen. So have all other methods, which have the first seed only. If it is interrupted, the same command resumes it; with
# more SEEDS it trains what is missing.
set -euo pipefail
recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$recipes/pipeline.sh"
source "$recipes/boards.sh"

options "out methods packages jobs" "$@"
[ -z "$emoji9" ] || fail "it has a stream of its own; STEPS=4 SEEDS=0 CHOOSERS=100 makes it short"
: "${out:=runs/styles}" "${jobs:=$(getconf _NPROCESSORS_ONLN)}"

rows_of_board="joint seqf lwf mas ewc modx ctp er mof lwf+er ctp+er incclip-no-texts"
rows_of_board="$rows_of_board seqf@ctp lwf@ctp er@ctp"
rows_of_one_seed="si rwalk afec geodl ema dha lwf-channels bct gnsp interpolate"
rows_of_one_seed="$rows_of_one_seed icarl lucir der derpp co2l incclip zscl snd gift"
: "${methods:=$rows_of_board $rows_of_one_seed}"
among method "$rows_of_board $rows_of_one_seed" "$methods"
steps=${STEPS:-300} seeds=${SEEDS:-0 1 2 3 4} choosers=${CHOOSERS:-100 101 102} size=${SIZE:-10%} rates=1e-3
augmentation="--crop random --crop-scale 0.6,1 --flip"
names="00-people-and-smileys 01-animals-and-food 02-places-and-activities 03-objects-and-symbols"

tasks() { # STREAM
  printf "$1/%s " $names
}

streams() {
  local stream
  for stream in choose board; do
    echo "split $stream.parquet -o $stream --by column:group --split-column split"
  done
}

settings_of() { # what is tried for a row, the default first; a row with one setting has no choice
  case ${1%@ctp} in
    lwf) echo lwf.strength={1,0.01,0.1,10} ;;
    mas) echo mas.strength={1,0.1,10,100} ;;
    ewc) echo ewc.strength={5000,500,50000} ;;
    ctp) echo ctp.queue={1024,256,0} ;;
    # what the leaderboard has chosen
    incclip | incclip-no-texts) echo incclip.tau_old=0.07,incclip.lambda_=1 ;;
    si) echo si.strength=100 ;;
    rwalk) echo rwalk.strength=10 ;;
    afec) echo afec.strength=50000 ;;
    geodl) echo geodl.strength=1 ;;
    ema) echo ema.decay=0.9 ;;
    dha) echo dha.main_share=0.975,dha.history_share=0.925 ;;
    lwf-channels) echo lwf.strength=0.1 ;;
    interpolate) echo alpha=0.75 ;;
    icarl) echo icarl.strength=0.1 ;;
    lucir) echo lucir.strength=0.1 ;;
    der) echo der.alpha=30 ;;
    derpp) echo derpp.alpha=3 ;;
    co2l) echo co2l.strength=1 ;;
    bct) echo bct.strength=0.1 ;;
    gnsp) echo gnsp.rho=0.9 ;;
    zscl) echo zscl.every=0 ;;
    snd) echo snd.previous=0.9 ;;
    gift) echo gift.strength=1 ;;
    *) echo default ;;
  esac
}

setting_of() { # ROW: after the choice
  local row=${1%@ctp} setting
  row=${row%+er}
  set -- $(settings_of "$row")
  setting=$1
  if [ $# -gt 1 ]; then read -r _ setting <<<"$(chosen "$row" chosen.tsv)"; fi
  echo "${setting#default}"
}

words_for() { # ROW SETTING SEED STEPS
  echo "$(train_words "$(method_of "${1%@ctp}")" "$2" "$rates" "$3" "$4") $augmentation"
}

# --- The choice. Rows that do nothing on a first task start from seqf's first model, which is theirs.
start_of() {
  case $1 in
    ctp) ;;
    mas | ewc) echo "$1" ;;
    *) echo seqf ;;
  esac
}

choice_lines() {
  local seed row start setting dir started all=$(tasks choose)
  for seed in $choosers; do
    started=""
    for row in $methods; do
      set -- $(settings_of "$row")
      [ $# -gt 1 ] && [ "$row" = "${row%@ctp}" ] || continue
      start=$(start_of "$row")
      if [ -n "$start" ] && ! has "$started" "$start"; then
        echo "train-step ${all%% *} -o selection/seed$seed/start-$start" \
          "$(words_for "$start" "" "$seed" "$steps") --run start-$start"
        started="$started $start"
      fi
      for setting in "$@"; do
        dir=selection/seed$seed/$row/$setting
        sequence "$row:$rates:$setting" "$dir" "$(words_for "$row" "$setting" "$seed" "$steps")" "" "" \
          "$seed" "${start:+selection/seed$seed/start-$start}" $all
        echo "eval-retrieval $all --checkpoint $dir/${names##* } --gallery merged --split val -o $dir.ndjson"
      done
    done
  done
}

# --- The board.
measure_all() { # RUN "CHECKPOINTS" LAST
  local split all=$(tasks board)
  echo "eval-retrieval $all $2 --gallery both -o $1.ndjson"
  for split in query gallery val; do
    echo "eval-retrieval $all --checkpoint $3 --gallery merged --split $split -o $1-$split.ndjson"
  done
}

run_one() { # NAME ROW SEED STEPS: NAME as it is shown
  local run=board-runs/seed$3/${1// /-} all=$(tasks board) start="" words made
  made=$all
  words=$(words_for "$2" "$(setting_of "$2")" "$3" "$4")
  if [ "$2" = joint ]; then
    echo "train-step $all -o $run $words --run '$1'"
    measure_all "$run" "--checkpoint $run" "$run"
    return
  fi
  [ "$2" = "${2%@ctp}" ] || start=board-runs/seed$3/ctp/${names%% *}
  sequence "$1" "$run" "$words" "$(policy_of "${2%@ctp}")" "$(share_of "$(setting_of "$2")")" "$3" "$start" $all
  [ -z "$start" ] || made=${all#* } # the first model is ctp's
  measure_all "$run" "$(checkpoints "$run" $made)" "$run/${names##* }"
}

# What a step costs in percent of seqf's (docs/results/benchmarks.md, dual encoder), so that as many
# steps can be given as fit in seqf's CPU time. lwf+er and ctp+er count as lwf and ctp.
cost_of() {
  case $1 in
    ctp | ctp+er) echo 173 ;;
    lwf | lwf+er) echo 133 ;;
    modx | incclip-no-texts) echo 127 ;;
    ewc) echo 121 ;;
    mas) echo 118 ;;
  esac
}

board_lines() {
  local seed row cost
  for seed in $seeds; do
    reservoirs "$seed" $(tasks board)
    for row in $methods; do
      if has "$rows_of_one_seed" "$row" && [ "$seed" != "${seeds%% *}" ]; then continue; fi
      if [ "$row" = joint ]; then
        run_one joint joint "$seed" $((4 * steps))
      else
        run_one "$row" "$row" "$seed" "$steps"
      fi
      cost=$(cost_of "$row")
      if [ -n "${SAME_COMPUTE:-}" ] && [ -n "$cost" ]; then
        run_one "$row same compute" "$row" "$seed" $((100 * steps / cost))
      fi
    done
  done
}

if [ -n "$dry_run" ]; then
  chosen_in=$out
  echo "# python make_styles.py choose.parquet --held-out emojione"
  echo "# python make_styles.py board.parquet"
  { streams; choice_lines; } | sed 's/^/vlcpctl /; s/  */ /g; s/ $//'
  echo "# python leaderboard_choose.py ROWS -o chosen.tsv"
  board_lines | sed 's/^/vlcpctl /; s/  */ /g; s/ $//'
  echo "# python styles_table.py . -o cells.tsv > table.md"
  exit
fi

chosen_in=.
case $packages in "" | /*) ;; *) packages=$here/$packages ;; esac
source "$recipes/environment.sh"
cd "$here" && mkdir -p "$out" && cd "$out"
python "$recipes/make_styles.py" choose.parquet --packages "${packages:-.}" --held-out emojione
python "$recipes/make_styles.py" board.parquet --packages "${packages:-.}"
lines=$(choice_lines)
{ streams; echo "$lines"; } | vlcpctl batch --jobs "$jobs"
[ -z "$lines" ] || choose chosen.tsv "$lines"
board_lines | vlcpctl batch --jobs "$jobs"
python "$recipes/styles_table.py" . -o cells.tsv | tee table.md

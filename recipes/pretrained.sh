#!/usr/bin/env bash
# From a pretrained model: a base trained for long on another emoji set, then the nine groups of
# Emoji-9 in sequence, as the papers start from CLIP. The base sees the same concepts, drawn by
# others and named by others, as CLIP has seen much of the web. Table: docs/results/pretrained.md.
#
#   1. base         BASE_STEPS=3000 steps on Twemoji's pictures (recipes/make_twemoji.py), imported
#                   as a model from elsewhere would be, and measured on Emoji-9 before any training
#   2. selection    two learning rates for each method, one seed, the first three groups; the last
#                   model is measured on the validation split, and chosen.tsv has the better rate
#   3. the runs     all nine groups with that rate, three seeds, measured on the test split; table.md
#                   and report/ (memory-free, buffered, angles) are made from these rows
#
#   bash recipes/pretrained.sh                STEPS=40 of each task, SEEDS="0 1 2"; about 35 minutes
#                                             of two cores, 8 of them for the base, which uses one
#   bash recipes/pretrained.sh --dry-run      print every command, run none
#
#   --out DIR          where everything is written [runs/pretrained]
#   --methods "A B"    some of the rows [all]
#   --tarball FILE     npm's emoji-datasource-twitter-16.0.0.tgz [downloaded once, 62 MB]
#   --pairs FILE       pairs to train the base on instead: Parquet with the columns image, captions
#                      and split (train and test)
#   --model MODEL      start from this model instead of a base: open_clip:NAME,TAG, an epoch_N.pt or
#                      a directory. It learns Emoji-9 with preset update, RATES="1e-5 5e-5", and what it
#                      knew is measured on the test split of --pairs, which may also be a list of
#                      Karpathy's (dataset_coco.json, dataset_flickr30k.json)
#   --images DIR       where the images of such a list are
#   --jobs N           commands that run at once [one per core]
#
# Rows: dha has the paper's shares, dha-strong moves the weights 25 times as far in a step, for tasks
# of 40 steps instead of thousands; -adapt turns the second average off (dynamic=false: the historical
# model stays the previous one). With the first off too (adapt=false), dha is seqf. Both take dha's
# learning rate. interpolate is the mean of the base's weights and those of seqf. A buffer grows to
# SIZE=10% of the stream and has nothing of the base's pictures: on the first task er is seqf, icarl is
# lwf and ctp+er is ctp. RATES="2e-4 5e-4" are tried; preset tiny trains a new model with 1e-3. If it is
# interrupted, the same command resumes it.
set -euo pipefail
recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$recipes/pipeline.sh"

options "out methods tarball pairs model images jobs" "$@"
[ -z "$emoji9" ] || fail "it runs on Emoji-9 always; STEPS=4 SEEDS=0 makes it short"
[ -z "$images" ] || [ -n "$pairs" ] || fail "--images has no effect without --pairs"
[ -z "$tarball" ] || [ -z "$pairs" ] || fail "--tarball has no effect with --pairs: give one of them"
: "${out:=runs/pretrained}" "${jobs:=$(getconf _NPROCESSORS_ONLN)}"

free="seqf lwf ewc geodl ctp modx dha dha-adapt dha-strong dha-strong-adapt interpolate"
buffered="er icarl ctp+er"
: "${methods:=$free $buffered}"
among method "$free $buffered" "$methods"
if has "$methods" interpolate && ! has "$methods" seqf; then fail "interpolate needs seqf"; fi
steps=${STEPS:-40} seeds=${SEEDS:-0 1 2} size=${SIZE:-10%} chooser=100
if [ -n "$model" ]; then
  preset=update pixels=64 rates=${RATES:-1e-5 5e-5}
else
  preset=tiny pixels=32 rates=${RATES:-2e-4 5e-4}
fi
base=base/00-base base_file=base.parquet
case $pairs in *.json) base_file=base.json ;; esac
tasks=$(emoji_tasks stream)
first_tasks=$(echo $tasks | cut -d " " -f 1-3)

method_of() {
  local strong="--set dha.main_share=0.875 --set dha.history_share=0.625"
  case $1 in
    dha-adapt) echo "dha --set dha.dynamic=false" ;;
    dha-strong) echo "dha $strong" ;;
    dha-strong-adapt) echo "dha $strong --set dha.dynamic=false" ;;
    *) echo "$1" ;;
  esac
}

buffer_of() { # ROW SEED
  case $1 in
    icarl) echo "--policy herding --size $size --of stream --seed $2" ;;
    er | ctp+er) echo "--policy reservoir --size $size --of stream --seed $2" ;;
  esac
}

without_buffer() { # ROW: the method of its first task, when there is nothing to replay yet
  case $1 in
    er) echo seqf ;;
    icarl) echo lwf ;;
    ctp+er) method_of ctp ;;
  esac
}

chosen_as() { # ROW: the row whose learning rate it takes
  case $1 in
    dha-*) echo dha ;;
    interpolate) echo seqf ;;
    *) echo "$1" ;;
  esac
}

rate_of() { # ROW: the chosen rate; in a dry run before the choice, the first one
  if [ -f "$chosen_file" ]; then
    awk -F '\t' -v row="$(chosen_as "$1")" '$1 == row { print $2 }' "$chosen_file"
  else
    echo "${rates%% *}"
  fi
}

sequence() { # RUN DIR ROW RATE SEED TASK...
  local train="--preset $preset --steps $steps --lr $4" start=start held="" first=$6
  local run="--run $1 --seed $5" dir=$2 row=$3 memory
  memory=$(buffer_of "$3" "$5")
  shift 5
  if [ -n "$memory" ]; then
    chain "$dir" "$(without_buffer "$row") $run" "" "$first"
    start=$dir/${first##*/} held=$dir/buffer-${first##*/}
    remember "$held" "$first" "$memory" "$start" ""
    shift
  fi
  chain "$dir" "$(method_of "$row") $run" "$memory" "$@"
}

# --- The base, and what it knows of Emoji-9.
base_lines() {
  echo "split $base_file -o base --by all:base --split-column split" \
    "${images:+--image-root '$images'}"
  echo "sample emoji9 -o pairs.parquet --size $pixels --val-views 1"
  echo "split pairs.parquet -o stream --by column:group --split-column split"
  echo "split pairs.parquet -o whole --by all:emoji9 --split-column split"
  if [ -z "$model" ]; then
    echo "train-step $base -o model --method seqf --preset tiny --steps ${BASE_STEPS:-3000}"
  fi
  echo "import-checkpoint ${model:-model} -o start --run base"
  echo "eval-retrieval $tasks $base --checkpoint start -o start.ndjson"
  echo "eval-retrieval whole/00-emoji9 --checkpoint start -o zero-shot.ndjson"
}

# --- The choice of learning rates.
selection_lines() {
  local row rate dir tried="" last=${first_tasks##* }
  base_lines
  for row in $methods; do
    row=$(chosen_as "$row")
    if has "$tried" "$row"; then continue; fi
    tried="$tried $row"
    for rate in $rates; do
      dir=selection/$row/$rate
      sequence "$row:$rate:" "$dir" "$row" "$rate" "$chooser" $first_tasks
      echo "eval-retrieval $first_tasks --checkpoint $dir/${last##*/} --gallery merged --split val" \
        "-o $dir.ndjson"
    done
  done
}

# --- The runs.
train_one() { # DIR ROW SEED
  local run=$1/seed$3/$2 task
  if [ "$2" = interpolate ]; then
    for task in $tasks; do
      echo "merge start $1/seed$3/seqf/${task##*/} -o $run/${task##*/} --run interpolate"
    done
  else
    sequence "$2" "$run" "$2" "$(rate_of "$2")" "$3" $tasks
  fi
  measure "$run.ndjson" "eval-retrieval $tasks $(checkpoints "$run" $tasks) --gallery both"
  task=${tasks% }
  measure "$run-base.ndjson" "eval-retrieval $base --checkpoint $run/${task##*/}"
}

run_lines() {
  local kind row seed
  for kind in memory-free buffered; do
    [ -n "$(rows_of "$kind")" ] || continue
    rows=" start.ndjson"
    for seed in $seeds; do
      for row in $(rows_of "$kind"); do train_one "$kind" "$row" "$seed"; done
    done
    report "report/$kind"
  done
  angle_lines
}

rows_of() { # KIND: those rows of it that --methods has
  local row known=$free
  [ "$1" = memory-free ] || known=$buffered
  for row in $known; do if has "$methods" "$row"; then echo "$row"; fi; done
}

angle_lines() { # on the first group, from the base on, as recipes/angles.sh does
  local seed row split run
  for seed in $seeds; do
    for row in seqf modx; do
      has "$methods" "$row" || continue
      run=memory-free/seed$seed/$row
      for split in test train; do
        measure "$run-angles-$split.ndjson" "spatial-report ${tasks%% *} --split $split" \
          "--checkpoint start $(checkpoints "$run" $tasks)"
      done
    done
  done
  [ -z "$rows" ] || report report/angles
}

if [ -n "$dry_run" ]; then
  chosen_file=$out/chosen.tsv
  print() { sed 's/^/vlcpctl /; s/  */ /g; s/ $//'; }
  [ -n "$pairs" ] || echo "# python make_twemoji.py base.parquet $tarball"
  selection_lines | print
  echo "# python leaderboard_choose.py selection/*/*.ndjson -o chosen.tsv"
  run_lines | print
  echo "# python pretrained_table.py . > table.md"
  exit
fi
chosen_file=chosen.tsv
[ ! -e "$model" ] || model=$(realpath "$model") # open_clip:NAME,TAG is not a path
for name in tarball pairs images; do
  case ${!name} in "" | /*) ;; *) printf -v "$name" %s "$here/${!name}" ;; esac
done
source "$recipes/environment.sh"
cd "$here" && mkdir -p "$out" && cd "$out"
if [ -n "$pairs" ]; then
  [ -f "$pairs" ] || fail "$pairs does not exist"
  ln -sf "$pairs" "$base_file"
else
  python "$recipes/make_twemoji.py" base.parquet $tarball
fi
lines=$(selection_lines)
vlcpctl batch --jobs "$jobs" <<<"$lines"
sed -n 's/^eval-retrieval .* --split val -o //p' <<<"$lines" |
  xargs python "$recipes/leaderboard_choose.py" -o chosen.tsv
run_lines | vlcpctl batch --jobs "$jobs"
python "$recipes/pretrained_table.py" . | tee table.md

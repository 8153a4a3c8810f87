# Sourced by the recipes of tables: their options, the lines of streams, runs and rows, and how lines
# are printed or run. A recipe defines `lines`, which prints command lines without "vlcpctl".

recipe=$(basename "$0")
here=$PWD
rows="" # files of rows since the last report

fail() {
  echo "$recipe: $1" >&2
  exit 2
}

# options "NAMES" "$@": --NAME VALUE sets the variable NAME; --dry-run and --emoji9 become 1.
options() {
  local known=" $1 " name
  shift
  dry_run="" emoji9=""
  for name in $known; do printf -v "$name" %s ""; done
  while [ $# -gt 0 ]; do
    name=${1#--}
    case $1 in
      --dry-run) dry_run=1 ;;
      --emoji9) emoji9=1 ;;
      *)
        case $known in
          *" $name "*) ;;
          *) fail "unknown option '$1'; the first lines of the script list the options" ;;
        esac
        [ $# -gt 1 ] || fail "$1 needs a value"
        printf -v "$name" %s "$2"
        shift
        ;;
    esac
    shift
  done
}

# among KIND "KNOWN" "GIVEN": refuse a word that is not known.
among() {
  local word
  for word in $3; do
    case " $2 " in *" $word "*) ;; *) fail "unknown $1 '$word' (known: $2)" ;; esac
  done
}

has() { # WORDS WORD: whether the word is among them
  case " $1 " in *" $2 "*) ;; *) return 1 ;; esac
}

emoji_groups="smileys-emotion people-body animals-nature food-drink travel-places activities objects"
emoji_groups="$emoji_groups symbols flags"

emoji_tasks() { # STREAM: its task directories, one for each group
  local number=0 name
  for name in $emoji_groups; do
    printf '%s/0%d-%s ' "$1" "$number" "$name"
    number=$((number + 1))
  done
}

emoji_stream() { # STREAM: the lines that make it
  echo "sample emoji9 -o pairs.parquet --size 32"
  echo "split pairs.parquet -o $1 --by column:group --split-column split"
}

# --- Streams. $split holds words for every split.

draw() { # NAME...: in Emoji-9 mode, one stand-in file per data set, each drawn differently
  local name seed=0
  [ -n "$emoji9" ] || return 0
  for name in "$@"; do
    echo "sample emoji9 -o $name.parquet --size 32 --views 2 --seed $seed"
    seed=$((seed + 1))
  done
}

source_of() { # NAME: Karpathy's list, or any files that 'split' reads
  local file
  if [ -n "$emoji9" ]; then
    echo "dataset_$1.parquet"
  else
    file=dataset_$1
    case $1 in
      coco | flickr30k) echo "'$data/$file.json' --image-root '$data/$1'" ;;
      *) echo "'$data/$file'" ;;
    esac
  fi
}

as_split() { # options for the split column of a data set; in Emoji-9 mode also for its classes
  echo "--split-column split ${emoji9:+--label-column subgroup} $split"
}

# aside NAME...: data sets for evaluation or a first task, each as a stream of its own:
# their directories in $outside.
aside() {
  local number=0 name
  outside="" aside=$*
  for name in "$@"; do
    outside="$outside outside/0$number-dataset-$name"
    number=$((number + 1))
  done
}

split_aside() {
  local name sources=""
  for name in $aside; do sources="$sources $(source_of "$name")"; done
  echo "split$sources -o outside --by source $(as_split)"
}

numbered() { # STREAM KIND COUNT: its task directories; up to ten
  local number
  for number in $(seq 0 $(($3 - 1))); do printf '%s/%02d-%s-%d ' "$1" "$number" "$2" "$number"; done
}

# --- Runs. $train holds words for every step, $first those for a step without a checkpoint before
# it; $start is a checkpoint before the first task, and $held a buffer of what that has seen.
start="" held="" first=""

# chain DIR "METHOD WORDS" "BUFFER WORDS" TASK...: one task after another into DIR/TASK, each from
# the checkpoint before; no buffer where its words are empty.
chain() {
  local run=$1 method=$2 memory=$3 from=${start:+--previous $start} buffer=$held past="" task
  shift 3
  for task in "$@"; do
    if [ -n "$memory" ] && [ -n "$past" ]; then
      remember "$run/buffer-${past##*/}" "$past" "$memory" "$run/${past##*/}" "$buffer"
      buffer=$run/buffer-${past##*/}
    fi
    echo "train-step $task -o $run/${task##*/} --method $method $train ${from:-$first}" \
      "${memory:+${buffer:+--buffer $buffer}}"
    from="--previous $run/${task##*/}" past=$task
  done
}

remember() { # OUT TASK "BUFFER WORDS" CHECKPOINT BUFFER: the buffer after a task
  local looks=""
  case $3 in *herding* | *kmeans* | *--store-features*) looks="--checkpoint $4" ;; esac
  echo "buffer $2 -o $1 $3 $looks ${5:+--previous $5}"
}

checkpoints() { # DIR TASK...: what a chain wrote, as options
  local run=$1 task
  shift
  for task in "$@"; do printf -- '--checkpoint %s ' "$run/${task##*/}"; done
}

# --- Rows.

measure() { # FILE COMMAND WORDS...
  echo "${@:2} -o $1"
  rows="$rows $1"
}

tables="" # published tables, as 'vlcpctl forgetting-report --table' names them

report() { # DIR WORDS...; made again if there are more methods or seeds
  local words="" table
  for table in $tables; do words="$words --table $table"; done
  echo "forgetting-report$rows -o $*$words --force"
  rows=""
}

# --- finish NAME...: print or run the lines; the variables named hold paths.
finish() {
  local name
  if [ -n "$dry_run" ]; then
    lines | sed 's/^/vlcpctl /; s/  */ /g; s/ $//'
    exit
  fi
  for name in "$@"; do
    case ${!name} in "" | /*) ;; *) printf -v "$name" %s "$here/${!name}" ;; esac
  done
  source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
  cd "$here" && mkdir -p "$out" && cd "$out"
  [ -n "$jobs" ] || jobs=$([ -z "$emoji9" ] && echo 1 || getconf _NPROCESSORS_ONLN)
  lines | vlcpctl batch --jobs "$jobs"
}

#!/usr/bin/env bash
# Measures what depends on a GPU, and writes all figures into one text file, with the machine, its
# driver and the versions. Without a GPU it says so in one line, and exits with code 3.
#
#   bash recipes/bench/gpu.sh                half an hour on an H100, by estimate; writes gpu.txt
#   bash recipes/bench/gpu.sh --dry-run      print every command, run none
#
# It needs a GPU with 40 GB of memory, 32 GB of main memory and 10 GB of disk; an environment with
# vlcpctl[gpu], pytest and its checkout; and the network once, to make the rival's environment.
# A section that takes longer than 8 minutes is ended.
#
#   --out FILE     [gpu.txt]
#   --python FILE  the Python of an environment with vlcpctl [python]
#   --rival FILE   the Python of an environment with open_clip's trainer, webdataset and pandas
#                  [one that is made in build/]; 'none' leaves the trainer out
#   --only WORD    the sections with this word in their title, such as Retrieval [all]
#   --model NAME   [ViT-B-32]
#   --batch N      [512]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() {
  echo "gpu.sh: $1" >&2
  exit "${2:-2}"
}

has_gpu() {
  "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null
}

out=gpu.txt python=python rival="" only="" model=ViT-B-32 batch=512 dry=""
while [ $# -gt 0 ]; do
  case $1 in
    --dry-run) dry=yes ;;
    --out | --python | --rival | --only | --model | --batch)
      [ $# -gt 1 ] || fail "$1 needs a value"
      printf -v "${1#--}" '%s' "$2"
      shift
      ;;
    *) fail "unknown option $1; see the head of $0" ;;
  esac
  shift
done
if [ -z "$rival$dry" ] && [ -e "$here/open_clip_environment.py" ] && has_gpu; then
  rival=$(cd "$here" && "$python" -c 'import open_clip_environment as o; print(o.trainer_python())')
fi
if [ "$rival" = none ]; then of_rival=(--no-rival); else of_rival=(--rival "${rival:-$python}"); fi

measure() { # TITLE COMMAND...: a section of the file; a command that fails does not end the others
  local title=$1
  shift
  [[ $title == *"$only"* ]] || return 0
  if [ -n "$dry" ]; then
    printf '%q ' "$@"
    echo
    return
  fi
  echo "gpu.sh: $title" >&2
  {
    printf '\n## %s\n$ ' "$title"
    printf '%q ' "$@"
    echo
    timeout 480 "$@" 2>&1 || echo "failed with code $?"
  } >>"$out"
}

if [ -z "$dry" ]; then
  has_gpu || fail "no GPU: torch finds no CUDA device on this machine" 3
  [ ! -e "$out" ] || fail "$out already exists; choose another --out" 4
  date -u '+Measured %Y-%m-%d %H:%M UTC' >"$out"
fi

query=name,driver_version,memory.total,power.limit,clocks.max.sm
measure "The GPUs" nvidia-smi "--query-gpu=$query" --format=csv
measure "The machine" "$python" -m vlcpctl doctor
measure "Versions" "$python" -m pip list
measure "Tests that need a GPU" "$python" -m pytest -q -m gpu "$here/../../tests"
measure "Training, pairs/s" "$python" "$here/gpu_train.py" --model "$model" --batch "$batch" \
  --steps 15 --rounds 1 "${of_rival[@]}"
measure "A step of each method, fp32, $model" "$python" "$here/step.py" --device cuda \
  --models "$model" --batch "$batch" --rounds 5
measure "A step of each method, fp32, albef-base" "$python" "$here/step.py" --device cuda \
  --models albef-base --batch 64 --rounds 5
measure "Precomputed targets" "$python" "$here/targets.py" --device cuda --model "$model" --repeat 2
measure "Retrieval of 10^6 texts and 2 x 10^5 images" "$python" "$here/retrieval.py" \
  --device cuda --images 200000 --captions 5 --dimensions 512 --rounds 3
[ ! -e "$here/loader.py" ] || measure "The loader" "$python" "$here/loader.py"
[ -n "$dry" ] || echo "$out"

#!/usr/bin/env bash
# A method learns a stream of tasks as a chain of Slurm jobs, one per task; then one job evaluates all
# checkpoints on all tasks, and one writes the report.
#
#   bash recipes/slurm/stream.sh STREAM RUN METHOD [TRAIN-STEP OPTION...]
#
# STREAM is a directory made by 'vlcpctl split', RUN the directory of the checkpoints. JOB has the
# options of sbatch for every job, such as JOB="--nodes=2 --gpus-per-node=8 --time=12:00:00"; FIRST
# has options of train-step for the first task alone: FIRST="--model ViT-B-32 --pretrained openai", or
# FIRST="--previous start" for an imported model.
#
# Each job starts when the one before it has ended well; if one fails, the later ones are cancelled.
# The same line submits the chain again: finished checkpoints are kept, an unfinished one is resumed.
# With DRY_RUN=1 the command lines are printed, and nothing is submitted.
set -euo pipefail

if [ $# -lt 3 ]; then
  sed -n '/^#   bash/s/^# *//p' "$0" >&2
  exit 2
fi
stream=$1 run=$2 method=$3
shift 3
train="$(dirname "${BASH_SOURCE[0]}")/train.sbatch"
read -ra job <<<"${JOB:-}"
read -ra previous <<<"${FIRST:-}" # then the checkpoint of the task before
after=()

submit() { # FIRST-WORDS... -- LINE...: submit a job after the previous one
  local options=()
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  shift
  if [ -n "${DRY_RUN:-}" ]; then
    printf 'vlcpctl'
    printf ' %q' "$@"
    printf '\n'
    return
  fi
  local id
  if [ "$1" = train-step ]; then
    id=$(sbatch --parsable "${options[@]}" "${after[@]}" "$train" "${@:2}")
  else
    id=$(sbatch --parsable "${options[@]}" "${after[@]}" --wrap "vlcpctl $(printf ' %q' "$@")")
  fi
  id=${id%%;*} # a cluster's name may follow
  after=("--dependency=afterok:$id" --kill-on-invalid-dep=yes)
  echo "job $id: vlcpctl $*"
}

tasks=() checkpoints=()
for task in "$stream"/[0-9]*/; do
  task=${task%/}
  made=$run/$(basename "$task")
  submit "${job[@]}" -- train-step "$task" -o "$made" --method "$method" "$@" "${previous[@]}"
  previous=(--previous "$made")
  tasks+=("$task")
  checkpoints+=(--checkpoint "$made")
done
submit "${job[@]}" --nodes=1 -- \
  eval-retrieval "${tasks[@]}" "${checkpoints[@]}" -o "$run/retrieval.ndjson"
submit "${job[@]}" --nodes=1 -- forgetting-report "$run/retrieval.ndjson" -o "$run/report"

# Sourced by the four recipes of Mod-X, after pipeline.sh: the evaluations that all of them share.

coco=outside/00-dataset-coco
aside coco flickr30k
clip="ViT-B-32-quickgelu" evaluated="" stand_ins=""

# classified NAME...: data sets with classes, ImageNet last: those of CLIP_benchmark, and with --emoji9
# drawings that stand in for them. Retrieval is measured on the data sets before them.
classified() {
  evaluated=$outside classes="$* --data '$data/benchmarks'"
  [ -n "$emoji9" ] || return 0
  stand_ins=$*
  aside $aside "$@"
  classes=${outside#"$evaluated"}
}

draw_classified() { # small ones, each drawn differently
  local name seed=4
  for name in $stand_ins; do
    echo "sample emoji9 -o dataset_$name.parquet --size 32 --views 1 --limit 90 --seed $seed"
    seed=$((seed + 1))
  done
}

# settings NAME PRESET: the output directory, and the options of every split and train-step.
settings() {
  if [ -n "$emoji9" ]; then
    : "${out:=runs/${1}_emoji9}" "${split:=--take 60}"
    train="--preset tiny --steps 4 --batch-size 32 $train"
  else
    : "${out:=runs/$1}" "${split:=--max-skip 1%}"
    train="--preset $2 --nproc ${nproc:-1} $train"
  fi
  : "${seeds:=0}"
}

retrieval() { # RUN "CHECKPOINTS"
  measure "$1.retrieval.ndjson" "eval-retrieval ${evaluated:-$outside} $2 --duplicates separate"
}

# openai: imports the model of --weights as a checkpoint without tasks, and evaluates it.
openai() {
  if [ -n "$emoji9" ]; then # the stand-in for OpenAI's model is trained on the stand-in for COCO
    echo "train-step $coco -o taught --method seqf $train"
    echo "import-checkpoint taught -o openai --run openai"
  else
    echo "import-checkpoint '$weights' -o openai --model $clip --run openai"
  fi
  retrieval openai "--checkpoint openai"
}

probe() { # RUN "CHECKPOINTS": the authors' linear probe, 100 epochs of ImageNet; see docs/papers/modx_probe.md
  local data_set="imagenet1k --data '$data/benchmarks' --nproc ${nproc:-1}"
  [ -z "$emoji9" ] || data_set="${outside##* } --epochs 5"
  measure "$1.probe.ndjson" "eval-probe $data_set --protocol modx $2"
}

# joint RUN SEED TASK...: everything at once, the upper bound.
joint() {
  local run=$1 seed=$2
  shift 2
  echo "train-step $* -o $run --method joint --run joint --seed $seed $train" \
    "${start:+--previous $start}"
  retrieval "$run" "--checkpoint $run"
}

"""`vlcpctl split`: split image-text pairs into a stream of tasks."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from vlcpctl.commands.shared import Planned, Stored, worker_number
from vlcpctl.core.machine import worker_count
from vlcpctl.core.options import EXECUTION, Auto, option
from vlcpctl.data.splitting.request import CLASSIFIERS, SplitOptions

if TYPE_CHECKING:
    from vlcpctl.data.splitting.labels import Classifier


class Split(SplitOptions, Planned, Stored):
    r"""Split image-text pairs into a stream of tasks.

    Images are copied byte for byte; pairs that cannot be used are counted and reported. With
    --in-place they stay where they are: the tars of a task are symbolic links to those of the
    sources, which must not change or move afterwards.

    With --holdout test=0.1 an image is held out by its own hash, so it is in the same split in
    every task and in every later stream. With test=500 each task holds out the 500 images with the
    lowest hashes: an image may be in test here and in train in another stream, such as next week's.

    --keep-columns stores columns of the sources in the index, as text: for each image the distinct
    values of all rows that became this image, skipped duplicates included. Buffers carry them on.

    --by time:COLUMN takes ISO 8601 of any precision, in UTC unless it has a zone, or numbers of one
    unit; --time-format says how other times are written. Each task's first and last are printed.

    Lists can be the JSON of ALBEF, Karpathy, COCO or P9D, JSON Lines, or text tables with a header.
    Consecutive rows with the same image become one image with several captions. Data sets of
    Hugging Face can be Parquet files, an imagefolder with metadata.jsonl, .csv or .parquet, whose
    images without a row are skipped, or what save_to_disk wrote; class labels of the last are
    named, not numbered.

    In folders and tars, files with the same name form a pair: an image, a .txt with one caption per
    line, a .json. Tars that were joined end to end are read whole. Repeats of a pair and failed
    downloads of img2dataset are skipped, and do not count against --max-skip. Pickles are never
    read.

    --not leaves out pairs, which are counted and recorded: those of a deletion, by key, by image if
    --sha256 selected it, and by the value of a kept column if --where selected it; or those that a
    task or stream has, by key. A copy with other bytes, such as another compression, has another
    key. --not-test-images leaves leaks out: pairs for training with an image that is tested
    elsewhere, whatever their captions; images are compared by the sha256 of their bytes.

    If it is interrupted, the same command starts over. To continue it would have to read and hash
    the pairs again and compare them with what is written, which takes as long.

    Images must be JPEG, PNG or WebP with at most 40 million pixels and 256 MiB, in any colour mode.
    The first frame of an animation is used. EXIF orientation is ignored, as in open_clip.

    --labels-from takes class labels from a column, or from a classifier that predicts them: a timm
    model, or an image-text model with --class-names. --by classes needs labels; so does
    eval-zeroshot, when it evaluates the tasks.

    Examples:
      vlcpctl split pairs.parquet -o stream --by column:group
      vlcpctl split pairs.parquet -o stream --by column:group --only flags,food
      vlcpctl split shards/ -o stream --by iid --tasks 5 \
          --holdout test=0.1,val=0.05
      vlcpctl split /data/cc12m -o stream --by iid --tasks 8 --in-place
      vlcpctl split P9D -o stream --by column:industry_name --split-column split
      vlcpctl split dataset_coco.json -o stream --by iid --tasks 5 \
          --split-column split --image-root coco
      vlcpctl split pairs.jsonl -o stream --by time:date --tasks 12
      vlcpctl split saved_dataset/ -o stream --by column:label \
          --split-column split
      vlcpctl split week1.parquet week2.parquet -o stream --by source
      vlcpctl split week3.parquet -o weeks/03 --by source \
          --keep-columns customer,date --holdout test=500 --holdout-most 10%
      vlcpctl split pairs.parquet -o stream --by time:date --tasks 12 \
          --order reverse
      vlcpctl split shards/ -o stream --by classes --tasks 4 \
          --labels-from timm:resnet50
      vlcpctl split july/ -o july-2026 --by all:july-2026
      vlcpctl split week4.parquet -o weeks/04 --by source --not weeks/03 \
          --not receipts/0001.json
    """

    device: str | None = option(
        "Device of the classifier: auto, cpu, cuda or cuda:N",
        "NAME",
        EXECUTION,
        otherwise="auto",
        goes_with=("labels_from", CLASSIFIERS),
        offers=("auto", "cpu", "cuda"),
    )
    workers: Auto = option(
        "Threads that decode images for the classifier",
        "auto|N",
        EXECUTION,
        otherwise="auto: on a GPU the cores of this process, at most 8; on a CPU 0",
        goes_with=("labels_from", CLASSIFIERS),
        parse=worker_number,
    )

    def execute(self) -> None:
        from vlcpctl.core.console import emit
        from vlcpctl.data.splitting.stream import describe_plan

        plan = partial(describe_plan, self, self.out, force=self.force)
        made = plan() if self.dry_run else self._stream()
        whole = {"path": str(self.out), **made}
        emit(json.dumps(whole, ensure_ascii=False) if self.dry_run or self.json else self.out)

    def _stream(self) -> dict[str, Any]:
        from vlcpctl.data.splitting.plan import labels_of
        from vlcpctl.data.splitting.stream import make_stream

        found, device = labels_of(self), self.device or "auto"
        if found is None or not found.is_classifier:
            return make_stream(self, self.out, force=self.force)

        def load() -> Classifier:
            from vlcpctl.precompute.label_classifiers import classifier_of

            return classifier_of(found, device)

        threads = worker_count(self.workers, device)
        return make_stream(self, self.out, force=self.force, classifier=load, threads=threads)

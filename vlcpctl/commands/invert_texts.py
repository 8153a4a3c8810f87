"""`vlcpctl invert-texts`: generate negative texts from a buffer with the model of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vlcpctl.commands.shared import Computed, Planned, Shared, Stored
from vlcpctl.core.console import emit, say
from vlcpctl.core.options import (
    EXECUTION,
    INPUT,
    METHOD,
    OPTIMIZATION,
    Auto,
    OnePath,
    like,
    option,
    required,
)

if TYPE_CHECKING:
    import numpy as np

    from vlcpctl.data.precomputed.pseudo_texts import PseudoTexts

WHEN = {"before": "_before", "after": ""}  # with the suffix of the columns


class InvertTexts(Planned, Computed, Stored):
    r"""Generate negative texts from a buffer: token embeddings of no real caption (IncCLIP).

    Mixtures of two captions are changed by gradient descent until their similarity to a mini-batch
    of the buffer's images is between --min-score and --max-score. Pass the
    directory to train-step with --pseudo-texts.

    --nproc shares the work between processes of one command. The same command writes the same
    bytes; one that was interrupted starts again.

    Examples:
      vlcpctl invert-texts --checkpoint run/00 --buffer buffer/00 \
          -o pseudo/00 --count 20000
    """

    checkpoint: OnePath = required(
        "Model that computes the similarities, usually the previous checkpoint", "DIR", INPUT
    )
    buffer: OnePath = required("Buffer to take captions and images from", "DIR", INPUT, stored=True)
    count: int = option(
        "Number of texts to generate",
        "N",
        METHOD,
        default=10000,
        within="[1, 1000000000]",
        usual=True,
    )
    images: int = option(
        "Images per mini-batch, and number of texts generated against them",
        "N",
        METHOD,
        default=256,
        within="[1, inf)",
        usual=True,
    )
    iterations: int = option(
        "Iterations of gradient descent per mini-batch",
        "N",
        OPTIMIZATION,
        default=5,
        within="[0, inf)",
    )
    rate: float = option("Learning rate of the gradient descent", "X", OPTIMIZATION, default=0.3)
    min_score: float = option(
        "Lower bound for the similarity of texts and images", "X", METHOD, default=0.0
    )
    max_score: float = option(
        "Upper bound for the similarity of texts and images", "X", METHOD, default=0.4
    )
    batch_size: int = option(
        "Texts to process at once", "N", EXECUTION, default=256, within="[1, inf)"
    )
    workers: Auto = like(Shared, "workers", default=None)

    def execute(self) -> None:
        from vlcpctl.core.batch import InversionSettings
        from vlcpctl.data.precomputed.pseudo_texts import KIND, open_pseudo_texts
        from vlcpctl.distributed.ranks import processes
        from vlcpctl.files.finished import already_made
        from vlcpctl.precompute.compute_options import ComputeOptions
        from vlcpctl.precompute.invert_plan import Inversion

        settings = InversionSettings(
            texts=self.images,
            pairs=self.images,
            iterations=self.iterations,
            rate=self.rate,
            low=self.min_score,
            high=self.max_score,
        )
        plan = Inversion(
            checkpoint=self.checkpoint,
            buffer=self.buffer,
            out=self.out,
            count=self.count,
            asked=settings,
            seed=self.seed,
        )
        compute = ComputeOptions(
            batch_size=self.batch_size,
            device=self.device,
            workers=self.workers,
            threads=self.threads,
            nproc=processes(self.nproc),
        )
        if already_made(self.out, KIND, plan.identity, force=self.force):
            say(f"invert-texts: {self.out} is already finished")
        else:
            say(f"invert-texts: {plan}, {compute}")
            if self.dry_run:
                return
            from vlcpctl.precompute.invert_texts import invert_texts

            invert_texts(plan, compute)
        found = open_pseudo_texts(self.out)
        for line in _histogram(found):
            say(line)
        emit(_result(found) if self.json else self.out)


def _histogram(texts: PseudoTexts) -> Iterator[str]:
    """Histograms of the texts' mean similarity to their images, before and after inversion."""
    low, high = (texts.identity["inversion"][name] for name in ("low", "high"))
    similarities = {when: texts.column(f"similarity{ending}") for when, ending in WHEN.items()}
    least = min(float(values.min()) for values in similarities.values())
    most = max(float(values.max()) for values in similarities.values())
    for when, values in similarities.items():
        within = int(((values >= low) & (values <= high)).sum())
        share = 100 * float(texts.column(f"within{WHEN[when]}").mean())
        yield (
            f"{when:6} {least:5.2f} |{_bins(values, least, most)}| {most:.2f}  {within} "
            f"of {len(texts)} texts and {share:.1f} % of all similarities in [{low}, {high}]"
        )


def _bins(values: np.ndarray, low: float, high: float) -> str:
    """A histogram of values from `low` to `high`, a character per bin, darker where fuller."""
    import numpy as np

    counts, _ = np.histogram(values, 40, (low, high))
    shades = " .:-=+*#%@"
    return "".join(shades[-(-count * 9 // max(1, counts.max()))] for count in counts)


def _result(texts: PseudoTexts) -> str:
    from vlcpctl.data.precomputed.pseudo_texts import SCORES

    fields = {name: texts.manifest[name] for name in ("content", "length", "width")}
    scores = {name: float(texts.column(name).mean()) for name in SCORES}
    return json.dumps({"path": str(texts.path), "count": len(texts), **fields, **scores})

"""The sweep of a linear probe over 8 strengths, against scikit-learn at equal loss.

python recipes/bench/probe.py [--images 2000 --dimensions 512 --classes 100]

Both fit the same features at strengths 0.1, 0.01, ... 1e-8. scikit-learn runs with three
tolerances, and the excess loss over the minimum says which is at equal loss. Ours is fitted as
eval-probe does while it chooses the strength, each started from the last, but without its early
stop; and as for the probe that it evaluates.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from statistics import median

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from turns import in_turns, ratios, show

from vlcpctl.core.console import emit
from vlcpctl.evaluation.classification.linear_probe import (
    LOOSE,
    STRENGTHS,
    TIGHT,
    LabelledFeatures,
    Probe,
    fitted,
)

TOLERANCES = (1e-4, 1e-6, 1e-8)  # of scikit-learn; the first is its default
NOISE = 3.0
Sweep = Callable[[], list[Probe]]


def main() -> None:
    """Print the excess loss of every sweep, then its CPU time beside that of the rivals."""
    args = _arguments()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    data = _features(args)
    least = [loss(fitted(data, one, None, 1e-10), data, one) for one in STRENGTHS]
    sweeps: dict[str, Sweep] = {
        "vlcpctl, to choose": lambda: ours(data, LOOSE),
        "vlcpctl, as the last fit": lambda: ours(data, TIGHT),
        **{f"scikit-learn, tol {tol:g}": _theirs(data, tol) for tol in TOLERANCES},
    }
    for name, sweep in sweeps.items():
        excess = [
            loss(probe, data, strength) - low
            for probe, strength, low in zip(sweep(), STRENGTHS, least, strict=True)
        ]
        shown = " ".join(f"{max(one, 0):.0e}" for one in excess)
        emit(f"{name:26} mean excess loss {np.mean(excess):.1e}; by strength {shown}")
    found = in_turns(sweeps, rounds=args.rounds, warm_up=0)
    show(found, f"scikit-learn, tol {TOLERANCES[1]:g}")
    last, tightest = "vlcpctl, as the last fit", f"scikit-learn, tol {TOLERANCES[2]:g}"
    ratio = median(ratios(found[last].cpu, found[tightest].cpu))
    emit(f"{last} / {tightest}: {ratio:.2f} in CPU time")


def ours(data: LabelledFeatures, tolerance: float) -> list[Probe]:
    """The probes of all strengths, each started from the last."""
    found: list[Probe] = []
    for strength in STRENGTHS:
        found.append(fitted(data, strength, found[-1] if found else None, tolerance))
    return found


def _theirs(data: LabelledFeatures, tolerance: float) -> Sweep:
    features, labels = data.feature_ND.numpy(), data.label_N.numpy()

    def sweep() -> list[Probe]:
        found = []
        for strength in STRENGTHS:
            how = 1 / (strength * len(labels))
            model = LogisticRegression(C=how, tol=tolerance, max_iter=10_000).fit(features, labels)
            weights = (model.coef_, model.intercept_)
            found.append(Probe(*(torch.tensor(one, dtype=torch.float64) for one in weights)))
        return found

    return sweep


def loss(probe: Probe, data: LabelledFeatures, strength: float) -> float:
    """The loss of a probe in double precision."""
    logits = probe.logits(data.feature_ND)
    mean = torch.nn.functional.cross_entropy(logits, data.label_N)
    return float(mean + strength / 2 * probe.weight_CD.square().sum())


def _features(args: argparse.Namespace) -> LabelledFeatures:
    random = np.random.default_rng(0)
    labels = random.integers(0, args.classes, args.images)
    centres = random.standard_normal((args.classes, args.dimensions))
    vectors = centres[labels] + NOISE * random.standard_normal((args.images, args.dimensions))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    features = torch.from_numpy(vectors.astype(np.float32))
    return LabelledFeatures(features, torch.from_numpy(labels), args.classes)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--dimensions", type=int, default=512)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""The first sentence of a page: which run ends highest, and how much of its learning each lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from vlcpctl.report.report import Document
from vlcpctl.report.scores import GROUPS, Run, Spread, Track, over_seeds
from vlcpctl.report.table import fixed

_MOST_NAMED = 4  # of more runs, the highest and the lowest are named


def opening_sentence(document: Document, track: Track) -> str:
    """Final scores and losses of the runs that learn in sequence; empty without such a run.

    A loss is beside what was learned, since a run that learns little has little to forget. The
    highest score is not said to be better: the tables tell by their bold numbers.
    """
    chains = [run for run in track.runs if run.steps and not run.final_only]
    gallery = _gallery(chains)
    key = document.key(track)
    finals = dict(_ranked(chains, key, f"{gallery}_final")) if gallery else {}
    if not finals:
        return ""
    by_name = {run.name: run for run in chains}
    names = list(finals) if len(finals) <= _MOST_NAMED else [*list(finals)[:2], [*finals][-1]]
    bounds = [run for run in track.runs if run.group == GROUPS[0] and run not in chains]
    above = _ranked(bounds, key, f"{gallery}_final")
    where = "the merged gallery" if gallery == "merged" else "the tasks' own galleries"
    is_ = "is highest for" if len(finals) > 1 else "is"
    first = f"{names[0]}, {fixed(finals[names[0]])}" if len(finals) > 1 else _scores(finals, names)
    others = f" ({_scores(finals, names[1:])})" if len(names) > 1 else ""
    against = f", against {_scores(dict(above), [name for name, _ in above])}" if above else ""
    lost = _lost([by_name[name] for name in names], key)
    return f"After {_tasks(chains)}, {key} on {where} {is_} {first}{others}{against}{lost}."


def _scores(finals: Mapping[str, float], names: Sequence[str]) -> str:
    return ", ".join(f"{fixed(finals[name])} for {name}" for name in names)


def _lost(runs: Iterable[Run], key: str) -> str:
    """What each run lost on earlier tasks, of what it had learned."""
    parts = []
    for run in runs:
        learned, change = _earlier_when_learned(run, key), run.summary(key, "bwt_gem")
        if learned is not None and change is not None:
            word = "lost" if change.mean <= 0 else "gained"
            of = "of" if change.mean <= 0 else "on"
            points = fixed(abs(change.mean))
            parts.append(f"{run.name} {word} {points} {of} {fixed(learned.mean)}")
    if not parts:
        return ""
    return f"; on earlier tasks, since each was just learned, {', '.join(parts)}"


def _earlier_when_learned(run: Run, key: str) -> Spread | None:
    """The mean score of the tasks before the last, each just after it was learned."""
    earlier = run.counted[:-1]
    own = run.own.get(key)
    if own is None or not earlier:
        return None
    return over_seeds(float(np.mean(seed[1:][earlier, earlier])) for seed in own)


def _gallery(runs: Sequence[Run]) -> str | None:
    """The gallery of the sentence's scores: merged, or else own."""
    for gallery in ("merged", "own"):
        if any(gallery in run.galleries for run in runs):
            return gallery
    return None


def _ranked(runs: Sequence[Run], key: str, name: str) -> list[tuple[str, float]]:
    found = ((run.name, run.summary(key, name)) for run in runs)
    return sorted(
        ((run, spread.mean) for run, spread in found if spread is not None),
        key=lambda one: -one[1],
    )


def _tasks(runs: Sequence[Run]) -> str:
    most = max(run.steps for run in runs)
    count = f"{most} tasks" if most > 1 else "one task"
    return count if len({run.steps for run in runs}) == 1 else f"up to {count}"

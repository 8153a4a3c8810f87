"""The names that papers print for keys of metrics, such as R@1 for i2t_r1."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vlcpctl.metrics.calibration import METRICS

# The name of a summary, and in a few words what it is.
_SUMMARIES = {
    "own_learned": ("Learned", ""),
    "own_final": ("Final", ""),
    "merged_final": ("Final", ""),
    "bwt_gem": ("BWT", "as in GEM"),
    "bwt_incclip": ("BWT (IncCLIP)", "mean over the steps"),
    "bwt_ctp": ("BWT (CTP)", "loss on the galleries so far"),
    "forgetting_max": ("Forgetting", "from the highest score (Chaudhry et al.)"),
    "fr_dha": ("FR", "percent of what was learned (DHA)"),
    "fwt_gem": ("FWT", "before learning, against the start (GEM)"),
    "transfer_zscl": ("Transfer", "before learning (ZSCL)"),
    "avg_zscl": ("Avg.", "over steps and tasks (ZSCL)"),
    "last_zscl": ("Last", "as Final (ZSCL)"),
    "ka_fomo": ("KA", "knowledge accumulation (FoMo-in-Flux)"),
    "zs_fomo": ("ZS", "zero-shot retention (FoMo-in-Flux)"),
    "mean_per_class_recall": ("Mean per class", ""),
    "pair_recall": ("Pair recall", ""),
    "pair_precision": ("Pair precision", ""),
    "pair_calibration": ("Pair calibration", ""),
    "rm": ("R@mean", "mean of R@1, R@5 and R@10"),
    "change": ("Change", "against the start"),
}
_KEY = re.compile(r"(?:(i2t|t2i)_)?(rmean|r(?=\d)|acc(?=\d)|top(?=\d)|map_(?=\d))(\d*)")
_STEMS = {"rmean": "R@mean", "r": "R@", "acc": "Top-", "top": "Top-", "map_": "mAP@"}
_KEY_WORD = re.compile(rf"\b(?:{_KEY.pattern}|rm|mean_per_class_recall|{'|'.join(METRICS)})\b")


def paper_name(key: str) -> tuple[str, str] | None:
    """(direction or "", name) of a key of a metric or of a summary; None for any other word.

    >>> paper_name("i2t_r1"), paper_name("rm"), paper_name("fr_dha"), paper_name("run")
    (('i2t', 'R@1'), ('both', 'R@mean'), ('', 'FR'), None)
    """
    if key in _SUMMARIES:
        return "both" if key == "rm" else "", _SUMMARIES[key][0]
    match = _KEY.fullmatch(key)
    return match and (match[1] or "", f"{_STEMS[match[2]]}{match[3]}")


def meanings(keys: Iterable[str]) -> str:
    """What the names of these keys stand for, on one line.

    >>> meanings(["run", "own_final", "bwt_gem", "fr_dha"])
    'BWT: as in GEM; FR: percent of what was learned (DHA)'
    """
    known = (_SUMMARIES[key] for key in keys if key in _SUMMARIES)
    return "; ".join(f"{name}: {meaning}" for name, meaning in known if meaning)


def on_one_line(key: str) -> str:
    """The name with its direction, or the word itself.

    >>> on_one_line("i2t_r1"), on_one_line("rm"), on_one_line("run")
    ('i2t R@1', 'R@mean', 'run')
    """
    way, name = paper_name(key) or ("", key)
    return f"{way} {name}" if way in {"i2t", "t2i"} else name


def with_paper_names(text: str) -> str:
    """The text with every key of a metric replaced by its name.

    >>> with_paper_names("Forgetting in rm, own galleries")
    'Forgetting in R@mean, own galleries'
    """
    return _KEY_WORD.sub(lambda word: on_one_line(word[0]), text)

"""The card of a model: a README.md with the header that the Hugging Face hub reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import vlcpctl
from vlcpctl.checkpoints.manifest import CheckpointManifest
from vlcpctl.checkpoints.model_facts import shown, shown_settings
from vlcpctl.core.words import as_markdown, counted
from vlcpctl.data.tasks.task import Task
from vlcpctl.export.data_card import LICENSES, front_matter, table
from vlcpctl.files.rows import Row
from vlcpctl.methods import TABLE

_LOAD = """```python
import open_clip

name = "local-dir:PATH"  # this directory; or "hf-hub:USER/NAME" once it is on the hub
model, _, preprocess = open_clip.create_model_and_transforms(name)
tokenizer = open_clip.get_tokenizer(name)
model.eval()
```"""

_ONNX = """`image.onnx` and `text.onnx` are the two towers; onnxruntime and numpy run them:

```python
import onnxruntime

image_tower = onnxruntime.InferenceSession("PATH/image.onnx")  # this directory
text_tower = onnxruntime.InferenceSession("PATH/text.onnx")
(image,) = image_tower.run(None, {"image": pixels})  # (B, 3, H, W) float32, normalised
(text,) = text_tower.run(None, {"text": ids})  # (B, L) int64
similarity = image @ text.T  # both have unit length
```

`open_clip_config.json` says how images are prepared (`preprocess_cfg`).
`open_clip.get_tokenizer("local-dir:PATH")` makes the ids; where there is a `tokenizer.json`, the
package tokenizers does, too."""

_TO_FILL_IN = (
    "To fill in: the name of the model, what it is meant for, its limits, the licences of its "
    "data, and its own licence (`license` in the header above; the names are listed at "
    f"{LICENSES})."
)


@dataclass(frozen=True)
class Facts:
    """What the card is made from; `tasks` are those whose numbers of pairs are known.

    `weights` is the number of weights of the model.
    """

    made: CheckpointManifest
    model: Mapping[str, Any]
    tasks: Sequence[Task] = ()
    rows: Sequence[Row] = ()
    weights: int | None = None
    is_onnx: bool = False


def model_card(facts: Facts) -> str:
    """The text of the card: method, settings, data, results, and how to load the model."""
    made = facts.made
    header: dict[str, Any] = {
        "license": "unknown",
        "library_name": "onnxruntime" if facts.is_onnx else "open_clip",
        "pipeline_tag": "zero-shot-image-classification",
        "tags": ["clip", "continual-learning", "vlcpctl"],
    }
    sections = [
        front_matter(header),
        f"# {as_markdown(made.run)}\n\n{_summary(made)}",
        _TO_FILL_IN,
        f"## How to load it\n\n{_ONNX if facts.is_onnx else _LOAD}",
        f"## Model\n\n{table(('', ''), _model_rows(facts))}",
        f"## Training data\n\n{_data(facts)}",
        *(f"## Settings\n\n{rows}" for rows in _settings(made)),
        *(f"## Results\n\n{text}" for text in _results(facts.rows)),
    ]
    return "\n\n".join(sections) + "\n"


def _summary(made: CheckpointManifest) -> str:
    seen = counted(len(made.tasks), "task")
    if made.alpha is not None:
        what = f"The average of two checkpoints, with weight {made.alpha:g} of the second; {seen}."
    elif made.parents is not None:
        what = (
            f"Merged from {counted(len(made.parents), 'checkpoint')} by the rule "
            f"{as_markdown(made.method.removeprefix('merge-'))}; {seen}."
        )
    elif made.origin is not None:
        what = "Weights that another program trained, imported into vlcpctl."
    else:
        method, titles = as_markdown(made.method), as_markdown(_titles(made.method))
        what = f"Trained with the method {method} ({titles}) on {seen}."
    return f"{what} Exported by vlcpctl {vlcpctl.__version__}, without the state of training."


def _titles(method: str) -> str:
    """The titles of the methods in a name such as ctp+er; the name itself if one is not known."""
    return "; ".join(TABLE[name].title if name in TABLE else name for name in method.split("+"))


def _model_rows(facts: Facts) -> Iterator[tuple[str, Any]]:
    made, model = facts.made, facts.model
    yield "architecture", shown(model)
    if facts.weights is not None:
        yield "weights", f"{facts.weights:,}"
    if model.get("pretrained"):
        yield "first weights", shown(model, "pretrained")
    yield "image size", f"{model['image_size']} pixels"
    yield "text length", f"{model['text_length']} tokens"
    yield "temperature", model["temperature"]
    yield "checkpoint id", made.content
    parents = made.parents or [one for one in (made.parent,) if one]
    if parents:
        yield "previous checkpoint", ", ".join(parents)
    if made.origin is not None:
        yield "imported file", f"{made.origin['name']}, sha256 {made.origin['sha256']}"
    yield "seed", made.seed


def _data(facts: Facts) -> str:
    made = facts.made
    if not made.tasks:
        return "No task of vlcpctl."
    rows = [
        (name, task, _pairs(task, facts.tasks))
        for name, task in zip(made.task_names, made.tasks, strict=True)
    ]
    text = table(("task", "data id", "training images"), rows)
    if made.pairs:
        text += f"\n\nThe last task was trained on {made.pairs} pairs, repeated epochs included."
    if made.buffer:
        described = ", ".join(f"{name} {value}" for name, value in made.buffer.items())
        text += f"\n\nReplay buffer: {as_markdown(described)}."
    return text


def _pairs(content: str, tasks: Sequence[Task]) -> str:
    found = next((task for task in tasks if content in task.ids), None)
    return "not given" if found is None else str(found.counts.get("train", 0))


def _settings(made: CheckpointManifest) -> Iterator[str]:
    """The settings and hyper-parameters of the last train-step, and where they are from."""
    settings, hyper = made.identity.get("settings"), made.identity.get("hyper")
    if not isinstance(settings, dict):
        return
    rows = [
        (f"{method}.{name}", json.dumps(value), "")
        for method, values in (hyper or {}).items()
        for name, value in values.items()
    ]
    rows += [
        (name, json.dumps(value), made.origins.get(name, ""))
        for name, value in (settings | shown_settings(made.model or {})).items()
        if value is not None
    ]
    yield table(("setting", "value", "from"), rows)


def _results(rows: Sequence[Row]) -> Iterator[str]:
    """A table of each kind of evaluation: a line for each task, a column for each metric."""
    kinds = dict.fromkeys((row.evaluator, row.protocol, row.gallery) for row in rows)
    for kind in kinds:
        own = [row for row in rows if (row.evaluator, row.protocol, row.gallery) == kind]
        names = list(dict.fromkeys(name for row in own for name in row.metrics))
        body = [
            (_evaluated(row), row.split, *(_number(row.metrics.get(name)) for name in names))
            for row in own
        ]
        evaluator, protocol, gallery = kind
        unit = "" if evaluator == "spatial" else ", in percent"
        title = f"{evaluator} ({protocol}, gallery {gallery}){unit}"
        yield f"{as_markdown(title)}\n\n{table(('task', 'split', *names), body)}"


def _evaluated(row: Row) -> str:
    """The evaluated data; wrong answers from elsewhere make a score another one."""
    more = row.n_distractor_images
    return row.task if more is None else f"{row.task}, {more} images added"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"

"""The paths of a command line: where outputs may go, and where inputs are read."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from vlcpctl.core import console
from vlcpctl.core.errors import BadInput, UsageError, missing
from vlcpctl.core.words import printable
from vlcpctl.files.stores import protocol_of

# The parameters of commands that name what they write.
OUTPUTS = frozenset(
    {"out", "save_embeddings", "save_ranks", "timings", "junit", "csv", "latex", "figures"}
)
_TEXTS = frozenset({"sources", "rows", "data_sets"})  # inputs that are paths, names or -
TEXTS = _TEXTS | {"image_root", "model", "pretrained"}  # every text that may be a path
# Texts that may be or contain a path, such as checkpoint:DIR, beside those.
_WITH_PATHS = frozenset(
    {
        "baseline",
        "buffer_from",
        "distractors",
        "guard",
        "guard_classes",
        "init",
        "labels_from",
        "log",
        "method_file",
        "not_test_images",
        "reference",
        "tables",
    }
)
# The inputs of each command that may be in an object store: sources, tasks and sets of classes.
STORED = {
    "split": ("sources", "image_root", "not_test_images"),
    "train-step": ("tasks", "buffer", "reference"),
    "buffer": ("task",),
    "distill": ("tasks", "buffer"),
    "invert-texts": ("buffer",),
    "merge": ("batch_norm_from",),
    "eval-retrieval": ("tasks", "distractors"),
    "eval-zeroshot": ("data_sets", "data"),
    "eval-probe": ("data_sets", "data"),
    "spatial-report": ("tasks",),
    "update": (
        *("sources", "image_root", "buffer_from", "guard", "guard_classes", "data"),
        *("distractors", "reference"),
    ),
    "export": ("sources",),
}
_NONE = "none"  # takes what a state has recorded back to the default
_URL = re.compile(r"(?:^|(?<=[=,:]))[A-Za-z][A-Za-z0-9+.-]*:/{2}.*", re.DOTALL)


def is_path(parameter: str, kind: Any) -> bool:
    """Whether values of a parameter, of this Python type, may be or contain paths."""
    return kind is Path or parameter in TEXTS | _WITH_PATHS


def require_paths(*paths: Path | None) -> None:
    """Raise BadInput if a given path does not exist, before torch is imported, which takes 2 s."""
    for path in paths:
        if path is not None and not path.exists():
            raise BadInput(missing(path))


def refuse_url(text: str, command: str) -> None:
    """Raise ValueError for text such as s3://bucket/run where a local path is meant.

    Call it before the text becomes a Path, which turns // into /.
    """
    url = _URL.search(text)
    if url:
        limit = "data from object stores, but nothing else"
        if command not in STORED:
            limit = "nothing from object stores"
        raise ValueError(
            f"'{printable(url[0])}' is a URL, not a local path; {command} reads {limit}: use a "
            "local copy, or mount the store"
        )


def may_be_stored(command: str, parameter: str, text: str) -> bool:
    """Whether a text is the URL of an object store, where a command may have this input."""
    return parameter in STORED.get(command, ()) and protocol_of(text) is not None


def _with_stored(*, cache: Path | None, **arguments: Any) -> dict[str, Any]:
    """The arguments with a local path for each URL of an object store, whose objects are listed.

    A state of `update` has recorded the cache that it uses: those of the command then have the one
    to record, if any. Raises UsageError and BadInput as `stores.use_cache` and `stored` do, and
    BadInput for a checkpoint in a store.
    """
    from vlcpctl.files.stores import use_cache

    names = {name for inputs in STORED.values() for name in inputs} & arguments.keys()
    values = {name: _as_list(arguments[name]) for name in names}
    has_urls = any(_url_of(value) for several in values.values() for value in several)
    recorded = _recorded_cache(arguments["state"]) if "state" in arguments else None
    if not has_urls and recorded is None:
        if cache is not None:
            console.warn("--cache has no effect: no input is in an object store")
        return arguments
    if arguments.get("in_place"):
        raise UsageError(
            "--in-place makes links to tars, which those in an object store cannot have; leave it "
            "out, or use a local copy"
        )
    if str(cache) == _NONE:
        cache = _user_cache()
    used = use_cache(cache or recorded or _user_cache())
    for name, several in values.items():
        local = [type(one)(_listed(url)) if (url := _url_of(one)) else one for one in several]
        arguments[name] = local if isinstance(arguments[name], list) else local[0]
    if "state" in arguments:
        changes = has_urls or cache is not None
        return {**arguments, "cache": used if changes else None}
    return arguments


def _listed(url: str) -> Path:
    """Where what is at a URL can be read. Raises BadInput for a checkpoint, and as `stored`."""
    from vlcpctl.files.manifest import kind_of
    from vlcpctl.files.stores import stored

    path = stored(url)
    if kind_of(path) == "checkpoint":
        raise BadInput(f"{url} is a checkpoint, which must be local; download its directory")
    return path


def _recorded_cache(state: Path) -> Path | None:
    """The cache that a state of `update` has recorded, if any."""
    from vlcpctl.production.layout import Layout
    from vlcpctl.production.state import read_state

    place = Layout(state)
    settings = read_state(place).settings if place.state.is_file() else None
    return Path(settings.cache) if settings is not None and settings.cache else None


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _url_of(value: Any) -> str | None:
    """The URL of an object store that was given, of which Path has turned // into /."""
    text = str(value)
    if isinstance(value, Path):
        text = re.sub("^([A-Za-z0-9]+):/", r"\1://", text)
    return text if isinstance(value, str | Path) and protocol_of(text) else None


def _user_cache() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return cache / "vlcpctl" / "objects"


def checked_paths(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a command, once its outputs are found to replace none of its inputs.

    A swap of an output that was killed half-way is completed, unless nothing is to be written; an
    input whose swap was killed is read where the complete new one waits. Raises UsageError for an
    output that is or contains an input, the current directory or the home directory.
    """
    from vlcpctl.files.outputs import check_output_path, is_pipe_or_device, read_path

    if "cache" in arguments:
        arguments = _with_stored(**arguments)
    if OUTPUTS & arguments.keys():
        for value in arguments.values():
            _refuse_undecodable(value)
    inputs = [path for name, value in arguments.items() for path in _inputs(name, value)]
    for name in OUTPUTS & arguments.keys():
        out = arguments[name]
        if out is not None and out != Path("-") and not is_pipe_or_device(out):
            check_output_path(out, inputs)
            if not arguments.get("dry_run"):
                read_path(out)
    return {
        name: value if name in OUTPUTS else _each(read_path, value)
        for name, value in arguments.items()
    }


def _refuse_undecodable(value: Any) -> None:
    """Refuse words that are not UTF-8 before the work starts, not when its result is written."""
    for one in value if isinstance(value, list | tuple) else [value]:
        if isinstance(one, str | Path) and re.search("[\ud800-\udfff]", str(one)):
            raise UsageError(
                f"'{printable(one)}' is not UTF-8: neither a manifest nor a row can store it; "
                "use another name"
            )


def _inputs(name: str, value: Any) -> list[Path]:
    """The paths that an option or argument reads."""
    if name in OUTPUTS:
        return []
    values = value if isinstance(value, list | tuple) else [value]
    return [Path(one) for one in values if isinstance(one, Path) or (name in _TEXTS and one)]


def _each(change: Any, value: Any) -> Any:
    """A path changed, or each path of a list; anything else as it is."""
    if isinstance(value, list):
        return [_each(change, one) for one in value]
    return change(value) if isinstance(value, Path) else value

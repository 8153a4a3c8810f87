"""The paths of a request: where outputs may go, and where inputs are read."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from vlcpctl.core import console
from vlcpctl.core.errors import BadInput, UsageError, missing
from vlcpctl.core.options import NONE, Command, options_of
from vlcpctl.core.words import printable

STDOUT = Path("-")
_URL = re.compile(r"(?:^|(?<=[=,:]))[A-Za-z][A-Za-z0-9+.-]*:/{2}.*", re.DOTALL)


def require_paths(*paths: Path | None) -> None:
    """Raise BadInput if a given path does not exist, before torch is imported, which takes 2 s."""
    for path in paths:
        if path is not None and not path.exists():
            raise BadInput(missing(path))


def refuse_url(text: str, *, is_stored: bool = False) -> None:
    """Raise ValueError for text such as s3://bucket/run where a local path is meant.

    Call it before the text becomes a Path, which turns // into /.
    """
    url = _URL.search(text)
    if url and not (is_stored and _protocol_of(text)):
        raise ValueError(
            f"'{printable(url[0])}' is a URL, not a local path: use a local copy or mount the store"
        )


def outputs_of(request: Command) -> list[Path]:
    """The paths that a request writes."""
    found = options_of(type(request)).items()
    paths = [getattr(request, name) for name, (row, _) in found if row.writes]
    return [path for path in paths if path not in (None, STDOUT)]


def checked_paths(request: Command) -> Command:
    """The request, once its outputs are found to replace none of its inputs.

    A swap of an output that was killed half-way is completed, unless nothing is to be written; an
    input whose swap was killed is read where the complete new one waits. Raises UsageError for an
    output that is or contains an input, the current directory or the home directory.
    """
    from vlcpctl.files.outputs import check_output_path, is_pipe_or_device, read_path

    if hasattr(request, "cache"):
        request = _with_stored(request)
    found = options_of(type(request)).items()
    if any(row.writes for _, (row, _) in found):
        for value in vars(request).values():
            _refuse_undecodable(value)
    read = {name: kind for name, (row, kind) in found if not row.writes}
    inputs = [path for name in read for path in _inputs(request, name)]
    for out in outputs_of(request):
        if not is_pipe_or_device(out):
            check_output_path(out, inputs)
            if not getattr(request, "dry_run", False):
                read_path(out)
    paths = [name for name, kind in read.items() if kind in (Path, list[Path])]
    values = {name: _each(_readable, getattr(request, name)) for name in paths}
    return type(request).made_of(vars(request) | values)


def _readable(one: Any) -> Any:
    from vlcpctl.files.outputs import read_path

    return read_path(one) if isinstance(one, Path) else one  # update also takes "none"


def _inputs(request: Command, name: str) -> list[Path]:
    """The paths that an option or argument reads."""
    row, _ = options_of(type(request))[name]
    is_source = row.is_argument and row.takes_path  # which may be text
    values = _listed(getattr(request, name))
    return [Path(one) for one in values if isinstance(one, Path) or (is_source and one)]


def _with_stored(request: Command) -> Command:
    """The request with a local path for each URL of an object store, whose objects are listed.

    A state of `update` has recorded the cache that it uses: the request then has the one to record,
    if any. Raises UsageError and BadInput as `stores.use_cache` and `stored` do, and BadInput
    for a checkpoint in a store.
    """
    from vlcpctl.files.stores import use_cache

    given = vars(request)
    names = [name for name, (row, _) in options_of(type(request)).items() if row.stored]
    has_urls = any(_url_of(one) for name in names for one in _listed(given[name]))
    recorded = _recorded_cache(given["state"]) if "state" in given else None
    cache = given["cache"]
    if not has_urls and recorded is None:
        if cache is not None:
            console.warn("--cache has no effect: no input is in an object store")
        return request
    if given.get("in_place"):
        raise UsageError(
            "--in-place makes links to tars, which those in an object store cannot have; leave it "
            "out, or use a local copy"
        )
    cache = _user_cache() if str(cache) == NONE else cache
    used = use_cache(cache or recorded or _user_cache())
    values = {name: _each(_local, given[name]) for name in names}
    if "state" in given:
        values["cache"] = used if has_urls or cache is not None else None
    return type(request).made_of(given | values)


def _local(one: Any) -> Any:
    """Where an input can be read. Raises BadInput for a checkpoint in a store, and as `stored`."""
    from vlcpctl.files.manifest import kind_of
    from vlcpctl.files.stores import stored

    url = _url_of(one)
    if url is None:
        return one
    path = stored(url)
    if kind_of(path) == "checkpoint":
        raise BadInput(f"{url} is a checkpoint, which must be local; download its directory")
    return type(one)(path)


def _recorded_cache(state: Path) -> Path | None:
    """The cache that a state of `update` has recorded, if any."""
    from vlcpctl.production.settings import read_settings

    own = read_settings(state)["update"] if (state / "update.toml").is_file() else {}
    return Path(own["cache"]) if "cache" in own else None


def _url_of(value: Any) -> str | None:
    """The URL of an object store that was given, of which Path has turned // into /."""
    text = str(value)
    if isinstance(value, Path):
        text = re.sub("^([A-Za-z0-9]+):/", r"\1://", text)
    return text if isinstance(value, str | Path) and _protocol_of(text) else None


def _user_cache() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return cache / "vlcpctl" / "objects"


def _refuse_undecodable(value: Any) -> None:
    """Refuse words that are not UTF-8 before the work starts, not when its result is written."""
    for one in _listed(value):
        if isinstance(one, str | Path) and re.search("[\ud800-\udfff]", str(one)):
            raise UsageError(
                f"'{printable(one)}' is not UTF-8: neither a manifest nor a row can store it; "
                "use another name"
            )


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _each(change: Any, value: Any) -> Any:
    """A value changed, or each of a list; None as it is."""
    if isinstance(value, list):
        return [_each(change, one) for one in value]
    return value if value is None else change(value)


def _protocol_of(text: str) -> str | None:
    from vlcpctl.files.stores import protocol_of  # whose imports no help needs

    return protocol_of(text)

"""An S3 server on this machine (moto's), which counts what it sends and may fail now and then."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BUCKET = "data"
_ERRORS = ("404 NOT FOUND", "403 FORBIDDEN", "500 INTERNAL SERVER ERROR", "short")


@dataclass
class Store:
    """What the server was asked for, and which of its answers for bytes are wrong."""

    url: str = ""
    requests: int = 0
    sent: int = 0  # bytes of objects
    sent_to: Counter[str] = field(default_factory=Counter)  # the same, by the key id of the client
    fail_every: int = 0  # n: every n-th
    fail_after: int | None = None  # all but the first n

    def environment(self, key_id: str = "test") -> dict[str, str]:
        """The variables by which a program finds the server."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": key_id,
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def put(self, directory: Path, name: str) -> str:
        """Copy a directory or a file into the store, and return its URL."""
        import fsspec

        store = fsspec.filesystem("s3", endpoint_url=self.url, key="test", secret="test")
        if not store.exists(BUCKET):
            store.mkdir(BUCKET)
        _copy(store, directory, f"{BUCKET}/{name}")
        return f"s3://{BUCKET}/{name}"

    def counted(self, application: Callable[..., Any]) -> Callable[..., Any]:
        """The server with counts and failures of its answers that hold bytes of objects."""
        lock = threading.Lock()

        def answer(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            if "HTTP_RANGE" not in environment:
                return application(environment, start)
            with lock:
                self.requests += 1
                fails = bool(self.fail_every) and self.requests % self.fail_every == 0
                fails |= self.fail_after is not None and self.requests > self.fail_after
                error = _ERRORS[self.requests // max(self.fail_every, 1) % len(_ERRORS)]
            if fails and error != "short":
                start(error, [("Content-Length", "0")])
                return [b""]
            said: list[Any] = []
            body = b"".join(application(environment, lambda *words: said.append(words)))
            body = body[: len(body) // 2] if fails else body
            status, headers, *_ = said[0]
            headers = [one for one in headers if one[0].lower() != "content-length"]
            start(status, [*headers, ("Content-Length", str(len(body)))])
            with lock:
                self.sent += len(body)
                self.sent_to[_key_id(environment)] += len(body)
            return [body]

        return answer


def put_in_memory(directory: Path, name: str) -> str:
    """Copy a directory or a file into fsspec's store in memory, which forked processes share."""
    import fsspec

    _copy(fsspec.filesystem("memory"), directory, name)
    return f"memory://{name}"


def remove_from_memory(name: str) -> None:
    """Remove what `put_in_memory` put there."""
    import fsspec

    fsspec.filesystem("memory").rm(name, recursive=True)


def _copy(store: Any, directory: Path, name: str) -> None:
    files = sorted(directory.rglob("*")) if directory.is_dir() else [directory]
    for path in (one for one in files if one.is_file()):
        below = path.relative_to(directory).as_posix()
        store.pipe_file(f"{name}/{below}".removesuffix("/."), path.read_bytes())


def _key_id(environment: dict[str, Any]) -> str:
    """The client of a request, as its signature names it."""
    return str(environment["HTTP_AUTHORIZATION"]).partition("Credential=")[2].partition("/")[0]


@contextmanager
def object_store() -> Iterator[Store]:
    """A server within the block; its addresses are of this machine only."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Silent(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, *words: Any) -> None:
            pass

    store = Store()
    application = store.counted(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Silent)
    store.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()

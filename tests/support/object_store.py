"""A small S3 server on this machine that counts what it sends, and stores in memory."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

BUCKET = "data"


@dataclass
class Store:
    """The objects of the server by key, what it was asked for, and how it fails."""

    url: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    listed: dict[str, bytes] = field(default_factory=dict)  # in listings in place of the objects
    asked: list[str] = field(default_factory=list)  # such as "GET task.json"
    sent_to: Counter[str] = field(default_factory=Counter)  # bytes of objects, by the client's key
    fails: int | str = 500  # how: a status, or "silent"
    is_bad: Callable[[int], bool] = lambda _: False  # which requests for bytes fail, by number
    is_over: threading.Event = field(default_factory=threading.Event)

    def environment(self, key_id: str = "test") -> dict[str, str]:
        """The variables by which a program finds the server."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": key_id,
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def put(self, path: Path, name: str) -> str:
        """Copy a directory or a file into the store, and return its URL."""
        self.objects |= {f"{name}{below}": data for below, data in _files(path)}
        return f"s3://{BUCKET}/{name}"

    @property
    def gets(self) -> int:
        """How often bytes were asked for."""
        return sum(one.startswith("GET ") for one in self.asked)


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    for one in [path, *path.rglob("*")]:
        if one.is_file():
            below = one.relative_to(path).as_posix()
            yield ("" if below == "." else f"/{below}"), one.read_bytes()


def etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


@contextmanager
def object_store() -> Iterator[Store]:
    """A server within the block."""
    store = Store()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *words: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            key = unquote(url.path).removeprefix(f"/{BUCKET}").strip("/")
            if not key:
                self.answer(200, _listing(store, parse_qs(url.query).get("prefix", [""])[0]))
                return
            store.asked.append(f"{self.command} {key}")
            is_bad = self.command == "GET" and store.is_bad(store.gets)
            if is_bad and store.fails == "silent":
                store.is_over.wait()
            data = store.objects.get(key)
            if is_bad and isinstance(store.fails, int):
                self.answer(store.fails, b"")
            elif data is None:
                self.answer(404, b"")
            elif self.headers.get("If-Match", etag(data)) != etag(data):
                self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            else:
                first, last = re.findall(r"\d+", self.headers.get("Range", f"0-{len(data)}"))
                part = data[int(first) : int(last) + 1]
                if self.command == "GET":
                    client = self.headers["Authorization"].partition("Credential=")[2]
                    store.sent_to[client.partition("/")[0]] += len(part)
                self.answer(206 if "Range" in self.headers else 200, part, ETag=etag(data))

        def answer(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign] # a client that has left
    store.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield store
    finally:
        store.is_over.set()
        server.shutdown()
        server.server_close()


def _listing(store: Store, prefix: str) -> bytes:
    found = {key: data for key, data in store.objects.items() if key.startswith(prefix)}
    entries = "".join(
        f"<Contents><Key>{key}</Key><Size>{len(data)}</Size>"
        f"<ETag>{etag(store.listed.get(key, data))}</ETag></Contents>"
        for key, data in sorted(found.items())
    )
    return f"<ListBucketResult>{entries}</ListBucketResult>".encode()


def put_in_memory(path: Path, name: str) -> str:
    """Copy a directory or a file into fsspec's store in memory, which forked processes share."""
    import fsspec

    for below, data in _files(path):
        fsspec.filesystem("memory").pipe_file(f"{name}{below}", data)
    return f"memory://{name}"


def remove_from_memory(name: str) -> None:
    """Remove what `put_in_memory` put there."""
    import fsspec

    fsspec.filesystem("memory").rm(name, recursive=True)

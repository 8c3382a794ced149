"""A server on this machine that speaks the hub's protocol, as far as reading models goes.

    with Hub({"owner/name": {"config.json": b"{}", "model.safetensors": data}}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)

Files of `LARGE` bytes and more are served by a redirect to another host and port, here `localhost`, as the hub does.
What goes wrong on the way is said by `faults`: for the end of an address, what happens to each request for it.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

LARGE = 2_000  # bytes
TOKEN = "hf_of_the_tests"


@dataclass(frozen=True)
class Request:
    """One answered request."""

    method: str
    path: str
    status: int
    sent: int  # bytes of the body
    range: str | None = None
    token: str | None = None


@dataclass(frozen=True)
class Fault:
    """What happens to one request."""

    status: int = 0  # answered with instead of the file
    code: str = ""  # X-Error-Code beside it
    headers: tuple[tuple[str, str], ...] = ()
    cut: int | None = None  # bytes of the body after which the connection is closed
    longer: int = 0  # bytes that Content-Length says too many
    shift: int = 0  # bytes by which another range is sent than was asked for
    pause: float = 0.0  # seconds between pieces of `piece` bytes
    piece: int = 2**16
    whole: bool = False  # the range is ignored
    head: bool = False  # a HEAD request is meant, not a GET


FINE = Fault()


@dataclass
class Hub:
    """A hub with the given repositories: id to file name to content. Use it as a context manager."""

    repos: Mapping[str, Mapping[str, bytes]]
    private: tuple[str, ...] = ()  # seen with TOKEN only
    gated: tuple[str, ...] = ()  # described to all, served with TOKEN only
    revisions: tuple[str, ...] = ("main", "v1")
    ranges: bool = True  # whether parts of files are sent
    failures: int = 0  # how many requests for files are first answered with 503
    downloads: Mapping[str, int] = field(default_factory=dict)  # of each repository, for lists of models
    page: int = 1_000  # models in one answer
    faults: Mapping[str, list[Fault]] = field(
        default_factory=dict
    )  # by the end of the path, used up one by one
    listing: tuple[str, ...] = ()  # names that every listing has besides those of files
    tags: Mapping[str, str] = field(
        default_factory=dict
    )  # ETag of a file, other than the hash of its content
    sizes: Mapping[str, int] = field(default_factory=dict)  # of a file, other than that of its content
    sha: str | None = None  # of the commit that listings say
    log: list[Request] = field(default_factory=list)

    def __enter__(self) -> Hub:
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        self._servers = [_Server(("127.0.0.1", 0), Handler) for _ in ("hub", "files")]
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
            for server in self._servers
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for server, thread in zip(self._servers, self._threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()

    @property
    def port(self) -> int:
        return self._servers[0].server_address[1]

    @property
    def files_address(self) -> str:
        return f"http://localhost:{self._servers[1].server_address[1]}"

    def fault(self, path: str, method: str, kind: str) -> Fault:
        """What is to happen to this request: the next of its faults, where that is one of `kind`."""
        with self._lock:
            for suffix, faults in self.faults.items():
                meant = path.endswith(suffix) and faults and faults[0].head == (method == "HEAD")
                if meant and (faults[0].status != 0) == (kind == "status"):
                    return faults.pop(0)
        return FINE

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def sent(self, suffix: str) -> int:
        """Bytes sent in all of the files whose name ends with `suffix`."""
        return sum(request.sent for request in self.log if request.path.endswith(suffix))

    def commit(self, repo: str) -> str:
        digest = hashlib.sha1(repo.encode())
        for name, content in sorted(self.repos[repo].items()):
            digest.update(name.encode() + content)
        return digest.hexdigest()

    def full_name(self, name: str) -> str | None:
        """The id that `name`, perhaps without its owner, stands for."""
        if name in self.repos:
            return name
        owned = [repo for repo in self.repos if repo.rpartition("/")[2] == name]
        return owned[0] if "/" not in name and len(owned) == 1 else None


Serve = Callable[..., Hub]  # the fixture `serve`: a running hub, which the environment names


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no error of a test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        fault = self.hub.fault(path, self.command, "status")
        if fault.status:
            self._refuse(fault.status, fault.code, dict(fault.headers))
        elif path == "/api/models":
            self._list_models(parse_qs(urlsplit(self.path).query))
        elif path.startswith("/api/models/"):
            self._describe(path.removeprefix("/api/models/"))
        elif "/resolve/" in path:
            repo, _, rest = path[1:].partition("/resolve/")
            self._resolve(repo, *rest.partition("/")[::2])
        elif path.startswith("/cdn/"):
            digest, _, name = path.removeprefix("/cdn/").partition("/")
            self._send_content(self._large()[digest, name], {})
        else:
            self._refuse(404, "EntryNotFound")

    def _large(self) -> dict[tuple[str, str], bytes]:
        files = [file for repo in self.hub.repos.values() for file in repo.items()]
        return {(_digest(content), name): content for name, content in files}

    def _describe(self, path: str) -> None:
        name, _, revision = path.partition("/revision/")
        repo = self._repo(
            name, f"/api/models/{{}}{'/revision/' + revision if revision else ''}", revision or "main"
        )
        if repo is None:
            return
        siblings = [{"rfilename": file} for file in (*self.hub.repos[repo], *self.hub.listing)]
        body = {
            "_id": "0",
            "id": repo,
            "modelId": repo,
            "sha": self.hub.sha or self.hub.commit(repo),
            "private": False,
            "siblings": siblings,
        }
        self._send(200, json.dumps({**body, "tags": [], "downloads": 0, "likes": 0}).encode())

    def _list_models(self, query: Mapping[str, list[str]]) -> None:
        """One page of the models that are seen, most downloads first, and the address of the next page."""
        if query.get("sort") != ["downloads"]:
            self._refuse(400, "UnknownSort")
            return
        hub, start = self.hub, int(query.get("cursor", ["0"])[0])
        count = min(hub.page, int(query.get("limit", [str(hub.page)])[0]))
        seen = [repo for repo in hub.repos if repo not in hub.private or self._token()]
        seen.sort(key=lambda repo: -hub.downloads.get(repo, 0))
        models = [
            {"_id": "0", "id": repo, "sha": hub.commit(repo), "downloads": hub.downloads.get(repo, 0)}
            for repo in seen[start : start + count]
        ]
        following = urlencode({**query, "cursor": start + count}, doseq=True)
        more = {"Link": f'<{hub.address}/api/models?{following}>; rel="next"'}
        self._send(200, json.dumps(models).encode(), more if start + count < len(seen) else None)

    def _resolve(self, name: str, revision: str, file: str) -> None:
        repo = self._repo(name, f"/{{}}/resolve/{revision}/{file}", revision)
        if repo is None:
            return
        if repo in self.hub.gated and not self._token():
            self._refuse(403, "GatedRepo")
            return
        if file not in self.hub.repos[repo]:
            self._refuse(404, "EntryNotFound", {"X-Repo-Commit": self.hub.commit(repo)})
            return
        if self.command == "GET" and self.hub.failures > 0:
            self.hub.failures -= 1
            self._refuse(503, "ServiceUnavailable")
            return
        content = self.hub.repos[repo][file]
        tag = self.hub.tags.get(file)
        headers = {"X-Repo-Commit": self.hub.commit(repo), "ETag": f'"{tag or _digest(content)[:40]}"'}
        if len(content) < LARGE:
            self._send_content(content, headers)
            return
        headers |= {
            "X-Linked-Size": str(self.hub.sizes.get(file, len(content))),
            "X-Linked-ETag": f'"{tag or _digest(content)}"',
            "Location": f"{self.hub.files_address}/cdn/{_digest(content)}/{file}",
        }
        self._send(302, b"", headers)

    def _repo(self, name: str, path: str, revision: str) -> str | None:
        """The repository's full id; None if the request has been answered with a redirect or an error."""
        repo = self.hub.full_name(name)
        if repo is None or (repo in self.hub.private and not self._token()):
            self._refuse(404 if self._token() else 401, "RepoNotFound")
        elif repo != name:
            self._send(307, b"", {"Location": path.format(repo)})
        elif revision not in (*self.hub.revisions, self.hub.commit(repo)):
            self._refuse(404, "RevisionNotFound")
        else:
            return repo
        return None

    def _token(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _refuse(self, status: int, code: str, headers: Mapping[str, str] | None = None) -> None:
        self._send(status, b"", {"X-Error-Code": code, "X-Error-Message": code, **(headers or {})})

    def _send_content(self, content: bytes, headers: Mapping[str, str]) -> None:
        wanted = self.headers.get("Range")
        fault = self.hub.fault(unquote(urlsplit(self.path).path), self.command, "body")
        if wanted is None or fault.whole or not self.hub.ranges:
            self._send(200, content, {"Accept-Ranges": "bytes", **headers}, fault)
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start = int(first) + fault.shift
        end = min(int(last or len(content)) + 1, len(content))
        if start >= len(content):
            self._send(416, b"", {"Content-Range": f"bytes */{len(content)}"})
            return
        given = f"bytes {start}-{end - 1}/{len(content)}"
        self._send(206, content[start:end], {"Content-Range": given, **headers}, fault)

    def _send(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None, fault: Fault = FINE
    ) -> None:
        part = body[: fault.cut] if self.command == "GET" else b""
        wanted, token = self.headers.get("Range"), self.headers.get("Authorization")
        self.hub.log.append(
            Request(self.command, unquote(urlsplit(self.path).path), status, len(part), wanted, token)
        )
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body) + fault.longer), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if fault.pause:
            for at in range(0, len(part), fault.piece):
                self.wfile.write(part[at : at + fault.piece])
                time.sleep(fault.pause)
        else:
            self.wfile.write(part)
        if self.command == "GET" and len(part) < len(body) + fault.longer:
            self.close_connection = True


def safetensors(shapes: Mapping[str, list[int]]) -> bytes:
    """A file of zeros with these tensors."""
    header, data = {}, 0
    for name, shape in shapes.items():
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [data, data + size]}
        data += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(data)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

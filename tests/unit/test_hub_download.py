"""Downloads into the hub's cache: gone on with, checked, and never half there; no name leads out of it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mapper.errors import FormatError, MapperError, SourceError
from mapper.sources import download, open_source, transfer
from tests.hub import FINE, Fault, Hub, Serve, safetensors

CONFIG = b'{"model_type": "bert"}'
FILE = "model.safetensors"
WEIGHTS = safetensors({f"layer.{number}.weight": [64, 64] for number in range(40)})
HASH = hashlib.sha256(WEIGHTS).hexdigest()
SMALL = {"config.json": CONFIG, FILE: WEIGHTS}
SHARDS = {
    f"model-0000{at}-of-00003.safetensors": safetensors({f"{at}.weight": [256, 256]}) for at in (1, 2, 3)
}
INDEX = {"weight_map": {f"{at}.weight": name for at, name in enumerate(SHARDS, 1)}}
SHARDED = {"config.json": CONFIG, "model.safetensors.index.json": json.dumps(INDEX).encode(), **SHARDS}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "models--org--small"


def fetched(hub: Hub) -> list[str | None]:
    """The ranges of the requests by which bytes of the weights came; None for the whole file."""
    return [
        request.range for request in hub.log if request.path.endswith(FILE) and request.status in (200, 206) and
        request.method == "GET" and request.path.startswith("/cdn/")
    ]  # fmt: skip


def left(cache: Path) -> list[str]:
    """What the cache has of a repository, links with where they lead."""
    return sorted(
        f"{path.relative_to(cache)}{' -> ' + os.readlink(path) if path.is_symlink() else ''}"
        for path in cache.rglob("*")
        if path.is_symlink() or path.is_file()
    )


def test_the_cache_is_as_the_hubs_own_client_leaves_it(serve: Serve, cache: Path, tmp_path: Path) -> None:
    from huggingface_hub import hf_hub_download

    hub = serve({"org/small": SMALL})
    open_source("org/small", purpose="weights")
    theirs = tmp_path / "theirs"
    for name in SMALL:
        hf_hub_download("org/small", name, cache_dir=theirs, endpoint=hub.address)
    assert left(cache) == left(theirs / "models--org--small")
    asked = len(hub.log)
    for name in SMALL:
        hf_hub_download("org/small", name, cache_dir=cache.parent, endpoint=hub.address)
    assert all(request.method == "HEAD" for request in hub.log[asked:])


def test_a_cut_download_goes_on_in_the_same_run(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    hub = serve({"org/small": SMALL}, faults={FILE: [Fault(cut=200_000), Fault(cut=100_000)]})
    checkpoint = open_source("org/small", purpose="weights")
    assert checkpoint.read is not None and len(checkpoint.tensors) == 40
    assert fetched(hub) == [None, "bytes=200000-", "bytes=300000-"]
    assert hub.sent(FILE) == len(WEIGHTS)
    assert "after 200,000 of" in caplog.text or "the connection broke" in caplog.text


def test_a_download_that_fails_is_gone_on_with_by_the_next_run(serve: Serve, cache: Path) -> None:
    hub = serve({"org/small": SMALL}, faults={FILE: [Fault(cut=300_000), *[Fault(cut=0)] * 4]})
    with pytest.raises(SourceError, match=r"the connection broke .* 5 times in a row; run the command again"):
        open_source("org/small", purpose="weights")
    assert (cache / "blobs" / f"{HASH}.incomplete").stat().st_size == 300_000
    assert not (cache / "blobs" / HASH).exists() and not (cache / "refs").exists()
    hub.log.clear()
    assert open_source("org/small", purpose="weights").read is not None
    assert fetched(hub) == ["bytes=300000-"] and hub.sent(FILE) == len(WEIGHTS) - 300_000
    assert (cache / "blobs" / HASH).read_bytes() == WEIGHTS
    assert not list(cache.rglob("*.incomplete"))


def test_a_server_that_sends_no_parts_is_read_from_the_start(serve: Serve, cache: Path) -> None:
    serve({"org/small": SMALL}, faults={FILE: [Fault(cut=300_000), Fault(whole=True)]})
    assert open_source("org/small", purpose="weights").read is not None
    assert (cache / "blobs" / HASH).read_bytes() == WEIGHTS


def test_a_part_with_wrong_bytes_is_noticed_and_fetched_anew(
    serve: Serve, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a failure of the power leaves it: the length is right, what was written last is zeros."""
    hub = serve({"org/small": SMALL})
    (cache / "blobs").mkdir(parents=True)
    (cache / "blobs" / f"{HASH}.incomplete").write_bytes(bytes(300_000))
    open_source("org/small", purpose="weights")
    assert (cache / "blobs" / HASH).read_bytes() == WEIGHTS
    assert fetched(hub) == ["bytes=300000-", None]
    assert "came with other bytes than the hub says" in caplog.text


def test_a_file_that_is_not_what_the_hub_says_is_never_kept(serve: Serve, cache: Path) -> None:
    serve({"org/small": SMALL}, tags={FILE: "0" * 64})
    with pytest.raises(FormatError, match=r"model\.safetensors has not the hash '0{64}' that the hub says"):
        open_source("org/small", purpose="weights")
    assert not list((cache / "blobs").glob("0*"))


@pytest.mark.parametrize("size", [len(WEIGHTS) - 1, len(WEIGHTS) + 1, 10**10])
def test_a_size_that_the_sender_contradicts_is_named(
    serve: Serve, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10**13}))
    serve({"org/small": SMALL}, sizes={FILE: size})
    with pytest.raises(SourceError, match=rf"has {size:,} bytes, says the hub, and {len(WEIGHTS):,}, says"):
        open_source("org/small", purpose="weights")


def test_a_content_length_that_is_too_long_is_a_cut(serve: Serve, cache: Path) -> None:
    serve({"org/small": SMALL}, faults={FILE: [Fault(longer=7)]})
    with pytest.raises(SourceError, match="says the server that sends it; try again"):
        open_source("org/small", purpose="weights")
    open_source("org/small", purpose="weights")
    assert (cache / "blobs" / HASH).read_bytes() == WEIGHTS


def test_the_room_on_the_disk_is_checked_before_the_first_byte(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = serve({"org/small": SHARDED})
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 17_000_000}))
    said = (
        r"org/small: 786\.. kB are to be fetched and 17\.0 MB are free in \S+/cache; make room, or set HF_HUB"
    )
    with pytest.raises(SourceError, match=said) as caught:
        open_source("org/small", purpose="weights")
    assert "\n" not in str(caught.value)
    assert not any(request.path.startswith("/cdn/") for request in hub.log)


def test_a_disk_that_fills_up_is_one_line_and_what_came_is_kept(
    serve: Serve, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve({"org/small": SMALL})
    sync = os.fsync

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(download.os, "fsync", full)
    with pytest.raises(SourceError, match="no room is left; make room and run the command again"):
        open_source("org/small", purpose="weights")
    monkeypatch.setattr(download.os, "fsync", sync)
    assert open_source("org/small", purpose="weights").read is not None


def test_a_cache_that_cannot_be_written_is_named_and_inspect_needs_none(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve({"org/small": SMALL})
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "file" / "cache"))
    assert open_source("org/small", purpose="headers").tensors
    with pytest.raises(SourceError, match="the cache cannot be written: not a directory; set HF_HUB_CACHE"):
        open_source("org/small", purpose="weights")


def test_inspecting_leaves_nothing_in_the_cache(serve: Serve, tmp_path: Path) -> None:
    serve({"org/small": SHARDED})
    open_source("org/small", purpose="headers")
    assert not (tmp_path / "cache").exists()


def test_shards_that_are_there_are_not_fetched_again(serve: Serve) -> None:
    hub = serve({"org/small": SHARDED})
    hub.faults = {"model-00002-of-00003.safetensors": [Fault(500)] * 5}
    with pytest.raises(SourceError, match=r"model-00002-of-00003.safetensors: the hub answers 500"):
        open_source("org/small", purpose="weights")
    before = hub.sent(".safetensors")
    open_source("org/small", purpose="weights")
    assert hub.sent(".safetensors") == sum(map(len, SHARDS.values()))
    assert before < hub.sent(".safetensors")


def test_what_two_files_share_is_fetched_once(serve: Serve) -> None:
    same = safetensors({"a": [64, 64]})
    other = {"config.json": CONFIG, "model.safetensors": same}
    hub = serve({"org/small": other})
    open_source("org/small@v1", purpose="weights")
    open_source("org/small", purpose="weights")
    assert hub.sent(FILE) == len(same)


def test_without_links_the_snapshot_has_the_file_itself(
    serve: Serve, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("a privilege is not held by the client")

    hub = serve({"org/small": SMALL})
    monkeypatch.setattr(Path, "symlink_to", refuse)
    open_source("org/small", purpose="weights")
    (pointer,) = cache.glob(f"snapshots/*/{FILE}")
    assert not pointer.is_symlink() and pointer.read_bytes() == WEIGHTS
    asked = len(hub.log)
    open_source("org/small", purpose="weights")
    assert len(hub.log) == asked


def test_another_process_that_fetches_the_same_file_is_waited_for(
    serve: Serve, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from huggingface_hub.utils import WeakFileLock

    hub = serve({"org/small": SMALL})
    monkeypatch.setattr(download, "LOCK_SECONDS", 0.05)
    lock = cache.parent / ".locks" / cache.name / f"{HASH}.lock"
    lock.parent.mkdir(parents=True)
    with WeakFileLock(lock):
        thread = threading.Thread(target=lambda: open_source("org/small", purpose="weights"))
        thread.start()
        while "another process is fetching it" not in caplog.text and thread.is_alive():
            time.sleep(0.01)
        (cache / "blobs" / HASH).write_bytes(WEIGHTS)
    thread.join()
    assert hub.sent(FILE) == 0 and open_source("org/small", purpose="weights").read is not None


def test_a_file_too_long_for_plain_requests_is_left_to_the_client(
    serve: Serve, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve({"org/small": SMALL})
    monkeypatch.setattr(download, "PLAIN_LIMIT", 1_000)
    assert open_source("org/small", purpose="weights").read is not None
    assert (cache / "blobs" / HASH).read_bytes() == WEIGHTS


def test_a_damaged_file_in_the_cache_says_where_it_is(serve: Serve, cache: Path) -> None:
    serve({"org/small": SMALL})
    open_source("org/small", purpose="weights")
    (cache / "blobs" / HASH).write_bytes(WEIGHTS[:-4])
    with pytest.raises(
        FormatError, match=rf"it is so in the cache; remove {cache} and run the command again"
    ):
        open_source("org/small", purpose="weights")


def test_the_first_failure_is_the_one_that_is_told_and_nothing_is_begun_after_it() -> None:
    begun: list[int] = []
    stopped = threading.Event()

    def act(number: int) -> int:
        begun.append(number)
        if number == 1:
            raise IndexError("a bug")
        if number == 0:
            stopped.wait(10)
            raise download._Stopped
        return number

    with pytest.raises(IndexError, match="a bug"):
        download.in_parallel(act, [0, 1, *range(2, 50)], 2, stopped.set)
    assert begun == [0, 1]
    assert download.in_parallel(lambda number: -number, list(range(50)), 8) == [
        -number for number in range(50)
    ]
    assert download.in_parallel(act, [], 8) == []


PROGRAM = "import sys; from mapper.sources import open_source; open_source(sys.argv[1], purpose='weights')"


def test_a_download_that_is_killed_leaves_nothing_that_passes_for_whole(
    serve: Serve, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Fault(pause=0.05, piece=16_384)
    name = "model-00002-of-00003.safetensors"
    part = cache / "blobs" / f"{hashlib.sha256(SHARDS[name]).hexdigest()}.incomplete"
    hub = serve({"org/small": SHARDED}, faults={name: [slow, slow, slow]})
    kept = 0
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, "org/small"], stderr=subprocess.PIPE)
        while process.poll() is None and not (part.exists() and part.stat().st_size > kept):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not (cache / "refs").exists() and not list(cache.glob(f"snapshots/*/{name}"))
        for blob in (path for path in cache.glob("blobs/*") if path.suffix != ".incomplete"):
            assert hashlib.sha256(blob.read_bytes()).hexdigest()[: len(blob.name)] == blob.name
        kept = part.stat().st_size
    with monkeypatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(SourceError, match=r"not in the cache|only in part in the cache"):
            open_source("org/small", purpose="weights")
    hub.log.clear()
    assert len(open_source("org/small", purpose="weights").weights) == 3
    assert hub.sent(name) == len(SHARDS[name]) - kept
    assert not list(cache.rglob("*.incomplete"))


HOSTILE = [
    "../../x",
    "/etc/passwd",
    "..\\x.safetensors",
    "a/../../x.safetensors",
    "../model.safetensors",
    "C:x.bin",
]


def outside(tmp_path: Path) -> set[str]:
    return {str(path) for path in tmp_path.rglob("*") if "/cache" not in str(path)}


def test_names_in_a_listing_lead_nowhere(serve: Serve, tmp_path: Path) -> None:
    hub = serve({"org/small": SMALL}, listing=tuple(HOSTILE))
    open_source("org/small", purpose="weights")
    assert not outside(tmp_path)
    assert not any(".." in request.path or "etc" in request.path for request in hub.log)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("purpose", ["headers", "weights"])
def test_names_in_an_index_lead_nowhere(serve: Serve, tmp_path: Path, name: str, purpose: str) -> None:
    index = json.dumps({"weight_map": {"a": name}}).encode()
    hub = serve({"org/small": {"model.safetensors.index.json": index, name: WEIGHTS}})
    with pytest.raises(FormatError, match="which is no file beside the index"):
        open_source("org/small", purpose=purpose)
    assert not outside(tmp_path)
    assert not any(request.path.startswith("/cdn/") for request in hub.log)


@pytest.mark.parametrize("name", ["../../x", "a/b", ".hidden", "x" * 500, "..", "a\\b", "*"])
def test_a_tag_or_a_commit_leads_nowhere(serve: Serve, tmp_path: Path, name: str) -> None:
    serve({"org/small": SMALL}, tags={FILE: name})
    with pytest.raises(FormatError, match=r"the tag is .*, which is no name for a file in the cache"):
        open_source("org/small", purpose="weights")
    serve({"org/small": SMALL}, sha=name)
    with pytest.raises(MapperError):
        open_source("org/small", purpose="weights")
    assert not outside(tmp_path)


def test_a_link_that_a_repository_holds_is_its_text_and_no_link(serve: Serve) -> None:
    """As the hub serves a symbolic link of git."""
    serve({"org/small": {**SMALL, FILE: b"../../../../etc/passwd"}})
    with pytest.raises(FormatError):
        open_source("org/small", purpose="weights")


def test_progress_is_shown_with_bytes_and_time_left(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    from mapper import _progress

    class Terminal:
        text = ""

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> None:
            Terminal.text += text

        def flush(self) -> None:
            pass

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(_progress, "PATIENCE", 0.01)
    monkeypatch.setattr(_progress, "_REFRESH", 0.02)
    monkeypatch.setattr("shutil.get_terminal_size", lambda **_: os.terminal_size((200, 20)))
    monkeypatch.setattr(transfer, "FIRST_WAIT", 0.05)
    faults = [Fault(pause=0.02), Fault(500), FINE]
    serve({"org/small": SMALL}, faults={FILE: faults})
    open_source("org/small", purpose="weights")
    lines = Terminal.text.split("\r")
    assert any(
        "fetching org/small " in line and " of 6" in line and "/s, " in line and " s left" in line
        for line in lines
    )
    assert Terminal.text.endswith("\r\x1b[K")

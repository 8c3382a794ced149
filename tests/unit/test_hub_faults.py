"""What goes wrong between here and the hub: tried again where it may pass, said, and never without an end."""

from __future__ import annotations

import email.utils
import json
import struct
import time

import pytest

from mapper.errors import FormatError, MissingSourceError, SourceError
from mapper.sources import open_source, transfer
from tests.hub import FINE, Fault, Serve, safetensors

CONFIG = b'{"model_type": "bert"}'
WEIGHTS = safetensors({f"layer.{number}.weight": [64, 64] for number in range(40)})
SMALL = {"config.json": CONFIG, "model.safetensors": WEIGHTS}
FILE = "model.safetensors"


def one_line(caught: pytest.ExceptionInfo[BaseException]) -> str:
    text = str(caught.value)
    assert "\n" not in text and len(text) < 400
    return text


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("place", ["/api/models/org/small", "config.json", FILE])
def test_a_refusal_that_may_pass_is_tried_again_and_said(
    serve: Serve, status: int, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    serve({"org/small": SMALL}, faults={place: [Fault(status)] * 2})
    assert len(open_source("org/small", purpose="headers").tensors) == 40
    notes = [record.getMessage() for record in caplog.records if record.name == "mapper"]
    assert len(notes) == 2
    assert f"the hub answers {status} (" in notes[0] and "trying again in 0 s (1 of 4)" in notes[0]


@pytest.mark.parametrize("purpose", ["headers", "weights"])
def test_a_refusal_that_stays_is_one_line_after_five_tries(serve: Serve, purpose: str) -> None:
    hub = serve({"org/small": SMALL}, faults={FILE: [Fault(500)] * 9})
    with pytest.raises(
        SourceError, match=r"answers 500 \(internal server error\), 5 times in a row"
    ) as caught:
        open_source("org/small", purpose=purpose)
    one_line(caught)
    assert sum(request.status == 500 for request in hub.log) == 5


def test_the_hub_says_how_long_to_wait(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(transfer.time, "sleep", waits.append)
    soon = email.utils.formatdate(time.time() + 30)
    asks = [("Retry-After", "7"), ("Retry-After", soon), ("RateLimit", '"api";r=0;t=9')]
    serve({"org/small": SMALL}, faults={FILE: [Fault(429, headers=(ask,)) for ask in asks]})
    assert open_source("org/small", purpose="headers").tensors
    assert waits[0] == 7 and 20 < waits[1] <= 30 and waits[2] == 9


def test_a_wait_of_an_hour_is_not_waited_but_said(serve: Serve) -> None:
    serve({"org/small": SMALL}, faults={FILE: [Fault(429, headers=(("Retry-After", "3600"),))]})
    start = time.monotonic()
    with pytest.raises(SourceError, match="asks to come back in 1 h 0 min; a token") as caught:
        open_source("org/small", purpose="headers")
    one_line(caught)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (Fault(401), SourceError, "does not accept the token"),
        (Fault(403), SourceError, "the hub forbids it"),
        (Fault(403, "GatedRepo"), SourceError, "the model is gated; ask for access at http"),
        (Fault(401, "RepoNotFound"), MissingSourceError, "the hub has no such model"),
        (Fault(404, "RepoNotFound"), MissingSourceError, "the hub has no such model"),
        (Fault(404, "EntryNotFound"), MissingSourceError, "lists a file that it does not have"),
        (Fault(418), SourceError, r"answers 418"),
        (Fault(204), SourceError, r"answers 204 \(no content\), not with the file"),
    ],
)
@pytest.mark.parametrize("purpose", ["headers", "weights"])
def test_a_refusal_that_will_not_pass_is_one_clear_line_at_once(
    serve: Serve, fault: Fault, kind: type[SourceError], said: str, purpose: str
) -> None:
    both = [fault, Fault(fault.status, fault.code, head=True)] if fault.status != 204 else [fault]
    hub = serve({"org/small": SMALL}, faults={FILE: both if purpose == "headers" else both[::-1]})
    with pytest.raises(kind, match=said) as caught:
        open_source("org/small", purpose=purpose)
    one_line(caught)
    assert sum(request.status == fault.status for request in hub.log) == 1


def test_a_missing_model_is_a_file_that_is_not_found(serve: Serve) -> None:
    serve({})
    with pytest.raises(FileNotFoundError, match="org/none: no local path, and the hub has no such model"):
        open_source("org/none", purpose="weights")


def test_a_header_that_is_cut_is_asked_for_again(serve: Serve) -> None:
    hub = serve({"org/small": SMALL}, faults={FILE: [Fault(cut=0), Fault(cut=1000), Fault(longer=10)]})
    assert len(open_source("org/small", purpose="headers").tensors) == 40
    assert hub.sent(FILE) <= 4 * 2**16


def test_a_connection_that_always_breaks_is_one_line(serve: Serve) -> None:
    serve({"org/small": SMALL}, faults={FILE: [Fault(cut=10)] * 9})
    with pytest.raises(SourceError, match=r"the connection broke .* 5 times in a row; run the command again"):
        open_source("org/small", purpose="headers")


def test_another_part_than_was_asked_for_is_refused(serve: Serve) -> None:
    weights = safetensors({f"layer.{number}.weight": [2] for number in range(3000)})
    serve({"org/long": {FILE: weights}}, faults={FILE: [FINE, Fault(shift=5)]})
    with pytest.raises(SourceError, match=r"sends the range 'bytes 65541-.*' where bytes from 65,536 on"):
        open_source("org/long", purpose="headers")


def test_a_long_header_is_read_from_a_server_that_sends_no_parts(serve: Serve) -> None:
    weights = safetensors({f"layer.{number}.weight": [2] for number in range(3000)})
    serve({"org/long": {FILE: weights}}, ranges=False)
    assert len(open_source("org/long", purpose="headers").tensors) == 3000


def test_a_header_that_only_drips_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    serve({"org/small": SMALL}, faults={FILE: [Fault(pause=0.05, piece=1)]})
    monkeypatch.setattr(transfer, "READ_SECONDS", 0.1)
    monkeypatch.setattr(transfer, "SLOWEST", 10**9)
    with pytest.raises(SourceError, match=r"only [\d,]+ of 65,536 bytes came in a minute; try again"):
        open_source("org/small", purpose="headers")


def test_a_server_that_falls_silent_is_asked_again(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    serve({"org/small": SMALL}, faults={FILE: [Fault(pause=1.0, piece=100)]})
    monkeypatch.setattr(transfer, "READ_SECONDS", 0.2)
    assert open_source("org/small", purpose="headers").tensors


def test_a_redirect_that_goes_round_or_elsewhere_is_one_line(serve: Serve) -> None:
    for target in ("/org/small/resolve/{}/model.safetensors", "file:///etc/passwd", "ftp://localhost/x"):
        hub = serve({"org/small": SMALL})
        location = target.format(hub.commit("org/small"))
        hub.faults = {FILE: [Fault(302, headers=(("Location", location),))] * 50}
        with pytest.raises(SourceError) as caught:
            open_source("org/small", purpose="headers")
        one_line(caught)
        round_ = (("Location", location),)  # for both, and neither uses up what is meant for the other
        hub.faults = {
            FILE: [Fault(302, headers=round_, head=True)] * 50,
            "safetensors": [Fault(302, headers=round_)] * 50,
        }
        if target.startswith("/"):
            with pytest.raises(SourceError) as caught:
                open_source("org/small", purpose="weights")
            one_line(caught)


@pytest.mark.parametrize(
    "listing",
    [b"", b"[]", b"nothing", b'{"id": "org/small"}', b'{"id": 5, "siblings": [{"rfilename": 7}]}', b"<html>"],
)
def test_a_listing_that_is_none_is_one_line(
    serve: Serve, listing: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.hub import _Handler

    serve({"org/small": SMALL})
    monkeypatch.setattr(_Handler, "_describe", lambda self, path: self._send(200, listing))
    with pytest.raises((SourceError, FormatError)) as caught:
        open_source("org/small", purpose="headers")
    one_line(caught)


def test_a_config_of_a_gigabyte_is_not_fetched(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    from mapper import limits

    monkeypatch.setattr(limits, "CONFIG_BYTES", 1_000)
    hub = serve({"org/small": {**SMALL, "config.json": json.dumps({"a": "x" * 500_000}).encode()}})
    with pytest.raises(FormatError, match=r"config\.json: 500,0\d\d bytes, at most 1,000 are read"):
        open_source("org/small", purpose="headers")
    assert hub.sent(FILE) == 0


def test_a_directory_of_a_gigabyte_is_not_fetched(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive says how long its directory is, and the server how long the archive."""
    from mapper import limits

    monkeypatch.setattr(limits, "REMOTE_BYTES", 200_000)
    size = 600_000
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, size, 4, 0)
    hub = serve({"org/zip": {"pytorch_model.bin": b"PK\3\4" + bytes(size) + end}})
    with pytest.raises(
        FormatError, match=r"pytorch_model\.bin.*more than the 200,000 bytes that are fetched"
    ):
        open_source("org/zip", purpose="headers")
    assert hub.sent("pytorch_model.bin") < 200_000


def test_a_read_of_all_of_an_exabyte_is_refused_at_once() -> None:
    from mapper.sources.remote import RangeFile

    with pytest.raises(FormatError, match=r"x\.bin: its header takes more than the 268,435,456 bytes"):
        RangeFile(lambda start, end: bytes(end - start), 10**18, name="x.bin").read()

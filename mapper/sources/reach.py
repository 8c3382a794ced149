"""Whether the hub can be asked at all: its address, the switches that forbid it, and a quick try."""

from __future__ import annotations

import os
import socket
import threading
import urllib.parse
import urllib.request

CONNECT_SECONDS = (
    4.0  # until the hub counts as out of reach; a look-up of its name alone can hang for a minute
)
ON = ("1", "ON", "YES", "TRUE")


def endpoint() -> str:
    """The address of the hub."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def out_of_reach() -> str | None:
    """Why the hub is not asked, or does not answer; None if it can be asked."""
    from huggingface_hub import constants

    switched_off = [
        word for word in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") if os.environ.get(word, "").upper() in ON
    ]
    if switched_off or constants.HF_HUB_OFFLINE:
        return f"the hub is not asked ({(switched_off or ['HF_HUB_OFFLINE'])[0]} is set)"
    failure = unreachable(endpoint())
    return f"the hub cannot be reached ({failure})" if failure else None


def unreachable(address: str) -> str | None:
    """Why no connection to the host of `address`, or the proxy before it, can be made; None if one can."""
    url = urllib.parse.urlsplit(address)
    proxy = urllib.request.getproxies().get(url.scheme)
    if proxy and not urllib.request.proxy_bypass(url.hostname or ""):
        url = urllib.parse.urlsplit(proxy if "://" in proxy else f"//{proxy}")
    outcome: list[str | None] = []

    def connect() -> None:
        try:
            port = url.port or {"http": 80}.get(url.scheme, 443)
            socket.create_connection((url.hostname or "", port), CONNECT_SECONDS).close()
            outcome.append(None)
        except (OSError, ValueError, UnicodeError) as error:
            outcome.append(f"{url.hostname}: {(getattr(error, 'strerror', None) or str(error)).lower()}")

    # A daemon: looking a name up has no time limit, and must not keep the process either.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS)
    return outcome[0] if outcome else f"{url.hostname}: no answer within {CONNECT_SECONDS:.0f} s"

"""The hub, its cache and the bundled catalogue behind one name; against a server on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mapper.errors import FormatError, SourceError
from mapper.sources import open_source, reach
from tests.hub import TOKEN, Serve, safetensors

CONFIG = b'{"model_type": "bert", "num_hidden_layers": 2}'


WEIGHTS = safetensors({"a.weight": [512, 512], "b.weight": [8]})
FIRST, SECOND = safetensors({"a.weight": [256, 256]}), safetensors({"b.weight": [256, 256]})
INDEX = json.dumps(
    {"weight_map": {"a.weight": "model-1.safetensors", "b.weight": "model-2.safetensors"}}
).encode()
SHARDED = {
    "config.json": CONFIG,
    "model.safetensors.index.json": INDEX,
    "model-1.safetensors": FIRST,
    "model-2.safetensors": SECOND,
}


def test_headers_come_by_ranges_and_weights_never_do(serve: Serve) -> None:
    hub = serve({"org/small": {"config.json": CONFIG, "model.safetensors": WEIGHTS}})
    checkpoint = open_source("org/small", purpose="headers")
    assert list(checkpoint.tensors) == ["a.weight", "b.weight"]
    assert checkpoint.config == json.loads(CONFIG)
    assert (checkpoint.source, checkpoint.read, checkpoint.weights) == ("org/small", None, [])
    assert 0 < hub.sent("model.safetensors") <= 2**16 < len(WEIGHTS) // 10


def test_a_header_longer_than_the_first_range_takes_one_more(serve: Serve) -> None:
    weights = safetensors({f"layer.{number}.weight": [200] for number in range(3000)})
    hub = serve({"org/long": {"model.safetensors": weights}})
    assert len(open_source("org/long", purpose="headers").tensors) == 3000
    parts = [request for request in hub.log if request.status == 206]
    assert len(parts) == 2
    assert hub.sent("model.safetensors") < 2**16 + 300_000 < len(weights) // 2


def test_weights_are_fetched_in_one_format_and_then_come_from_the_cache(serve: Serve) -> None:
    files = {
        "config.json": CONFIG,
        "model.safetensors": WEIGHTS,
        "pytorch_model.bin": b"x" * 5000,
        "README.md": b"x",
    }
    hub = serve({"org/small": files})
    checkpoint = open_source("org/small", purpose="weights")
    assert checkpoint.read is not None
    assert checkpoint.read(["a.weight"])["a.weight"].shape == (512, 512)
    assert hub.sent("pytorch_model.bin") == hub.sent("README.md") == 0
    asked = len(hub.log)
    again = open_source("org/small", purpose="weights")
    assert again.tensors == checkpoint.tensors and again.source == "org/small"
    assert len(hub.log) == asked


def test_shards_are_read_by_ranges_and_fetched_by_the_index(serve: Serve) -> None:
    hub = serve({"org/big": SHARDED})
    assert list(open_source("org/big", purpose="headers").tensors) == ["a.weight", "b.weight"]
    assert hub.sent(".safetensors") <= 2 * 2**16
    checkpoint = open_source("org/big", purpose="weights")
    assert checkpoint.read is not None and len(checkpoint.weights) == 2
    assert set(checkpoint.read(["b.weight", "a.weight"])) == {"a.weight", "b.weight"}


def test_a_listed_shard_that_the_hub_lacks_is_named(serve: Serve) -> None:
    serve({"org/big": {name: data for name, data in SHARDED.items() if name != "model-2.safetensors"}})
    with pytest.raises(SourceError, match=r"lacks 1 of 2 shards .*: 'model-2\.safetensors'"):
        open_source("org/big", purpose="headers")


def test_a_short_id_is_the_hubs_own_alias(serve: Serve) -> None:
    serve({"org/small": {"config.json": CONFIG, "model.safetensors": WEIGHTS}})
    assert open_source("small", purpose="headers").source == "org/small"
    assert open_source("small", purpose="weights").source == "org/small"


def test_what_is_cached_under_its_full_id_is_found_by_its_short_one_without_a_hub(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve({"org/small": {"config.json": CONFIG, "model.safetensors": WEIGHTS}})
    open_source("org/small", purpose="weights")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert open_source("small", purpose="weights").source == "org/small"


def test_torch_files_on_the_hub_are_read_by_ranges_too(serve: Serve, tmp_path: Path) -> None:
    import torch

    torch.save({"a.weight": torch.zeros(512, 512), "b.weight": torch.zeros(512, 512)}, tmp_path / "x.bin")
    data = (tmp_path / "x.bin").read_bytes()
    hub = serve({"org/torch": {"pytorch_model.bin": data}})
    assert open_source("org/torch", purpose="headers").container == "torch"
    assert hub.sent("pytorch_model.bin") <= 3 * 2**16 < len(data) // 5


def test_a_revision_is_asked_for_and_shown(serve: Serve) -> None:
    serve({"org/small": {"config.json": CONFIG, "model.safetensors": WEIGHTS}})
    assert open_source("org/small@v1", purpose="headers").source == "org/small@v1"
    assert open_source("org/small", purpose="weights", revision="v1").source == "org/small@v1"
    with pytest.raises(SourceError, match="has no revision 'v2'"):
        open_source("org/small@v2", purpose="headers", catalogue=True)
    with pytest.raises(SourceError, match="give one of them"):
        open_source("org/small@v1", purpose="headers", revision="main")


def test_private_and_gated_models_need_a_token_which_the_cdn_never_sees(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"model.safetensors": WEIGHTS}
    hub = serve({"org/private": files, "org/gated": files}, private=("org/private",), gated=("org/gated",))
    with pytest.raises(SourceError, match="the hub has no such model; check the name, or log in"):
        open_source("org/private", purpose="headers")
    with pytest.raises(SourceError, match="gated; ask for access"):
        open_source("org/gated", purpose="headers")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert open_source("org/private", purpose="headers").tensors
    assert open_source("org/gated", purpose="weights").read is not None
    assert all(request.token is None for request in hub.log if request.path.startswith("/cdn/"))


def test_a_passing_failure_of_the_hub_is_tried_again(serve: Serve) -> None:
    serve({"org/small": {"model.safetensors": WEIGHTS}}, failures=1)
    assert open_source("org/small", purpose="headers").tensors


def test_a_server_that_ignores_ranges_is_read_no_further_than_the_header(serve: Serve) -> None:
    serve({"org/small": {"model.safetensors": WEIGHTS}}, ranges=False)
    assert len(open_source("org/small", purpose="headers").tensors) == 2


def test_a_pointer_or_a_cut_file_on_the_hub_is_named(serve: Serve) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123456\n"
    serve(
        {
            "org/pointer": {"model.safetensors": pointer},
            "org/cut": {"model.safetensors": WEIGHTS[:70_000]},
            "org/none": {"a": b""},
        }
    )
    with pytest.raises(FormatError, match="a git-lfs pointer to 123,456 bytes"):
        open_source("org/pointer", purpose="headers")
    with pytest.raises(FormatError, match=r"ends at byte 1,048,7.. but the file has 70,000; download"):
        open_source("org/cut", purpose="headers")
    with pytest.raises(SourceError, match="org/none: no weights"):
        open_source("org/none", purpose="headers")


def test_without_hub_and_cache_the_catalogue_gives_headers_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    checkpoint = open_source("distilbert-base-uncased", purpose="headers", catalogue=True)
    assert checkpoint.source == "distilbert/distilbert-base-uncased"
    assert checkpoint.notes[0].startswith("header from the bundled catalogue (reconstructed")
    assert checkpoint.notes[0].endswith("not from the hub")
    for options in ({"purpose": "weights", "catalogue": True}, {"purpose": "headers"}):
        with pytest.raises(
            SourceError, match=r"not in the cache, and the hub is not asked \(HF_HUB_OFFLINE is set\)"
        ) as caught:
            open_source("distilbert-base-uncased", **options)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)
        assert "its header is bundled, without weights: mapper inspect" in str(caught.value)


def test_a_hub_out_of_reach_is_said_within_seconds(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(SourceError, match="the hub cannot be reached") as caught:
        open_source("org/small", purpose="weights")
    assert "\n" not in str(caught.value)
    assert open_source("bert-base-uncased", purpose="headers", catalogue=True).notes


def test_a_look_up_that_hangs_does_not_hang_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    class Closed:
        def close(self) -> None:
            pass

    never = threading.Event()
    monkeypatch.setattr(reach.socket, "create_connection", lambda *_: never.wait() and Closed())
    monkeypatch.setattr(reach, "CONNECT_SECONDS", 0.05)
    monkeypatch.setenv("NO_PROXY", "*")
    assert reach.unreachable("https://example.invalid") == "example.invalid: no answer within 0 s"
    never.set()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.name.endswith("(connect)"):
            thread.join()


@pytest.mark.parametrize(
    "name", ["a/b/c", "../x", "a\0b", "x y/z", "a" * 5000, "org/", "/", "org/..", "ü/x", "", "-", "a//b"]
)
def test_what_is_no_id_never_reaches_the_hub(name: str, serve: Serve) -> None:
    hub = serve({})
    with pytest.raises(SourceError) as caught:
        open_source(name, purpose="headers", catalogue=True)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400
    assert not hub.log


@pytest.mark.parametrize("revision", ["../../x", "a b", "", "x" * 300, ".", "a/../b"])
def test_a_revision_cannot_leave_the_cache(revision: str, serve: Serve) -> None:
    with pytest.raises(SourceError):
        open_source("org/small", purpose="headers", revision=revision)


def test_local_sources_import_neither_the_client_nor_torch_nor_numpy(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(WEIGHTS)
    program = (
        "import sys; from mapper.sources import open_source; open_source(sys.argv[1], purpose='headers');"
        "print([name for name in ('torch', 'numpy', 'huggingface_hub', 'safetensors') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("purpose", ["headers", "weights"])
def test_settings_of_another_library_are_fetched_where_there_is_no_config(serve: Serve, purpose: str) -> None:
    meta = {"dim": 8, "n_layers": 1, "n_heads": 2}
    litgpt = b"n_layer: 1\nn_embd: 8\nnorm_class_name: RMSNorm\nmlp_class_name: LLaMAMLP\n"
    files = {"model.safetensors": WEIGHTS, "params.json": json.dumps(meta).encode()}
    hub = serve(
        {
            "org/meta": files,
            "org/lit": {"model.safetensors": WEIGHTS, "model_config.yaml": litgpt},
            "org/both": {**files, "config.json": CONFIG},
        }
    )
    found = open_source("org/meta", purpose=purpose)
    assert found.config == meta and "the settings are those in params.json" in found.notes
    assert (open_source("org/lit", purpose=purpose).config or {})["norm_class_name"] == "RMSNorm"
    sent = hub.sent("params.json")
    assert (open_source("org/both", purpose=purpose).config or {})["model_type"] == "bert"
    assert hub.sent("params.json") == sent

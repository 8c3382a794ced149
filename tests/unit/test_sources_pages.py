"""Addresses of the hub's pages, names nearly right, and one file of a package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save, save_file

import mapper
from mapper.errors import MissingSourceError, SourceError
from mapper.sources import open_source
from mapper.sources.pages import Page, neighbours, page_of
from tests.hub import Hub, Serve

HOST = "https://huggingface.co"
PAGES = {
    "/org/name": "org/name",
    "/org/name/": "org/name",
    "/org/name?library=x": "org/name",
    "/gpt2": "gpt2",
    "/gpt2/tree/main": "gpt2",
    "/gpt2/blob/main/model.safetensors": "gpt2:model.safetensors",
    "/org/name/tree/main": "org/name",
    "/org/name/tree/v1.0": "org/name@v1.0",
    "/org/name/tree/refs%2Fpr%2F3": "org/name@refs/pr/3",
    "/org/name/blob/main/a.safetensors": "org/name:a.safetensors",
    "/org/name/blob/v1/sub/a%2Bb.bin": "org/name@v1:sub/a+b.bin",
    "/org/name/resolve/main/a.gguf?download=true": "org/name:a.gguf",
    "/org/name/discussions/3": "org/name",
    "/org/name/commits/main": "org/name",
}


@pytest.mark.parametrize(("path", "name"), PAGES.items())
def test_the_address_of_a_page_is_read_as_an_id(path: str, name: str) -> None:
    for host in (HOST, "https://hf.co", "HTTPS://www.huggingface.co"):
        assert written(page_of(host + path)) == name


def written(page: Page) -> str:
    """A page as an id with `@revision` and `:FILE`."""
    assert page.folder == ""
    return page.name + (f"@{page.revision}" if page.revision else "") + (f":{page.file}" if page.file else "")


def test_the_page_of_a_folder_names_it() -> None:
    assert page_of(f"{HOST}/org/name/tree/main/unet") == Page("org/name", folder="unet")


OTHERS = {
    HOST: "the address of the hub itself",
    f"{HOST}/datasets/org/name": "the address of a data set, not of a model",
    f"{HOST}/spaces/org/name": "the address of a space",
    "https://example.org/org/name": "not an address of the hub (https://huggingface.co); download the file",
    "https://huggingface.co.example.org/org/name": "not an address of the hub",
    "http://[broken/org/name": "not an address of the hub",
    f"{HOST}/../etc": "not the address of a model's page",
    f"{HOST}/org/%2Fetc": "not the address of a model's page",
    f"{HOST}/org/name/blob/main/..%2f..%2fx.safetensors": "not the address of a model's page",
    f"{HOST}/org/name/tree/main/../x": "not the address of a model's page",
    f"{HOST}/org/name/tree/a%20b": "not the address of a model's page",
}


@pytest.mark.parametrize(("address", "message"), OTHERS.items())
def test_other_addresses_are_refused_in_one_line(address: str, message: str) -> None:
    with pytest.raises(SourceError) as caught:
        open_source(address, purpose="headers")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_mirror_is_an_address_where_it_is_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match="set HF_ENDPOINT if it is a mirror"):
        page_of("https://mirror.example/hub/org/name")
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example/hub")
    assert page_of("https://mirror.example/hub/org/name/tree/v2") == Page("org/name", "v2")
    assert page_of(f"{HOST}/org/name").name == "org/name"


@pytest.fixture
def hub(serve: Serve) -> Hub:
    files = {
        "config.json": json.dumps({"model_type": "x"}).encode(),
        "model.safetensors": save({"a": torch.ones(2)}),
    }
    files["other.safetensors"] = save({"b": torch.ones(2)})
    return serve({"org/name": files, "alone": files})


def test_pages_are_fetched_from_the_hub_that_is_asked(hub: Hub) -> None:
    for address in (f"{HOST}/org/name", f"{hub.address}/org/name/tree/main"):
        checkpoint = open_source(address, purpose="headers")
        assert (checkpoint.source, list(checkpoint.tensors)) == ("org/name", ["a"])
    file = open_source(f"{HOST}/org/name/blob/main/other.safetensors", purpose="weights")
    assert (file.source, list(file.tensors)) == ("org/name:other.safetensors", ["b"])
    assert open_source(f"{HOST}/org/name/tree/v1", purpose="headers").source == "org/name@v1"
    file = open_source(f"{HOST}/alone/blob/main/other.safetensors", purpose="headers")
    assert list(file.tensors) == ["b"]
    with pytest.raises(SourceError, match="names one revision, and 'v2' is asked for"):
        open_source(f"{HOST}/org/name/tree/v1", purpose="headers", revision="v2")


def test_a_name_that_is_nearly_right_gets_those_near_it(hub: Hub) -> None:
    def said(name: str) -> str:
        with pytest.raises(MissingSourceError) as caught:
            mapper.inspect(name)
        return str(caught.value)

    assert said("distilbert-base-uncasd").endswith("; did you mean distilbert/distilbert-base-uncased?")
    assert "did you mean openai-community/gpt2" in said("openai-comunity/gpt2")
    assert "did you mean FacebookAI/roberta-base?" in said("someone/roberta-base")
    with pytest.raises(MissingSourceError, match=r"did you mean openai-community/gpt2\?"):
        open_source("gpt2", purpose="weights")  # this hub has no name without an owner
    assert "did you mean" not in said("nothing-that-is-like-this")
    open_source("org/name", purpose="weights")
    assert "did you mean org/name?" in said("org/nam")  # what is in the cache is near, too


@pytest.mark.parametrize("name", ["openai-community/gpt2", "gpt2", "distilbert-base-uncased", "GPT2"])
def test_a_name_that_is_right_has_no_neighbours(name: str) -> None:
    assert neighbours(name) == ""


@pytest.mark.parametrize("name", ["gpt2", "distilbert-base-uncased", "bert-base-uncased@main"])
def test_without_a_hub_a_right_name_is_not_answered_with_another(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(MissingSourceError) as caught:
        open_source(name, purpose="weights")
    assert "did you mean" not in str(caught.value)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with two models, one of two files."""
    package = tmp_path / "site" / "two_models"
    for folder, names in (("small", ["model", "best"]), ("large", ["model"])):
        (package / folder).mkdir(parents=True)
        for name in names:
            save_file({f"{folder}_{name}": torch.ones(2)}, package / folder / f"{name}.safetensors")
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "small/config.json").write_text('{"model_type": "x"}')
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return package


def test_one_file_of_a_package(package: Path) -> None:
    for name in (
        "two_models:best.safetensors",
        "two_models:small/best.safetensors",
        "two_models.small:best.safetensors",
        "two-models/small:best.safetensors",
    ):
        checkpoint = open_source(f"package:{name}", purpose="weights")
        assert list(checkpoint.tensors) == ["small_best"]
        assert checkpoint.source == f"package:{name}" and checkpoint.config == {"model_type": "x"}


REFUSED = {
    "two_models:model.safetensors": "has 2 files of this name; name one: 'large/model.safetensors', 'small/model.safetensors'",
    "two_models:none.bin": "has no file 'none.bin'; it has 'large/model.safetensors', 'small/best.safetensors'",
    "two_models:../two_models/small/best.safetensors": "has no file",
    "two_models:/etc/passwd": "has no file",
    "no_such:x.bin": "no installed package has this name",
}


@pytest.mark.parametrize(("name", "message"), REFUSED.items())
def test_files_that_a_package_has_not_are_refused(name: str, message: str, package: Path) -> None:
    with pytest.raises(SourceError) as caught:
        open_source(f"package:{name}", purpose="headers")
    assert message in str(caught.value)


def test_a_file_that_links_out_of_a_package_is_refused(package: Path, tmp_path: Path) -> None:
    save_file({"outside": torch.ones(2)}, tmp_path / "outside.safetensors")
    (package / "small/link.safetensors").symlink_to(tmp_path / "outside.safetensors")
    source = "package:two_models:small/link.safetensors"
    with pytest.raises(mapper.FormatError, match="is a link out of its directory"):
        open_source(source, purpose="headers")
    assert list(open_source(source, purpose="headers", follow_links=True).tensors) == ["outside"]

"""Models inside installed packages: found, never imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mapper.errors import SourceError
from mapper.sources import open_source


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages with one that must not be imported."""
    folder = tmp_path / "site"
    make(folder / "tiny_package", "model")
    monkeypatch.syspath_prepend(str(folder))
    return folder


def make(package: Path, *models: str, config: bool = True) -> None:
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    for model in models:
        (package / model).mkdir(parents=True)
        save_file({"a": torch.ones(2)}, package / model / "model.safetensors")
        if config:
            (package / model / "config.json").write_text('{"model_type": "x"}')


def refusal(source: str) -> str:
    with pytest.raises(SourceError) as caught:
        open_source(source, purpose="headers")
    assert str(caught.value).startswith(source) and "\n" not in str(caught.value)
    return str(caught.value)


SPELLINGS = ["tiny_package", "tiny-package", "tiny_package.model", "tiny_package/model", "tiny-package.model"]


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_package_is_found_and_not_imported(name: str, site: Path) -> None:
    checkpoint = open_source(f"package:{name}", purpose="weights")
    assert checkpoint.source == f"package:{name}"
    assert checkpoint.config == {"model_type": "x"}
    assert checkpoint.read is not None and checkpoint.read(["a"])["a"].tolist() == [1, 1]
    assert "tiny_package" not in sys.modules


def test_several_models_in_a_package_are_a_question(site: Path) -> None:
    make(site / "two_models", "small", "deep/large")
    text = refusal("package:two_models")
    assert "2 models; name one: 'two_models.deep.large', 'two_models.small'" in text
    assert open_source("package:two_models.deep.large", purpose="headers").tensors


def test_weights_without_a_config_count_where_there_is_nothing_better(site: Path) -> None:
    make(site / "bare", "weights", config=False)
    assert open_source("package:bare", purpose="headers").config is None
    make(site / "bare", "model")
    assert open_source("package:bare", purpose="headers").config == {"model_type": "x"}


def test_a_distribution_is_found_by_its_own_name(site: Path) -> None:
    make(site / "import_name", "model")
    info = site / "other_name-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-name\nVersion: 1.0\n")
    (info / "RECORD").write_text(
        "import_name/__init__.py,,\nimport_name/model/model.safetensors,,\nother_name-1.0.dist-info/METADATA,,\n"
    )
    assert open_source("package:other-name", purpose="headers").tensors


def test_what_a_package_lacks_is_said(site: Path) -> None:
    make(site / "empty_package")
    assert "no folder with weights" in refusal("package:empty_package")
    assert "install it with `pip install no-such-thing`" in refusal("package:no_such_thing")
    assert "no installed package has this name" in refusal("package:tiny_package.nothing")


@pytest.mark.parametrize("name", ["", "a b", "../x", "/etc", "a..b", "1x", "a;b", "x" * 3 + "\n"])
def test_what_is_no_package_name_is_refused(name: str) -> None:
    with pytest.raises(SourceError, match="not the name of a package") as caught:
        open_source(f"package:{name}", purpose="headers")
    assert "\n" not in str(caught.value)


def test_a_standard_module_is_no_package_of_models() -> None:
    assert refusal("package:os")
    assert refusal("package:json")

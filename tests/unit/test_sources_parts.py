"""Several models in one source: which they are, each under its own names, one of them by SRC#PART."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import mapper
from mapper import limits
from mapper._compiling import compile_source
from mapper.errors import FormatError, MapperError, RuleError, SourceError
from mapper.rulebook.rulebook import Rulebook, rulebook_of
from mapper.sources import open_source
from mapper.sources.parts import parts_of
from tests import pipelines
from tests.hub import Hub, Serve
from tests.schema import violations

REPO = "org/pipeline"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pipelines.folder(tmp_path_factory.mktemp("pipelines") / "sd")


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("single") / "sd.safetensors"
    save_file(pipelines.single(), place)
    return place


def told(source: object) -> dict[str, str]:
    """Part -> what it is, its family, and how far to trust its reading."""
    parts = mapper.inspect(source).parts  # type: ignore[arg-type]
    known = {name: report.architecture for name, report in parts.items()}
    return {name: f"{it.what}, {it.family}, {it.reading}" for name, it in known.items()}


def refusal(source: object, kind: type[MapperError] = SourceError, **options: object) -> str:
    with pytest.raises(kind) as caught:
        mapper.generate(source, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


READ = {
    "text_encoder": "a text encoder, clip_text, exact",
    "unet": "a diffusion U-Net, None, skeleton",
    "vae": "a VAE, None, skeleton",
}


def test_a_folder_of_several_models_is_read_part_by_part(folder: Path) -> None:
    assert told(folder) == READ
    text = str(mapper.inspect(folder))
    assert text.startswith("sd: 3 models, text_encoder, unet, vae\n")
    with pytest.raises(
        SourceError,
        match=r"sd: 3 models, text_encoder \(a text encoder\), unet \(a diffusion U-Net\), vae \(a VAE\); name one, as in sd#text_encoder",
    ):
        mapper.inspect(folder).why("attention.heads")
    assert "note: no weights here: scheduler, tokenizer" in text
    assert "a diffusion U-Net; no known family for UNet2DConditionModel, skeleton" in text
    whole = open_source(folder, purpose="headers")
    assert whole.config is not None and whole.config["text_encoder"] == pipelines.TEXT_CONFIG
    assert len(whole.tensors) == sum(len(part.tensors) for part in whole.parts.values())
    alone = open_source(f"{folder}#vae", purpose="weights")
    assert alone.source == "sd#vae" and alone.config == {"_class_name": "AutoencoderKL"}
    assert alone.tensors == open_source(folder / "vae", purpose="headers").tensors


def test_a_single_file_is_read_part_by_part_and_each_has_the_names_that_it_has_alone(single: Path) -> None:
    assert told(single) == {**READ, "text_encoder": "a text encoder, clip_text, unverified"}
    text = str(mapper.inspect(single))
    assert "note: 1 tensor in none of its parts: 'betas'" in text
    alone = open_source(f"{single}#text_encoder", purpose="weights")
    assert set(alone.tensors) == set(pipelines.text_encoder())
    name = "text_model.final_layer_norm.weight"
    assert alone.read is not None
    assert torch.equal(alone.read([name])[name], pipelines.single()[f"cond_stage_model.transformer.{name}"])
    span = alone.where(name)
    assert span is not None and span.info == alone.tensors[name]
    assert open_source(f"{single}#first_stage_model", purpose="headers").source == "sd.safetensors#vae"


def embedders() -> dict[str, torch.Tensor]:
    """As SDXL has them: CLIP under transformers' names, and another under those of its own library."""
    other = {
        "token_embedding.weight": (9, 4),
        "positional_embedding": (5, 4),
        "transformer.resblocks.0.attn.in_proj_weight": (12, 4),
    }
    return {
        **pipelines.tensors(pipelines.latent_unet(), "model.diffusion_model."),
        **pipelines.tensors(pipelines.text_encoder(), "conditioner.embedders.0.transformer."),
        **pipelines.tensors(other, "conditioner.embedders.1.model."),
        **pipelines.tensors({"weight": (2, 2)}, "conditioner.embedders.2."),
    }


def all_in_one() -> dict[str, torch.Tensor]:
    """As FLUX and SD3 are packed: text encoders by name."""
    flux = {"double_blocks.0.img_attn.qkv.weight": (12, 4), "single_blocks.0.linear1.weight": (4, 4)}
    return {
        **pipelines.tensors(flux, "model.diffusion_model."),
        **pipelines.tensors(pipelines.latent_vae(), "vae."),
        **pipelines.tensors(pipelines.text_encoder(), "text_encoders.clip_l.transformer."),
        **pipelines.tensors({"shared.weight": (9, 4)}, "text_encoders.t5xxl.transformer."),
        "text_encoders.t5xxl.logit_scale": torch.ones(1),
    }


def test_other_single_files_are_told_apart_too(tmp_path: Path) -> None:
    for table, parts in (
        (embedders(), ["unet", "text_encoder", "text_encoder_2", "embedder_2"]),
        (all_in_one(), ["unet", "vae", "clip_l", "t5xxl"]),
    ):
        found = parts_of(open_source(table, purpose="headers"), rulebook_of())
        assert list(found) == parts
    assert list(found["t5xxl"].tensors) == ["shared.weight"]
    assert told(all_in_one())["unet"] == "a diffusion transformer, None, skeleton"
    assert "'text_encoders.t5xxl.logit_scale'" in str(mapper.inspect(all_in_one()))


def test_a_training_file_of_several_models_is_read_part_by_part(tmp_path: Path) -> None:
    table = {
        "generator": pipelines.tensors(pipelines.unet()),
        "critic": pipelines.tensors(pipelines.vae()),
        "epoch": 3,
    }
    torch.save(table, tmp_path / "gan.pt")
    assert list(told(tmp_path / "gan.pt")) == ["generator", "critic"]
    assert set(open_source(f"{tmp_path}/gan.pt#critic", purpose="headers").tensors) == set(pipelines.vae())


@pytest.mark.parametrize(
    "table",
    [
        {"encoder": {"0.weight": torch.ones(2, 2)}, "decoder": {"0.weight": torch.ones(2, 2)}},
        {"layer1": {"a.weight": torch.ones(2, 2)}, "layer2": {"a.weight": torch.ones(2, 2)}},
        {"one": {"weight": torch.ones(2, 2)}, "two": {"weight": torch.ones(2, 2)}},
        {"state_dict": {"a.weight": torch.ones(2, 2)}, "critic": {"a.weight": torch.ones(2, 2)}},
    ],
)
def test_parts_of_one_model_are_no_models(table: dict[str, object], tmp_path: Path) -> None:
    torch.save(table, tmp_path / "x.pt")
    assert not mapper.inspect(tmp_path / "x.pt").parts


def test_a_long_name_of_a_part_is_shown_whole_for_it_chooses_the_part(tmp_path: Path) -> None:
    tables = {
        f"{word}_network_of_the_three": {f"{word}.{at}.weight": torch.zeros(2, 3) for at in range(2)}
        for word in ("first", "second")
    }
    torch.save(tables, tmp_path / "two.pt")
    lines = str(mapper.inspect(tmp_path / "two.pt")).splitlines()
    for name in tables:
        assert any(line.startswith(f"  {name}  ") for line in lines)
        assert mapper.inspect(f"{tmp_path / 'two.pt'}#{name}").architecture.checkpoint.part == name


def test_one_model_under_such_a_name_is_one_model() -> None:
    unet = pipelines.tensors(pipelines.latent_unet(), "model.diffusion_model.")
    report = mapper.inspect(unet)
    assert not report.parts and report.architecture.what == "a diffusion U-Net"
    towers = {"encoder.vae.weight": [2, 2], "text_encoder.a.weight": [2, 2], "vae.a.weight": [2, 2]}
    assert not mapper.inspect(towers).parts


def test_what_needs_one_model_names_those_there_are(folder: Path, single: Path, tmp_path: Path) -> None:
    there = "text_encoder (a text encoder), unet (a diffusion U-Net), vae (a VAE)"
    assert refusal(folder) == f"sd: 3 models, {there}; name one, as in sd#text_encoder"
    with pytest.raises(
        SourceError, match=r"3 models, unet .a diffusion U-Net.*name one, as in sd.safetensors#unet"
    ):
        mapper.build(single)
    with pytest.raises(SourceError, match="3 models"):
        mapper.convert(folder, tmp_path / "out")
    assert refusal(f"{folder}#unat") == f"sd: no part 'unat' in it; it has {there}"
    assert "no part 'x' in it; it is one model, without parts" in refusal(f"{folder}/vae#x")
    assert "no such file or directory" in refusal(f"{folder}/absent.safetensors#vae")


def test_a_path_with_the_mark_in_it_is_a_path(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "x#vae")
    assert list(open_source(tmp_path / "x#vae", purpose="headers").tensors) == ["a"]


def test_a_part_is_built_saved_and_generated_with_its_own_names(
    folder: Path, single: Path, tmp_path: Path
) -> None:
    source, heads = f"{single}#text_encoder", {"attention.heads": 2, "pooling.end_id": 2}
    model = mapper.build(source, hints=heads, out=tmp_path / "out")
    ids = torch.tensor([[3, 4, 48]])
    load = compile_source(mapper.generate(source, hints=heads), "generated").load
    published = mapper.build(f"{folder}#text_encoder")  # with its config: the same model, the same weights
    assert torch.equal(published(ids).last_hidden_state, model(ids).last_hidden_state)
    for place in (single, tmp_path / "out"):  # the file of several, and the weights by themselves
        assert torch.equal(load(place)(ids).last_hidden_state, model(ids).last_hidden_state)
    assert set(model.state_dict()) == set(pipelines.text_encoder())


def test_every_function_takes_a_part(folder: Path, single: Path, tmp_path: Path) -> None:
    source = f"{single}#vae"
    assert mapper.convert(source, tmp_path / "vae.safetensors").tensors == len(pipelines.latent_vae())
    found = mapper.diff(source, tmp_path / "vae.safetensors", values=True)
    assert not (found.changed or found.only_a or found.only_b) and found.common == len(pipelines.latent_vae())
    model = mapper.build(source)
    assert mapper.load_weights(model, source).loaded
    assert mapper.verify(f"{folder}#text_encoder", "transformers").equal
    assert "class Model" in mapper.generate(f"{folder}#unet")


def test_pipelines_are_compared_part_by_part(folder: Path, single: Path, tmp_path: Path) -> None:
    assert mapper.diff(folder, folder).equal is None  # values are not read
    other = pipelines.folder(tmp_path / "sd")
    config = {**pipelines.TEXT_CONFIG, "num_attention_heads": 4}
    (other / "text_encoder/config.json").write_text(json.dumps(config))
    found = mapper.diff(folder, other)
    assert found.equal is False and not found.changed
    assert "attention heads (text_encoder): 2 in A, 4 in B" in str(found)
    assert f"B {other}: 3 models, text_encoder, unet, vae; 72 tensors" in str(found)
    mixed = str(mapper.diff(folder, single))
    assert (
        "B has the prefix cond_stage_model.transformer." in mixed
        and "the two readings say the same" not in mixed
    )
    shutil.rmtree(other / "vae")
    assert "A has the part vae" in str(mapper.diff(folder, other))


def test_variants_shards_and_torch_files_of_members_are_chosen_as_those_of_models(tmp_path: Path) -> None:
    place = pipelines.folder(tmp_path / "sd")
    usual = place / "unet/diffusion_pytorch_model.safetensors"
    save_file({"half": torch.ones(1)}, place / "unet/diffusion_pytorch_model.fp16.safetensors")
    assert set(open_source(f"{place}#unet", purpose="headers").tensors) == set(pipelines.unet())
    usual.unlink()
    assert list(open_source(f"{place}#unet", purpose="headers").tensors) == ["half"]
    tensors = pipelines.tensors(pipelines.unet())
    torch.save(tensors, place / "vae/diffusion_pytorch_model.bin")
    (place / "vae/diffusion_pytorch_model.safetensors").unlink()
    assert open_source(f"{place}#vae", purpose="headers").container == "torch"
    table = {
        name: f"diffusion_pytorch_model-{at % 2 + 1:05}-of-00002.safetensors"
        for at, name in enumerate(tensors)
    }
    for file in set(table.values()):
        save_file({name: tensors[name] for name in tensors if table[name] == file}, place / "unet" / file)
    index = place / "unet/diffusion_pytorch_model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": table}))
    assert set(open_source(f"{place}#unet", purpose="headers").tensors) == set(tensors)
    (place / "unet/diffusion_pytorch_model-00002-of-00002.safetensors").unlink()
    assert "unet cannot be read: diffusion_pytorch_model.safetensors.index.json: 1 of 2 shards" in str(
        mapper.inspect(place)
    )


def test_the_document_of_several_models_has_a_report_of_each(folder: Path) -> None:
    document = json.loads(mapper.inspect(folder).to_json())
    assert violations(document) == []
    assert (document["reading"], document["what"], document["family"]) == (None, "3 models", None)
    assert [part["part"] for part in document["parts"]] == ["text_encoder", "unet", "vae"]
    for part in document["parts"]:
        assert violations(part["report"]) == []
    assert document["parts"][2]["report"]["what"] == "a VAE"


def test_a_contradiction_in_one_part_hides_no_other(tmp_path: Path) -> None:
    place = pipelines.folder(tmp_path / "sd")
    config = {**pipelines.TEXT_CONFIG, "num_hidden_layers": 5}
    (place / "text_encoder/config.json").write_text(json.dumps(config))
    (place / "vae/diffusion_pytorch_model.safetensors").write_bytes(b"<html>")
    report = mapper.inspect(place)
    assert list(report.parts) == ["text_encoder", "unet"]
    assert report.parts["text_encoder"].architecture.reading == "skeleton"
    assert "vae cannot be read: diffusion_pytorch_model.safetensors: a web page" in str(report)
    assert "a web page" in refusal(f"{place}#vae", FormatError)


@pytest.mark.parametrize("name", ["../unet", "/etc", "a/b", "..", "a\\b"])
def test_an_index_cannot_name_a_folder_elsewhere(name: str, tmp_path: Path) -> None:
    place = pipelines.folder(tmp_path / "sd")
    (place / "model_index.json").write_text(json.dumps({name: ["diffusers", "X"]}))
    assert "is no folder beside it" in refusal(place, FormatError)


def test_a_member_that_links_elsewhere_is_read_only_where_links_are_followed(tmp_path: Path) -> None:
    place = pipelines.folder(tmp_path / "sd")
    os.rename(place / "vae", tmp_path / "elsewhere")
    (place / "vae").symlink_to(tmp_path / "elsewhere")
    assert "'vae' is a link out of its directory" in refusal(f"{place}#vae", FormatError)
    assert "vae cannot be read" in str(mapper.inspect(place))
    assert mapper.inspect(f"{place}#vae", follow_links=True).architecture.what == "a VAE"


def test_too_many_members_and_none_with_weights_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "x"
    place.mkdir()
    many = {f"m{at}": ["diffusers", "X"] for at in range(limits.MEMBERS + 1)}
    (place / "model_index.json").write_text(json.dumps(many))
    assert f"{limits.MEMBERS + 1} members, at most {limits.MEMBERS} are read" in refusal(place, FormatError)
    (place / "model_index.json").write_text(json.dumps(pipelines.INDEX))
    assert "none of its members has weights" in refusal(place)


@pytest.fixture
def hub(folder: Path, serve: Serve) -> Hub:
    return serve({REPO: pipelines.files(folder)})


def test_a_pipeline_on_the_hub_is_listed_by_headers_and_one_part_of_it_is_fetched(hub: Hub) -> None:
    assert told(REPO) == READ
    assert hub.sent("unet/diffusion_pytorch_model.safetensors") > 0
    before = len(hub.log)
    assert "3 models" in refusal(REPO)
    model = mapper.build(f"{REPO}#text_encoder")
    assert set(model.state_dict()) == set(pipelines.text_encoder())
    fetched = {
        request.path for request in hub.log[before:] if request.method == "GET" and request.range is None
    }
    assert not any("unet/diff" in path or "vae/diff" in path for path in fetched)
    assert mapper.inspect(f"{REPO}@main#vae").architecture.checkpoint.source == f"{REPO}@main#vae"
    assert "no part 'x' in it; it has text_encoder" in refusal(f"{REPO}#x")


def test_a_part_in_the_cache_needs_no_hub_and_what_is_not_there_is_said(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapper.build(f"{REPO}#text_encoder")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert mapper.inspect(f"{REPO}#text_encoder").architecture.reading == "exact"
    report = mapper.inspect(REPO)
    assert list(report.parts) == [
        "text_encoder"
    ] and "no weights here: scheduler, tokenizer, unet, vae" in str(report)
    with pytest.raises(SourceError, match="the hub is not asked"):
        mapper.inspect(f"{REPO}#vae")
    (listed,) = mapper.cached_models()
    assert (listed.what, listed.reading, listed.problem) == ("1 model", None, None)


def test_the_page_of_a_folder_is_that_part(hub: Hub) -> None:
    report = mapper.inspect(f"https://huggingface.co/{REPO}/tree/main/vae")
    assert report.architecture.checkpoint.source == f"{REPO}#vae"


RULES = """
vocabulary: composites
composites:
  mine:
    needs: [left]
    parts: {one: [left], "{name}": ["others.{name}"]}
called:
  a thing of mine:
    - has: ["wobble.{n}"]
"""


def test_rules_of_a_user_say_what_is_a_composite_and_what_it_is_called(tmp_path: Path) -> None:
    place = tmp_path / "rules" / "vocabulary"
    place.mkdir(parents=True)
    (place / "mine.yaml").write_text(RULES)
    table = {"left.wobble.0.weight": [2, 2], "others.a.weight": [2, 2], "others.b.weight": [3, 3]}
    parts = mapper.inspect(table, rules=[tmp_path / "rules"]).parts
    assert list(parts) == ["one", "a", "b"]
    assert parts["one"].architecture.what == "a thing of mine"
    assert not mapper.inspect(table).parts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("needs: [left]", "needs: []"),
        ('"{name}": ["others.{name}"]', '"{name}": [others]'),
        ('"{name}": ["others.{name}"]', '"{name}": ["others..{name}"]'),
        ('has: ["wobble.{n}"]', "lacks: [x]"),
        ("  mine:", "  mine: 1\n  other:"),
    ],
)
def test_the_schema_of_composites_is_strict(change: str, message: str, tmp_path: Path) -> None:
    place = tmp_path / "vocabulary"
    place.mkdir()
    assert change in RULES
    (place / "mine.yaml").write_text(RULES.replace(change, message))
    with pytest.raises(RuleError, match=r"vocabulary/mine.yaml:\d+"):
        _ = Rulebook([tmp_path]).composites

"""Statistics of made-up weights whose structure is known, what is said by them, and what is kept of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from mapper._api import describe
from mapper.cli.app import main
from mapper.evidence.found import Found
from mapper.evidence.remembered import SUFFIX, remember
from mapper.evidence.statistics import STATISTICS, Array, centre, head_blocks, rotary_pairs, rotary_width
from mapper.evidence.stored import BUFFERS, angles_base, angles_width
from mapper.evidence.weights import decide, with_weights
from mapper.rulebook.rulebook import Rulebook
from tests.checkpoints import bert_shapes

HEADS, SIZE, WIDTH = 4, 16, 64
Captured = pytest.CaptureFixture[str]


def of_heads(random: np.random.Generator, heads: int, size: int, alike: float = 0.7) -> Array:
    """Rows [heads * size, WIDTH], those of a head with a direction in common."""
    shared = random.standard_normal((heads, 1, WIDTH)) * alike
    rows = (random.standard_normal((heads, size, WIDTH)) + shared).reshape(-1, WIDTH)
    return rows.astype(np.float32)


def samples(heads: int, shared: int, alike: float = 0.7) -> list[dict[str, Array]]:
    random = np.random.default_rng(0)
    return [
        {"outputs": of_heads(random, heads, SIZE, alike).T, "values": of_heads(random, shared, SIZE, alike)}
        for _ in range(3)
    ]


@pytest.mark.parametrize("shared", [HEADS, 2])
def test_heads_show_in_the_likeness_of_their_channels(shared: int) -> None:
    found = decide(head_blocks(samples(HEADS, shared), (1, 2, 4, 8, 16), {}), least=4, margin=1.25)
    assert found is not None
    assert (found.value, found.evidence) == (HEADS, "weights")
    assert " against " in found.source


def test_weights_without_structure_say_nothing() -> None:
    scores = head_blocks(samples(HEADS, HEADS, alike=0), (1, 2, 4, 8, 16), {})
    assert decide(scores, least=4, margin=1.25) is None


def test_below_the_margin_and_where_two_disagree_nothing_is_said() -> None:
    assert decide({"values": {4: 20.0, 8: 18.0}}, least=4, margin=1.25) is None
    assert decide({"values": {4: 20.0, 8: 10.0}, "outputs": {4: 10.0, 8: 20.0}}, least=4, margin=1.25) is None
    agreed = decide({"values": {4: 20.0, 8: 10.0}, "outputs": {4: 21.0, 8: 20.0}}, least=4, margin=1.25)
    assert agreed == Found(4, "weights", "20 against 10 for 8")


@pytest.mark.parametrize("way", ["half", "interleaved"])
def test_rotary_planes_show_in_what_queries_and_keys_have_in_common(way: str) -> None:
    random = np.random.default_rng(0)
    made = [turning_sample(random, way) for _ in range(4)]
    known = {"head_dim": SIZE}
    style = decide(rotary_pairs(made, ("half", "interleaved"), known), least=6, margin=2)
    flag = decide(rotary_pairs(made, (True, False), known), least=6, margin=2)
    assert style is not None and style.value == way
    assert flag is not None and flag.value is True
    width = decide(rotary_width(made, (1.0, 0.5), known), least=6, margin=2)
    assert width is None if way == "interleaved" else width is not None and width.value == 1.0
    plain = [{"query": one["query"], "key": one["query"]} for one in made]
    assert decide(rotary_pairs(plain, (True, False), known), least=6, margin=2) is None
    narrow = [{"query": one["query"][:, :-2], "key": one["key"]} for one in made]
    assert rotary_pairs(narrow, (True, False), known) == {}  # keys of other states


def turning_sample(random: np.random.Generator, way: str) -> dict[str, Array]:
    """Queries and keys [HEADS * SIZE, WIDTH] whose products turn each plane by an angle of its own."""
    keys = np.linalg.qr(random.standard_normal((WIDTH, WIDTH)))[0].reshape(HEADS, SIZE, WIDTH)
    places = np.arange(SIZE)
    first, second = (
        (places[: SIZE // 2], places[SIZE // 2 :]) if way == "half" else (places[0::2], places[1::2])
    )
    angle = random.uniform(0, 2 * np.pi, (HEADS, SIZE // 2, 1))
    queries = np.empty_like(keys)
    queries[:, first] = np.cos(angle) * keys[:, first] - np.sin(angle) * keys[:, second]
    queries[:, second] = np.sin(angle) * keys[:, first] + np.cos(angle) * keys[:, second]
    return {
        name: rows.reshape(-1, WIDTH).astype(np.float32) for name, rows in (("query", queries), ("key", keys))
    }


def test_norms_about_one_are_plain_and_those_about_zero_are_not() -> None:
    random = np.random.default_rng(0)

    def value(mean: float, spread: float) -> object:
        norms = [{"": (mean + spread * random.standard_normal(64)).astype(np.float32)} for _ in range(8)]
        found = decide(centre(norms, (False, True), {}), least=60, margin=20)
        return found and found.value

    assert value(1.0, 0.05) is False
    assert value(0.0, 0.2) is True
    assert value(0.4, 0.05) is None  # plain after long training, or 1 + weight


def test_rules_declare_statistics_that_there_are() -> None:
    facts = Rulebook().config_vocabulary.facts
    declared = [rule.weights for name in facts for rule in facts[name] if rule.weights]
    assert {said["statistic"] for said in declared if "statistic" in said} == {*STATISTICS}
    assert {said["buffer"] for said in declared if "stored" in said} == {*BUFFERS}
    for said in declared:
        assert {*said} <= {
            "statistic",
            "overrules",
            "of",
            "leaves",
            "optional",
            "known",
            "least",
            "margin",
            "stored",
            "buffer",
            "whole",
            "over",
            "shared",
        }
    for said in (said for said in declared if "statistic" in said):
        assert said["least"] > 1 and said["margin"] > 1


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """A BERT of two layers without its config, with weights of four heads of two channels each."""
    random = np.random.default_rng(0)
    tensors = {
        name: torch.from_numpy(random.standard_normal(shape).astype(np.float32))
        for name, shape in bert_shapes().items()
    }
    for at in range(2):
        for name in ("self.value", "output.dense"):
            shared = np.repeat(random.standard_normal((4, 8)), 2, axis=0) + 0.05 * random.standard_normal(
                (8, 8)
            )
            rows = shared if name == "self.value" else shared.T
            tensors[f"encoder.layer.{at}.attention.{name}.weight"] = torch.from_numpy(
                rows.astype(np.float32)
            ).contiguous()
    file = tmp_path / "model.safetensors"
    save_file(tensors, file)
    return file


def test_weights_answer_where_they_are_needed_and_headers_are_not_asked(bert: Path) -> None:
    plain, answered = describe(bert), describe(bert, purpose="weights")
    assert "attention.heads" in {question.name for question in plain.questions}
    assert "attention.heads" not in {question.name for question in answered.questions}
    heads = next(fact for fact in answered.facts if fact.name == "attention.heads")
    assert (heads.value, heads.evidence) == (4, "weights")
    assert answered.reading != "exact"
    said = describe(bert, {"attention.heads": 2}, purpose="weights")
    assert next(fact for fact in said.facts if fact.name == "attention.heads").evidence == "given"


def test_what_is_kept_is_read_again_of_the_same_tensors_alone(bert: Path, capsys: Captured) -> None:
    assert main(["infer", str(bert), "--remember"]) == 0
    assert "attention.heads = 4  weights: " in capsys.readouterr().out
    again = describe(bert)
    assert next(fact for fact in again.facts if fact.name == "attention.heads").evidence == "weights"
    kept = Path(f"{bert}{SUFFIX}")
    document = json.loads(kept.read_text())
    kept.write_text(json.dumps({**document, "tensors": "0" * 16}))
    other = describe(bert)
    assert "attention.heads" in {question.name for question in other.questions}
    assert any("other tensors" in note for note in other.notes)
    kept.write_text("{")
    assert any("was not read" in note for note in describe(bert).notes)


def test_an_answer_that_does_not_go_with_the_shapes_is_left_out(bert: Path) -> None:
    kept = remember(describe(bert, purpose="weights"))
    document = json.loads(kept.read_text())
    document["facts"]["attention.heads"]["value"] = 3
    kept.write_text(json.dumps(document))
    assert "attention.heads" in {question.name for question in describe(bert).questions}


@pytest.mark.parametrize(
    ("base", "is_stretched", "wanted"),
    [(10000.0, False, 10000.0), (500000.0, False, 500000.0), (10000.0, True, None)],
)
def test_stored_angles_show_their_base(base: float, is_stretched: bool, wanted: float | None) -> None:
    angles = (1 / base ** (torch.arange(0, 32, 2).float() / 32)).numpy()
    if is_stretched:
        angles[8:] /= 8
    assert angles_base(angles) == wanted
    assert angles_width(angles) == 32
    assert angles_width(-angles) is None


def test_a_llama_without_config_has_its_base_and_heads_from_stored_angles() -> None:
    names = {
        "embed_tokens": (9, 32),
        "layers.0.input_layernorm": (32,),
        "layers.0.post_attention_layernorm": (32,),
        "norm": (32,),
    }
    names |= {f"layers.0.self_attn.{name}_proj": (32, 32) for name in "qkvo"}
    names |= {f"layers.0.mlp.{name}": (48, 32) for name in ("gate_proj", "up_proj")} | {
        "layers.0.mlp.down_proj": (32, 48)
    }
    torch.manual_seed(0)
    state = {f"model.{name}.weight": torch.randn(shape) for name, shape in names.items()} | {
        "lm_head.weight": torch.randn(9, 32)
    }
    state["model.layers.0.self_attn.rotary_emb.inv_freq"] = 1 / 5000.0 ** (torch.arange(0, 8, 2).float() / 8)
    read = with_weights(describe(state, hints={"model_type": "llama"}))
    facts = {fact.name: (fact.value, fact.evidence) for fact in read.facts}
    assert facts["rotary.base"] == (5000.0, "weights") and facts["attention.head_dim"] == (8, "weights")
    assert facts["attention.heads"][0] == 4 and read.reading == "unverified"
    open_ = with_weights(describe(state))
    assert "attention.heads" in {question.fact for question in open_.questions}


@pytest.mark.parametrize(("count", "fact", "wanted"), [(4, "rotary.dim", 8), (8, "rotary.fraction", 1.0)])
def test_stored_angles_show_the_share_of_a_head_of_a_known_size(count: int, fact: str, wanted: float) -> None:
    state = {
        "token_emb.emb.weight": torch.randn(9, 32),
        "to_logits.weight": torch.randn(9, 32),
        "attn_layers.rotary_pos_emb.inv_freq": 1 / 1e4 ** (torch.arange(count).float() / count),
        "attn_layers.final_norm.gamma": torch.ones(32),
    }
    for at, names in enumerate((("to_q", "to_k", "to_v", "to_out"), ("ff.0.0", "ff.2"))):
        state[f"attn_layers.layers.{at}.0.0.gamma"] = torch.ones(32)
        state |= {f"attn_layers.layers.{at}.1.{name}.weight": torch.randn(32, 32) for name in names}
    read = with_weights(describe(state, hints={"attention.heads": 2, "task": "causal_lm"}))
    known = {one.name: (one.value, one.evidence) for one in read.facts}
    assert known[fact] == (wanted, "weights")
    assert "rotary.fraction" not in {question.fact for question in read.questions}


def llama_shapes(size: int = 32) -> dict[str, tuple[int, ...]]:
    """Names that several families share, whose norms scale by what is stored or by one more."""
    layer = {
        "self_attn.q_proj": (size, size),
        "self_attn.o_proj": (size, size),
        "mlp.down_proj": (size, 2 * size),
    }
    layer |= {f"self_attn.{word}_proj": (size // 2, size) for word in "kv"}
    layer |= {f"mlp.{word}_proj": (2 * size, size) for word in ("gate", "up")}
    layer |= {f"{word}_layernorm": (size,) for word in ("input", "post_attention")}
    whole = {f"model.layers.{at}.{name}.weight": shape for at in range(2) for name, shape in layer.items()}
    return {**whole, "model.norm.weight": (size,), "model.embed_tokens.weight": (50, size)}


@pytest.mark.parametrize("centre_of_norms", [0.0, 1.0])
def test_norms_tell_against_what_goes_with_their_names(tmp_path: Path, centre_of_norms: float) -> None:
    torch.manual_seed(0)
    tensors = {name: torch.randn(shape) * 0.2 for name, shape in llama_shapes().items()}
    tensors = {name: tensor + centre_of_norms * ("norm" in name) for name, tensor in tensors.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    read = with_weights(describe(tmp_path, purpose="weights"))
    offset = {fact.name: fact.value for fact in read.facts}["norm.offset"]
    assert offset is (centre_of_norms == 0)


def test_what_follows_from_sizes_is_something_before_they_are_solved(tmp_path: Path) -> None:
    """Embeddings beside norms of 1 + weight are scaled by the root of their width (paper 2403.08295)."""
    save_file(
        {name: torch.randn(shape) for name, shape in llama_shapes().items()}, tmp_path / "model.safetensors"
    )
    hints = {"norm.offset": True, "feed_forward.activation": "gelu_pytorch_tanh", "attention.heads": 4}
    hints |= {"rotary": True, "attention.rotary": True}
    missing = describe(tmp_path, purpose="weights", hints=hints).missing
    assert missing
    assert not any("embedding.scale" in line for line in missing)


def test_a_head_that_may_be_tied_is_told_of(tmp_path: Path) -> None:
    layer = {"attn.c_attn": (32, 96), "attn.c_proj": (32, 32), "mlp.c_fc": (32, 128), "mlp.c_proj": (128, 32)}
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (50, 32), "wpe.weight": (16, 32)}
    shapes |= {f"h.0.{name}.weight": shape for name, shape in layer.items()}
    shapes |= {f"h.0.{name}.bias": shape[1:] for name, shape in layer.items()}
    shapes |= {
        f"{name}.{end}": (32,) for name in ("h.0.ln_1", "h.0.ln_2", "ln_f") for end in ("weight", "bias")
    }
    whole = {f"transformer.{name}": shape for name, shape in shapes.items()}
    for name, more in (("bare", {}), ("headed", {"lm_head.weight": (50, 32)})):
        path = tmp_path / f"{name}.safetensors"
        save_file({key: torch.zeros(shape) for key, shape in (whole | more).items()}, path)
        notes = describe(path).notes
        assert any("--set task=causal_lm" in note for note in notes) is (name == "bare")

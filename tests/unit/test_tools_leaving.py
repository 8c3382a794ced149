"""`tools/score.py --leave-one-out`: what serves one type alone is taken out, and what is built then is compared."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

import mapper
from mapper.architecture import Fact, Place, Question
from mapper.catalogue import published
from mapper.rulebook.examples import header
from mapper.rulebook.rulebook import Rulebook

pytestmark = pytest.mark.xdist_group("leaving")  # what is left out is made once

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
try:
    import leaving
    import score
    import sharing
    import striking
    import usage
finally:
    sys.path.remove(str(TOOLS))

FAMILY = """
family: {name}
model_types: [{types}]
source: [a made-up decoder]
recognise:
  - "{{root}}.layers.{{n}}.self_attn.q_proj"
  - "{{root}}.layers.{{n}}.mlp.{gate}"
names: {{mlp.{gate}: feed_forward.gate}}
facts:
  attention.causal: {{value: true, why: a decoder}}
  attention.heads: {{config: {name}_heads}}
  rotary: {{value: true, why: turned positions}}
  norm.placement: {{value: pre, why: each norm stands before its block}}
"""
OF_SAGA = "  embedding.scale: {when: {model_type: saga}, value: 2.0, why: made up}\n"
TYPES = {  # type: its family, and what that calls a gate
    "tale": ("tale", "gates_proj"),
    "saga": ("tale", "gates_proj"),
    "epic": ("epic", "fates_proj"),
    "poem": ("epic", "fates_proj"),
    "myth": ("myth", "mists_proj"),
}


def _shapes(gate: str) -> dict[str, list[int]]:
    layer = "model.layers.0"
    return {
        "lm_head.weight": [99, 32],
        "model.embed_tokens.weight": [99, 32],
        f"{layer}.input_layernorm.weight": [32],
        f"{layer}.post_attention_layernorm.weight": [32],
        f"{layer}.mlp.down_proj.weight": [32, 48],
        f"{layer}.mlp.{gate}.weight": [48, 32],
        f"{layer}.mlp.up_proj.weight": [48, 32],
        **{f"{layer}.self_attn.{word}_proj.weight": [32, 32] for word in "kqvo"},
        "model.norm.weight": [32],
    }


def _config(model_type: str) -> dict[str, object]:
    return {
        "model_type": model_type,
        "architectures": [f"{model_type.title()}ForCausalLM"],
        f"{TYPES[model_type][0]}_heads": 4,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
    }


def _write(folder: Path, model_type: str, rules: Path) -> None:
    """A checkpoint of one type with what the rules make of made-up inputs."""
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(0)
    shapes = _shapes(TYPES[model_type][1])
    tensors = {name: torch.randn(shape, generator=generator) * 0.1 for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(_config(model_type)))
    inputs = {"input_ids": torch.arange(6).reshape(1, 6)}
    with torch.no_grad():
        made = mapper.build(folder, rules=[rules])(**inputs)
    save_file(inputs, folder / "inputs.safetensors")
    save_file({"logits": made.logits}, folder / "outputs.safetensors")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Two types of one family, one of which has a constant of its own, two alike, and one with words of its own."""
    top = tmp_path_factory.mktemp("leaving")
    families = top / "rules" / "families"
    families.mkdir(parents=True)
    for name, gate in dict(TYPES.values()).items():
        types = ", ".join(word for word, (family, _) in TYPES.items() if family == name)
        text = FAMILY.format(name=name, types=types, gate=gate)
        (families / f"{name}.yaml").write_text(text + OF_SAGA * (name == "tale"))
    for model_type in TYPES:
        _write(top / "cases" / model_type, model_type, top / "rules")
    rulebook = Rulebook([top / "rules"])
    cases = list(score.cases(top / "cases"))
    found = list(leaving.leave_one_out(cases, score.score, set(), rulebook))
    return SimpleNamespace(rulebook=rulebook, cases=cases, left={left.model_type: left for left in found})


def test_a_type_whose_kin_is_like_it_is_equal(made: SimpleNamespace) -> None:
    assert [made.left[name].outcome for name in ("epic", "poem")] == ["equal", "equal"]
    assert made.left["poem"].taken == ("row poem",)
    assert {case.score.reading for name in ("epic", "poem") for case in made.left[name].cases} == {
        "unverified"
    }


def test_a_constant_of_its_kin_is_a_question(made: SimpleNamespace) -> None:
    left = made.left["tale"]
    assert left.outcome == "asked"
    (case,) = left.cases
    assert [line.partition(" ")[0] for line in case.score.missing] == ["embedding.scale"]
    assert case.answers == {"embedding.scale": None}  # as the listed reading has it
    assert leaving.outcome(case.told) == "equal"


def test_a_constant_taken_in_silence_is_wrong(made: SimpleNamespace) -> None:
    left = made.left["saga"]
    taken = [
        line.partition(" (")[0] for line in left.taken
    ]  # nobody else has a scale, nor the step that reads it
    assert taken == ["fact embedding.scale", "flow embedding/scaled", "row saga"]
    assert left.outcome == "built and wrong"


def test_words_and_fields_of_its_own_are_taken_out_and_missed(made: SimpleNamespace) -> None:
    left = made.left["myth"]
    assert left.outcome == "asked"  # how many heads there are: its shapes say what the words would have said
    assert {"row myth", "word roles feed_forward.gate mlp.mists_proj"} <= set(left.taken)
    assert any(line.startswith("field myth_heads of attention.heads") for line in left.taken)
    assert left.cases[0].score.missing[0].startswith("attention.heads is unknown")


def test_who_does_not_know_does_not_answer() -> None:
    facts = [Fact("norm.eps", 1e-5, at, "rule", "") for at in ("*", "vision.*")]
    known = SimpleNamespace(facts=[*facts, Fact("norm.eps", 1e-6, "text.*", "rule", "")], leaves=[])
    assert leaving.answer(known, Question("norm.eps", "text.*")) == 1e-6
    assert leaving.answer(known, Question("norm.offset", "text.norm")) is False
    for question in (Question("norm.eps", "audio.*"), Question("rotary", "*")):
        with pytest.raises(LookupError):
            leaving.answer(known, question)


def test_idle_are_the_fields_of_which_the_family_says_so() -> None:
    known = {"old_flag"}
    config = SimpleNamespace(is_idle=lambda field, ignored: field in ignored)
    facts = SimpleNamespace(config=config, families=SimpleNamespace(ignored=lambda: known))
    truth = leaving.Truth(facts, None)
    both = Question("fields.idle", "*", ("loops,old_flag",))
    assert truth.answers(both) == {"fields.idle": "old_flag"}
    assert truth.answers(Question("fields.idle", "*", ("loops",))) == {}


def _at(*places: str) -> list[SimpleNamespace]:
    return [SimpleNamespace(block=SimpleNamespace(home=Place(place.split(".")))) for place in places]


def test_an_answer_is_that_of_the_places_that_are_asked_about() -> None:
    strides = {"stem.convolution": 2, "first.convolution": 1, "second": 2}
    scopes = _at(*strides)
    used = {number: (scope, "convolution.stride", None) for number, scope in enumerate(scopes)}
    facts = SimpleNamespace(
        used=used, get=lambda scope, name: SimpleNamespace(value=strides[str(scope.block.home)], problem="")
    )
    truth = leaving.Truth(facts, None)

    def answers(*places: str) -> dict[str, object]:
        blocks = tuple(scope.block for scope in _at(*places))
        return truth.answers(Question("convolution.stride", "*", blocks=blocks))

    assert answers("stem", "second") == {"convolution.stride": 2}
    assert answers("first", "second") == {"first:convolution.stride": 1, "second:convolution.stride": 2}


def test_a_question_that_answers_to_others_take_away_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    known = (SimpleNamespace(facts=[Fact("norm.eps", 1e-5, "*", "rule", "")], leaves=[]), None)
    unknown = Question("rotary.axes", "*")
    questions = {(): [Question("norm.eps", "*"), unknown], ("norm.eps",): []}
    monkeypatch.setattr(leaving, "_said", lambda known, one: {one.name: leaving.answer(known[0], one)})
    monkeypatch.setattr(
        leaving, "read", lambda path, rules, told: SimpleNamespace(questions=questions[tuple(told)])
    )
    assert leaving._answers(Path("x"), None, known) == {"norm.eps": 1e-5}
    questions["norm.eps",] = [unknown]  # and one that stays open leaves all without an answer
    assert leaving._answers(Path("x"), None, known) == {}


def test_what_is_printed_counts_types(made: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    left = [made.left[name] for name in ("epic", "saga", "tale")]
    assert leaving.tally(left) == (
        "left out, of 3 types: 1 equal, 1 built and wrong, 1 asked (1 equal when told), 0 skeleton, 0 refused; of 2 built, 1 right (50%)"
    )
    document = made.left["saga"].document()
    assert (document["type"], document["cases"][0]["reading"]) == ("saga", "unverified")
    assert "is off by" in document["cases"][0]["trouble"]


def test_outputs_of_another_kind_are_differences() -> None:
    made = SimpleNamespace(states=(torch.zeros(2), torch.ones(2)), logits=torch.zeros(2))
    wanted = {
        name: torch.zeros(2) for name in ("logits", "states", "states.0", "states.1", "states.2", "pooled")
    }
    assert [line.partition(" is ")[0] for line in score.differences(made, wanted)] == [
        "states",
        "states.1",
        "states.2",
        "pooled",
    ]


def test_a_composed_flow_is_its_steps() -> None:
    assert usage.units("attention/separate+rotary+plain") == [
        "attention/separate",
        "attention/rotary",
        "attention/plain",
    ]
    assert usage.units("layer/two_way") == ["layer/two_way"]


def test_a_step_around_several_slots_is_one_and_is_taken_out_of_all(made: SimpleNamespace) -> None:
    rulebook = made.rulebook
    around = {
        "layer/norm_after_attention",
        "layer/norm_after_cross_attention",
        "layer/norm_after_feed_forward",
    }
    rows = usage.row_steps(rulebook)
    assert {rows[name] for name in around} == {"layer/norm_after"}
    struck = striking.Struck(rulebook, {(usage.FLOW, "layer/norm_after")})
    names = [
        {step.name for page in book.flows.pages("layer") for step in page.steps}
        for book in (rulebook, struck)
    ]
    assert names[0] - names[1] == around


def test_no_family_names_a_flow_that_is_taken_out(made: SimpleNamespace) -> None:
    rulebook = made.rulebook
    name = next(name for family in rulebook.families for names in family.flows.values() for name in names)
    struck = striking.Struck(rulebook, {(usage.FLOW, name)})
    assert name not in struck.flows
    assert name in rulebook.flows
    named = {flow for family in struck.families for names in family.flows.values() for flow in names}
    assert name not in named
    assert len(struck.flows) == len(rulebook.flows) - 1


def test_a_step_that_is_taken_out_makes_no_flow(made: SimpleNamespace) -> None:
    rulebook, name = made.rulebook, "attention/separate+split+rotary+kept+causal+merged+output"
    struck = striking.Struck(rulebook, {(usage.FLOW, "attention/rotary")})
    assert rulebook.flows.get(name) is not None
    assert struck.flows.get(name) is None
    assert struck.flows.get(name.replace("rotary+", "rotary_partial+")) is not None


def test_the_published_fields_of_a_type_are_unknown_meanwhile(made: SimpleNamespace) -> None:
    struck = striking.Struck(made.rulebook, {(usage.ROW, "bert")})
    assert not any("bert" in family.model_types for family in struck.families)
    with struck.in_force():
        assert published.find("bert") is None
        assert published.find("t5") is not None
    assert published.find("bert") is not None


@pytest.mark.parametrize(
    ("source", "is_rename"),
    [
        ("def f(x):\n    return x.softmax(dim=-1, dtype=torch.float32)", True),
        ("def f(x, y):\n    '''as it is'''\n    return x", True),
        ("def f(x, y):\n    return min(x, y)", True),
        ("def f(x):\n    return x.new_zeros(x.shape[0], 3)", True),
        ("def f(x):\n    return torch.einsum('ij->ji', x)", False),
        ("def f(x):\n    return x.softmax(dim=-1) * 2", False),
        ("def f(x):\n    y = x.sum()\n    return y", False),
        ("class F:\n    pass", False),
    ],
)
def test_what_only_renames_torch(source: str, is_rename: bool) -> None:
    assert sharing.renames_torch(source) is is_rename


def test_lines_of_a_rule_file_are_those_before_its_examples(tmp_path: Path) -> None:
    file = tmp_path / "tale.yaml"
    file.write_text(
        "# a tale\nfamily: tale\n\nfacts:\n  a: {value: 1}\nexamples:\n  - name: one\nunused:\n  x: why\n"
    )
    assert sharing.own_lines(file) == 6


def test_what_an_example_asks_for_is_answered_to_count_its_flows() -> None:
    rulebook = Rulebook()
    family = next(family for family in rulebook.families if family.name == "curated_mpt")
    checkpoint = header(family.examples[0])
    assert sharing.infer(checkpoint, rulebook).questions  # its heads are in no config
    read = sharing.answered(checkpoint, rulebook)
    assert not read.questions and read.reading == "unverified"
    assert {"attention/causal_alibi", "score_bias/alibi"} <= usage.used_units(read)


def test_the_middle_of_what_an_answer_could_be_is_neither_one_head_nor_all() -> None:
    assert (sharing.middle((1, 2, 4, 8)), sharing.middle(())) == (4, 1)


def test_the_cost_of_types_is_what_older_rules_have_not() -> None:
    used = {"old": {"tale"}, "own": {"tale"}, "lent": {"tale", "epic"}, "other": {"epic"}}
    new, single = sharing.added({*used, "idle"}, {"old"}, used, {"tale", "myth"})
    assert (new, single) == ({"own", "lent"}, {"own"})

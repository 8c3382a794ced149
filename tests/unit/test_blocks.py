"""Pages of flows: which steps make a flow, what a page refuses, and what becomes one line."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from mapper.authoring.pairs import pairs
from mapper.errors import RuleError
from mapper.flows.flow import parse_flow
from mapper.flows.fold import fold
from mapper.flows.specialise import specialise
from mapper.inference.compose import compose
from mapper.inference.scopes import Scope
from mapper.rulebook.index import FlowTable, SpineEntry
from mapper.rulebook.pages import assemble, named, read_flows, read_page, whole
from mapper.rulebook.strict import parse_yaml

PAGE = """
block: mixer
doc: a mixer
spine: [project, norms, output]
shapes: {query: [hidden_size, hidden_size], norm: [hidden_size]}
project:
  separate:
    needs: [query]
    forward: |
      q = query(x)
  fused:
    doc: one map
    needs: [qkv]
    when: {mixer.fused: together}
    forward: |
      q = qkv(x)
norms:
  empty: {when: {mixer.normed: false}}
  normed:
    doc: a norm
    needs: [norm]
    forward: |
      q = norm(q)
  weightless:
    doc: a norm without weights
    when: {mixer.normed: true}
    forward: q = rms_norm_plain(q, 1e-6)
output:
  out: {needs: [output], forward: return output(q)}
"""


def page(text: str = PAGE):
    document = parse_yaml(text, "flows/mixer.yaml")
    return read_page(document.data, document.label, lambda keys: document.line(*keys))


def table(made):
    spine = SpineEntry(made.facts(), lambda: made)
    return FlowTable({}, made.flow, {made.topic: [spine]})


class Known:
    def __init__(self, value):
        self.value, self.problem = value, ""


class Facts:
    """As much of the facts as a choice asks for."""

    def __init__(self, **values):
        self.values = {name.replace("__", "."): value for name, value in values.items()}

    def full_name(self, scope, name):
        return name

    def get(self, scope, name):
        return Known(self.values[name]) if name in self.values else None


def filled(role: str):
    """A block of one map: what has no leaves is a part that a flow calls."""
    from mapper.architecture import Block, Leaf, Place

    block = Block("other", role, Place())
    block.roles["map"] = Leaf(Place((role, "map")), "Linear", {}, "made up")
    return block


def composed(roles: list[str], **facts):
    from mapper.architecture import Block, Place

    block = Block("other", "mixer", Place())
    block.roles.update({role: filled(role) for role in roles})
    made = page()
    return compose(Scope(block, None, (), None), [made], table(made), Facts(**facts))


def test_the_steps_whose_roles_are_there_make_the_flow():
    rule = composed(["query", "norm", "output"], mixer__normed=False).flow
    assert rule.name == "mixer/separate+normed+out"
    assert rule.doc == "a mixer with a norm"
    assert rule.needs == ("query", "norm", "output")
    assert rule.shapes == {"query": ("hidden_size", "hidden_size"), "norm": ("hidden_size",)}


def test_a_flow_is_found_again_by_its_name():
    made = page()
    rule = table(made)["mixer/fused+weightless+out"]
    assert rule.when == {"mixer.fused": ("together",), "mixer.normed": (True,)}
    with pytest.raises(KeyError):
        table(made)["mixer/fused+nothing+out"]


WRITTEN = """
block: blender
shapes:
  query: [hidden_size, hidden_size]
  output: [hidden_size, hidden_size]
flows:
  one: {doc: one, needs: [query, output], forward: return output(query(x))}
  wide: {doc: wide, needs: [query], shapes: {query: [wide_size, hidden_size]}, forward: return query(x)}
"""


def test_what_a_page_without_a_spine_says_of_shapes_holds_where_a_flow_says_no_other():
    one, wide = page(WRITTEN).flows
    assert one.shapes == {"query": ("hidden_size", "hidden_size"), "output": ("hidden_size", "hidden_size")}
    assert wide.shapes == {"query": ("wide_size", "hidden_size")}
    with pytest.raises(RuleError, match="no flow of the page has the role 'key'"):
        page(WRITTEN.replace("  output: [", "  key: ["))


def test_a_step_may_ask_for_a_role_of_another():
    """The role is there or not; it is nothing that a block above would have to hand down."""
    asking = "forward: |\n      if has(norm):\n        q = -q\n      return output(q)"
    made = page(
        PAGE.replace(
            "out: {needs: [output], forward: return output(q)}", f"out:\n    needs: [output]\n    {asking}"
        )
    )
    rules = {rule.name: parse_flow(rule) for rule in pairs(made)}
    assert all("norm" not in flow.free_names for flow in rules.values())
    assert rules["mixer/separate+weightless+out"].asked == {"norm"}


def test_a_role_that_no_step_claims_is_no_fit():
    found = composed(["query", "norm", "gate", "output"], mixer__normed=False)
    assert found.flow is None
    assert [rule.name for rule in found.near] == ["mixer/separate+normed+out"]


def test_leaving_a_slot_empty_is_not_free():
    assert composed(["query", "output"], mixer__normed=False).flow.name == "mixer/separate+out"
    assert composed(["query", "output"], mixer__normed=True).flow.name == "mixer/separate+weightless+out"
    assert composed(["query", "output"]).flow is None


def test_an_unknown_fact_is_a_question_and_not_false():
    near = composed(["query", "output"]).near
    assert {tuple(rule.when.get("mixer.normed", ())) for rule in near} >= {(True,), (False,)}


def test_an_unknown_fact_of_a_weaker_step_is_none():
    assert composed(["query", "norm", "output"]).flow.name == "mixer/separate+normed+out"


def test_a_step_says_the_shapes_of_what_others_read():
    narrow = PAGE.replace("    doc: a norm\n", "    doc: a norm\n    shapes: {query: [4], qkv: [4]}\n")
    rule = named(page(narrow), "mixer/separate+normed+out")
    assert rule is not None and rule.shapes == {"query": ("4",), "norm": ("hidden_size",)}


def test_every_two_steps_that_can_be_together_are_checked_together():
    names = {rule.name for rule in pairs(page())}
    for one in ("separate", "fused"):
        for other in ("normed", "weightless"):
            assert any(one in name and other in name for name in names)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("return output(q)", "y = output(q)"), "the last slot returns"),
        (("  fused:", "  normed:"), "two steps are called 'mixer/normed'"),
        (("spine: [project,", "spine: [entry, project,"), "the slot 'entry' of the spine has no steps"),
        (("block: mixer", "block: mixer\nsteps: 3"), "unknown field 'steps'"),
        (
            ("    needs: [qkv]", "    needs: [qkv]\n    shapes: {gate: [4]}"),
            "mixer/fused says the shape of 'gate'",
        ),
    ],
)
def test_a_page_that_cannot_be_is_refused_with_its_line(change, message):
    with pytest.raises(RuleError, match=r"flows/mixer\.yaml:\d+: .*" + message.replace("(", r"\(")):
        page(PAGE.replace(*change))


def test_conditions_of_two_steps_hold_both():
    made = page()
    steps = [made.slots[0].steps[1], made.slots[1].steps[2], made.slots[2].steps[0]]
    assert assemble(made, steps).when == {"mixer.fused": ("together",), "mixer.normed": (True,)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("q = f(x)\nq = g(q, 3)", "q = g(f(x), 3)"),
        ("q = f(x)\nk = f(x)\nq = g(q)\nk = g(k)", "q = g(f(x))\nk = g(f(x))"),
        ("q = f(x)\nq = g(q)\nq = h(q)", "q = g(f(x))\nq = h(q)"),
        ("y = a(q)\ny = b(y)\nreturn c(y)", "y = a(q)\nreturn c(b(y))"),
        ("q = f(x)\nx = h(x)\nq = g(q)", "q = f(x)\nx = h(x)\nq = g(q)"),
        ("q = f(x)\nz = h(q)\nq = g(q)", "q = f(x)\nz = h(q)\nq = g(q)"),
        ("q = f(x)\nq = g(q, q)", "q = f(x)\nq = g(q, q)"),
        ("y = x\ny = m(y)\nx = x + y\ny = x\ny = n(y)", "x = x + m(x)\ny = n(x)"),
        ("y = x\nx = h(x)\ny = m(y)", "y = x\nx = h(x)\ny = m(y)"),
        ("y = m(x)\ny = n(y)\ny = o(y)\nreturn x + y", "return x + o(n(m(x)))"),
        ("y = f(m(x))\ny = n(y)\nreturn x + y", "y = f(m(x))\nreturn x + n(y)"),
        ("y = m(x)\ny = y * s\nx = x + y\nx = n(x)", "x = n(x + m(x) * s)"),
        ("y = m(x)\ny = n(y) + o(y)\nx = x + y", "y = m(x)\ny = n(y) + o(y)\nx = x + y"),
        ("y = m(x)\nx = x + y\nz = n(y)", "y = m(x)\nx = x + y\nz = n(y)"),
        ("p = m(x)\nx = x + p", "p = m(x)\nx = x + p"),
        ("z = m(x)\ny = n(z)\nreturn x + y", "return x + n(m(x))"),
        ("z = m(x)\ny = n(z)\nreturn x + y + z", "z = m(x)\nreturn x + n(z) + z"),
        ("x = m(i)\nx = x + n(f(i))\nz = h(x)", "x = m(i)\nx = x + n(f(i))\nz = h(x)"),
        ("y = m(x)\nz = n(x)\nreturn x + y + z", "return x + m(x) + n(x)"),
        ("x = x[i]\nx = x[:, 1:]\nreturn x.flatten(0, 1)", "return x[i][:, 1:].flatten(0, 1)"),
        ("x = x[i]\nx = f(1, x)", "x = x[i]\nx = f(1, x)"),
        ("y = x[i]\nz = y[:, 1:]\nreturn y + z", "y = x[i]\nz = y[:, 1:]\nreturn y + z"),
        ("y = m(n(x)) * o(x)\ny = m(y)\nreturn y", "return m(m(n(x)) * o(x))"),
    ],
)
def test_what_alone_reads_the_line_before_takes_it_in(before, after):
    statements = fold(ast.parse(before).body, modules={"m", "n", "o"}, kept={"p"})
    assert [ast.unparse(node) for node in statements] == after.splitlines()


ROWS = """
block: mixer
doc: a mixer
spine: [one, two, out]
rows: {of: [one, two], slots: [norm, SLOT, sum]}
one:
  empty: {}
  one: {needs: [one], forward: y = one(y)}
two:
  empty: {ignored: {two: nothing is there for it}}
  two: {needs: [two], when: {mixer.both: true}, forward: y = two(y)}
norm:
  plain: {forward: y = x}
  normed:
    doc: norms
    needs: [norm_SLOT]
    shapes: {norm_SLOT: [hidden_size]}
    forward: y = norm_SLOT(x)
sum:
  plain: {forward: x = x + y}
out:
  plain: {forward: return x}
"""
OTHER = """
block: mixer
doc: another mixer
spine: [three]
three:
  last: {needs: [one, three], forward: return three(one(x))}
"""


def of_several(roles: list[str], other: str = OTHER, **facts):
    from mapper.architecture import Block, Place

    block = Block("other", "mixer", Place())
    block.roles.update({role: filled(role) for role in roles})
    pages = [page(ROWS), page(other)]
    spines = [SpineEntry(made.facts(), lambda made=made: made) for made in pages]
    flows = FlowTable({}, pages[0].flow, {"mixer": spines})
    return compose(Scope(block, None, (), None), pages, flows, Facts(**facts))


def test_slots_stand_around_each_that_is_there():
    rule = of_several(["one", "norm_one", "two"], mixer__both=True).flow
    assert rule.name == "mixer/normed_one+one+two"
    assert rule.shapes == {"norm_one": ("hidden_size",)}
    rows = ["y = norm_one(x)", "y = one(y)", "x = x + y", "y = x", "y = two(y)", "x = x + y", "return x"]
    assert rule.body.splitlines() == rows
    assert page(ROWS).slots[2].around == "one"


def test_slots_around_one_that_is_left_empty_are_left_out():
    rule = of_several(["one", "two"], mixer__both=False).flow
    assert rule.name == "mixer/one"
    assert rule.body.splitlines() == ["y = x", "y = one(y)", "x = x + y", "return x"]
    assert rule.ignored == {"two": "nothing is there for it"}


def test_of_several_spines_that_is_taken_which_reads_all_roles():
    assert of_several(["one", "three"], mixer__both=True).flow.name == "mixer/last"
    assert of_several(["one"], mixer__both=True).flow.name == "mixer/one"
    assert of_several(["one", "three", "four"], mixer__both=True).flow is None


def test_two_spines_that_fit_are_an_error():
    both = OTHER.replace("[one, three]", "[one]").replace("three(one(x))", "one(x)")
    assert of_several(["one"], both, mixer__both=True).tied == "'mixer/one', 'mixer/last'"


def test_spines_of_a_topic_end_in_steps_of_different_names():
    other = OTHER.replace("last:", "plain:").replace("three:", "out:").replace("[three]", "[out]")
    with pytest.raises(RuleError, match="ends in 'mixer/plain_out' too: call it otherwise"):
        read_flows([page(ROWS), page(other)])


def test_pairs_of_rows_have_what_they_stand_around():
    for rule in pairs(page(ROWS)):
        assert ("norm_one" in rule.needs) <= ("one" in rule.needs)


ROOT = """
block: root
doc: the model
spine: [towers, head]
outputs: [logits, last_hidden_state]
towers:
  tower: {needs: [tower], forward: x = tower(), outputs: {last_hidden_state: x}}
head:
  base: {doc: no head, when: {task: base}, outputs: {}}
  lm:
    doc: a language modeling head
    needs: [lm_head]
    beside: [tower]
    when: {task: causal_lm}
    ties: {lm_head: tower.token}
    without: [tower.patch]
    outputs: {logits: lm_head(x)}
"""


TIED_BEFORE = (
    ROOT.replace("[towers, head]", "[towers, words, head]")
    .replace("    ties: {lm_head: tower.token}\n", "")
    .replace(
        "head:\n",
        "words:\n  empty: {}\n  shared: {beside: [tower.token], ties: {lm_head: tower.token}}\nhead:\n",
    )
)


def root(roles: list[str], assumed: str, inner: str = "token", text: str = ROOT, **facts):
    from mapper.architecture import Block, Leaf, Place

    tower = Block("tower", "tower", Place())
    tower.roles[inner] = Leaf(Place((inner,)), "Embedding", {}, "")
    block = Block("other", "root", Place())
    block.roles.update({role: tower if role == "tower" else filled(role) for role in roles})
    made = page(text)
    return compose(Scope(block, None, (), None), [made], table(made), Facts(**facts), {"task": assumed})


def test_what_the_steps_give_is_returned_in_the_order_of_the_page():
    rule = root(["tower", "lm_head"], "causal_lm").flow
    assert rule.name == "root/tower+lm"
    assert rule.doc == "the model with a language modeling head"
    assert rule.body == "x = tower()\nreturn output(logits=lm_head(x), last_hidden_state=x)\n"
    assert rule.without == ("tower.patch",)


def test_an_assumed_fact_chooses_the_steps():
    assert root(["tower"], "base", head__tied=True, head__biased=False).flow.name == "root/tower+base"
    assert root(["tower", "lm_head"], "base").flow is None


def test_a_map_may_be_tied_by_a_step_before_it():
    tied = {"text": TIED_BEFORE, "head__tied": True, "head__biased": False}
    assert root(["tower"], "causal_lm", **tied).flow.name == "root/tower+shared+lm"
    assert root(["tower"], "causal_lm", **{**tied, "head__tied": False}).flow is None
    assert root(["tower"], "causal_lm", "patch", **tied).flow is None
    assert root(["tower", "lm_head"], "causal_lm", "patch", text=TIED_BEFORE).flow.name == "root/tower+lm"


def test_what_stands_beside_a_step_may_be_a_path():
    assert root(["tower"], "base", text=TIED_BEFORE).flow.name == "root/tower+shared+base"
    assert root(["tower"], "base", "patch", text=TIED_BEFORE).flow.name == "root/tower+base"


def test_a_map_without_tensors_is_there_where_it_is_tied():
    assert root(["tower"], "causal_lm", head__tied=True, head__biased=False).flow.name == "root/tower+lm"
    assert root(["tower"], "causal_lm", head__tied=False, head__biased=False).flow is None
    assert root(["tower"], "causal_lm", head__tied=True, head__biased=True).flow is None
    assert root(["tower"], "causal_lm", "patch", head__tied=True, head__biased=False).flow is None
    assert root(["tower"], "causal_lm", head__biased=False).flow is None  # asked


def test_a_tied_map_reads_the_weight_of_the_other():
    rule = root(["tower", "lm_head"], "causal_lm").flow
    there = {"tower", "tower.token"}
    statements = specialise(parse_flow(rule), lambda role: role in there, {}.__getitem__, frozenset(), {})
    assert "logits=F.linear(x, tower.token.weight)" in ast.unparse(statements[-1])


def test_a_name_that_nothing_below_can_read_is_dropped():
    body = "words = tower.token.weight\nreturn output(logits=F.linear(x, tower.token.weight))\n"
    rule = replace(root(["tower", "lm_head"], "causal_lm").flow, body=f"x = tower()\n{body}")
    statements = specialise(parse_flow(rule), lambda _: True, {}.__getitem__, frozenset({"words"}), {})
    assert "words" not in ast.unparse(statements)
    rule = replace(rule, body=f"words = tower.token.weight\nx = tower()\n{body}")
    statements = specialise(parse_flow(rule), lambda _: True, {}.__getitem__, frozenset({"words"}), {})
    assert ast.unparse(statements[0]) == "words = tower.token.weight"


def test_steps_of_a_slot_may_stand_on_another_page():
    more = "block: root\nfills: [head]\nhead:\n  ctc: {needs: [ctc_head], when: {task: ctc}, outputs: {logits: ctc_head(x)}}\n"
    joined = whole([page(ROOT), page(more)])
    assert [step.name for step in joined.slots[1].steps] == ["root/base", "root/lm", "root/ctc"]
    with pytest.raises(RuleError, match="the spine of 'root' has no slot 'heads'"):
        whole([page(ROOT), page(more.replace("head]", "heads]").replace("\nhead:", "\nheads:"))])
    with pytest.raises(RuleError, match="two steps are called 'root/lm'"):
        whole([page(ROOT), page(more.replace("  ctc:", "  lm:"))])


def test_what_is_given_must_be_among_the_outputs():
    with pytest.raises(RuleError, match="root/tower gives 'states', which is not among the outputs"):
        page(ROOT.replace("{last_hidden_state: x}", "{states: x}"))


SERVING = """
block: mixer
also_for: [mixers]
doc: a mixer
spine: [project, output]
shapes: {output: [hidden_size, inner_size]}
project:
  whole: {needs: [query], forward: y = query(x)}
  packed: {needs: [query], beside: [output], when: {mixer.packed: true}, shapes: {output: [hidden_size, packed_size]}, forward: y = query(x)}
output:
  out:
    needs: [output]
    options: [bias]
    ignored: {bias: the same numbers as those of the output}
    forward: |
      if has(bias) and fact.mixer.tied:
        return output(y) + bias
      return output(y)
"""


def test_a_page_may_serve_other_roles_too():
    from mapper.rulebook.index import index_flows

    spines = index_flows([parse_yaml(SERVING, "flows/mixer.yaml")])["spines"]
    assert spines["mixers"] == spines["mixer"]


def test_a_step_may_say_the_shape_of_what_stands_beside_it():
    made = page(SERVING)
    whole_steps, packed = [
        [slot.steps[at if at < len(slot.steps) else 0] for slot in made.slots] for at in (0, 1)
    ]
    assert assemble(made, whole_steps).shapes == {"output": ("hidden_size", "inner_size")}
    assert assemble(made, packed).shapes == {"output": ("hidden_size", "packed_size")}


def test_what_a_step_reads_in_some_cases_alone_stays_ignored_in_the_others():
    made = page(SERVING)
    assert "bias" in assemble(made, [slot.steps[0] for slot in made.slots]).ignored

"""Architectures from a stranger: a FormatError or a module, never another error, and nothing runs that mapper did not write."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mapper import limits
from mapper.errors import FormatError
from mapper.weights.built.blueprint import as_data
from mapper.weights.built.model import module_from
from tests.weights.small_models import read, stored

BERT = stored(as_data(read("bert"), {}))
CACHED = stored(as_data(read("gpt2"), {"cache": True}))
RESNET = stored(as_data(read("resnet"), {}))
LAYER = "layer/attention+post_norm_attention+feed_forward+post_norm_feed_forward"
CODE = "__import__('os').system('touch {marker}')"


def first_flow(data: dict[str, Any]) -> dict[str, Any]:
    return data["flows"][data["root"]["flow"]]


def block_with(data: dict[str, Any], role: str) -> dict[str, Any]:
    """Some block that has a role."""
    waiting = [data["root"]]
    while waiting:
        block = waiting.pop()
        for name, value in block["roles"].items():
            if name == role:
                return block
            waiting += [
                item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)
            ]
    raise KeyError(role)


def in_body(text: str) -> Callable[[dict[str, Any]], None]:
    def edit(data: dict[str, Any]) -> None:
        first_flow(data)["body"] = f"{text}\n{first_flow(data)['body']}"

    return edit


def at(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    """Puts a value at a path; its first key may be a role's name for a block that has it."""

    def edit(data: dict[str, Any]) -> None:
        place: Any = data
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return edit


def renamed_role(data: dict[str, Any]) -> None:
    roles = data["root"]["roles"]
    roles["x: print(1)\n    def y"] = roles.pop(next(iter(roles)))


def nested(data: dict[str, Any]) -> None:
    block = copy.deepcopy(data["root"])
    for _ in range(limits.NAME_DEPTH + 2):
        block = {"kind": "other", "role": "inner", "roles": {"inner": block}}
    data["root"]["roles"]["inner"] = block


def cyclic(data: dict[str, Any]) -> None:
    data["root"]["roles"]["inner"] = data["root"]


HOSTILE: dict[str, Callable[[dict[str, Any]], None]] = {
    "code in a body": in_body(CODE),
    "an import in a body": in_body("import os"),
    "a dunder in a body": in_body("x = input_ids.__class__"),
    "a lambda in a body": in_body("f = lambda: 0"),
    "a walrus in a body": in_body("x = (y := 1)"),
    "an open file in a body": in_body("x = open('/etc/passwd')"),
    "torch.load in a body": in_body("x = torch.load('x')"),
    "getattr in a body": in_body("x = getattr(input_ids, 'data')"),
    "a body of another language": in_body("{% x %}"),
    "a huge body": in_body("x = 1\n" * 3000),
    "a deep body": in_body("x = " + "(" * 5000 + "1" + ")" * 5000),
    "code in an activation": at("activations", "gelu", value=CODE),
    "code in an argument": at("flows", LAYER, "leaves", value={"attention": {"eps": CODE}}),
    "a newline in a fact": at("facts", 0, 0, value="norm.eps\nimport os"),
    "a keyword as a fact": at("facts", 0, 0, value="norm.class"),
    "a role of code": renamed_role,
    "a role with a dunder": at("root", "role", value="__class__"),
    "an input of code": at("inputs", value={"x): import os  #": {"table": []}}),
    "a docstring that ends": at("inputs", "input_ids", value={"table": [["shape", ['"""', "import os"]]]}),
    "an unknown kind of input": at("inputs", "input_ids", value={"table": [["kind", "Tensor = eval"]]}),
    "a family of code": at("family", value='x)."""\nimport os\n"""'),
    "rules of code": at("rules", value='."""\nimport os\n"""'),
    "another reading": at("reading", value="certain"),
    "an unknown leaf": at("leaves", 0, "kind", value="Module(); import os; nn.Linear"),
    "an unknown dtype": at("leaves", 0, "tensors", "weight", value=["os.system", 1]),
    "a tensor of code": at("leaves", 0, "tensors", value={"x = eval('1')": ["F32", 2]}),
    "a tensor that is too large": at("leaves", 0, "tensors", "weight", value=["F32", 2**60, 2**60]),
    "a negative extent": at("leaves", 0, "tensors", "weight", value=["F32", -1, 4]),
    "a fact that is not there": at("root", "facts", value={"x": 10**6}),
    "a leaf that is not there": at("root", "roles", value={"x": 10**6}),
    "a flow that is not there": at("root", "flow", value="root/nothing"),
    "a flow of another name": at("flows", value={"../x": {"doc": "", "body": "return x", "file": ""}}),
    "a billion layers": at("leaves", 0, "place", value=["layer", [[0, 10**9]]]),
    "many lists of many": at("leaves", 0, "place", value=[[[0, 1999]], [[0, 1999]], [[0, 1999]]]),
    "indices that go back": at("leaves", 0, "place", value=["layer", [[3, 1]]]),
    "indices that are true": at("leaves", 0, "place", value=["layer", [[True]]]),
    "a long word": at("leaves", 0, "place", value=["x" * 5000]),
    "a deep place": at("leaves", 0, "place", value=["x"] * 100),
    "blocks that nest": nested,
    "a block that holds itself": cyclic,
    "no operations": at("operations", value=None),
    "operations that are true": at("operations", value=True),
    "facts of another type": at("facts", value={"a": 1}),
    "leaves of another type": at("leaves", value=7),
    "a root of another type": at("root", value=[]),
    "a value in a value": at("facts", 0, 1, value={"tuple": {"float": "inf"}}),
    "a number beyond all": at("facts", 0, 1, value=10**400),
    "nothing at all": dict.clear,
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_architecture_is_a_format_error(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = json.loads(json.dumps(BERT).replace("{marker}", "marker"))
    HOSTILE[case](data)
    start = time.process_time()
    with pytest.raises(FormatError, match="the stored architecture cannot be") as caught:
        module_from(data)
    assert time.process_time() - start < 5
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000
    assert list(tmp_path.iterdir()) == []


def test_a_power_in_a_shape_is_not_computed() -> None:
    data = json.loads(json.dumps(BERT).replace("{marker}", "marker"))
    at("flows", LAYER, "shapes", value={"norm_attention": ["9 ** 9 ** 9 ** 9"]})(data)
    start = time.process_time()
    model = module_from(data)
    assert time.process_time() - start < 5
    assert {tuple(weight.shape) for name, weight in model.named_parameters() if "LayerNorm" in name} == {
        (64,)
    }


@pytest.mark.parametrize("value", [None, 3, "text", [], [1], {"operations": []}, True])
def test_what_is_no_architecture_is_a_format_error(value: Any) -> None:
    with pytest.raises(FormatError):
        module_from(value)


def test_a_count_of_layers_that_there_are_not_makes_no_large_list() -> None:
    data = copy.deepcopy(CACHED)
    for fact in data["facts"]:
        if fact[0].endswith("layers"):
            fact[1] = 10**12
    start = time.process_time()
    with suppress(FormatError):
        module_from(data)
    assert time.process_time() - start < 5


def test_a_norm_of_dimensions_made_of_code_is_refused() -> None:
    data = copy.deepcopy(RESNET)
    for flow in data["flows"].values():
        flow["leaves"] = {
            role: {"dimensions": "2"} for role in (*flow.get("needs", []), *flow.get("options", []))
        }
    with pytest.raises(FormatError, match="1, 2 or 3 dimensions"):
        module_from(data)


def test_flows_that_call_one_another_without_end_are_refused() -> None:
    body = "x = inner(x)\nx = inner(x)\nreturn inner(x)"
    flow = {"doc": "twice", "takes": ["x"], "parts": ["inner"], "body": body, "file": "x"}
    last = {"doc": "once", "takes": ["x"], "body": "return x + 1", "file": "x"}
    block: dict[str, Any] = {"kind": "other", "role": "inner", "flow": "part/last"}
    for _ in range(25):
        block = {"kind": "other", "role": "inner", "flow": "part/nest", "roles": {"inner": block}}
    data = copy.deepcopy(BERT)
    data["flows"] |= {"part/nest": flow, "part/last": last}
    data["root"]["roles"]["inner"] = block
    first = first_flow(data)
    first["options"] = [*first.get("options", []), "inner"]
    first["body"] = f"z = inner(input_ids)\n{first['body']}".replace(
        "return output(", "return output(z=z, ", 1
    )
    start = time.process_time()
    with pytest.raises(FormatError, match="call one another"):
        module_from(data)
    assert time.process_time() - start < 10


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8),
    st.sampled_from(["__import__('os')", "a\nb", '"""', "x.__class__", "return eval(x)", "layer", "weight"]),
    st.lists(st.integers(-2, 3), max_size=3), st.dictionaries(st.text(max_size=4), st.integers(-2, 3), max_size=2),
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside of a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inside for found in places(item, (*path, key)))]


PLACES = {name: places(data)[1:] for name, data in (("bert", BERT), ("gpt2", CACHED), ("resnet", RESNET))}
DATA = {"bert": BERT, "gpt2": CACHED, "resnet": RESNET}


@settings(max_examples=60)
@given(st.data())
def test_any_change_is_a_format_error_or_a_module(drawn: st.DataObject) -> None:
    name = drawn.draw(st.sampled_from(sorted(DATA)))
    data = copy.deepcopy(DATA[name])
    for _ in range(drawn.draw(st.integers(1, 3))):
        *path, last = drawn.draw(st.sampled_from(PLACES[name]))
        place: Any = data
        try:
            for key in path:
                place = place[key]
            if drawn.draw(st.integers(0, 3)):
                place[last] = drawn.draw(ODD)
            else:
                del place[last]
        except (KeyError, IndexError, TypeError):  # an earlier change took the place away
            continue
    try:
        made = module_from(data)
    except FormatError as error:
        assert "\n" not in str(error)
    else:
        assert isinstance(made, nn.Module)


def test_more_layers_than_are_stored_are_refused_before_they_are_made() -> None:
    data = copy.deepcopy(BERT)
    for leaf in data["leaves"]:
        leaf["place"] = [part if isinstance(part, str) else [[0, 19_999]] for part in leaf["place"]]
    start = time.process_time()
    with pytest.raises(FormatError, match="and 42 are stored"):
        module_from(data, tensors=42)
    assert time.process_time() - start < 5

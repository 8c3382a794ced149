"""Whatever stands in a config: an answer or one line, never a traceback; and nothing of it is executed."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mapper.emission import emit
from mapper.errors import MapperError
from mapper.inference import infer
from mapper.report import Report
from mapper.sources import open_source
from tests.hostile import GOOD
from tests.shipped import RULEBOOK

MANIFESTS = {
    name: ({key: {"shape": list(tensor.shape), "dtype": "F32"} for key, tensor in tensors.items()}, config)
    for name, (tensors, config) in ((name, make()) for name, make in GOOD.items())
}
# Fields that some rule reads, whichever model they belong to.
KNOWN = sorted(
    {
        field.partition(".")[0]
        for rules in RULEBOOK.config_vocabulary.facts.values()
        for rule in rules
        for field in (*rule.config, *(name for names in rule.towers.values() for name in names))
    }
    | {name for tower in RULEBOOK.config_vocabulary.towers.values() for name in tower.configs}
    | {"architectures", "model_type", "quantization_config"}
)
INNER = sorted(
    {
        field.rpartition(".")[2]
        for rules in RULEBOOK.config_vocabulary.facts.values()
        for rule in rules
        for field in rule.config
    }
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 70),
    st.integers(-(10**40), 10**40),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        [
            "__import__('os').system('true')",
            "full_attention",
            "longrope",
            "linear",
            "yarn",
            "llama3",
            "gelu",
            "x" * 5000,
        ]
    ),
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.one_of(st.sampled_from(INNER), st.text(max_size=5)), inner, max_size=5)
    ),
    max_leaves=12,
)
configs = st.dictionaries(
    st.one_of(st.sampled_from(KNOWN), st.text(max_size=6)), values, min_size=1, max_size=4
)


def answer(name: str, changes: dict[str, object]) -> None:
    """Read, report and write it, or refuse it in one line."""
    tensors, config = MANIFESTS[name]
    try:
        architecture = infer(
            open_source({"tensors": tensors, "config": {**config, **changes}}, purpose="headers"), RULEBOOK
        )
        report = Report(architecture)
        json.loads(report.to_json())
        assert str(report)
        emit(architecture)
    except MapperError as error:
        assert str(error) and "\n" not in str(error).replace("\\n", "")


@pytest.mark.parametrize("name", list(MANIFESTS))
@given(changes=configs)
@example(changes={"rope_scaling": {"type": "yarn", "factor": 1e300, "original_max_position_embeddings": 1}})
@example(changes={"rope_scaling": {"type": "longrope", "short_factor": [], "long_factor": {}}})
@example(changes={"layer_types": [[]], "sliding_window": 10**40})
@example(changes={"num_hidden_layers": 10**15, "sliding_window_pattern": 3, "sliding_window": 2})
@settings(max_examples=12)
def test_any_config_has_an_answer(name: str, changes: dict[str, object]) -> None:
    answer(name, changes)


@pytest.mark.parametrize(("place", "field"), list(enumerate(KNOWN)), ids=KNOWN)
def test_any_field_may_hold_anything(place: int, field: str) -> None:
    """One value of six, another for the next field."""
    name = list(MANIFESTS)[place % len(MANIFESTS)]
    for value in (0, -1, 10**30, "x", [1], {"a": [None]})[place % 6 :: 6]:
        answer(name, {field: value})

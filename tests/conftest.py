"""What tests of several packages share."""

from __future__ import annotations

import logging
import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch

from mapper._collector import keep_what_there_is
from mapper._parsed import SUFFIX, cache_folder
from mapper.architecture import Architecture, Block, Fact, Leaf, Place
from mapper.checkpoint import Checkpoint, TensorInfo
from mapper.sources import transfer
from tests.hub import Hub, Serve

# The same examples in every run, however busy the machine is; fixtures that last are meant.
hypothesis.settings.register_profile(
    "tests", deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
)
hypothesis.settings.load_profile("tests")

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # as many workers run as there are cores; small tests gain nothing


LEFT_OUT = set((Path(__file__).parent / "parity" / "left_out.txt").read_text().splitlines())
# Of tests that do the same with each of many rules, fields, models or inputs, one in so many by a digest of its name: of
# a function, a file or a folder, what is said most closely; 0: none, where the rest is early enough. `EVERY=rest` runs what
# is left out, as `.ci/run` does.
SAMPLED = {
    "tests/parity": 6,
    "tests/parity/test_smollm2_gguf.py": 1,
    "tests/parity/test_tracing.py": 8,
    "tests/golden/test_generated.py::test_source_is_regenerated_to_the_byte": 4,
    "tests/golden/test_generated.py::test_source_imports_with_torch_alone_and_has_the_headers_keys": 4,
    "tests/golden/test_generated.py::test_the_folder_holds_the_catalogues_classes_and_nothing_else": 0,
    "tests/golden/test_generated.py::test_the_page_is_regenerated": 0,
    "tests/golden/test_generated.py::test_nothing_of_the_catalogue_is_left_without_a_role": 0,
    "tests/property/test_config_fuzz.py::test_any_field_may_hold_anything": 27,
    "tests/property/test_hostile_names.py::test_a_generated_file_loads_its_checkpoint": 4,
    "tests/rules/test_examples.py::test_example_is_read_as_it_says_and_runs": 96,
    "tests/rules/test_examples.py::test_flows_and_vocabulary_are_good_and_no_family_steals_an_example_of_another": 0,
    "tests/rules/test_lacking.py::test_nothing_can_be_taken_from_an_example_unnoticed": 64,
    "tests/rules/test_namings.py::test_the_examples_of_a_naming_are_as_it_says": 16,
    "tests/rules/test_published_fields.py::test_fields_of_published_configs_change_nothing": 4,
    "tests/unit/test_build.py::test_hostile_names_become_modules_with_their_weights": 4,
    "tests/unit/test_chains.py::test_a_chain_computes_what_torch_does": 6,
    "tests/unit/test_chains.py": 2,
    "tests/unit/test_chains_asked.py": 2,
    "tests/unit/test_chains_joined.py": 2,
    "tests/unit/test_chains_published.py": 2,
    "tests/unit/test_chains_told.py": 2,
    "tests/unit/test_chains_of_many_kinds.py::test_outputs_are_equal_when_it_is_told": 2,
    "tests/unit/test_chains_of_cells.py::test_outputs_are_those_of_the_loop": 3,
    "tests/unit/test_chains_written_by_hand.py::test_outputs_are_equal_when_it_is_told": 3,
    "tests/unit/test_combinations.py": 3,
    "tests/unit/test_combinations_chains.py": 3,
    "tests/unit/test_combinations_encoders.py": 3,
    "tests/unit/test_combinations_readers.py": 5,
    "tests/unit/test_combinations_vision.py": 5,
    "tests/test_wheel.py": 0,
    "tests/unit/test_emission_edited.py::test_every_size_can_be_edited_alone": 3,
    "tests/unit/test_emission_types.py": 0,
    "tests/unit/test_export.py": 2,
    "tests/unit/test_flow_groups.py::test_groups_show_of_shipped_flows_what_all_answers_show": 2,
    "tests/unit/test_graph_branches.py": 2,
    "tests/unit/test_graph_straight.py::test_what_a_graph_would_grow_to_is_not_made_at_import": 3,
    "tests/unit/test_hostile.py::test_a_bad_input_is_refused_or_read_right": 16,
    "tests/unit/test_inference_asking.py::test_answers_in_truth_give_the_reading_of_the_listed_type": 3,
    "tests/unit/test_inference_hinted.py::test_a_refused_hint_never_costs_the_family": 3,
    "tests/unit/test_inference_twins.py": 4,
    "tests/unit/test_inference_unlisted.py": 4,
    "tests/unit/test_inference_unlisted_layers.py": 2,
    "tests/unit/test_inference_unread_fields.py": 4,
    "tests/unit/test_inference_unlisted_towers.py": 2,
    "tests/unit/test_inference_stated_type.py::test_a_type_that_is_none_is_a_finding_that_says_what_follows": 4,
    "tests/unit/test_operations_tracing.py": 12,
    "tests/unit/test_inference_other_words.py": 2,
    "tests/unit/test_transformers_written_by_hand.py": 3,
    "tests/unit/test_woven.py": 2,
    "tests/unit/test_published.py::test_the_table_is_what_the_installed_classes_say": 0,
    "tests/unit/test_refresh_catalogue.py": 2,
    "tests/unit/test_rulebook_check.py": 2,
    "tests/unit/test_reparametrized.py::test_a_weight_is_made_of_what_is_stored": 6,
    "tests/unit/test_rulebook_passed.py": 5,
    "tests/unit/test_rules_new.py": 2,
    "tests/unit/test_rulebook_index.py::test_what_is_found_is_what_a_look_at_every_rule_finds": 12,
    "tests/unit/test_running_beams.py::test_text_is_that_of_the_reference": 3,
    "tests/unit/test_source_array_names.py::test_outputs_are_those_of_the_network": 3,
    "tests/weights/test_built.py::test_the_source_from_the_data_is_that_of_the_architecture": 15,
    "tests/weights/test_built.py::test_the_model_from_the_data_computes_the_same_to_the_bit": 3,
    "tests/weights/test_pairing.py::test_a_prefix_is_said_and_everything_behind_it_compared": 3,
    "tests/weights/test_generated_saved.py::test_what_a_file_says_is_enough_to_read_the_same_again": 15,
    "tests/weights/test_generated_saved.py::test_a_model_of_a_generated_file_has_the_architecture_of_the_built_one": 3,
    "tests/weights/test_renaming.py::test_other_architectures_come_back_the_same": 3,
}
_COUNT = pytest.StashKey[int]()


def runs_all(config: pytest.Config, folder: str) -> bool:
    """Whether somebody asks for tests by name, or for those of a folder: the whole command takes a part of them."""
    named = any(folder in str(argument) for argument in config.args)
    return named or bool(config.option.keyword) or os.environ.get("EVERY") == "all"


def is_sampled_out(nodeid: str) -> bool:
    """Whether the whole command leaves out one of many tests that are alike."""
    test = nodeid.partition("[")[0]
    file = test.partition("::")[0]
    said = (SAMPLED.get(name) for name in (test, file, file.rpartition("/")[0]))
    one_in = next((number for number in said if number is not None), 1)
    return one_in == 0 or zlib.crc32(nodeid.encode()) % one_in != 0


def pytest_report_header(config: pytest.Config) -> str | None:
    left_out = "parity tests are left out, as others take their steps; `pytest tests/parity` runs all"
    return None if runs_all(config, "parity") or _rest() else f"{len(LEFT_OUT)} {left_out}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    out = {item.nodeid for item in items if _alone(item) in LEFT_OUT or is_sampled_out(_alone(item))}
    if _rest():
        items[:] = [item for item in items if item.nodeid in out]
        return
    out = {item.nodeid for item in items if item.nodeid in out and not runs_all(config, _folder(item))}
    config.stash[_COUNT] = len(out - LEFT_OUT)
    items[:] = [item for item in items if item.nodeid not in out]


def _alone(item: pytest.Item) -> str:
    """What a test is called where it is in no group of a worker, which has its name behind an `@`."""
    groups = {str(mark.args[0]) for mark in item.iter_markers("xdist_group")}
    return item.nodeid.removesuffix(f"@{'_'.join(sorted(groups))}") if groups else item.nodeid


def _rest() -> bool:
    """Whether somebody asks for what the whole command leaves out, and for that alone."""
    return os.environ.get("EVERY") == "rest"


def _folder(item: pytest.Item) -> str:
    """The folder of tests that an item is in; its file, where that stands beside the folders."""
    return item.path.name if item.path.parent == Path(__file__).parent else item.path.parent.name


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """The same random numbers in every run, whatever ran before on this worker.

    Of processors alone: `torch.manual_seed` keeps the stack of its caller for each other device, for milliseconds.
    """
    torch.default_generator.manual_seed(0)


def pytest_collection_finish() -> None:
    """What all tests were collected from stays: looking through it again and again took a tenth of their time.

    Loggers of torch pass on what they are told: pytest hangs handlers of its own to each of dozens that do not, six times a test.
    """
    keep_what_there_is()
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("torch") and isinstance(logger, logging.Logger):
            logger.propagate = True


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(
        session.config, "workeroutput"
    ):  # of several processes: each has collected all, and one of them reports
        session.config.workeroutput["sampled_out"] = session.config.stash.get(_COUNT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[_COUNT] = getattr(node, "workeroutput", {}).get("sampled_out", 0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if count := config.stash.get(_COUNT, 0):
        terminalreporter.write_line(
            f"{count} tests are left out, as others do the same with other rules, fields or models; EVERY=rest runs them, EVERY=all runs all"
        )


@pytest.fixture(scope="session")
def user_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of a user of this process's own, with what the collection of tests has kept of the shipped rules."""
    home = tmp_path_factory.getbasetemp() / "home"
    kept = home / "cache" / "mapper"
    kept.mkdir(parents=True)
    for path in cache_folder().glob(f"*{SUFFIX}"):
        shutil.copy2(path, kept)
    return home


@pytest.fixture(autouse=True)
def _own_folders(user_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the rules, caches or hub credentials of whoever runs it."""
    for name in ("XDG_CONFIG_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(user_home / name.lower()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(user_home / "cache"))
    for name in ("HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE", "NO_COLOR", "MAPPER_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Serve]:
    """Starts hubs with the given repositories and options; the last one is asked, with an empty cache."""
    from huggingface_hub import close_session, constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(transfer, "FIRST_WAIT", 0.01)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "*")
    running: list[Hub] = []

    def start(repos: dict[str, dict[str, bytes]], **options: object) -> Hub:
        hub = Hub(repos, **options).__enter__()  # type: ignore[arg-type]
        running.append(hub)
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        return hub

    close_session()
    yield start
    close_session()
    for hub in running:
        hub.__exit__()


@pytest.fixture
def bert() -> Architecture:
    """Two equal layers as inference describes them, made by hand: reports are tested on it."""
    return hand_made_bert()


def hand_made_bert(layers: int = 2) -> Architecture:
    indices = tuple(range(layers))
    layer = Place(("encoder", "layer", indices))
    scope = (("tower", None), ("layers", indices))
    attention = {
        role: _linear(layer.child("attention", "self", role), (8, 8), (*scope, ("attention", None)), role)
        for role in ("query", "key", "value")
    }
    output = _linear(
        layer.child("attention", "output", "dense"), (8, 8), (*scope, ("attention", None)), "output"
    )
    up = _linear(layer.child("intermediate", "dense"), (16, 8), (*scope, ("feed_forward", None)), "up")
    down = _linear(layer.child("output", "dense"), (8, 16), (*scope, ("feed_forward", None)), "down")
    token = Leaf(
        Place(("embeddings", "word_embeddings")),
        "Embedding",
        {"weight": TensorInfo((99, 8), "F32")},
        "vocabulary/embeddings.yaml: word_embeddings",
        (("tower", None), ("embeddings", None)),
        "token",
    )
    leaves = [token, *attention.values(), output, up, down]
    heads = Fact("attention.heads", 2, "encoder.layer.*", "config", "num_attention_heads")
    activation = Fact("feed_forward.activation", "gelu", "encoder.layer.*", "default", "families/bert.yaml")
    blocks = Block(
        "layer",
        "layers",
        layer,
        indices,
        {
            "attention": Block(
                "attention",
                "attention",
                layer.child("attention"),
                None,
                {**attention, "output": output},
                "attention/separate",
                {"heads": heads},
            ),
            "feed_forward": Block(
                "feed_forward",
                "feed_forward",
                layer,
                None,
                {"up": up, "down": down},
                None,
                {"activation": activation},
            ),
        },
        "layer/attention+post_norm_attention+feed_forward+post_norm_feed_forward",
    )
    embeddings = Block("embedding", "embeddings", Place(("embeddings",)), None, {"token": token})
    tower = Block("other", "tower", Place(()), None, {"embeddings": embeddings, "layers": [blocks]})
    tensors = {key: leaf.tensors[key.rpartition(".")[2]] for leaf in leaves for key in Leaf.keys(leaf)}
    return Architecture(
        Checkpoint("tiny-bert", "safetensors", tensors, {"model_type": "bert"}),
        leaves,
        Block("other", "root", Place(()), None, {"tower": tower}, "root/tower+base"),
        family="bert",
        reading="exact",
        rules="0123456789ab",
        facts=[heads, activation],
        inputs={"input_ids": {"shape": ["batch", "length"], "dtype": "int64", "optional": False}},
    )


def _linear(
    place: Place, shape: tuple[int, int], block: tuple[tuple[str, tuple[int, ...] | None], ...], role: str
) -> Leaf:
    tensors = {"weight": TensorInfo(shape, "F32"), "bias": TensorInfo(shape[:1], "F32")}
    return Leaf(place, "Linear", tensors, "vocabulary/attention.yaml", block, role)

"""Networks whose names and sizes are those of one published code are read without a question, and no others are."""

from __future__ import annotations

import io
import json
import zipfile

import pytest
import torch
from torch import nn

import mapper
from mapper.errors import HintError
from tests.unit.published_chains import PUBLISHED, actor_critic, agent, linear, mixer, patches, settled
from tests.unit.small_chains import Named


def tensors(made):
    return [made] if isinstance(made, torch.Tensor) else list(made)


def same(found, wanted):
    """Every output of the reference is one of those that were made, whatever they are called."""
    made = [value for value in vars(found).values() if isinstance(value, torch.Tensor)]
    for one in tensors(wanted):
        assert any(one.shape == other.shape and torch.allclose(one, other, atol=1e-5) for other in made)


@pytest.mark.parametrize("make", PUBLISHED, ids=[make.__name__ for make in PUBLISHED])
@torch.no_grad()
def test_a_published_network_is_read_without_a_question(make):
    model, x = make()
    same(mapper.build(settled(model).state_dict())(x), model(x))


def asked(model, **hints):
    return {
        question.fact for question in mapper.inspect(model.state_dict(), hints=hints).architecture.questions
    }


@torch.no_grad()
def test_actors_and_critics_that_many_write_alike_are_asked_what_they_give():
    """Probabilities of some codes, logits of others: the layers have the same names and sizes."""
    model, x = agent()
    assert asked(model) == {"chain.output"}
    same(mapper.build(settled(model).state_dict(), hints={"chain.output": "none"})(x), model(x))


def test_names_without_the_usual_sizes_leave_the_activation_open():
    assert "chain.activation" in asked(actor_critic(hidden=9)[0])


def test_a_folder_of_its_own_sizes_is_no_copy():
    """A target network has the very layers of the other."""
    model = Named(None, net=linear(4, 6, 2), net_target=linear(4, 6, 2))
    roles = {leaf.place.first(): leaf.role for leaf in mapper.inspect(model.state_dict()).architecture.leaves}
    assert roles["net.0"] and not roles["net_target.0"]
    other = Named(None, net=linear(4, 6, 2), net_target=linear(4, 6, 3))
    found = mapper.inspect(other.state_dict()).architecture
    assert found.missing and all(leaf.role or found.reading == "skeleton" for leaf in found.leaves)


def test_what_is_known_may_be_said_again_and_nothing_else():
    model, x = patches()
    state = settled(model).state_dict()
    built = mapper.build(state, hints={"chain.pooling": "none"})
    torch.testing.assert_close(built(x).output, model(x))
    with pytest.raises(HintError, match="says nothing here"):
        mapper.inspect(state, hints={"chain.pooling": "max_2"})


def test_convolutions_in_folders_of_dilated_ones_are_asked_how_far_apart_they_read():
    """None of the published names: most such networks double it from layer to layer."""
    layers = {f"conv{number}": nn.Conv1d(4, 4, 3) for number in range(3)}
    assert "chain.dilation" in asked(Named(None, tcn=Named(None, **layers)))
    assert "chain.dilation" not in asked(Named(None, body=Named(None, **layers)))


@torch.no_grad()
def test_a_mixer_of_convolutions_is_asked_for_its_activation_and_how_large_patches_are():
    model, x = mixer()
    assert asked(model) == {"chain.activation", "chain.stride"}
    hints = {"chain.activation": "gelu", "stem.0:chain.stride": 4}
    same(mapper.build(settled(model).state_dict(), hints=hints)(x), model(x))


def test_what_a_wrapper_calls_may_be_added_to_what_it_reads():
    """A folder that is called `fn` stands in one that does something around it."""
    for name, is_asked in (("fn", True), ("conv", False)):
        body = Named(None, **{name: nn.Sequential(nn.Conv2d(4, 4, 3, padding=1))})
        model = Named(None, first=nn.Conv2d(3, 4, 3), body=body, last=nn.Conv2d(4, 2, 1))
        assert ("chain.residual" in asked(model)) == is_asked


def archive(path, model, kwargs):
    """An agent as Stable-Baselines3 saves it: its settings as JSON beside a file of torch.save."""
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr(
            "data", json.dumps({"gamma": 0.99, "policy_kwargs": {":type:": "<class 'dict'>", **kwargs}})
        )
        zipped.writestr("policy.pth", file.getvalue())
    return path


@pytest.mark.parametrize(
    ("between", "kwargs"),
    [
        (nn.ReLU, {"net_arch": [9, 9], "activation_fn": "<class 'torch.nn.modules.activation.ReLU'>"}),
        (nn.Tanh, {"net_arch": [9, 9]}),  # the library's default
    ],
)
def test_an_agent_is_read_from_its_zip_file_with_its_settings(tmp_path, between, kwargs):
    model, x = actor_critic(9, between)
    path = archive(tmp_path / "agent.zip", model, kwargs)
    same(mapper.build(path)(x), model(x))
    assert not any("read by no rule" in found for found in mapper.inspect(path).architecture.findings)


def test_an_activation_that_settings_name_and_no_rule_knows_is_asked_for(tmp_path):
    path = archive(
        tmp_path / "agent.zip", actor_critic(9)[0], {"net_arch": [9, 9], "activation_fn": "<class 'my.Own'>"}
    )
    assert "chain.activation" in {one.fact for one in mapper.inspect(path).architecture.questions}


def test_layers_of_another_name_are_no_copy():
    """Two networks of the same sizes: neither has the name of the other and a word more."""
    model = Named(None, source=linear(4, 6, 2), target=linear(4, 6, 2))
    found = mapper.inspect(model.state_dict()).architecture
    assert all(leaf.role or found.reading == "skeleton" for leaf in found.leaves)


@pytest.mark.parametrize("value", ["+".join(["gelu"] * 3000), "relu+nothing"])
def test_too_many_activations_in_turn_are_no_activation(value):
    model, _ = patches()
    with pytest.raises(HintError):
        mapper.inspect(model.state_dict(), hints={"chain.activation": value})


def test_a_zip_file_whose_settings_are_broken_is_refused(tmp_path):
    path = archive(tmp_path / "agent.zip", actor_critic()[0], {})
    with zipfile.ZipFile(path) as zipped:
        kept = zipped.read("policy.pth")
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr("data", "{")
        zipped.writestr("policy.pth", kept)
    with pytest.raises(mapper.MapperError, match="data"):
        mapper.inspect(path)


@torch.no_grad()
def test_a_first_layer_behind_something_without_tensors_reads_flat_maps():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 2))
    x = torch.randn(2, 1, 3, 4)
    built = mapper.build(model.state_dict(), hints={"chain.activation": "relu", "chain.output": "none"})
    torch.testing.assert_close(built(x).output, model(x))


@torch.no_grad()
def test_an_activation_may_stand_behind_the_last_state():
    def call(self, x):
        return self.fc(torch.relu(self.gru(x)[0][:, -1]))

    model, x = Named(call, gru=nn.GRU(5, 6, batch_first=True), fc=nn.Linear(6, 2)), torch.randn(2, 7, 5)
    hints = {"chain.positions": "last", "chain.output": "none", "gru:chain.activation": "relu"}
    torch.testing.assert_close(mapper.build(model.state_dict(), hints=hints)(x).output, model(x))


@pytest.mark.parametrize(
    ("word", "last"),
    [("relu+max_2+flatten", nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())), ("sin_30", None)],
)
@torch.no_grad()
def test_what_is_computed_from_the_last_layer_may_be_a_pooling_or_any_activation(word, last):
    model, x = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 5, 3)), torch.randn(2, 3, 9, 9)
    wanted = last(model(x)) if last else torch.sin(30 * model(x))
    hints = {"chain.stride": 1, "chain.padding": 0, "chain.activation": "relu", "chain.output": word}
    torch.testing.assert_close(
        mapper.build(model.state_dict(), hints=hints)(x).output, wanted, atol=1e-4, rtol=1e-3
    )


def test_where_the_activation_of_a_layer_with_a_norm_stands_is_asked():
    layers = {"conv1": nn.Conv2d(3, 4, 3), "bn1": nn.BatchNorm2d(4), "conv2": nn.Conv2d(4, 5, 3)}
    questions = mapper.inspect(Named(None, **layers).state_dict()).architecture.questions
    (asked,) = [question for question in questions if question.fact == "chain.activation_before_norm"]
    assert asked.candidates == ("false", "true") and asked.places == ("bn1",)


@torch.no_grad()
def test_so_many_words_as_a_layer_reads_stand_in_one_row():
    def call(self, ids):
        return self.linear2(torch.relu(self.linear1(self.embeddings(ids).flatten(1))))

    layers = {"embeddings": nn.Embedding(11, 3), "linear1": nn.Linear(12, 5), "linear2": nn.Linear(5, 11)}
    model, ids = Named(call, **layers), torch.randint(0, 11, (2, 4))
    assert asked(model) == {"chain.activation", "chain.output"}
    built = mapper.build(model.state_dict(), hints={"chain.activation": "relu", "chain.output": "none"})
    torch.testing.assert_close(built(ids).output, model(ids))

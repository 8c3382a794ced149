"""Modules as nodes of a tree: saved once, checked with all the rest, filled in place."""

import pytest
import torch
from torch import nn

from mapper.errors import StructureError, UnsupportedLeaf
from tests.weights.streams import loaded, saved


def model(value: float) -> nn.Sequential:
    made = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout())
    with torch.no_grad():
        for tensor in made.state_dict().values():
            tensor.fill_(value)
    return made


def values(module: nn.Module) -> set[float]:
    return {float(number) for tensor in module.state_dict().values() for number in tensor.flatten()}


def test_a_module_is_filled_in_place():
    like = model(1)
    parameter, version = like[0].weight, like[0].weight._version
    parameter.grad = torch.ones(3, 2)
    back = loaded(saved({"net": model(3)}), {"net": like})
    assert back["net"] is like
    assert like[0].weight is parameter
    assert parameter._version > version
    assert parameter.grad is not None
    assert values(like) == {3}


def test_a_module_may_be_the_whole_tree():
    like = model(1)
    assert loaded(saved(model(3)), like) is like
    assert values(like) == {3}


def test_a_problem_anywhere_leaves_every_module_as_it_was():
    like = {"one": model(1), "step": 0, "two": model(2)}
    stored = {"one": model(3), "step": 1.5, "two": model(4)}
    with pytest.raises(StructureError) as caught:
        loaded(saved(stored), like)
    assert caught.value.path == "['step']"
    assert (values(like["one"]), values(like["two"])) == ({1}, {2})


def test_a_state_that_differs_is_named_below_its_module():
    with pytest.raises(StructureError) as caught:
        loaded(saved([{"net": model(1)}]), [{"net": nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(3))}])
    assert caught.value.path == "[0]['net'].0.weight"
    assert "here Tensor float32 [4, 2], stored Tensor float32 [3, 2]" in str(caught.value)


def test_another_dtype_is_not_cast():
    with pytest.raises(StructureError, match="dtype: here Tensor float16"):
        loaded(saved(model(1)), model(1).half())


def test_a_bias_that_one_side_lacks_is_named():
    with pytest.raises(StructureError, match="only in the file") as caught:
        loaded(saved(nn.Linear(2, 2)), nn.Linear(2, 2, bias=False))
    assert caught.value.path == ".bias"


def test_a_buffer_that_is_not_persistent_is_not_stored():
    made = nn.Linear(1, 1)
    made.register_buffer("scratch", torch.zeros(3), persistent=False)
    assert loaded(saved(nn.Linear(1, 1)), made) is made


def test_a_module_in_two_places_is_stored_once():
    net = nn.Linear(100, 100)
    assert len(saved({"a": net, "b": [net]})) < len(saved({"a": net, "b": [nn.Linear(100, 100)]})) - 40_000


def test_what_was_shared_may_be_apart_here_and_the_other_way_round():
    net, one, two = model(3), model(1), model(2)
    loaded(saved({"a": net, "b": [net]}), {"a": one, "b": [two]})
    assert (values(one), values(two)) == ({3}, {3})
    assert one[0].weight.data_ptr() != two[0].weight.data_ptr()
    shared = model(1)
    loaded(saved({"a": model(3), "b": [model(3)]}), {"a": shared, "b": [shared]})
    assert values(shared) == {3}


def test_two_values_for_one_tensor_are_an_error():
    shared = model(1)
    with pytest.raises(StructureError, match=r"tie: .*\['a'\]\.0\.weight") as caught:
        loaded(saved({"a": model(3), "b": model(4)}), {"a": shared, "b": shared})
    assert caught.value.path == "['b'].0.weight"
    assert values(shared) == {1}


def test_a_problem_with_what_was_shared_is_told_where_it_is_here():
    net = model(3)
    with pytest.raises(StructureError) as caught:
        loaded(saved({"a": net, "b": net}), {"a": model(1), "b": model(2).double()})
    assert caught.value.path == "['b'].0.weight"


def tied() -> nn.ModuleDict:
    made = nn.ModuleDict({"embed": nn.Embedding(4, 3), "head": nn.Linear(3, 4, bias=False)})
    made["head"].weight = made["embed"].weight
    return made


def test_tied_parameters_stay_tied_and_take_either_path():
    like = tied()
    loaded(saved([tied()]), [like])
    assert like["head"].weight is like["embed"].weight
    only = tied()
    loaded(saved([nn.ModuleDict({"head": nn.Linear(3, 4, bias=False)})]), [only])
    assert only["head"].weight is only["embed"].weight


def test_a_tie_between_two_modules_of_the_tree_is_stored_once():
    one, two = nn.Linear(50, 50, bias=False), nn.Linear(50, 50, bias=False)
    apart = len(saved([one, two]))
    two.weight = one.weight
    assert len(saved([one, two])) < apart - 9_000
    with torch.device("meta"):
        left, right = nn.Linear(50, 50, bias=False), nn.Linear(50, 50, bias=False)
    right.weight = left.weight
    loaded(saved([one, two]), [left, right])
    assert left.weight is right.weight
    assert torch.equal(left.weight, one.weight)


def test_a_module_on_meta_gets_real_parameters():
    with torch.device("meta"):
        like = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout())
    loaded(saved({"net": model(3)}), {"net": like})
    assert values(like) == {3}
    assert isinstance(like[0].weight, nn.Parameter)


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_a_lazy_module_takes_the_shape_and_cannot_be_saved_before_it_has_one():
    like = nn.LazyLinear(3)
    with pytest.raises(UnsupportedLeaf):
        saved([like])
    loaded(saved([nn.Linear(2, 3)]), [like])
    assert like.weight.shape == (3, 2)


def test_missing_states_stay_without_strict():
    like = model(1)
    loaded(saved({"net": nn.Sequential(nn.Linear(2, 3))}), {"net": like}, strict=False)
    assert values(like[1]) == {1}


def test_a_module_that_contains_itself_is_walked_once():
    net = nn.Linear(2, 2)
    net.around = nn.Sequential()
    net.around.add_module("inner", net)
    other = nn.Linear(2, 2)
    other.around = nn.Sequential()
    other.around.add_module("inner", other)
    loaded(saved([net]), [other])
    assert torch.equal(other.weight, net.weight)


def test_a_module_is_a_leaf_where_is_leaf_says_so():
    stop = lambda node: isinstance(node, nn.Module)  # noqa: E731
    like = model(1)
    assert loaded(saved([model(3), 5], is_leaf=stop), [like, 0], is_leaf=stop) == [like, 5]
    assert values(like) == {1}


def test_the_states_may_share_memory_with_other_leaves_of_like():
    like = model(1)
    back = loaded(saved({"net": model(3), "w": model(3)[0].weight}), {"net": like, "w": like[0].weight})
    assert back["w"] is not like[0].weight
    assert torch.equal(back["w"], like[0].weight)

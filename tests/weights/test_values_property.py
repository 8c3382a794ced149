"""Any nesting of any supported values, through aux and through trees; training that goes on as if never stopped."""

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from torch import nn

from tests.weights.aux_values import same, through
from tests.weights.streams import loaded, saved

NUMBERS = st.booleans() | st.integers(-(2**300), 2**300) | st.floats() | st.complex_numbers()
TEXT = st.text(st.characters(exclude_categories=()), max_size=8)
KEYS = st.recursive(
    st.none() | NUMBERS | TEXT | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=2).map(tuple),
    max_leaves=3,
)
DTYPES = (
    hnp.scalar_dtypes()
    | hnp.byte_string_dtypes()
    | hnp.unicode_string_dtypes()
    | hnp.array_dtypes(max_size=3)
)
ARRAYS = hnp.arrays(
    DTYPES.filter(lambda dtype: dtype.char not in "gG" and not dtype.hasobject),
    hnp.array_shapes(min_dims=0, min_side=0, max_side=3),
)
TENSORS = hnp.arrays(
    st.sampled_from(["u1", "i8", "f4", "f8", "c8", "c16", "?"]),
    hnp.array_shapes(min_dims=0, min_side=0, max_side=3),
).map(lambda array: torch.from_numpy(array.copy(order="C")))
LEAVES = NUMBERS | ARRAYS | TENSORS
VALUES = st.recursive(
    LEAVES | st.none() | TEXT | st.binary(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=8,
)
QUIET = hypothesis.settings(max_examples=40)


@QUIET
@hypothesis.given(st.dictionaries(KEYS, VALUES, max_size=3))
def test_any_aux_comes_back_exactly(aux):
    assert same(through(aux), aux)


@QUIET
@hypothesis.given(VALUES)
def test_any_tree_comes_back_exactly(tree):
    assert same(loaded(saved(tree), tree), tree)


OPTIMIZERS = {
    "SGD": {"momentum": 0.9},
    "Adam": {"amsgrad": True},
    "AdamW": {},
    "Adagrad": {},
    "Adadelta": {},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "ASGD": {},
    "Rprop": {},
    "Adafactor": {},
}


def training(kind):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 1))
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.01, **OPTIMIZERS[kind])
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5])
    return model, optimizer, schedule


def steps(model, optimizer, schedule, count):
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(8, 4) + np.random.random()).square().mean().backward()
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_training_goes_on_bit_for_bit(kind):
    np.random.seed(1)
    model, optimizer, schedule = training(kind)
    steps(model, optimizer, schedule, 3)
    back = through(
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "random": (torch.get_rng_state(), np.random.get_state()),
        }
    )
    steps(model, optimizer, schedule, 4)
    other, other_optimizer, other_schedule = training(kind)
    other.load_state_dict(back["model"])
    other_optimizer.load_state_dict(back["optimizer"])
    other_schedule.load_state_dict(back["schedule"])
    torch.set_rng_state(back["random"][0])
    np.random.set_state(back["random"][1])
    steps(other, other_optimizer, other_schedule, 4)
    assert same(other.state_dict(), model.state_dict())
    assert same(other_optimizer.state_dict(), optimizer.state_dict())
    assert same(other_schedule.state_dict(), schedule.state_dict())


SCHEDULES = {
    "LambdaLR": {"lr_lambda": lambda epoch: 0.9},
    "MultiplicativeLR": {"lr_lambda": lambda epoch: 0.9},
    "StepLR": {"step_size": 2},
    "MultiStepLR": {"milestones": [1, 3, 3]},
    "ConstantLR": {},
    "LinearLR": {},
    "ExponentialLR": {"gamma": 0.9},
    "PolynomialLR": {},
    "CosineAnnealingLR": {"T_max": 5},
    "CosineAnnealingWarmRestarts": {"T_0": 3},
    "CyclicLR": {"base_lr": 0.1, "max_lr": 1.0},
    "OneCycleLR": {"max_lr": 1.0, "total_steps": 10},
    "ReduceLROnPlateau": {},
}


def schedules(kind, optimizer):
    found = torch.optim.lr_scheduler
    if kind == "SequentialLR":
        return found.SequentialLR(
            optimizer, [found.ConstantLR(optimizer), found.MultiStepLR(optimizer, [2])], [3]
        )
    if kind == "ChainedScheduler":
        return found.ChainedScheduler(
            [found.ConstantLR(optimizer), found.MultiStepLR(optimizer, [2])], optimizer
        )
    if kind == "SWALR":
        return torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.05)
    return getattr(found, kind)(optimizer, **SCHEDULES[kind])


@pytest.mark.parametrize("kind", [*SCHEDULES, "SequentialLR", "ChainedScheduler", "SWALR"])
def test_the_state_of_every_schedule_goes_in_unchanged(kind):
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1, momentum=0.9)
    schedule = schedules(kind, optimizer)
    optimizer.step()
    schedule.step(*([0.5] if kind == "ReduceLROnPlateau" else []))
    state = schedule.state_dict()
    assert same(through({"schedule": state}), {"schedule": state})

"""What training code saves: the model is read, the optimizer and what a run keeps are not, and several models have names."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from mapper.checkpoint import Checkpoint
from mapper.errors import MissingSourceError
from mapper.sources import open_source

LEGACY: dict[str, Any] = {"_use_new_zipfile_serialization": False}


def state(start: float = 0.0, prefix: str = "") -> dict[str, torch.Tensor]:
    """A model of two layers."""
    return OrderedDict(
        (f"{prefix}layers.{at}.{name}", torch.full(shape, start + at))
        for at in range(2)
        for name, shape in (("fc.weight", (4, 3)), ("fc.bias", (4,)), ("norm.weight", (4,)))
    )


NAMES = list(state())


def stepped(optimizer: type[torch.optim.Optimizer], **options: Any) -> dict[str, Any]:
    """The state of an optimizer after its first step."""
    parameters = [torch.nn.Parameter(tensor.clone()) for tensor in state().values()]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    made = optimizer(parameters, lr=0.1, **options)  # type: ignore[call-arg]
    made.step()
    return made.state_dict()


ADAM = stepped(torch.optim.AdamW, amsgrad=True)
SGD = stepped(torch.optim.SGD, momentum=0.9)
LOSS = torch.tensor(1.5)
ONE: dict[str, tuple[Any, str]] = {
    "nanoGPT": (
        {"model": state(), "optimizer": ADAM, "model_args": {"n_layer": 2}, "iter_num": 5, "best_val_loss": LOSS, "config": {}},
        "model",
    ),
    "a compiled one, its counter a tensor": ({"optimizer": ADAM, "model": state(), "iter_num": torch.tensor(5)}, "model"),
    "Lightning": (
        {
            "epoch": 1, "global_step": torch.tensor(2), "state_dict": state(), "optimizer_states": [ADAM],
            "lr_schedulers": [{"last_epoch": 1, "_last_lr": [0.1], "scale": LOSS}],
            "callbacks": {"ModelCheckpoint": {"best_model_score": LOSS}}, "hyper_parameters": {"lr": LOSS},
        },
        "state_dict",
    ),
    "a tutorial's": ({"model_state_dict": state(), "optimizer_state_dict": SGD, "epoch": 3, "loss": LOSS}, "model_state_dict"),
    "fairseq": ({"args": None, "model": state(), "last_optimizer_state": ADAM, "extra_state": {"val_loss": LOSS}}, "model"),
    "random numbers, a scaler, losses": (
        {
            "model": state(), "rng_state": torch.get_rng_state(), "rng_states": [torch.get_rng_state()], "losses": torch.ones(9),
            "scaler": {"scale": torch.ones(2), "growth_factor": 2.0, "growth_interval": 9}, "optimizer": SGD,
        },
        "model",
    ),
    "averages without names": ({"model": state(), "ema": {"decay": 0.9, "shadow_params": list(state().values())}}, "model"),
    "words of its own": ({"my_weights": state(), "my_adam": ADAM, "val": LOSS}, "my_weights"),
    "several optimizers": ({"net": state(), "opts": {"first": ADAM, "second": SGD}}, "net"),
    "moments by name": ({"model": state(), "opt": {f"{name}.exp_avg": torch.ones(2) for name in NAMES}}, "model"),
    "moments alone": ({"model": state(), "opt": ADAM["state"]}, "model"),
    "one level further down": ({"payload": {"net": state()}, "optim": ADAM, "it": LOSS}, "payload.net"),
}  # fmt: skip


def saved(path: Path, value: Any, **options: Any) -> Path:
    torch.save(value, path, **options)
    return path


def values(checkpoint: Checkpoint, name: str) -> float:
    assert checkpoint.read is not None
    return float(checkpoint.read([name])[name].float().mean())


@pytest.mark.parametrize("options", [{}, LEGACY], ids=["zip", "legacy"])
@pytest.mark.parametrize("case", ONE)
def test_only_the_model_of_a_training_file_is_read(
    case: str, options: dict[str, Any], tmp_path: Path
) -> None:
    value, home = ONE[case]
    checkpoint = open_source(saved(tmp_path / "x.pt", value, **options), purpose="weights")
    assert list(checkpoint.tensors) == NAMES
    assert checkpoint.others == {}
    assert any(f"the tensors are those under '{home}'" in note for note in checkpoint.notes)
    assert values(checkpoint, "layers.1.fc.weight") == 1.0


@pytest.mark.parametrize(
    ("value", "read", "other"),
    [
        ({"model": state(), "ema": state(5), "opt": ADAM, "args": {}}, "model", "ema"),
        ({"ema_model": state(5), "net_g": state(), "step": LOSS}, "net_g", "ema_model"),
        ({"params": state(5), "params_ema": state()}, "params_ema", "params"),
        ({"states": {"net": state(), "swa": state(5)}, "optimizer": SGD}, "states.net", "states.swa"),
    ],
)
@pytest.mark.parametrize("options", [{}, LEGACY], ids=["zip", "legacy"])
def test_another_model_of_a_file_is_said_and_can_be_named(
    value: Any, read: str, other: str, options: dict[str, Any], tmp_path: Path
) -> None:
    file = saved(tmp_path / "x.pt", value, **options)
    first = open_source(file, purpose="weights")
    assert any(
        f"another model lies under '{other}'; name it as in x.pt#{other}" in note for note in first.notes
    )
    for source, expected in ((str(file), 1.0), (f"{file}#{read}", 1.0), (f"{file}#{other}", 6.0)):
        checkpoint = open_source(source, purpose="weights")
        assert list(checkpoint.tensors) == NAMES
        assert values(checkpoint, "layers.1.fc.weight") == expected


def test_models_of_one_rank_are_read_together_without_what_a_run_keeps(tmp_path: Path) -> None:
    value = {
        "generator": state(),
        "judge": state(2, "conv."),
        "ema_generator": state(5),
        "g_opt": ADAM,
        "step": LOSS,
    }
    checkpoint = open_source(saved(tmp_path / "x.pt", value), purpose="weights")
    assert checkpoint.tables == ("generator", "judge")
    assert len(checkpoint.tensors) == 2 * len(NAMES)
    assert {name.partition(".")[0] for name in checkpoint.tensors} == {"generator", "judge"}
    assert len(open_source(f"{tmp_path / 'x.pt'}#ema_generator", purpose="headers").tensors) == len(NAMES)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ({**state(), "step": LOSS}, [*NAMES, "step"]),
        ({**state(), "optimizer": ADAM}, NAMES),
        ({"embed": torch.ones(5, 4), "model": {"weight": torch.ones(4, 4)}}, ["embed", "model.weight"]),
        ({"encoder": {"weight": torch.ones(4, 4)}, "decoder": {"weight": torch.ones(4, 4)}}, ["encoder.weight", "decoder.weight"]),
        ({"logit": {"scale": LOSS}, "head": {"weight": torch.ones(4, 4)}}, ["logit.scale", "head.weight"]),
        ({"model": {"weight": torch.ones(1, 1), "bias": torch.ones(1)}, "loss": LOSS}, ["weight", "bias"]),
        ({"gate": {"sum": torch.ones(4), "momentum": torch.ones(4)}}, ["gate.sum", "gate.momentum"]),
    ],
)  # fmt: skip
def test_what_is_a_model_by_itself_stays_whole(value: Any, names: list[str], tmp_path: Path) -> None:
    assert list(open_source(saved(tmp_path / "x.pt", value), purpose="headers").tensors) == names


def test_a_file_of_an_optimizer_alone_is_no_model(tmp_path: Path) -> None:
    import mapper

    for at, value in enumerate((ADAM, {"optimizer": ADAM, "epoch": 3})):
        report = mapper.inspect(saved(tmp_path / f"{at}.pt", value))
        assert "the state of an optimizer" in str(report)


def test_a_part_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    file = saved(tmp_path / "x.pt", {"model": state(), "ema": state()})
    with pytest.raises(MissingSourceError, match=r"no part 'emma' in it; it has .*model.*ema"):
        open_source(f"{file}#emma", purpose="headers")


def test_a_file_whose_name_has_the_mark_is_itself(tmp_path: Path) -> None:
    file = saved(tmp_path / "x#ema.pt", {"model": state(), "ema": state(5)})
    assert values(open_source(str(file), purpose="weights"), "layers.0.fc.weight") == 0.0


def test_tables_that_are_held_many_times_over_are_told_apart_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mapper.sources import training_files

    shared = {str(at): {"x": [torch.ones(1)] * 50} for at in range(20)}
    value = {"model": state(), **{f"t{at}": {"a": shared} for at in range(500)}}
    file = saved(tmp_path / "x.pt", value)
    looked: list[int] = []
    monkeypatch.setattr(
        training_files,
        "is_tensor",
        lambda item, is_tensor=training_files.is_tensor: looked.append(1) or is_tensor(item),
    )
    checkpoint = open_source(file, purpose="headers")
    assert set(NAMES) <= set(checkpoint.tensors) and len(checkpoint.others) <= training_files.OTHERS + 1
    assert len(looked) < 10 * training_files.LOOKED_AT

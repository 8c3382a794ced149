"""One forward on made-up inputs: `mapper build` shows that a model runs before anyone writes code for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from math import isqrt
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mapper.errors import listed

if TYPE_CHECKING:
    import torch
    from torch import nn

    from mapper.architecture import Architecture
    from mapper.checkpoint import TensorInfo

# Free extents of inputs. Images and sounds need some size to survive their convolutions.
EXTENTS = {
    "batch": 1,
    "height": 224,
    "width": 224,
    "samples": 16_000,
    "frames": 100,
    "images": 2,
    "packed": 32,
}
OTHER_EXTENT = 8
# Of a header's image and sound: attention over a map grows with the square of its places.
SMALL = {"height": 64, "width": 64, "samples": 4_000}
# Of inputs in half precision, which many processors are twenty times as slow in.
TINY = {"height": 32, "width": 32, "samples": 4_000}
# Of inputs that some models do not take: other extents, in the order in which they are tried.
OTHER_EXTENTS: tuple[dict[str, int], ...] = ({}, {"frames": 96}, {"height": 128, "width": 128})
LARGEST_SIDE = 1024  # of an image: a config may claim any size, and a forward on it must end
FIRST_ID, IDS = 2, 8  # past the padding ids 0 and 1; every vocabulary has ten
_SPECIAL = ("token_id", "token_ids", "token_index", "_index")  # ends of the fields that give an id a meaning
LENGTH = 11  # odd, and longer than the padding
PADDED = 4


def made_up_inputs(architecture: Architecture, model: nn.Module) -> dict[str, torch.Tensor]:
    """The inputs that the model cannot do without, on its device and in its type: small ids, noise from a fixed seed."""
    required = [name for name, spec in architecture.inputs.items() if not spec.get("optional")]
    return made_up_of(architecture, model, required)


def made_up_of(
    architecture: Architecture,
    model: nn.Module,
    wanted: Collection[str],
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, torch.Tensor]:
    """The inputs that are wanted, as `made_up_inputs`; `sizes` are other extents than the usual ones."""
    like = next((tensor for tensor in model.parameters() if tensor.is_floating_point()), None)
    inputs = {}
    ids, extents = _ordinary_ids(architecture), _extents(architecture, sizes)
    for name in wanted:
        made = made_up(architecture.inputs[name], extents, ids)
        inputs[name] = made if like is None else made.to(like if made.is_floating_point() else like.device)
    return inputs


def input_cases(
    architecture: Architecture,
    model: nn.Module,
    also: Collection[str] = (),
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[tuple[str, dict[str, torch.Tensor]]]:
    """Inputs for a comparison: two rows, the same with the second padded on the right and on the left, one row.

    Ids are such as stand for words: what the config gives another meaning to stands where it belongs, the end of a text
    at its end and padding in padded places, and nowhere else. `also` are optional inputs that are wanted too, `sizes` other extents than the usual ones.
    """
    import torch

    declared = architecture.inputs
    extents = _extents(architecture, {"batch": 2, "length": LENGTH, "decoder_length": LENGTH - 2, **sizes})
    ids = _ordinary_ids(architecture)
    wanted = {name: spec for name, spec in declared.items() if not spec.get("optional") or name in also}
    device = next(iter(model.parameters())).device
    plain = {name: made_up(spec, extents, ids).to(device) for name, spec in wanted.items()}
    if "input_ids" in plain:
        rows = declared["input_ids"]["shape"][0]  # a number: so many rows of codes for each sequence
        text = _text(2 * rows if isinstance(rows, int) else 2, ids).to(device)
        if isinstance(rows, int) and "attention_mask" in plain:
            plain["attention_mask"] = torch.ones(2, LENGTH, dtype=torch.int64, device=device)
        plain |= _ended(text, None, architecture)
        yield "plain", plain
        for case, mask in _masks() if "attention_mask" in declared else ():
            yield case, plain | _ended(text, mask, architecture)
    else:
        yield "plain", plain
    in_rows = [name for name in plain if declared[name]["shape"][:1] == ["batch"]]
    if in_rows:
        yield "one row", {name: value[:1] if name in in_rows else value for name, value in plain.items()}


def _masks() -> Iterator[tuple[str, torch.Tensor]]:
    import torch

    mask = torch.ones(2, LENGTH, dtype=torch.int64)
    mask[1, -PADDED:] = 0
    yield from (("right padding", mask), ("left padding", mask.flip(1)))


def _text(rows: int, ids: Sequence[int]) -> torch.Tensor:
    import torch

    order = (torch.arange(rows * LENGTH).view(rows, LENGTH) * 7 % 23) % len(ids)
    return torch.tensor(ids)[order]


def _ended(
    text: torch.Tensor, mask: torch.Tensor | None, architecture: Architecture
) -> dict[str, torch.Tensor]:
    """The ids with their end where the words end and padding behind or before them, and the mask that says so."""
    text = text.clone()
    last = _last_id(architecture)
    if mask is None:
        if last is not None:
            text[:, -1] = last
        return {"input_ids": text}
    mask = mask.to(text.device)
    shown = mask.repeat_interleave(len(text) // len(mask), dim=0).bool()
    if last is not None:
        ends = LENGTH - 1 - shown.flip(1).long().argmax(dim=1)
        text[range(len(text)), ends] = last
    padding = _padding_id(architecture)
    return {
        "input_ids": text if padding is None else text.masked_fill(~shown, padding),
        "attention_mask": mask,
    }


def _ordinary_ids(architecture: Architecture) -> list[int]:
    """Ids of words: those that the config gives no other meaning, such as a placeholder of images, where it leaves any."""
    special = set(_special_ids(architecture.checkpoint.config or {}))
    every = range(FIRST_ID, min(_vocab_size(architecture), FIRST_ID + IDS + len(special)))
    return [number for number in every if number not in special][:IDS] or [*range(FIRST_ID, FIRST_ID + IDS)]


def _special_ids(config: Mapping[str, Any], depth: int = 0) -> Iterator[int]:
    for name, value in config.items():
        if isinstance(value, Mapping) and depth < 4:
            yield from _special_ids(value, depth + 1)
        elif name.endswith(_SPECIAL):
            yield from (item for item in (value if isinstance(value, list) else [value]) if _is_id(item))


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _padding_id(architecture: Architecture) -> int | None:
    """What stands in padded places: the config's own, where the vocabulary has it."""
    found = (architecture.checkpoint.config or {}).get("pad_token_id", -1)
    return found if _is_id(found) and found < _vocab_size(architecture) else None


def _vocab_size(architecture: Architecture) -> int:
    sizes = [fact.value for fact in architecture.facts if fact.name == "vocab_size" and _is_id(fact.value)]
    return min(sizes, default=FIRST_ID + IDS)


def _last_id(architecture: Architecture) -> int | None:
    """The id that a text must end with for a model that looks for its end, where the vocabulary has it."""
    known = {fact.name: fact.value for fact in architecture.facts if isinstance(fact.value, int)}
    poolings = [fact.value for fact in architecture.facts if fact.name == "pooling"]
    size = _vocab_size(architecture)
    if "highest" in poolings:
        return size - 1
    end = known.get("pooling.end_id" if "end" in poolings else "head.end_id")
    return end if end is not None and end < size else None


def _sizes(config: Mapping[str, Any] | None) -> dict[str, int]:
    """The image size that a config names, its own or that of a part: learned positions take no other."""
    for part in (config or {}, *(value for value in (config or {}).values() if isinstance(value, Mapping))):
        size = part.get("image_size", part.get("input_size") if "patch_size" in part else None)
        sides = size if isinstance(size, list) else [size, size]
        if len(sides) == 2 and all(_is_extent(side, LARGEST_SIDE) for side in sides):
            channels, frames = part.get("num_channels"), part.get("num_frames")
            return {
                "height": int(sides[0] or 0),
                "width": int(sides[1] or 0),
                "channels": channels if channels is not None and _is_extent(channels, LARGEST_SIDE) else 3,
                "video_frames": frames if frames is not None and _is_extent(frames, LARGEST_SIDE) else 8,
            }
    return {"channels": 3}


def _sizes_of_chain(architecture: Architecture) -> dict[str, int]:
    """The size of an input for which the sizes of a chain of layers add up: others fail behind its last maps."""
    told = next((str(fact.value) for fact in architecture.facts if fact.name == "chain.input_size"), "")
    sides = [int(side) for side in told.split("x") if side.isdecimal() and int(side) <= LARGEST_SIDE]
    axes = ("length",) if len(sides) == 1 else ("depth", "height", "width")[-len(sides) :] if sides else ()
    return dict(zip(axes, sides, strict=False))


def _sizes_of_table(architecture: Architecture) -> dict[str, int]:
    """The size of an image for which a table of positions, or weights of each, has rows, and a class token or two before them."""
    known: dict[str, Any] = {fact.name: fact.value for fact in architecture.facts}
    rows, patch = known.get("positions"), known.get("patch_size")
    if rows is None or patch is None or known.get("image.positions") not in ("own_size", "none"):
        return {}
    if not (_is_id(rows) and _is_extent(patch, LARGEST_SIDE)):
        return {}
    if known.get("image.patch_channels") == "series":
        return {"times": min(rows - 1, LARGEST_SIDE) * patch}
    patches = next((count for count in range(rows, max(rows - 3, 0), -1) if isqrt(count) ** 2 == count), 0)
    side = isqrt(patches) * patch
    return {"height": side, "width": side} if 0 < side <= LARGEST_SIDE else {}


def _told_sizes(architecture: Architecture) -> dict[str, int]:
    """The extents of inputs that an architecture is for."""
    named = _sizes(architecture.checkpoint.config)
    return _sizes_of_table(architecture) | named | _sizes_of_chain(architecture)


def _extents(architecture: Architecture, sizes: Mapping[str, int]) -> dict[str, int]:
    """The free extents of inputs: the usual ones, those that the config names, `sizes`; as many patches as an image has."""
    found = EXTENTS | _told_sizes(architecture) | dict(sizes)
    words = {word for spec in architecture.inputs.values() for word in spec["shape"]}
    side = next((fact.value for fact in architecture.facts if fact.name == "patch_size"), None)
    if isinstance(side, int) and side > 0 and {"patches", "height", "width"} <= words:
        found.setdefault("patches", (found["height"] // side) * (found["width"] // side))
    return found


def _is_extent(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most


def made_up(spec: Mapping[str, Any], extents: Mapping[str, int], ids: Sequence[int]) -> torch.Tensor:
    """The tensor of an input that is declared so: noise from a fixed seed, `ids` in turn, or what the declaration says."""
    import torch

    shape = [
        extent if isinstance(extent, int) else extents.get(extent, OTHER_EXTENT) for extent in spec["shape"]
    ]
    dtype = getattr(torch, spec["dtype"])
    if values := spec.get("made_up"):
        row = [extents[value] if isinstance(value, str) else value for value in values]
        return torch.tensor(row, dtype=dtype).expand(shape)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
    if dtype == torch.bool:
        return torch.ones(shape, dtype=dtype)
    some = torch.tensor(ids)[torch.arange(shape[-1] if shape else 1) % len(ids)]
    return some.expand(shape).to(dtype) if shape else some[0].to(dtype)


def shapes(value: Any, name: str = "") -> list[str]:
    """`last_hidden_state (1, 8, 384)` for every tensor in an output."""
    if hasattr(value, "shape"):
        return [f"{name} ({', '.join(map(str, value.shape))})"]
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        return [line for key, item in value.items() for line in shapes(item, key)]
    if isinstance(value, (list, tuple)):
        return (
            [f"{name}: {len(value)} of {shapes(value[0])[0].strip()}"]
            if value and hasattr(value[0], "shape")
            else []
        )
    return []


def not_finite(outputs: Any, model: nn.Module) -> list[str]:
    """A line where an output holds NaN or infinity, with the first tensors of the checkpoint that do."""
    import torch

    def is_bad(tensor: Any) -> bool:
        is_float = isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.itemsize > 1
        return is_float and not bool(tensor.isfinite().all())

    bad = [name for name, value in (vars(outputs) if is_dataclass(outputs) else {}).items() if is_bad(value)]
    if not bad:
        return []
    stored = [name for name, tensor in model.state_dict().items() if is_bad(tensor)]
    cause = f"so do the weights {listed(stored, 3)}" if stored else "all weights are finite"
    return [f"not finite: {', '.join(bad)} hold NaN or infinity; {cause}"]


def run_header(architecture: Architecture, text: str | None = None) -> None:
    """Build a model for a header alone, with random weights, and run it on made-up inputs. Raises MapperError.

    `text` is its source, if known.

    What the header describes must run: no flow may fail on shapes that its rules say fit, nor in half precision.
    """
    import torch

    from mapper._build import build_architecture
    from mapper.errors import MapperError

    checkpoint = architecture.checkpoint
    generator = torch.Generator().manual_seed(0)

    def read(names: Iterable[str]) -> dict[str, torch.Tensor]:
        return {name: _random(checkpoint.tensors[name], generator) for name in names}

    filled = replace(architecture, checkpoint=replace(checkpoint, read=read))
    model = build_architecture(filled, dtype=torch.float32, text=text)
    told = _told_sizes(filled)
    sizes = {name: size for name, size in SMALL.items() if name not in told}
    try:
        cases = _run_all(filled, model, sizes)
    except MapperError:
        if not sizes:
            raise
        cases = _run_all(filled, model, {})  # too small for its stages
    _run_half(filled, model, cases[-1])


def _run_half(architecture: Architecture, model: nn.Module, inputs: dict[str, torch.Tensor]) -> None:
    """A forward in half precision on one row of small inputs, or on `inputs` where none are smaller or these are too small."""
    import torch

    from mapper.errors import MapperError

    def run(case: dict[str, torch.Tensor]) -> None:
        _run(model, {name: _cast(value, torch.bfloat16) for name, value in case.items()}, "bfloat16")

    told, model = _told_sizes(architecture), model.to(torch.bfloat16)
    sizes = {name: size for name, size in TINY.items() if name not in told}
    if not any(word in sizes for spec in architecture.inputs.values() for word in spec["shape"]):
        return run(inputs)
    *_, (_, small) = input_cases(architecture, model, sizes=sizes)
    try:
        run(small)
    except MapperError:
        run(inputs)


def _run_all(
    architecture: Architecture, model: nn.Module, sizes: Mapping[str, int]
) -> list[dict[str, torch.Tensor]]:
    """The inputs that a model was run on, each once. Raises MapperError."""
    cases = list(input_cases(architecture, model, sizes=sizes))
    for case, inputs in cases:
        _run(model, inputs, case)
    return [inputs for _, inputs in cases]


def _run(model: nn.Module, inputs: dict[str, torch.Tensor], case: str) -> None:
    """One forward. Raises MapperError."""
    import torch

    from mapper.errors import MapperError

    try:
        with torch.no_grad():
            model(**inputs)
    except Exception as error:  # whatever stops it, the rules are at fault
        what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise MapperError(f"the forward fails with {case} inputs: {what}") from error


def _cast(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return value.to(dtype) if value.is_floating_point() else value


def _random(info: TensorInfo, generator: torch.Generator) -> torch.Tensor:
    import torch

    from mapper.sources.storage import torch_dtype

    dtype = torch_dtype(info.dtype, "")
    if not dtype.is_floating_point:
        return torch.zeros(info.shape, dtype=dtype)
    return torch.empty(info.shape).uniform_(0.01, 0.11, generator=generator).to(dtype)

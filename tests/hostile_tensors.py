"""Good configs with tensors that are missing, too many, of other shapes and types, or under hostile names."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.hostile import (
    INNER,
    LAYERS,
    POSITIONS,
    WIDTH,
    WORDS,
    Case,
    Tensors,
    bert,
    llama,
    noise,
    raw,
    spoilt,
    write,
)

CODE = "__import__('os').system('touch pwned')"
Change = Callable[[Tensors], object]


def without(*names: str) -> Change:
    """Without the tensors whose names hold one of these."""

    def change(tensors: Tensors) -> None:
        for name in [name for name in tensors if any(part in name for part in names)]:
            del tensors[name]

    return change


def having(more: dict[str, object]) -> Change:
    return lambda tensors: tensors.update(more)


def shaped(name: str, *shape: int) -> Change:
    return having({name: noise(*shape)})


def cast(pattern: str, dtype: str) -> Change:
    """The tensors whose names hold `pattern` in another type of numpy."""

    def change(tensors: Tensors) -> None:
        for name in tensors:
            if pattern in name:
                tensors[name] = tensors[name].astype(dtype)

    return change


def stored_as(pattern: str, dtype: str) -> Change:
    """The tensors whose names hold `pattern` as bytes of a type that numpy lacks."""

    def change(tensors: Tensors) -> None:
        for name in tensors:
            if pattern in name:
                tensors[name] = raw(dtype, tensors[name].shape)

    return change


def renamed(pattern: str, by: str) -> Change:
    """Every name with one expression replaced."""

    def change(tensors: Tensors) -> None:
        held = {re.sub(pattern, by, name): value for name, value in tensors.items()}
        tensors.clear()
        tensors.update(held)

    return change


def filled(name: str, value: float) -> Change:
    return lambda tensors: tensors.update({name: np.full_like(tensors[name], value)})


LAYER3 = "encoder.layer.3.attention.self"
MISSING = {
    "a key's bias in the last layer": ("bert", without(f"{LAYER3}.key.bias"), "encoder.layer.3.attention.self.key.bias"),
    "a key's bias in a middle layer": ("bert", without("layer.1.attention.self.key.bias"), "encoder.layer.1.attention.self.key.bias"),
    "a key's weight": ("bert", without(f"{LAYER3}.key.weight"), "encoder.layer.3.attention.self.key.weight"),
    "a whole key": ("bert", without(f"{LAYER3}.key."), "key"),
    "a norm's weight": ("bert", without("layer.2.output.LayerNorm.weight"), "encoder.layer.2.output.LayerNorm.weight"),
    "a norm's bias": ("bert", without("layer.2.output.LayerNorm.bias"), "encoder.layer.2.output.LayerNorm.bias"),
    "a whole norm": ("bert", without("layer.2.output.LayerNorm"), "encoder.layer.2.output.LayerNorm is missing"),
    "an attention": ("bert", without("layer.2.attention"), "attention"),
    "a feed-forward": ("bert", without("layer.2.intermediate", "layer.2.output"), "encoder.layer.2"),
    "a layer in the middle": ("bert", without("encoder.layer.2."), "encoder.layer.2"),
    "the first layer": ("bert", without("encoder.layer.0."), "encoder.layer.0"),
    "the last layer": ("bert", without("encoder.layer.3."), "layers is 4"),
    "all layers": ("bert", without("encoder."), "layer"),
    "the word embedding": ("bert", without("word_embeddings"), "word_embeddings"),
    "the position embedding": ("bert", without("position_embeddings"), "position_embeddings"),
    "the segment embedding": ("bert", without("token_type"), "token_type_embeddings"),
    "the embeddings' norm": ("bert", without("embeddings.LayerNorm"), "LayerNorm"),
    "the norm's bias in the embeddings": ("bert", without("embeddings.LayerNorm.bias"), "embeddings.LayerNorm.bias"),
    "the pooler's weight": ("bert", without("pooler.dense.weight"), "pooler.dense.weight"),
    "the pooler's bias": ("bert", without("pooler.dense.bias"), "pooler.dense.bias"),
    "all query biases": ("bert", without("query.bias"), "query.bias"),
    "all output biases": ("bert", without("attention.output.dense.bias"), "bias"),
    "all keys": ("bert", without("self.key"), "key"),
    "all second norms": ("bert", without(*(f"layer.{at}.output.LayerNorm" for at in range(LAYERS))), "norm"),
    "llama's final norm": ("llama", without("model.norm"), "norm"),
    "llama's word embedding": ("llama", without("embed_tokens"), "embed_tokens"),
    "llama's up map in one layer": ("llama", without("layers.1.mlp.up_proj"), "up"),
    "llama's up map in all layers": ("llama", without("mlp.up_proj"), "up"),
    "llama's gates": ("llama", without("mlp.gate_proj"), "gate"),
    "llama's first norms": ("llama", without("input_layernorm"), "norm"),
    "llama's second norms": ("llama", without("post_attention_layernorm"), "norm"),
    "llama's norm in one layer": ("llama", without("layers.2.post_attention_layernorm"), "norm"),
    "llama's layer in the middle": ("llama", without("layers.1."), "model.layers.1"),
    "llama's output maps": ("llama", without("o_proj"), "o_proj"),
    "gpt2's final norm": ("gpt2", without("ln_f"), "ln_f"),
    "gpt2's positions": ("gpt2", without("wpe"), "wpe"),
    "gpt2's words": ("gpt2", without("wte"), "wte"),
    "gpt2's fused weight in one layer": ("gpt2", without("h.1.attn.c_attn.weight"), "h.1.attn.c_attn.weight"),
    "gpt2's fused bias in one layer": ("gpt2", without("h.1.attn.c_attn.bias"), "h.1.attn.c_attn.bias"),
}  # fmt: skip

SHAPES = {
    "a query of another width": ("bert", shaped(f"{LAYER3}.query.weight", WIDTH, 12), "query"),
    "a query and its bias at odds": ("bert", shaped(f"{LAYER3}.query.bias", 7), "query.bias"),
    "a scalar weight": ("bert", having({f"{LAYER3}.query.weight": np.array(1, np.float32)}), "query"),
    "a scalar norm": ("bert", having({"embeddings.LayerNorm.weight": np.array(1, np.float32)}), "LayerNorm"),
    "a weight of rank 9": ("bert", shaped(f"{LAYER3}.query.weight", *([1] * 7), 16, 16), "query"),
    "a weight of rank 3": ("bert", shaped(f"{LAYER3}.query.weight", 1, 16, 16), "query"),
    "a weight of no extent": ("bert", shaped(f"{LAYER3}.query.weight", 0, 16), "query"),
    "a weight of nothing": ("bert", shaped(f"{LAYER3}.query.weight", 0), "query"),
    "words of no extent": ("bert", shaped("embeddings.word_embeddings.weight", 0, WIDTH), "word"),
    "positions of no extent": ("bert", shaped("embeddings.position_embeddings.weight", 0, WIDTH), "position"),
    "a norm of another width": ("bert", shaped("encoder.layer.1.output.LayerNorm.weight", 8), "LayerNorm"),
    "a norm's bias of another width": ("bert", shaped("encoder.layer.1.output.LayerNorm.bias", 8), "LayerNorm.bias"),
    "a norm of rank 2": ("bert", shaped("encoder.layer.1.output.LayerNorm.weight", 1, WIDTH), "LayerNorm"),
    "a feed-forward that does not fit": ("bert", shaped("encoder.layer.1.output.dense.weight", WIDTH, 20), "encoder.layer.1"),
    "words of another width": ("bert", shaped("embeddings.word_embeddings.weight", WORDS, 8), "word"),
    "a pooler of another width": ("bert", shaped("pooler.dense.weight", 8, 8), "pooler"),
    "one layer of another width": ("bert", lambda tensors: [tensors.update({name: noise(*(extent // 2 for extent in value.shape))}) for name, value in list(tensors.items()) if "layer.2." in name], "encoder.layer.2"),
    "all layers of another width": ("bert", lambda tensors: [tensors.update({name: noise(*(extent // 2 for extent in value.shape))}) for name, value in list(tensors.items()) if "layer." in name and "encoder" in name], "hidden_size"),
    "a fused map that does not divide": ("gpt2", lambda tensors: tensors.update({"h.0.attn.c_attn.weight": noise(WIDTH, 47), "h.0.attn.c_attn.bias": noise(47)}), "c_attn"),
    "a head of another width": ("llama", shaped("lm_head.weight", WORDS, 8), "lm_head"),
    "a head of another vocabulary": ("llama", shaped("lm_head.weight", WORDS + 9, WIDTH), "lm_head"),
    "keys of another size than values": ("llama", shaped("model.layers.0.self_attn.k_proj.weight", 4, WIDTH), "k_proj"),
    "a gate of another size": ("llama", shaped("model.layers.0.mlp.gate_proj.weight", INNER - 8, WIDTH), "gate_proj"),
    "maps that are turned": ("llama", lambda tensors: [tensors.update({name: value.T.copy()}) for name, value in list(tensors.items()) if "down_proj" in name], "down_proj"),
}  # fmt: skip

TYPES = {
    "integer weights": ("bert", cast("query.weight", "int8"), "query"),
    "integer norms": ("bert", cast("LayerNorm.weight", "int64"), "LayerNorm"),
    "boolean weights": ("bert", cast("query.weight", "bool"), "query"),
    "complex weights": ("bert", cast("query.weight", "complex64"), "query"),
    "all weights integers": ("bert", cast("weight", "int32"), "weight"),
    "weights in 8-bit floats": ("llama", stored_as("_proj.weight", "F8_E4M3"), "F8_E4M3"),
    "weights in 8-bit exponents": ("llama", stored_as("_proj.weight", "F8_E8M0"), "F8_E8M0"),
    "weights in 4-bit floats": ("llama", stored_as("down_proj.weight", "F4"), "F4"),
    "weights unsigned": ("llama", cast("down_proj.weight", "uint16"), "down_proj"),
    "a layer in half precision": ("bert", cast("layer.2.", "float16"), "is F16"),
    "a bias in half precision": ("bert", cast(f"{LAYER3}.key.bias", "float16"), "F16"),
    "a layer in double precision": ("bert", cast("layer.2.", "float64"), "F64"),
}

QUANTISED = {
    "GPTQ": lambda name: {f"{name}.qweight": np.zeros((2, 16), np.int32), f"{name}.qzeros": np.zeros((1, 2), np.int32),
                          f"{name}.scales": np.zeros((1, 16), np.float16), f"{name}.g_idx": np.zeros(16, np.int32)},
    "AWQ": lambda name: {f"{name}.qweight": np.zeros((16, 2), np.int32), f"{name}.qzeros": np.zeros((1, 2), np.int32),
                         f"{name}.scales": np.zeros((1, 16), np.float16)},
    "bitsandbytes 8 bit": lambda name: {f"{name}.weight": np.zeros((16, 16), np.int8), f"{name}.SCB": noise(16),
                                        f"{name}.weight_format": np.zeros((), np.uint8)},
    "bitsandbytes 4 bit": lambda name: {f"{name}.weight": np.zeros((128, 1), np.uint8), f"{name}.weight.absmax": noise(4),
                                        f"{name}.weight.quant_map": noise(16),
                                        f"{name}.weight.quant_state.bitsandbytes__nf4": np.zeros(60, np.uint8)},
    "MLX": lambda name: {f"{name}.weight": np.zeros((16, 2), np.uint32), f"{name}.scales": np.zeros((16, 1), np.float16),
                         f"{name}.biases": np.zeros((16, 1), np.float16)},
    "compressed tensors": lambda name: {f"{name}.weight_packed": np.zeros((16, 2), np.int32), f"{name}.weight_scale": noise(16, 1),
                                        f"{name}.weight_shape": np.zeros(2, np.int64)},
}  # fmt: skip
# Of those that need no config: what is wrong with the plain weights, or with the record of one.
PLAIN = {"bitsandbytes 8 bit": "config intermediate_size says", "bitsandbytes 4 bit": "not JSON"}


def quantised(method: str) -> Change:
    def change(tensors: Tensors) -> None:
        for name in [name for name in tensors if name.endswith("_proj.weight")]:
            del tensors[name]
            tensors.update(QUANTISED[method](name.removesuffix(".weight")))

    return change


EXTRA: dict[str, dict[str, object]] = {
    "an unrelated tensor": {"unrelated": noise(3)},
    "an unrelated module": {"some.module.weight": noise(3, 3)},
    "an unrelated scalar": {"step": np.array(7, np.int64)},
        "a name of Python code": {CODE: noise(2)},
    "a name that closes a string": {'"""\nimport os\n"""': noise(2)},
    "a name of one quote": {'a"b\'c\\': noise(2)},
    "a name with a null byte": {"a\0b": noise(2)},
    "a name of spaces": {"   ": noise(2)},
    "a name of emoji": {"🤗.ünï": noise(2)},
    "a name of a keyword": {"lambda.class.None": noise(2)},
    "a name of a member": {"forward.training.state_dict": noise(2)},
    "a name with two underscores": {"__class__.__init__": noise(2)},
    "a name of dots": {"...": noise(2)},
    "a name that ends in a dot": {"a.": noise(2)},
    "a name of slashes": {"a/b:c/d": noise(2)},
    "a name with a line separator": {"a\u2028b\x85c": noise(2)},
    "a name of right-to-left marks": {"a\u202eb": noise(2)},
    "a name of 4,000 characters": {"a" * 4000: noise(2)},
    "a name of 60 parts": {".".join("a" * 60): noise(2)},
    "a name of format braces": {"{0}.{config}.%s": noise(2)},
    "a number of 10**12": {"list.1000000000000.weight": noise(2, 2)},
    "a number with leading zeros": {"list.007.weight": noise(2, 2), "list.7.weight": noise(2, 2)},
    "a number of another script": {"list.٣.weight": noise(2, 2), "list.².weight": noise(2, 2)},
    "a negative number": {"list.-1.weight": noise(2, 2)},
    "names in two cases": {"some.Thing": noise(2), "some.thing": noise(2)},
    "names that clash when renamed": {"a-b": noise(2), "a_b": noise(3), "a b": noise(4), "a_b_": noise(5)},
    "an empty tensor": {"nothing": noise(0)},
    "a tensor of rank 9": {"deep": noise(*[1] * 9)},
    "an 8-bit float": {"small": raw("F8_E5M2", (4,))},
    "a 4-bit float": {"small": raw("F4", (4,))},
    "a name of the module's own": {"self": noise(2), "config.x": noise(2), "nn.weight": noise(2, 2)},
    "names of generated classes": {"Model.Config.weight": noise(2, 2), "torch": noise(2), "F": noise(1)},
}  # fmt: skip

IN_LAYERS = {
    "an extra map in one layer": having({"encoder.layer.1.extra.weight": noise(16, 16)}),
    "an extra map in all layers": having({f"encoder.layer.{at}.extra.weight": noise(16, 16) for at in range(LAYERS)}),
    "LoRA beside the weights": having(
        {f"encoder.layer.{at}.attention.self.query.lora_{part}.weight": noise(16, 16) for at in range(LAYERS) for part in "AB"}
    ),
    "an extra parameter in one layer": having({"encoder.layer.1.gamma_1": noise(16)}),
    "a second attention": having({f"encoder.layer.1.crossattention.self.{word}.weight": noise(16, 16) for word in ("query", "key", "value")}),
    "a query norm": having({f"encoder.layer.{at}.attention.self.query_norm.weight": noise(16) for at in range(LAYERS)}),
    "a bias of another name": having({"encoder.layer.1.attention.self.query.beta": noise(16)}),
}  # fmt: skip


def only(tensors: Tensors) -> Callable[[Path], Path]:
    return lambda folder: write(folder / "model", tensors)


def both(folder: Path) -> Path:
    (one, config), (other, _) = bert(), llama()
    return write(folder / "both", {**one, **other}, config)


def twice(folder: Path) -> Path:
    tensors, config = bert()
    return write(
        folder / "twice", {**tensors, **{f"copy.{name}": value for name, value in tensors.items()}}, config
    )


PARTS = {
    "the state of an optimizer": only(
        {f"state.{at}.{name}": noise(4) for at in range(9) for name in ("exp_avg", "exp_avg_sq", "step")}
    ),
    "an adapter (LoRA)": only(
        {
            f"base_model.model.model.layers.{at}.self_attn.q_proj.lora_{part}.weight": noise(4, 4)
            for at in range(3)
            for part in "AB"
        }
    ),
    "an adapter (LoHa, LoKr or IA3)": only(
        {f"unet.{at}.hada_w{one}_{part}": noise(4, 4) for at in range(3) for one in "12" for part in "ab"}
    ),
    "a learned prompt": only({"prompt_embeddings": noise(4, 4)}),
}
ALONE = {
    "one scalar": only({"x": np.array(1, np.float32)}),
    "one name of dots": only({"..": noise(2)}),
    "one linear": only({"weight": noise(4, 4), "bias": noise(4)}),
    "keywords all the way": only({"class.def.lambda.weight": noise(2, 2), "class.def.if": noise(2), "import": noise(1)}),
    "names of nn.Module": only({f"{name}.weight": noise(2, 3) for name in ("forward", "train", "to", "type", "half", "modules")}),
    "names of nn.ModuleDict": only({f"x.{name}.weight": noise(2, 3) for name in ("keys", "items", "pop", "update", "values")}),
    "mixed separators": only({"a/b.c:d/weight": noise(2, 2), "a/b.c:d/bias": noise(2), "a.b/c": noise(1)}),
    "holes in a list": only({f"h.{at}.mlp.weight": noise(4, 3) for at in (0, 3, 10**6, 10**12)}),
    "a list of leading zeros": only({f"h.{at:03}.mlp.weight": noise(4, 3) for at in range(4)}),
    "code in every word": only({f"{CODE}.{CODE}.weight": noise(2, 2), f"{CODE}.{CODE}.bias": noise(2)}),
    "a recurrent net without its input": only({"lstm.weight_hh_l0": noise(16, 4), "lstm.bias_hh_l0": noise(16)}),
    "a recurrent net at odds": only({"lstm.weight_ih_l0": noise(7, 3), "lstm.weight_hh_l0": noise(9, 2), "lstm.bias_ih_l0": noise(1)}),
    "a recurrent net of empty gates": only({"rnn.weight_ih_l0": noise(0, 3), "rnn.weight_hh_l0": noise(0, 0)}),
    "statistics alone": only({"bn.running_mean": noise(4), "bn.running_var": noise(4)}),
    "statistics of two lengths": only({"bn.running_mean": noise(4), "bn.running_var": noise(5), "bn.weight": noise(6), "bn.bias": noise(4)}),
    "weight norm without direction": only({"conv.weight_g": noise(4, 1, 1), "conv.bias": noise(4)}),
    "weight norm at odds": only({"conv.weight_g": noise(4, 1, 1), "conv.weight_v": noise(5, 2, 3), "conv.bias": noise(7)}),
    "a convolution of rank 5 and no kernel": only({"conv.weight": noise(2, 2, 0, 0, 0), "conv.bias": noise(2)}),
    "a norm of rank 4": only({"norm.weight": noise(1, 4, 1, 1), "norm.bias": noise(1, 4, 1, 1)}),
    "an embedding of rank 1": only({"embeddings.word_embeddings.weight": noise(4)}),
    "a bias alone": only({"some.bias": noise(4), "other.bias": noise(2, 2)}),
}  # fmt: skip

CASES: list[Case] = [
    *(spoilt(f"missing: {name}", base, change, error=error, either=True) for name, (base, change, error) in MISSING.items()),
    *(spoilt(f"shapes: {name}", base, change, error=error, either=True) for name, (base, change, error) in SHAPES.items()),
    *(spoilt(f"types: {name}", base, change, error=error) for name, (base, change, error) in TYPES.items()),
    *(spoilt(f"quantised: {name}", "llama", quantised(name), error=PLAIN.get(name, "the weights are quantised")) for name in QUANTISED),
    *(spoilt(f"extra: {name}", "bert", having(more), says="\n".join(sorted(more)), reading="unverified", same="bert") for name, more in EXTRA.items()),
    *(spoilt(f"in layers: {name}", "bert", change, error="layer", either=True) for name, change in IN_LAYERS.items()),
    *(Case(f"alone: {name}", make, reading="skeleton") for name, make in ALONE.items()),
    *(Case(f"alone: {name}", make, error=f"the file holds only {name}") for name, make in PARTS.items()),
    Case("two models in one file", both, error="bias is missing"),
    Case("one model twice in one file", twice, error="pooler_2", either=True),
    Case("one leaf that is a folder", only({"a": noise(2), "a.b": noise(2), "a.b.c": noise(2)}), error="both a tensor and a folder"),
    Case("gradients of a model", only({f"grad.{name}": value for name, value in bert()[0].items()}), error="attention.heads is unknown",
         arguments=("--set", "position.counting=all")),
    spoilt("a leaf that is a folder", "bert", having({"some": noise(2), "some.weight": noise(2, 2)}), error="'some' is both"),
    spoilt("a weight that is a folder", "bert", having({"x.weight": noise(2, 2), "x.weight.inner": noise(2)}), error="'x.weight' is both"),
    spoilt("words in half precision", "bert", cast("word_embeddings", "float16"), says="F16", reading="unverified"),
    spoilt("empty name", "bert", having({"": noise(2)}), error="empty name"),
    spoilt("name of 5,000 characters", "bert", having({"a" * 5000: noise(2)}), error="5,000 characters"),
    spoilt("name of 5,000 parts", "bert", having({"a." * 1000 + "b": noise(2)}), error="parts"),
    spoilt("stored position ids", "bert", having({"embeddings.position_ids": np.arange(POSITIONS)[None]}), reading="exact", same="bert"),
    spoilt("NaN weights", "bert", filled(f"{LAYER3}.query.weight", np.nan), says=""),
    spoilt("infinite weights", "bert", filled(f"{LAYER3}.query.weight", np.inf), says=""),
    spoilt("names of another family", "bert", renamed("self.query", "q_lin"), error="attention.self.query"),
    spoilt("all names under one prefix", "bert", renamed("^", "module._orig_mod.model."), same="bert"),
    spoilt("a prefix of code", "bert", renamed("^", lambda _: CODE + "."), says=""),  # type: ignore[arg-type]
    spoilt("a layer list with leading zeros", "bert", renamed(r"layer\.(\d)", r"layer.00\1"), says="the names lack", reading="skeleton"),
    spoilt("a layer list from one", "bert", renamed(r"layer\.(\d)", lambda m: f"layer.{int(m[1]) + 1}"), error="layer", either=True),  # type: ignore[arg-type]
    spoilt("a layer list with holes", "bert", renamed(r"layer\.(\d)", lambda m: f"layer.{int(m[1]) * 2}"), error="layer", either=True),  # type: ignore[arg-type]
    spoilt("a layer of 10**12", "bert", renamed(r"layer\.3\.", "layer.1000000000000."), error="layer", either=True),
    spoilt("a layer of 10**8", "bert", renamed(r"layer\.3\.", "layer.100000000."), error="layer", either=True),
    spoilt("slashes for dots", "bert", renamed(r"\.", "/"), reading="skeleton"),
]  # fmt: skip

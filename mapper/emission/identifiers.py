"""Names in generated source: checked identifiers, class names, and the table of names that cannot be attributes."""

from __future__ import annotations

import keyword
import unicodedata
from collections.abc import Iterable

from mapper.architecture import Architecture

# Members of torch.nn.Module (torch 2.13, `dir`): a child of this name would hide them, or be refused. Kept as data so that
# generating needs no torch; a test compares both sets with torch's own.
RESERVED = frozenset(["T_destination", "add_module", "apply", "bfloat16", "buffers", "call_super_init", "children", "compile", "cpu", "cuda", "double", "dump_patches", "eval", "extra_repr", "float", "forward", "get_buffer", "get_extra_state", "get_parameter", "get_submodule", "half", "ipu", "load_state_dict", "modules", "mtia", "named_buffers", "named_children", "named_modules", "named_parameters", "parameters", "register_backward_hook", "register_buffer", "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook", "register_full_backward_pre_hook", "register_load_state_dict_post_hook", "register_load_state_dict_pre_hook", "register_module", "register_parameter", "register_state_dict_post_hook", "register_state_dict_pre_hook", "requires_grad_", "set_extra_state", "set_submodule", "share_memory", "state_dict", "to", "to_empty", "train", "training", "type", "xpu", "zero_grad", "_apply", "_backward_hooks", "_backward_pre_hooks", "_buffers", "_call_impl", "_compiled_call_impl", "_forward_hooks", "_forward_hooks_always_called", "_forward_hooks_with_kwargs", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_get_abs_string_index", "_get_backward_hooks", "_get_backward_pre_hooks", "_get_name", "_is_full_backward_hook", "_load_from_state_dict", "_load_state_dict_post_hooks", "_load_state_dict_pre_hooks", "_maybe_warn_non_full_backward_hook", "_modules", "_named_members", "_non_persistent_buffers_set", "_parameters", "_register_load_state_dict_pre_hook", "_register_state_dict_hook", "_replicate_for_data_parallel", "_save_to_state_dict", "_slow_forward", "_state_dict_hooks", "_state_dict_pre_hooks", "_version", "_wrapped_call_impl"])  # fmt: skip
# What nn.ModuleDict and nn.ParameterDict have besides: a folder with such a child becomes a class of its own.
RESERVED_IN_DICT = frozenset([
    "clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values", "_key_to_attr", "_keys",
])  # fmt: skip


def identifier(text: str) -> str:
    """An ASCII identifier close to the text; never a keyword."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    word = "".join(char if char.isalnum() or char == "_" else "_" for char in plain)[:60]
    word = word if word.strip("_") else "unnamed"
    if word[0].isdigit() or word.startswith("__"):  # two underscores would be mangled by the class
        word = f"x{word}" if word[0] == "_" else f"_{word}"
    return f"{word}_" if keyword.iskeyword(word) else word


def camel(text: str) -> str:
    """A class name: `feed_forward` is FeedForward."""
    words = [part for part in identifier(text).split("_") if part]
    name = "".join(word[0].upper() + word[1:] for word in words) or "Unnamed"
    if keyword.iskeyword(name):  # None, True, False
        return f"{name}_"
    return f"_{name}" if name[0].isdigit() else name


def is_attribute(word: str) -> bool:
    """Whether a word of a tensor's name can be an attribute of a module as it is."""
    return (
        word.isascii()
        and word.isidentifier()
        and not keyword.iskeyword(word)
        and word not in RESERVED
        and word[:2] != "__"
    )


def rename_table(architecture: Architecture) -> dict[str, str]:
    """Words of the names that cannot be attributes, and what they become; numbers stay, they are positions."""
    words = dict.fromkeys(
        part for leaf in architecture.leaves for part in leaf.place if isinstance(part, str)
    )
    bare = [name for leaf in architecture.leaves for name in leaf.tensors if name]
    taken = set(words) | set(bare)
    table: dict[str, str] = {}
    for word in words:
        if is_attribute(word) or (word.isascii() and word.isdigit()):
            continue
        table[word] = _free(identifier(word), taken)
        taken.add(table[word])
    return table


def _free(name: str, taken: Iterable[str]) -> str:
    while name in taken or name in RESERVED:
        name += "_"
    return name

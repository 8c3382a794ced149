"""One model at work: its reading, what stands beside its weights, and the module, which is built when it is first called."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mapper.errors import MapperError, SourceError
from mapper.running.beside import Beside
from mapper.running.tables import Folders
from mapper.running.uses import Use, use_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from mapper.architecture import Architecture

_GENERATES = ("continue", "rewrite", "caption", "transcribe")


@dataclass(frozen=True)
class Wishes:
    """What a user may say beside the input."""

    max_tokens: int = 64
    temperature: float = 0.0  # 0: the likeliest token
    top_p: float = 1.0
    seed: int | None = None
    beams: int | None = None  # texts that are searched side by side; None: as the settings say
    chat: bool = False
    context: str | None = None  # of a question
    texts: tuple[str, ...] = ()  # to compare with
    images: tuple[Any, ...] = ()  # among the words of a text
    language: str | None = None  # of speech, or to translate into
    source_language: str | None = None  # that a text is in
    top: int = 5  # answers that are told
    out: str | None = None  # where a picture goes
    overwrite: bool = False  # what stands there
    tell: Callable[[str], None] | None = None  # is given text as it comes


@dataclass
class Session:
    """A model with its files."""

    architecture: Architecture
    wishes: Wishes = field(default_factory=Wishes)
    dtype: Any = None
    device: str = "cpu"
    notes: list[str] = field(default_factory=list)  # what a user must know of the next answer

    @property
    def source(self) -> str:
        return self.architecture.checkpoint.source

    @cached_property
    def use(self) -> Use:
        return use_of(self.architecture, self.beside)

    @cached_property
    def beside(self) -> Beside:
        return Beside(self.architecture.checkpoint, self.folders)

    @property
    def folders(self) -> Folders:
        """The folders of rules that the model was read with."""
        rulebook = self.architecture.rulebook
        return () if rulebook is None else tuple(rulebook.folders)

    @cached_property
    def config(self) -> dict[str, Any]:
        return self.beside.config

    def note(self, text: str) -> None:
        """Say something once."""
        if text not in self.notes:
            self.notes.append(text)

    def noted(self) -> list[str]:
        """What was said since it was last asked for: each answer has its own."""
        said, self.notes = self.notes, []
        return said

    @cached_property
    def model(self) -> nn.Module:
        """The module with its weights, with a cache of keys and values where it goes on with something and has one."""
        from mapper._dtype import as_torch
        from mapper.emission import emit

        options = {"cache": self.use.use in _GENERATES and not self._is_packed}
        try:
            text = emit(self.architecture, **options)
        except MapperError:
            if not options["cache"]:
                raise
            options = {"cache": False}
            text = emit(self.architecture)
        from mapper._build import build_architecture  # torch: only now

        return build_architecture(self.architecture, as_torch(self.dtype), self.device, text=text, **options)

    @property
    def _is_packed(self) -> bool:
        """Whether pictures have places of their own in a text, which steps after the first are not told of."""
        inputs = self.architecture.inputs
        is_told = "mm_token_type_ids" in inputs
        return bool(self.wishes.images) and "image_grid_thw" in inputs and not is_told

    @property
    def has_cache(self) -> bool:
        return hasattr(self.model, "new_cache")

    @cached_property
    def parameters(self) -> frozenset[str]:
        """What the module's forward takes."""
        import inspect

        return frozenset(inspect.signature(type(self.model).forward).parameters)

    @property
    def needed(self) -> frozenset[str]:
        """What each call must be given."""
        inputs = self.architecture.inputs.items()
        return frozenset(name for name, said in inputs if not said.get("optional"))

    def call(self, **given: Any) -> Any:
        """The module's outputs; inputs that it does not take are left out. Raises SourceError for what is too long."""
        import torch

        given = {
            name: value for name, value in given.items() if name in self.parameters and value is not None
        }
        with torch.inference_mode():
            try:
                return self.model(**{name: self._placed(value) for name, value in given.items()})
            except IndexError as error:
                raise SourceError(f"{self.source}: {_too_long(given)}: {_one_line(error)}") from error
            except RuntimeError as error:
                raise MapperError(
                    f"{self.source}: does not run on {_shapes(given)}: {_one_line(error)}"
                ) from error

    def _placed(self, value: Any) -> Any:
        """A tensor on the model's device, floats in the model's type."""
        import torch

        if not isinstance(value, torch.Tensor):
            return value
        first = next((part for part in self.model.parameters() if part.is_floating_point()), None)
        if first is None:
            return value
        return value.to(first.device, first.dtype if value.is_floating_point() else None)


def _one_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")


def _too_long(given: dict[str, Tensor]) -> str:
    """What an index that there is not comes from."""
    return f"no row for some id or position of {_shapes(given)}, as of an input that is too long"


def _shapes(given: dict[str, Any]) -> str:
    shapes = {name: list(value.shape) for name, value in given.items() if hasattr(value, "shape")}
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items())

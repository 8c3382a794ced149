"""The package's own `dataclass` is the standard library's, made faster."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any, ClassVar

import pytest

from mapper import _dataclass

OPTIONS = [{}, {"frozen": True}, {"eq": False}, {"slots": True}]


@pytest.fixture(autouse=True, params=[400, 0], ids=["few", "many"])
def _objects(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test once with few objects of a class, once with so many that its constructor is compiled."""
    monkeypatch.setattr(_dataclass, "_MANY", request.param)


def pair(**options: bool) -> tuple[Any, Any]:
    """One class, decorated by the standard library and by the package."""

    def made(decorate: Any) -> Any:
        class Thing:
            """With a field of each kind, some of which are called as words of a constructor could be."""

            __annotations__ = {"held": "int", "fields": "list", "_x": "str", "made": "list", "quiet": "int"}
            _x = "usual"
            made = dataclasses.field(default_factory=list, init=False)
            quiet = dataclasses.field(default=1, repr=False, compare=False)
            __qualname__ = "Thing"

        return decorate(**options)(Thing)

    return made(dataclasses.dataclass), made(_dataclass.dataclass)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_it_makes_what_the_standard_library_makes(options: dict[str, bool]) -> None:
    theirs, ours = pair(**options)
    assert [field.name for field in dataclasses.fields(ours)] == [
        field.name for field in dataclasses.fields(theirs)
    ]
    for given, named in (((1, [2]), {}), ((1, [2], "y"), {"quiet": 3}), ((), {"held": 1, "fields": []})):
        one, other = theirs(*given, **named), ours(*given, **named)
        assert repr(one) == repr(other)
        assert dataclasses.astuple(one) == dataclasses.astuple(other)
        same, less = ours(*given, **named), dataclasses.replace(other, held=5)
        assert (other == same, other == less, other == one) == (options.get("eq", True), False, False)
        changed = dataclasses.replace(other, quiet=9)
        assert (changed == other) is options.get("eq", True)
        assert other.made == [] and other.made is not same.made
    for given in ((), (1,), (1, [2], "y", 4, 5)):
        with pytest.raises(TypeError, match="argument"):
            ours(*given)


def test_a_frozen_one_is_a_key_and_takes_no_value() -> None:
    @_dataclass.dataclass(frozen=True)
    class Key:
        name: str
        at: int = 0

    assert {Key("a"): 1, Key("b", 2): 2}[Key("b", 2)] == 2
    for change in (lambda key: setattr(key, "at", 1), lambda key: delattr(key, "at")):
        with pytest.raises(dataclasses.FrozenInstanceError, match="at"):
            change(Key("a"))
    with pytest.raises(TypeError, match="unhashable"):
        hash(pair()[1](1, []))


def test_a_class_of_many_objects_gets_a_constructor_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dataclass, "_MANY", 3)

    @_dataclass.dataclass(frozen=True)
    class Thing:
        held: int
        usual_held: int = 2
        none: list[int] = dataclasses.field(default_factory=list)

    first = Thing.__init__
    made = [Thing(1, none=[at]) for at in range(4)]
    assert Thing.__init__ is not first
    assert Thing(1, none=[2]) == made[2] and Thing(1).none == [] and Thing(1).none is not Thing(1).none
    assert vars(Thing(1, 5)) == {"held": 1, "usual_held": 5, "none": []}


def test_what_a_class_says_itself_stays() -> None:
    @_dataclass.dataclass
    class Own:
        at: int

        def __post_init__(self) -> None:
            self.at += 1

        def __repr__(self) -> str:
            return "own"

    assert (Own(1).at, repr(Own(1))) == (2, "own")


def test_it_can_be_pickled_and_may_hold_itself() -> None:
    from mapper.architecture import Fact

    fact = Fact("attention.heads", 12, "layers.*", "config", "heads")
    assert pickle.loads(pickle.dumps(fact)) == fact
    thing = pair()[1](1, [])
    thing.fields.append(thing)
    assert "..." in repr(thing)


def test_a_field_may_be_given_by_its_name_once() -> None:
    theirs, ours = pair(frozen=True)
    given, named = (3, [3]), {"quiet": 4}
    assert dataclasses.astuple(ours(*given, **named)) == dataclasses.astuple(theirs(*given, **named))
    for wrong in ({"other": 1}, {"held": 1}, {}):
        with pytest.raises(TypeError, match="argument"):
            ours(1, **wrong)


def test_fields_of_a_class_above_come_first_and_may_be_said_anew() -> None:
    def made(decorate: Any) -> Any:
        @decorate
        class Above:
            first: int
            second: int = 2
            third: list[int] = dataclasses.field(default_factory=list)

        @decorate
        class Below(Above):
            second: int = 5
            fourth: int = 4

        return Above, Below

    (_, theirs), (above, ours) = made(dataclasses.dataclass), made(_dataclass.dataclass)
    assert dataclasses.astuple(ours(7, third=[1])) == dataclasses.astuple(theirs(7, third=[1]))
    assert ours.__match_args__ == theirs.__match_args__ == ("first", "second", "third", "fourth")
    assert dataclasses.astuple(above(1)) == (1, 2, [])
    assert not hasattr(above, "third") and above.second == 2


def test_what_it_cannot_make_is_said() -> None:
    with pytest.raises(TypeError, match="ClassVar"):

        @_dataclass.dataclass
        class Shared:
            held: ClassVar[int] = 1

    with pytest.raises(TypeError, match="without a default"):

        @_dataclass.dataclass
        class Behind:
            first: int = 1
            second: str

    with pytest.raises(ValueError, match="default_factory"):

        @_dataclass.dataclass
        class OneForAll:
            items: list[int] = []  # noqa: RUF012 - what is refused

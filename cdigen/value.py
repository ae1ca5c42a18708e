"""``@frozen``: frozen, slotted, keyword-only classes that cost nothing at start-up.

The standard library's dataclasses write and compile five methods per class: 1.1 ms each, and their
import takes as long as bare Python's start. Values are needed at every start of the command and of every
container, so they use shared functions instead (docs/decisions/0005-values.md).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar, dataclass_transform

    T = TypeVar("T")
else:

    def dataclass_transform(**_: object) -> Callable[[T], T]:
        """Stand in for typing's, which only a type checker needs."""
        return lambda decorator: decorator


@dataclass_transform(frozen_default=True, kw_only_default=True)
def frozen(cls: type[T]) -> type[T]:
    """Make CLS a class of values: its annotated names are its fields, in their order.

    Instances are made with keywords, cannot be changed, and are equal where class and fields are. A
    field with a value in the class body may be left out. TypeError: a field is missing or unknown.
    """
    names = tuple(cls.__annotations__)
    body = {key: item for key, item in vars(cls).items() if key not in {"__dict__", "__weakref__"}}
    defaults = {name: body.pop(name) for name in names if name in body}
    setters: list[tuple[str, Any]] = []
    body |= {"__slots__": names, "_defaults": defaults, "_setters": setters, "__match_args__": ()}
    metaclass: Any = type(cls)
    made: type[T] = metaclass(cls.__name__, cls.__bases__, {**_METHODS, **body})
    # What sets a slot: half of the time of object.__setattr__, which looks for it each time.
    setters += [(name, vars(made)[name].__set__) for name in names]
    return made


def replace(original: T, **changes: object) -> T:
    """Return a copy of the value ORIGINAL with CHANGES."""
    return type(original)(**{**{name: getattr(original, name) for name in fields(original)}, **changes})


def fields(instance: object) -> tuple[str, ...]:
    """Return the names of the fields of a value; nothing for anything else."""
    cls: Any = type(instance)
    names: tuple[str, ...] = cls.__slots__ if "_defaults" in vars(cls) else ()
    return names


def _init(self: Any, **given: object) -> None:
    cls = type(self)
    setters = cls._setters
    values = given if len(given) == len(setters) else {**cls._defaults, **given}
    try:
        for name, put in setters:
            put(self, values[name])
    except KeyError:
        raise _misfit(cls, given) from None
    if len(values) != len(setters):
        raise _misfit(cls, given)


def _misfit(cls: Any, given: dict[str, object]) -> TypeError:
    names = set(cls.__slots__)
    if unknown := sorted(given.keys() - names):
        return TypeError(f"{cls.__name__} has no {unknown}")
    return TypeError(f"{cls.__name__} lacks {sorted(names - given.keys() - cls._defaults.keys())}")


def _refuse(self: object, *_: object) -> None:
    raise AttributeError(f"{type(self).__name__} cannot be changed")


def _state(self: object) -> tuple[object, ...]:
    return tuple([getattr(self, name) for name in fields(self)])


def _eq(self: object, other: object) -> object:
    if type(self) is not type(other):
        return NotImplemented
    return _state(self) == _state(other)


def _hash(self: object) -> int:
    return hash(_state(self))


def _repr(self: object) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in fields(self))
    return f"{type(self).__qualname__}({shown})"


_METHODS = {
    "__init__": _init,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__eq__": _eq,
    "__hash__": _hash,
    "__repr__": _repr,
}

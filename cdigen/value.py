"""``@frozen``: frozen, slotted, keyword-only classes without a cost at start-up.

The standard library's dataclasses generate and compile five methods per class, which takes 1.1 ms per class.
The import of dataclasses takes as long as the start of bare Python. Each run of the command or of the
start-up hook needs frozen classes. For this reason, all ``@frozen`` classes use the functions of this module
(docs/decisions/0005-values.md).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar, dataclass_transform

    T = TypeVar("T")
else:

    def dataclass_transform(**_: object) -> Callable[[T], T]:
        """Replace the function of ``typing``, which only a type checker needs."""
        return lambda decorator: decorator


@dataclass_transform(frozen_default=True, kw_only_default=True)
def frozen(cls: type[T]) -> type[T]:
    """Return CLS as a frozen class whose fields are the annotated names of CLS, in order.

    The constructor accepts only keywords. Instances are immutable. Two instances are equal if their class and
    all their fields are equal. A field with a value in the class body is optional. The constructor raises
    TypeError if a field is missing or unknown.
    """
    names = tuple(cls.__annotations__)
    body = {key: item for key, item in vars(cls).items() if key not in {"__dict__", "__weakref__"}}
    defaults = {name: body.pop(name) for name in names if name in body}
    setters: list[tuple[str, Any]] = []
    body |= {"__slots__": names, "_defaults": defaults, "_setters": setters, "__match_args__": ()}
    metaclass: Any = type(cls)
    made: type[T] = metaclass(cls.__name__, cls.__bases__, {**_METHODS, **body})
    # object.__setattr__ searches the slot at each call. The setter of a slot takes half of that time.
    setters += [(name, vars(made)[name].__set__) for name in names]
    return made


def replace(original: T, **changes: object) -> T:
    """Return a copy of the frozen instance ORIGINAL with CHANGES."""
    return type(original)(**{**{name: getattr(original, name) for name in fields(original)}, **changes})


def fields(instance: object) -> tuple[str, ...]:
    """Return the field names of a frozen instance, or an empty tuple for any other object."""
    cls: Any = type(instance)
    names: tuple[str, ...] = cls.__slots__ if "_defaults" in vars(cls) else ()
    return names


def _init(self: Any, **arguments: object) -> None:
    cls = type(self)
    setters = cls._setters
    values = arguments if len(arguments) == len(setters) else {**cls._defaults, **arguments}
    try:
        for name, put in setters:
            put(self, values[name])
    except KeyError:
        raise _wrong_fields(cls, arguments) from None
    if len(values) != len(setters):
        raise _wrong_fields(cls, arguments)


def _wrong_fields(cls: Any, arguments: dict[str, object]) -> TypeError:
    names = set(cls.__slots__)
    if unknown := sorted(arguments.keys() - names):
        return TypeError(f"{cls.__name__} has no {unknown}")
    return TypeError(f"{cls.__name__} lacks {sorted(names - arguments.keys() - cls._defaults.keys())}")


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

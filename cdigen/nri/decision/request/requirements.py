"""``parse`` and ``holds``: pure functions that evaluate the requirements of an image (NVIDIA_REQUIRE_*).

A requirement is a list of alternatives, separated by spaces. An alternative is a list of conditions,
separated by commas, such as ``cuda>=12.4 brand=tesla,driver>=470,driver<471``. A requirement is met if all
conditions of at least one alternative are met. Empty alternatives are ignored. Versions are compared number
by number. A missing number is 0. Brands are compared as text. The comparison ignores upper and lower case. If
the property of the host is unknown, the condition is met. Source: libnvidia-container (src/cli/dsl.c,
configure.c).

The evaluation goes from left to right. An invalid condition is an error only if the evaluation reaches it, as
in libnvidia-container. Later alternatives of an image can contain conditions for newer drivers. The parser of
nvidia-container-toolkit always rejects invalid conditions.
"""

from __future__ import annotations

import re
from functools import lru_cache

from cdigen.nri.decision.request.refusal import InjectionRefusal, quote
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    Version = tuple[int, ...]

VERSIONS = ("cuda", "driver", "arch")
BRAND = "brand"
_CONDITION = re.compile(r"([A-Za-z]+)(>=|<=|!=|=|<|>)([^<>=!].*)", re.DOTALL)
_VERSION = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18}){0,7}", re.ASCII)


@frozen
class DriverFacts:
    """The properties of the driver and of one GPU.

    An unknown property is empty. ``cuda`` is the newest CUDA version that the driver supports. ``arch`` is
    the compute capability. ``brands`` are the possible NVML brands of the GPU, in lower case. There can be
    several brands, because the model name does not always determine the brand.
    """

    cuda: str = ""
    driver: str = ""
    arch: str = ""
    brands: tuple[str, ...] = ()

    def text(self, *, brand: str = "") -> str:
        """Return the known properties, and BRAND, as one line."""
        known = {"driver": self.driver, "cuda": self.cuda, "arch": self.arch, "brand": brand}
        return ", ".join(f"{name} {value}" for name, value in known.items() if value)


@frozen
class Condition:
    """One condition of a requirement.

    If the property ``name`` is a version, ``version`` is the parsed ``value``. ``problem`` is the error in an
    invalid condition.
    """

    name: str = ""
    operator: str = ""
    value: str = ""
    version: Version = ()
    problem: str = ""


Requirement = tuple[tuple[Condition, ...], ...]


# Most CUDA images have one of a few expressions, so results are cached. ``environment`` limits the length of
# TEXT.
@lru_cache(maxsize=16)
def parse(text: str) -> Requirement:
    """Return the alternatives of TEXT, each with its conditions, in linear time."""
    alternatives = (tuple(_condition(word) for word in part.split(",") if word) for part in text.split())
    return tuple(part for part in alternatives if part)


def holds(name: str, requirement: Requirement, facts: DriverFacts) -> bool:
    """Return whether FACTS meet REQUIREMENT of the variable or label NAME.

    An empty requirement is always met. Raise InjectionRefusal if the evaluation reaches an invalid condition.
    """
    try:
        return not requirement or any(all(_is_met(each, facts) for each in part) for part in requirement)
    except ValueError as error:
        raise InjectionRefusal("requirement_malformed", f"{name} cannot be parsed: {error}") from None


def version(text: str) -> Version:
    """Return the numbers of the version TEXT, without zeros at the end.

    Raise ValueError if TEXT is not a version.
    """
    if not _VERSION.fullmatch(text):
        raise ValueError(f"{quote(text)} is not a version")
    numbers = [int(part) for part in text.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def unknown(requirement: Requirement, facts: DriverFacts) -> tuple[str, ...]:
    """Return the names of the properties in REQUIREMENT that are unknown in FACTS."""
    required = {condition.name for part in requirement for condition in part}
    return tuple(name for name in (*VERSIONS, BRAND) if name in required and not _known(name, facts))


def _condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if not match:
        return Condition(problem=f"{quote(text)} is not a comparison such as cuda>=12.4")
    name, operator, value = match[1].lower(), match[2], match[3]
    if name in VERSIONS:
        try:
            return Condition(name=name, operator=operator, value=value, version=version(value))
        except ValueError as error:
            return Condition(problem=str(error))
    if name != BRAND:
        return Condition(problem=f"{quote(text)} compares none of {', '.join((*VERSIONS, BRAND))}")
    if operator not in {"=", "!="}:
        return Condition(problem=f"{quote(text)}: a brand can only be compared by = or !=")
    return Condition(name=name, operator=operator, value=value.lower())


def _known(name: str, facts: DriverFacts) -> object:
    return {"cuda": facts.cuda, "driver": facts.driver, "arch": facts.arch, BRAND: facts.brands}[name]


def _is_met(condition: Condition, facts: DriverFacts) -> bool:
    if condition.problem:
        raise ValueError(condition.problem)
    if not _known(condition.name, facts):
        return True
    if condition.name == BRAND:
        # If there are several possible brands, the brand is unknown. The condition is met if one of the
        # possible brands meets it.
        if condition.operator == "=":
            return condition.value in facts.brands
        return facts.brands != (condition.value,)
    try:
        actual = version(str(_known(condition.name, facts)))
    except ValueError:
        return True
    required = condition.version
    return {
        "=": actual == required,
        "!=": actual != required,
        "<": actual < required,
        "<=": actual <= required,
        ">": actual > required,
        ">=": actual >= required,
    }[condition.operator]

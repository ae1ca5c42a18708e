"""What an image requires of driver and GPU, NVIDIA_REQUIRE_*: ``parse`` the expression, ``holds`` it. Pure.

A requirement is alternatives between spaces, each of conditions between commas: ``cuda>=12.4
brand=tesla,driver>=470,driver<471``. One alternative of which every condition holds is enough; empty ones
are passed over. Versions are compared number by number, missing numbers as zero; a brand as text whatever
its case. What is not known of the host holds. Source: libnvidia-container (src/cli/dsl.c, configure.c). Like
it, and unlike the toolkit's own parser, a condition that cannot be read is an error once it is reached, from
left to right: an image's later alternatives may be for drivers that know more.
"""

from __future__ import annotations

import re
from functools import lru_cache

from cdigen.nri.decision.refusal import quote
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    Version = tuple[int, ...]

VERSIONS = ("cuda", "driver", "arch")
BRAND = "brand"
_CONDITION = re.compile(r"([A-Za-z]+)(>=|<=|!=|=|<|>)([^<>=!].*)", re.DOTALL)
_VERSION = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18}){0,7}", re.ASCII)


@frozen
class Facts:
    """What is known of the driver and one GPU; empty is unknown.

    ``cuda``: the newest CUDA that the driver runs; ``arch``: the compute capability; ``brands``: what NVML
    may call the GPU's brand, in lower case: a model's name does not always tell one.
    """

    cuda: str = ""
    driver: str = ""
    arch: str = ""
    brands: tuple[str, ...] = ()


@frozen
class Condition:
    """One comparison; ``version`` is that of ``value``, for properties that have one.

    ``problem`` says what is wrong with one that cannot be read.
    """

    name: str = ""
    operator: str = ""
    value: str = ""
    version: Version = ()
    problem: str = ""


Requirement = tuple[tuple[Condition, ...], ...]


# CUDA's images all have one of a few expressions, for each container anew. ``request`` bounds their length.
@lru_cache(maxsize=16)
def parse(text: str) -> Requirement:
    """Return the alternatives of TEXT, each its conditions; takes time in proportion to TEXT."""
    alternatives = (tuple(_condition(word) for word in part.split(",") if word) for part in text.split())
    return tuple(part for part in alternatives if part)


def holds(requirement: Requirement, facts: Facts) -> bool:
    """Return whether REQUIREMENT is met by FACTS; an empty one always is.

    ValueError: a condition that cannot be read was come to; it says what is wrong, in words.
    """
    return not requirement or any(all(_is_met(each, facts) for each in part) for part in requirement)


def version(text: str) -> Version:
    """Return the numbers of a version, without zeros at its end; ValueError: it is none."""
    if not _VERSION.fullmatch(text):
        raise ValueError(f"{quote(text)} is not a version")
    numbers = [int(part) for part in text.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def unknown(requirement: Requirement, facts: Facts) -> tuple[str, ...]:
    """Return the properties that REQUIREMENT asks for and FACTS do not know."""
    asked = {condition.name for part in requirement for condition in part}
    return tuple(name for name in (*VERSIONS, BRAND) if name in asked and not _known(name, facts))


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
        return Condition(problem=f"{quote(text)}: a brand is = or != another")
    return Condition(name=name, operator=operator, value=value.lower())


def _known(name: str, facts: Facts) -> object:
    return {"cuda": facts.cuda, "driver": facts.driver, "arch": facts.arch, BRAND: facts.brands}[name]


def _is_met(condition: Condition, facts: Facts) -> bool:
    if condition.problem:
        raise ValueError(condition.problem)
    if not _known(condition.name, facts):
        return True
    if condition.name == BRAND:
        # Of several possible brands one will do: what is not known holds.
        if condition.operator == "=":
            return condition.value in facts.brands
        return facts.brands != (condition.value,)
    try:
        ours = version(str(_known(condition.name, facts)))
    except ValueError:
        return True
    theirs = condition.version
    return {
        "=": ours == theirs,
        "!=": ours != theirs,
        "<": ours < theirs,
        "<=": ours <= theirs,
        ">": ours > theirs,
        ">=": ours >= theirs,
    }[condition.operator]

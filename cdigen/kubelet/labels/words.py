"""Names and values of labels as Kubernetes takes them, from words of drivers: ``fitting``, ``spread``. Pure.

Both have at most 63 characters, letters, digits and ``-_.``, and begin and end with a letter or a digit
(apimachinery, pkg/util/validation: IsQualifiedName, IsValidLabelValue).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    # A label's whole name (nvidia.com/gpu.count), and its value.
    Label = tuple[str, str]

MAX = 63
_DIGEST = 8
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_IS_WORD = re.compile(_WORD)
_IS_PREFIX = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


def is_label(label: Label) -> bool:
    """Return whether Kubernetes takes LABEL."""
    prefix, _, name = label[0].partition("/")
    words = (name, label[1])
    return bool(_IS_PREFIX.fullmatch(prefix)) and all(
        len(word) <= MAX and _IS_WORD.fullmatch(word) for word in words
    )


def fitting(text: str, blank: str = "-", most: int = MAX) -> str:
    """Return TEXT as a value: blanks are BLANK, other characters that none can have are dropped.

    So does NVIDIA's labeller (k8s-device-plugin, internal/lm/resource.go, sanitise); what is longer than MOST
    ends in a digest of all of it, so that two long words stay two.
    """
    plain = blank.join(re.sub(r"[^A-Za-z0-9._ -]", "", text).split()).strip("-_.")
    if len(plain) <= most:
        return plain
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGEST]
    return f"{plain[: most - _DIGEST - 1].rstrip('-_.')}-{digest}"


def spread(name: str, values: Iterable[str], fit: Callable[..., str] = fitting) -> list[Label]:
    """Return the label NAME with the one of VALUES that all devices have, or how many have each.

    There is a value for each device, "" where it is not known. As AMD's labeller, where values differ, or not
    all are known, the value is a part of the name (``amd.com/gpu.vram.192G=4``). What ``fit`` makes alike of
    several values is counted together, and is not the value of all.
    """
    every = list(values)
    if every and every.count(every[0]) == len(every):
        value = fit(every[0])
        return [(name, value)] if value else []
    most = MAX - len(name.partition("/")[2]) - 1
    parts = Counter(part for value in every if (part := fit(value, most=most)))
    return [(f"{name}.{part}", str(count)) for part, count in sorted(parts.items())]


def numbers(values: Sequence[int | None]) -> list[str]:
    """Return VALUES as words, "" where one is not known."""
    return ["" if value is None else str(value) for value in values]

"""Facts known only by name, not in the inventory: a GPU's brand and compute capability.

What is in no table is unknown, and a requirement on it counts as met: a new GPU must not be refused.
"""

from __future__ import annotations

import re

# A pattern of the model's name, without "NVIDIA" and in lower case -> compute capability; the first that
# matches counts (developer.nvidia.com/cuda-gpus).
_ARCHITECTURES = (
    (r"rtx pro .*blackwell|(?:geforce )?rtx 50\d0|rtx pro \d+", "12.0"),
    (r"gb10\b", "12.1"),
    (r"(?:gb|b)300", "10.3"),
    (r"(?:gb|b)[12]00", "10.0"),
    (r"gh200|h[128]00|h20\b", "9.0"),
    (r"l40s?\b|l4\b|l20\b|l2\b|.*\bada\b|(?:geforce )?rtx 40\d0", "8.9"),
    (r"a(?:100|30|800)\b", "8.0"),
    (r"a(?:10g?|10m|16|2|40)\b|rtx a\d+|(?:geforce )?rtx 30\d0", "8.6"),
    (r"(?:tesla )?t4g?\b|quadro rtx|titan rtx|(?:geforce )?rtx 20\d0|geforce gtx 16\d0|t\d{3,4}\b", "7.5"),
    (r"(?:tesla )?v100|titan v\b|quadro gv100", "7.0"),
    (r"(?:tesla )?p100|quadro gp100", "6.0"),
    (r"(?:tesla )?p(?:4|6|40)\b|titan xp?\b|titan x \(pascal\)|geforce gtx 10\d0|quadro p\d+", "6.1"),
    (r"(?:tesla )?m(?:4|6|10|40|60)\b|geforce gtx 9\d0", "5.2"),
    (r"(?:tesla )?k80\b", "3.7"),
)

# The same -> what NVML calls the brand (nvml.h, nvmlBrandType_t), in libnvidia-container's spelling without
# spaces. Drivers do not agree: a data-centre GPU is Tesla in older ones and NVIDIA in newer.
_BRANDS = (
    (r"geforce rtx", ("geforce", "geforcertx")),
    (r"geforce", ("geforce",)),
    (r"titan rtx", ("titan", "titanrtx")),
    (r"titan", ("titan",)),
    (r"quadro rtx", ("quadro", "quadrortx")),
    (r"quadro", ("quadro",)),
    (r"nvs", ("nvs",)),
    (r"grid", ("grid",)),
    (r"rtx", ("nvidiartx", "quadrortx", "quadro")),
    (r"tesla|(?:gb|gh|h|b|a|l|t|v|p|m|k)\d+[a-z]{0,2}\b", ("nvidia", "tesla")),
)


def arch_of(model: str) -> str:
    """Return the compute capability of a GPU by its model's name, empty where that is not known."""
    name = _plain(model)
    return next((arch for rule, arch in _ARCHITECTURES if re.match(rule, name)), "")


def brands_of(model: str) -> tuple[str, ...]:
    """Return what a GPU's brand may be by its model's name, nothing where that is not known."""
    name = _plain(model)
    return next((brands for rule, brands in _BRANDS if re.match(rule, name)), ())


def _plain(model: str) -> str:
    return model.strip().lower().removeprefix("nvidia").strip()

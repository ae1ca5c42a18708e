"""Tables that map the model name of a GPU to its brand and to its compute capability.

The inventory does not contain these values. A GPU whose model is not in the tables may be new. Therefore,
cdigen does not reject such a GPU for any requirement of an image (``NVIDIA_REQUIRE_*``).
"""

from __future__ import annotations

import re

# Pattern of the model name (in lower case, without "NVIDIA") -> compute capability. The first match applies.
# The values are from developer.nvidia.com/cuda-gpus.
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

# Pattern of the model name -> possible brand names. The names are from NVML (nvml.h, nvmlBrandType_t), in
# libnvidia-container's spelling without spaces. For a data-centre GPU, older drivers report the brand Tesla,
# and newer drivers report the brand NVIDIA.
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
    """Return the compute capability of the GPU model MODEL, or "" if it is not known."""
    name = _plain(model)
    return next((arch for rule, arch in _ARCHITECTURES if re.match(rule, name)), "")


def brands_of(model: str) -> tuple[str, ...]:
    """Return the possible brands of the GPU model MODEL, or an empty tuple if they are not known."""
    name = _plain(model)
    return next((brands for rule, brands in _BRANDS if re.match(rule, name)), ())


def _plain(model: str) -> str:
    return model.strip().lower().removeprefix("nvidia").strip()

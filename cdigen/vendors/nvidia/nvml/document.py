"""Read the document in which the child process reports what NVML said: ``read``.

The document is one JSON object: ``{"gpus"}``, or where NVML says nothing at all ``{"stage", "message",
"error"}``. A library of NVIDIA's ran in the process that wrote it, and anything may have happened there:
whatever is not exactly of this shape is refused. An entry of a GPU has an object for each part that was
asked for (``links``, ``health``, ``figures``, ``memory``: modules of these names); the identity is in the
entry itself. Where the driver alone was asked, there are no entries, and ``cuda`` beside them.
"""

from __future__ import annotations

from importlib import import_module

from cdigen.model.strict import InvalidValue, flag, many, number, one_of, optional, record
from cdigen.value import frozen
from cdigen.vendors.nvidia.nvml.shapes import ERROR, address, perhaps_empty, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.strict import Reader
    from cdigen.vendors.nvidia.nvml.figures import NvmlFigures
    from cdigen.vendors.nvidia.nvml.health import NvmlHealth
    from cdigen.vendors.nvidia.nvml.links import NvmlLinks
    from cdigen.vendors.nvidia.nvml.memory import NvmlMemory
    from cdigen.vendors.nvidia.nvml.shapes import NvmlError

# What can be asked of GPUs, and of the driver alone.
PARTS = ("identity", "links", "health", "figures", "memory")
DRIVER = "driver"
STAGES = ("import", "internal", "load", "nvml", "other-library")


@frozen
class NvmlMig:
    """A MIG device: its number on its GPU, its name, and the instances that it consists of.

    ``profile`` is such as ``1g.10gb`` or ``1c.3g.40gb``, empty where NVML does not tell; ``graphics``
    says whether the profile has graphics engines (``+gfx``). ``memory_mib`` is its memory, None where NVML
    does not tell.
    """

    index: int
    uuid: str
    gpu_instance: int
    compute_instance: int
    profile: str
    graphics: bool
    memory_mib: int | None = None


@frozen
class NvmlGpu:
    """A GPU in NVML's order; what it does not support or was not reached before ``error`` is None.

    ``address`` is spelled as in sysfs. ``mig_mode`` says whether MIG is on; ``migs`` are its devices. Parts
    that were not asked for are None or empty; those that are objects have errors of their own.
    """

    index: int
    address: str | None
    error: NvmlError | None
    uuid: str | None = None
    mig_mode: bool | None = None
    migs: tuple[NvmlMig, ...] = ()
    links: NvmlLinks | None = None
    health: NvmlHealth | None = None
    figures: NvmlFigures | None = None
    memory: NvmlMemory | None = None


@frozen
class NvmlReport:
    """All that NVML said; ``cuda`` is 12040 for 12.4, None where it was not asked or is not known."""

    gpus: tuple[NvmlGpu, ...]
    cuda: int | None = None


@frozen
class NvmlFailure:
    """Why NVML said nothing: ``stage`` is one of STAGES, ``error`` is there for the stage ``nvml``."""

    stage: str
    message: str
    error: NvmlError | None


class InvalidNvmlDocument(ValueError):
    """Say which place of the document is not as it has to be."""


def read(data: bytes, what: tuple[str, ...] = ("identity",)) -> NvmlReport | NvmlFailure:
    """Return what the document DATA says of the parts WHAT; raises InvalidNvmlDocument."""
    import json  # noqa: PLC0415 - most runs of cdigen read no document

    try:
        return _answer(json.loads(data), what)
    except InvalidValue as error:
        raise InvalidNvmlDocument(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise InvalidNvmlDocument(f"it is not JSON: {error}") from None


def _answer(document: object, what: tuple[str, ...]) -> NvmlReport | NvmlFailure:
    if isinstance(document, dict) and "stage" in document:
        failure: NvmlFailure = _FAILURE(document, "$")
        return failure
    if what == (DRIVER,):
        told: NvmlReport = record(NvmlReport, gpus=many(_gpu(())), cuda=optional(number))(document, "$")
        return told
    report: NvmlReport = record(NvmlReport, gpus=many(_gpu(what)))(document, "$")
    return report


def _gpu(what: tuple[str, ...]) -> Reader:
    parts: dict[str, Reader] = dict(_IDENTITY) if "identity" in what else {}
    for name in what:
        if name != "identity":
            parts[name] = import_module(f"cdigen.vendors.nvidia.nvml.{name}").READER
    return record(NvmlGpu, index=number, address=optional(address), error=ERROR, **parts)


_MIG = record(
    NvmlMig,
    index=number,
    uuid=text,
    gpu_instance=number,
    compute_instance=number,
    profile=perhaps_empty(text),
    graphics=flag,
    memory_mib=optional(number),
)
_IDENTITY: dict[str, Reader] = {
    "uuid": optional(text),
    "mig_mode": optional(flag),
    "migs": many(_MIG),
}
_FAILURE = record(NvmlFailure, stage=one_of(*STAGES), message=text, error=ERROR)

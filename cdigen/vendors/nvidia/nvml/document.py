"""Read the document in which the child process reports what NVML said: ``read``.

The document is one JSON object: ``{"gpus"}``, or where NVML says nothing at all ``{"stage", "message",
"error"}``. A library of NVIDIA's ran in the process that wrote it, and anything may have happened there:
whatever is not exactly of this shape is refused.
"""

from __future__ import annotations

from cdigen.host.sysfs import pci_address
from cdigen.model.strict import InvalidValue, flag, many, number, one_of, optional, record
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.strict import Reader

STAGES = ("import", "internal", "load", "nvml", "other-library")
MAX_TEXT = 1024


@frozen
class NvmlError:
    """A function of NVML that failed, with the error's name and number in the API reference."""

    call: str
    name: str
    code: int


@frozen
class NvmlMig:
    """A MIG device: its number on its GPU, its name, and the instances that it consists of.

    ``profile`` is such as ``1g.10gb`` or ``1c.3g.40gb``, empty where NVML does not tell; ``graphics``
    says whether the profile has graphics engines (``+gfx``).
    """

    index: int
    uuid: str
    gpu_instance: int
    compute_instance: int
    profile: str
    graphics: bool


@frozen
class NvmlGpu:
    """A GPU in NVML's order; what it does not support or was not reached before ``error`` is None.

    ``address`` is spelled as in sysfs. ``mig_mode`` says whether MIG is on; ``migs`` are its devices.
    """

    index: int
    address: str | None
    uuid: str | None
    mig_mode: bool | None
    migs: tuple[NvmlMig, ...]
    error: NvmlError | None


@frozen
class NvmlReport:
    """All that NVML said."""

    gpus: tuple[NvmlGpu, ...]


@frozen
class NvmlFailure:
    """Why NVML said nothing: ``stage`` is one of STAGES, ``error`` is there for the stage ``nvml``."""

    stage: str
    message: str
    error: NvmlError | None


class InvalidNvmlDocument(ValueError):
    """Say which place of the document is not as it has to be."""


def read(data: bytes) -> NvmlReport | NvmlFailure:
    """Return what the document DATA says; raises InvalidNvmlDocument."""
    import json  # noqa: PLC0415 - most runs of cdigen read no document

    try:
        return _answer(json.loads(data))
    except InvalidValue as error:
        raise InvalidNvmlDocument(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise InvalidNvmlDocument(f"it is not JSON: {error}") from None


def _answer(document: object) -> NvmlReport | NvmlFailure:
    if isinstance(document, dict) and "stage" in document:
        failure: NvmlFailure = _FAILURE(document, "$")
        return failure
    report: NvmlReport = _REPORT(document, "$")
    return report


def _text(value: object, path: str) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= MAX_TEXT:
        raise InvalidValue(path, f"1 to {MAX_TEXT} printable characters")
    return value


def _address(value: object, path: str) -> str:
    text = _text(value, path)
    if pci_address(text) != text:
        raise InvalidValue(path, "a PCI address as sysfs spells it")
    return text


def _perhaps_empty(reader: Reader) -> Reader:
    return lambda value, path: "" if value == "" else reader(value, path)


_ERROR = optional(record(NvmlError, call=_text, name=_text, code=number))
_MIG = record(
    NvmlMig,
    index=number,
    uuid=_text,
    gpu_instance=number,
    compute_instance=number,
    profile=_perhaps_empty(_text),
    graphics=flag,
)
_GPU = record(
    NvmlGpu,
    index=number,
    address=optional(_address),
    uuid=optional(_text),
    mig_mode=optional(flag),
    migs=many(_MIG),
    error=_ERROR,
)
_REPORT = record(NvmlReport, gpus=many(_GPU))
_FAILURE = record(NvmlFailure, stage=one_of(*STAGES), message=_text, error=_ERROR)

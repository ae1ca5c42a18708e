"""Read the document that the child process prints, with the replies of NVML (``read``).

The document is a JSON object with the key ``gpus``. If NVML cannot be used, the object has the keys
``stage``, ``message`` and ``error`` instead. cdigen rejects a document with another structure. This check is
necessary, because cdigen does not trust a process in which NVIDIA's library ran.

The entry of a GPU has an object for each of the requested parts ``links``, ``health``, ``stats`` and
``memory``. The values of the part ``identity`` are in the entry itself. If only the driver was queried,
``gpus`` is empty, and the document also has the key ``cuda``.
"""

from __future__ import annotations

from cdigen.model.strict import InvalidValue, flag, many, number, one_of, optional, record, typed_record
from cdigen.value import frozen
from cdigen.vendors.nvidia.nvml import stats
from cdigen.vendors.nvidia.nvml.parts import ERROR, HEALTH, LINKS, MEMORY, address, perhaps_empty, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.strict import Reader
    from cdigen.vendors.nvidia.nvml.parts import NvmlError, NvmlHealth, NvmlLinks, NvmlMemory
    from cdigen.vendors.nvidia.nvml.stats import NvmlStats

# DRIVER queries only the driver. MODULE checks only whether pynvml is installed.
DRIVER = "driver"
MODULE = "module"
STAGES = ("import", "internal", "load", "nvml", "other-library")


@frozen
class NvmlMig:
    """A MIG device.

    ``index`` is the number of the MIG device on its GPU. ``gpu_instance`` and ``compute_instance`` are the
    ids of its instances. Examples of ``profile`` are ``1g.10gb`` and ``1c.3g.40gb``. If NVML does not report
    the profile, ``profile`` is empty. ``graphics`` is true if the profile has graphics engines (``+gfx``).
    ``memory_mib`` is the memory size in MiB, or None if NVML does not report the size.
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
    """The values of a GPU.

    A value is None if the GPU does not support it, or if it was not read because of ``error``. ``index`` is
    NVML's index. ``address`` has the format of sysfs. ``mig_mode`` is true if MIG is on. ``migs`` are the MIG
    devices of the GPU. Parts that were not requested are None or empty. The parts ``links``, ``health``,
    ``stats`` and ``memory`` have their own ``error``.
    """

    index: int
    address: str | None
    error: NvmlError | None
    uuid: str | None = None
    mig_mode: bool | None = None
    migs: tuple[NvmlMig, ...] = ()
    links: NvmlLinks | None = None
    health: NvmlHealth | None = None
    stats: NvmlStats | None = None
    memory: NvmlMemory | None = None


@frozen
class NvmlReport:
    """The reply of NVML.

    ``cuda`` is the CUDA version, such as 12040 for 12.4. It is None if it was not queried or is not known.
    """

    gpus: tuple[NvmlGpu, ...]
    cuda: int | None = None


@frozen
class NvmlFailure:
    """The failure of NVML. ``stage`` is a value in STAGES. ``error`` is set for the stage ``nvml``."""

    stage: str
    message: str
    error: NvmlError | None


class InvalidNvmlDocument(ValueError):
    """The document is invalid. The message contains the path of the first invalid value."""


def read(data: bytes, what: tuple[str, ...] = ("identity",)) -> NvmlReport | NvmlFailure:
    """Return the content of the document DATA with the parts WHAT, or raise InvalidNvmlDocument."""
    import json  # noqa: PLC0415 - most runs of cdigen read no document

    try:
        return _answer(json.loads(data), what)
    except InvalidValue as error:
        raise InvalidNvmlDocument(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise InvalidNvmlDocument(f"the output is not JSON: {error}") from None


def _answer(document: object, what: tuple[str, ...]) -> NvmlReport | NvmlFailure:
    if isinstance(document, dict) and "stage" in document:
        failure: NvmlFailure = _FAILURE(document, "$")
        return failure
    if what == (DRIVER,):
        driver_report: NvmlReport = record(NvmlReport, gpus=many(_gpu(())), cuda=optional(number))(
            document, "$"
        )
        return driver_report
    report: NvmlReport = record(NvmlReport, gpus=many(_gpu(what)))(document, "$")
    return report


def _gpu(what: tuple[str, ...]) -> Reader:
    parts = {name: reader for part in what for name, reader in PARTS[part].items()}
    return record(NvmlGpu, index=number, address=optional(address), error=ERROR, **parts)


_MIG = typed_record(NvmlMig, uuid=text, profile=perhaps_empty(text))
# The parts of a GPU's entry, with the readers of the values in the entry.
PARTS: dict[str, dict[str, Reader]] = {
    "identity": {"uuid": optional(text), "mig_mode": optional(flag), "migs": many(_MIG)},
    "links": {"links": LINKS},
    "health": {"health": HEALTH},
    "stats": {"stats": stats.READER},
    "memory": {"memory": MEMORY},
}
_FAILURE = record(NvmlFailure, stage=one_of(*STAGES), message=text, error=ERROR)

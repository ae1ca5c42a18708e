"""Read the document that the child process prints, with the replies of NVML (``read``).

The document is a JSON object with the key ``gpus``. If NVML cannot be used, the object has the keys
``stage``, ``message`` and ``error`` instead. cdigen rejects a document with another structure. This check is
necessary, because cdigen does not trust a process in which NVIDIA's library ran.

The entry of a GPU has an object for each of the requested parts ``links``, ``health``, ``stats`` and
``memory``. The values of the part ``identity`` are in the entry itself. If only the driver was queried,
``gpus`` is empty, and the document also has the key ``cuda``. The module in the folder child with the name of
a part writes the values of the part.
"""

from __future__ import annotations

from cdigen.host.sysfs import pci_address
from cdigen.model.strict import (
    InvalidValue,
    flag,
    many,
    number,
    one_of,
    optional,
    record,
    typed_record,
    whole,
)
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.model.strict import Reader

# DRIVER queries only the driver. MODULE checks only whether pynvml is installed.
DRIVER = "driver"
MODULE = "module"
STAGES = ("import", "internal", "load", "nvml", "other-library")
MAX_TEXT = 1024
# A greater size of a memory is an error of NVML.
MAX_BYTES = 1 << 50


@frozen
class NvmlError:
    """A failed call of NVML.

    ``call`` is the function. ``name`` and ``code`` are the error's name and number in the API reference.
    """

    call: str
    name: str
    code: int


def text(value: object, path: str) -> str:
    """Return VALUE if it is a text of 1 to MAX_TEXT printable characters; else raise InvalidValue."""
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= MAX_TEXT:
        raise InvalidValue(path, f"1 to {MAX_TEXT} printable characters")
    return value


def address(value: object, path: str) -> str:
    """Return VALUE if it is a PCI address in the format of sysfs; else raise InvalidValue."""
    spelled = text(value, path)
    if pci_address(spelled) != spelled:
        raise InvalidValue(path, "a PCI address in the format of sysfs")
    return spelled


def perhaps_empty(reader: Reader) -> Reader:
    """Return a reader that accepts an empty text, and all values that READER accepts."""
    return lambda value, path: "" if value == "" else reader(value, path)


ERROR = optional(record(NvmlError, call=text, name=text, code=number))


@frozen
class NvmlLinks:
    """The part ``links`` of a GPU's entry. If ``error`` is set, the values are incomplete.

    ``peers`` maps the address of another GPU to the number of links with that GPU. ``down`` is the number of
    links that are not up. ``switched`` is the number of links to switches. ``reached`` are the addresses of
    the GPUs that the switches connect with this GPU. ``fabric`` is the name of the partition in a cluster's
    fabric, or empty. ``is_joining`` is true if the GPU has not joined the fabric yet.
    """

    error: NvmlError | None
    peers: Mapping[str, int]
    down: int
    switched: int
    reached: tuple[str, ...]
    fabric: str
    is_joining: bool


def _peers(value: object, path: str) -> Mapping[str, int]:
    if not isinstance(value, dict):
        raise InvalidValue(path, "an object")
    return {address(key, path): number(count, f"{path}.{key}") for key, count in value.items()}


LINKS = typed_record(NvmlLinks, error=ERROR, peers=_peers, reached=many(address), fabric=perhaps_empty(text))


@frozen
class NvmlHealth:
    """The part ``health`` of a GPU's entry. Its values show whether the GPU can be used.

    A value is None if the GPU does not support it, or if it was not read because of ``error``.
    ``recovery_action`` is an nvmlDeviceGpuRecoveryAction_t. 0 means no action. Drivers without this value
    report whether the GPU needs a reset (``reset``), or a drain and then a reset (``drain_and_reset``).
    ``remap_failed`` is true if the remapping of a memory row has ever failed. ``ecc_uncorrected`` is the
    number of uncorrected ECC errors since the driver was loaded or the GPU was reset. ``fabric_state`` is an
    nvmlGpuFabricState_t. If the state is completed, ``fabric_status`` is an nvmlReturn_t.
    """

    error: NvmlError | None
    recovery_action: int | None
    reset: bool | None
    drain_and_reset: bool | None
    remap_failed: bool | None
    ecc_uncorrected: int | None
    fabric_state: int | None
    fabric_status: int | None


HEALTH = typed_record(NvmlHealth, error=ERROR)


@frozen
class NvmlMemory:
    """The part ``memory`` of a GPU's entry.

    ``total`` is the size in bytes, or None if the GPU does not report the size. If the query failed,
    ``error`` is set.
    """

    error: NvmlError | None
    total: int | None


MEMORY = record(NvmlMemory, error=ERROR, total=optional(whole(0, MAX_BYTES)))


@frozen
class NvmlProcess:
    """A process that uses the device. ``memory`` is in bytes, or None if NVML does not report it."""

    pid: int
    memory: int | None


@frozen
class NvmlValues:
    """The statistics of a GPU or MIG device, in NVML's units. An unknown value is None.

    Memory is in bytes, power in milliwatts, clocks in MHz, and PCIe traffic in KB/s. All other values have
    the same units as in ``DeviceStats``. ``ecc_enabled`` is 0 or 1.
    """

    memory_total: int | None
    memory_used: int | None
    bar1_total: int | None
    bar1_used: int | None
    temperature: int | None
    power: int | None
    power_limit: int | None
    utilization: int | None
    memory_utilization: int | None
    encoder_utilization: int | None
    decoder_utilization: int | None
    core_clock: int | None
    memory_clock: int | None
    core_clock_max: int | None
    memory_clock_max: int | None
    pcie_generation: int | None
    pcie_generation_max: int | None
    pcie_width: int | None
    pcie_width_max: int | None
    ecc_enabled: int | None
    ecc_corrected: int | None
    ecc_uncorrected: int | None
    ecc_l1: int | None
    ecc_l2: int | None
    ecc_memory: int | None
    memory_bus_width: int | None
    cores: int | None
    compute_major: int | None
    compute_minor: int | None
    pcie_received: int | None
    pcie_sent: int | None
    processes: tuple[NvmlProcess, ...] | None


@frozen
class NvmlMigStats:
    """The statistics of a MIG device, with the ids of its GPU instance and compute instance."""

    gpu_instance: int
    compute_instance: int
    values: NvmlValues


@frozen
class NvmlStats:
    """The current statistics of a GPU. If values are missing because of an error, ``error`` is set."""

    error: NvmlError | None
    values: NvmlValues
    migs: tuple[NvmlMigStats, ...]


_AMOUNT = whole(0, (1 << 62) - 1)
_PROCESS = record(NvmlProcess, pid=number, memory=optional(_AMOUNT))
_NUMBERS = tuple(name for name in NvmlValues.__annotations__ if name != "processes")
_VALUES = record(NvmlValues, **dict.fromkeys(_NUMBERS, optional(_AMOUNT)), processes=optional(many(_PROCESS)))
_MIG_STATS = typed_record(NvmlMigStats, values=_VALUES)
STATS = record(NvmlStats, error=ERROR, values=_VALUES, migs=many(_MIG_STATS))


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
        reader = _FAILURE
    elif what == (DRIVER,):
        reader = record(NvmlReport, gpus=many(_gpu(())), cuda=optional(number))
    else:
        reader = record(NvmlReport, gpus=many(_gpu(what)))
    answer: NvmlReport | NvmlFailure = reader(document, "$")
    return answer


def _gpu(what: tuple[str, ...]) -> Reader:
    parts = {name: reader for part in what for name, reader in PARTS[part].items()}
    return record(NvmlGpu, index=number, address=optional(address), error=ERROR, **parts)


_MIG = typed_record(NvmlMig, uuid=text, profile=perhaps_empty(text))
# The parts of a GPU's entry, with the readers of the values in the entry.
PARTS: dict[str, dict[str, Reader]] = {
    "identity": {"uuid": optional(text), "mig_mode": optional(flag), "migs": many(_MIG)},
    "links": {"links": LINKS},
    "health": {"health": HEALTH},
    "stats": {"stats": STATS},
    "memory": {"memory": MEMORY},
}
_FAILURE = record(NvmlFailure, stage=one_of(*STAGES), message=text, error=ERROR)

"""``DiscoveryContext`` is what a vendor reads: the file trees of the host, and the options of the call."""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from cdigen.host.root import Root
    from cdigen.model.saved import GpuPartitionNames, KnownLinks

    T = TypeVar("T")


def constant(value: T) -> Callable[..., T]:
    """Return a function that returns VALUE for any arguments."""
    return lambda *_: value


@frozen
class VendorOption:
    """An option of one vendor in the configuration: ``vendor_options: {VENDOR: {NAME: value}}``.

    A value has the same type as ``default``, which is bool or str. If the option adds a CDI kind for
    administrators, ``management_kind`` is this kind. Such an option is on by default if the configuration
    permits the kind in namespaces (``nri: {management_namespaces}``).
    """

    name: str
    default: bool | str
    help: str
    management_kind: str = ""


@frozen
class DeviceFilter:
    """The conditions of a row of ``devices: {exclude}``; a device is excluded if it meets all conditions.

    An empty condition matches always. ``uuid`` and ``address`` can also select a partition. In ``model``, a
    ``*`` matches any text. ``display`` selects devices with a connected display.
    """

    vendor: str = ""
    index: int | None = None
    uuid: str = ""
    address: str = ""
    model: str = ""
    display: bool = False

    def __str__(self) -> str:
        """Return the row as in the configuration."""
        words = {
            "vendor": self.vendor,
            "index": "" if self.index is None else str(self.index),
            "uuid": self.uuid,
            "address": f'"{self.address}"' if self.address else "",
            "model": f'"{self.model}"' if self.model else "",
            "display": "true" if self.display else "",
        }
        return f"{{{', '.join(f'{name}: {word}' for name, word in words.items() if word)}}}"


NO_OPTIONS: Mapping[str, Mapping[str, bool | str]] = {}


@frozen
class DiscoveryContext:
    """The file trees of the host that a vendor reads, and the options of the call.

    ``host`` is the tree with the host's /proc and /sys. ``driver`` is the tree with the driver's files.
    ``dev`` is the tree whose /dev contains the nodes. The search paths are absolute folders of the driver's
    tree. If a search path is set, cdigen uses these folders instead of the vendor's own tables.

    ``mode`` is the type of host. With ``auto``, cdigen detects the type. ``nvml`` selects the vendor's
    management library for a child process. Its value is ``auto``, ``off``, or the path of a library.
    ``compat32`` adds 32-bit libraries. ``mps_pipe_dir`` is the folder of NVIDIA's Multi-Process Service, or
    empty. The user root or ``mps_uid`` must own this folder. ``options`` are the configured vendor options,
    by vendor and name. ``partition_names`` returns the last known names of GPU partitions. ``known_links``
    returns the last known links between GPUs. ``excluded`` selects the devices that no container gets.
    """

    host: Root
    driver: Root
    dev: Root
    library_search_paths: tuple[str, ...] = ()
    binary_search_paths: tuple[str, ...] = ()
    config_search_paths: tuple[str, ...] = ()
    mode: str = "auto"
    nvml: str = "off"
    compat32: bool = False
    mps_pipe_dir: str = ""
    mps_uid: int = 0
    options: Mapping[str, Mapping[str, bool | str]] = NO_OPTIONS
    partition_names: Callable[[], tuple[GpuPartitionNames, ...]] = constant(())
    known_links: Callable[[], tuple[KnownLinks, ...]] = constant(())
    excluded: tuple[DeviceFilter, ...] = ()

    def option(self, vendor: str, option: VendorOption) -> bool | str:
        """Return the configured value of the OPTION of VENDOR, or the default of OPTION."""
        return self.options.get(vendor, {}).get(option.name, option.default)

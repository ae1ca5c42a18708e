"""Hypothesis strategies: `inventories` for any valid inventory, `hosts` for inventories like discovery's."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from hypothesis import strategies as st

from cdigen.model.findings import Finding
from cdigen.model.inventory import (
    Accelerator,
    Driver,
    DriverFile,
    Group,
    GroupDevice,
    HostNode,
    Inventory,
    Link,
    Partition,
    ProbeResult,
)

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

T = TypeVar("T")
CAPABILITIES = ("compute", "utility", "graphics", "video", "display", "ngx")
KINDS = ("library", "library32", "binary", "firmware", "config", "module", "socket", "pipe")


def tuples(values: SearchStrategy[T], most: int = 1) -> SearchStrategy[tuple[T, ...]]:
    return st.lists(values, max_size=most).map(tuple)


# The characters for which str.isprintable is true: the space, and all characters except control, format,
# surrogate, private and unassigned characters, and other separators.
printables = st.characters(exclude_categories=["C", "Z"], include_characters=" ")
texts = st.text(printables, max_size=6)
in_paths = st.characters(exclude_categories=["C", "Z"], include_characters=" ", exclude_characters="/")
parts = st.text(in_paths, min_size=1, max_size=8).filter(lambda part: part not in {".", ".."})
relative_paths = st.lists(parts, min_size=1, max_size=2).map("/".join)
paths = relative_paths.map("/{}".format)
numbers = st.integers(0, (1 << 32) - 1)
capabilities = st.lists(st.sampled_from(CAPABILITIES), unique=True, max_size=3).map(tuple)

nodes = st.builds(
    HostNode,
    path=paths,
    host_path=paths,
    role=texts,
    major=numbers,
    minor=numbers,
    mode=numbers,
    uid=numbers,
    gid=numbers,
    capabilities=capabilities,
)
drivers = st.builds(
    Driver, version=texts, flavour=texts, architecture=st.sampled_from(["x86_64", "aarch64", "x"])
)
files = st.builds(
    DriverFile,
    kind=st.sampled_from(KINDS),
    host_path=paths,
    capabilities=capabilities,
    names=tuples(relative_paths),
    targets=tuples(paths),
)
searched = st.builds(
    ProbeResult,
    name=texts,
    kind=texts,
    capabilities=capabilities,
    weight=st.sampled_from(["required", "core", "optional"]),
    found=tuples(texts),
    reason=texts,
)
findings = st.builds(
    Finding,
    severity=st.sampled_from(["error", "warning", "info"]),
    rule=texts,
    path=texts,
    message=texts,
    hint=texts,
)
partitions = st.builds(
    Partition,
    index=numbers,
    uuid=st.none() | texts,
    profile=texts,
    instance=texts,
    graphics=st.booleans(),
    nodes=tuples(nodes),
    usable=st.booleans(),
    problem=texts,
    address=texts,
    ordinal=st.none() | numbers,
    memory_mib=st.none() | numbers,
)
groups = st.builds(
    Group,
    device_class=texts,
    devices=tuples(st.builds(GroupDevice, name=texts, nodes=tuples(nodes))),
    files=tuples(files),
)
links = st.builds(
    Link,
    peer=texts,
    technology=st.sampled_from(["nvlink", "xgmi", "xelink", "acmelink2"]),
    count=st.integers(0, 40),
)
accelerators = st.builds(
    Accelerator,
    index=numbers,
    address=texts,
    model=texts,
    uuid=st.none() | texts,
    minor=st.none() | numbers,
    nodes=tuples(nodes),
    usable=st.booleans(),
    problem=texts,
    partitioned=st.booleans(),
    partitions=tuples(partitions),
    device_class=texts,
    device_id=texts,
    pci_path=tuples(texts, most=3),
    numa_node=st.none() | numbers,
    cpus=texts,
    links=tuples(links, most=2),
    island=texts,
    kernel_driver=texts,
    memory_mib=st.none() | numbers,
)
inventories = st.builds(
    Inventory,
    vendor=texts,
    driver=drivers,
    accelerators=tuples(accelerators, most=2),
    nodes=tuples(nodes),
    files=tuples(files, most=2),
    searched=tuples(searched),
    findings=tuples(findings),
    mode=st.sampled_from(["gpu", "wsl", "csv", "management"]),
    groups=tuples(groups),
)


@st.composite
def hosts(draw: st.DrawFn) -> Inventory:
    """Draw an inventory as discovery makes it: GPUs with indices from 0, unique UUIDs, minors and paths."""
    count = draw(st.integers(0, 12))
    minors = draw(st.permutations(range(count)))
    places = draw(st.lists(paths, unique=True, max_size=6))
    return Inventory(
        vendor="nvidia",
        driver=draw(drivers),
        accelerators=tuple(_gpu(draw, index, minor) for index, minor in enumerate(minors)),
        nodes=tuple(_node(f"/dev/{role}", role) for role in draw(st.sets(st.sampled_from(["ctl", "uvm"])))),
        files=tuple(
            DriverFile(
                kind=draw(st.sampled_from(KINDS)),
                host_path=f"/host{place}",
                capabilities=draw(capabilities),
                names=(f"lib{number}.so.1",) if draw(st.booleans()) else (),
                targets=(f"/place{place}",),
            )
            for number, place in enumerate(places)
        ),
        searched=(),
        findings=(),
    )


def _gpu(draw: st.DrawFn, index: int, minor: int) -> Accelerator:
    uuid = f"GPU-00000000-0000-0000-0000-{index:012x}"
    drm = (_node(f"/dev/dri/card{minor}", "card", ("graphics",)),) if draw(st.booleans()) else ()
    return Accelerator(
        index=index,
        address=f"0000:{index:02x}:00.0",
        model="NVIDIA",
        uuid=uuid if draw(st.booleans()) else None,
        minor=minor,
        nodes=(_node(f"/dev/nvidia{minor}", "gpu"), *drm),
        usable=draw(st.booleans()),
    )


def _node(path: str, role: str, serves: tuple[str, ...] = ()) -> HostNode:
    return HostNode(
        path=path,
        host_path=f"/driver{path}",
        role=role,
        major=195,
        minor=0,
        mode=0o666,
        uid=0,
        gid=0,
        capabilities=serves,
    )

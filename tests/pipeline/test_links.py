"""Links and memory of GPUs are queried once, stored, and used only for the same GPUs and driver."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.hosts.driver_files import debian_13
from support.hosts.nvidia_kernel import write_kernel_side
from support.nvml.nvlinks import address, linked, on_the_bus, switched
from support.nvml.standin import Gpu, Machine, gpu, install, trusted_folder

from cdigen.cli.main import main
from cdigen.host.root import Root
from cdigen.model.findings import Finding
from cdigen.model.inventory import Inventory
from cdigen.model.inventory_json import from_document
from cdigen.model.strict import MAX_NUMBER
from cdigen.pipeline import discovery
from cdigen.pipeline.driver.links import refresh_links, with_known_links
from cdigen.store.records.saved import KNOWN_LINKS
from cdigen.value import replace
from cdigen.vendors.context import DiscoveryContext

TRACED = ("* trace",)
NO_MEMORY = "nvmlDeviceGetMemoryInfo error 3"


class Host:
    """A host with NVIDIA GPUs, a double of NVML, and a state directory."""

    def __init__(self, folder: Path, gpus: tuple[Gpu, ...]) -> None:
        self.root = folder / "host"
        laid = debian_13(self.root)
        self.version = laid.libraries["libcuda.so.1"].partition(".so.")[2]
        self.boot(len(gpus))
        self.state = str(folder / "state")
        self.folder = folder / "nvml"
        self.put(gpus)

    def boot(self, count: int) -> None:
        write_kernel_side(self.root, on_the_bus(count), driver_version=self.version)
        boot_id = self.root / "proc/sys/kernel/random/boot_id"
        boot_id.parent.mkdir(parents=True, exist_ok=True)
        boot_id.write_text("8f3b2c1e-0000-4000-8000-000000000001\n")

    def put(self, gpus: tuple[Gpu, ...], *faults: str) -> None:
        self.library = install(self.folder, Machine(gpus=gpus, faults=(*faults, *TRACED)))

    @property
    def calls(self) -> list[str]:
        """The queries of NVML since the last use of this property."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def context(self) -> DiscoveryContext:
        host = Root(str(self.root))
        return DiscoveryContext(
            host=host,
            driver=host,
            dev=host,
            nvml=str(self.library),
            known_links=lambda: KNOWN_LINKS.read(self.state, host),
        )

    def discover(self) -> Inventory:
        """Return the inventory of the host as any command discovers it, without a query."""
        inventories, failures = discovery.discover(("nvidia",), self.context())
        assert failures == {}
        return with_known_links(inventories, self.context())["nvidia"]

    def wait(self) -> int:
        """Make the next query due, and return the interval between the queries in seconds."""
        file = Path(self.state) / KNOWN_LINKS.name
        document = json.loads(file.read_text())
        (entry,) = document["links"]
        # If the time of a query is in the future, the next query is due.
        entry["queried_s"] = MAX_NUMBER
        file.write_text(json.dumps(document))
        return int(entry["requery_after_s"])

    def refresh(self) -> tuple[dict[str, Inventory], tuple[Finding, ...]]:
        """Refresh the links as the daemon does in a cycle, and return the inventories and findings."""
        return refresh_links({"nvidia": self.discover()}, self.context, self.state)


@pytest.fixture
def folder(real_nodes: None) -> Iterator[Path]:  # noqa: ARG001 - skips if nodes cannot be created
    with trusted_folder() as place:
        yield place


def four() -> tuple[Gpu, ...]:
    return tuple(switched(number, 4, 12) for number in range(4))


def sizes_of(inventory: Inventory) -> list[int | None]:
    return [each.memory_mib for each in inventory.accelerators]


def links_of(inventory: Inventory) -> list[list[tuple[str, int]]]:
    return [[(link.peer, link.count) for link in gpu.links] for gpu in inventory.accelerators]


def test_links_are_queried_once_and_added_to_later_inventories(folder: Path) -> None:
    host = Host(folder, four())
    assert links_of(host.discover()) == [[]] * 4
    assert host.calls == []
    first, findings = host.refresh()
    assert findings == ()
    assert links_of(first["nvidia"]) == [[("", 12)]] * 4
    assert "nvmlDeviceGetNvLinkState" in host.calls
    assert links_of(host.discover()) == [[("", 12)]] * 4
    assert {gpu.island for gpu in host.discover().accelerators} == {f"nvlink-{address(0)}"}
    assert links_of(host.refresh()[0]["nvidia"]) == [[("", 12)]] * 4
    assert host.calls == []


def test_the_absence_of_links_is_also_stored(folder: Path) -> None:
    host = Host(folder, (linked(0), linked(1)))
    assert links_of(host.refresh()[0]["nvidia"]) == [[], []]
    assert host.calls != []
    host.refresh()
    assert host.calls == []


def test_after_a_boot_a_driver_load_or_a_change_of_gpus_links_are_queried_again(folder: Path) -> None:
    host = Host(folder, four())
    host.refresh()
    assert host.calls != []
    (host.root / "proc/sys/kernel/random/boot_id").write_text("8f3b2c1e-0000-4000-8000-000000000002\n")
    assert links_of(host.discover()) == [[]] * 4
    host.refresh()
    assert host.calls != []
    module = host.root / "sys/module/nvidia"
    module.rename(module.with_name("old"))
    module.mkdir()
    (module / "version").write_text(f"{host.version}\n")
    assert links_of(host.discover()) == [[]] * 4
    host.refresh()
    assert host.calls != []
    host.boot(5)
    host.refresh()
    assert host.calls != []


def test_other_gpus_keep_their_links_after_the_loss_of_a_gpu(folder: Path) -> None:
    """The query is not repeated, because NVML may hang."""
    host = Host(folder, four())
    host.refresh()
    assert host.calls != []
    os.remove(host.root / "dev/nvidia3")
    assert links_of(host.refresh()[0]["nvidia"]) == [[("", 12)]] * 3 + [[]]
    assert host.calls == []


def test_memory_is_queried_once_together_with_the_links(folder: Path) -> None:
    host = Host(folder, (gpu(0, memory=24576 << 20), gpu(1), gpu(2, faults=(NO_MEMORY,))))
    assert sizes_of(host.refresh()[0]["nvidia"]) == [24576, 81559, None]
    assert host.calls.count("nvmlInitWithFlags") == 1
    assert sizes_of(host.discover()) == [24576, 81559, None]
    # The response of a GPU without its own memory is complete, so no query is repeated.
    assert host.wait() == 0
    assert host.calls == []


def test_a_single_gpu_has_no_links_and_only_its_memory_is_queried(folder: Path) -> None:
    host = Host(folder, (linked(0),))
    assert sizes_of(host.refresh()[0]["nvidia"]) == [81559]
    assert "nvmlDeviceGetNvLinkState" not in host.calls
    assert host.wait() == 0
    host.refresh()
    assert host.calls == []


def test_a_failed_memory_query_is_repeated_and_the_previous_value_stays(folder: Path) -> None:
    """A Kubernetes node keeps its memory units during a reset of a GPU."""
    host = Host(folder, (gpu(0), gpu(1, faults=("nvmlDeviceGetMemoryInfo error 999",))))
    assert sizes_of(host.refresh()[0]["nvidia"]) == [81559, None]
    assert host.wait() == 600
    host.put((gpu(0, faults=("nvmlDeviceGetMemoryInfo error 999",)), gpu(1)))
    assert sizes_of(host.refresh()[0]["nvidia"]) == [81559, 81559]
    os.remove(host.root / "dev/nvidia1")
    assert sizes_of(host.discover()) == [81559, 81559]


def test_without_nvml_the_memory_sizes_are_unknown(folder: Path) -> None:
    host = Host(folder, (gpu(0), gpu(1)))
    context = replace(host.context(), nvml="off")
    done, _ = refresh_links({"nvidia": host.discover()}, lambda: context, host.state)
    assert sizes_of(done["nvidia"]) == [None, None]
    assert host.calls == []


def test_a_file_of_another_schema_is_ignored_and_replaced(folder: Path) -> None:
    host = Host(folder, four())
    host.refresh()
    file = Path(host.state) / KNOWN_LINKS.name
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "schema": 2}))
    assert sizes_of(host.refresh()[0]["nvidia"]) == [81559] * 4
    assert json.loads(file.read_text())["schema"] == 1


def test_a_suspended_gpu_is_not_resumed(folder: Path) -> None:
    host = Host(folder, four())
    power = host.root / f"sys/bus/pci/devices/{address(1)}/power/runtime_status"
    power.parent.mkdir()
    power.write_text("suspended\n")
    assert links_of(host.refresh()[0]["nvidia"]) == [[]] * 4
    assert host.calls == []
    power.write_text("active\n")
    assert links_of(host.refresh()[0]["nvidia"]) == [[("", 12)]] * 4


def test_an_incomplete_result_is_queried_again_after_the_interval(folder: Path) -> None:
    """At boot the fabric manager starts after the daemon."""
    host = Host(folder, tuple(switched(number, 4, 12, reached=False) for number in range(4)))
    assert links_of(host.refresh()[0]["nvidia"]) == [[]] * 4
    host.put(four())
    assert host.calls != []
    host.refresh()
    assert host.calls == []
    assert host.wait() == 600
    assert links_of(host.refresh()[0]["nvidia"]) == [[("", 12)]] * 4
    assert host.wait() == 0


def test_links_that_are_down_are_queried_at_growing_intervals(folder: Path) -> None:
    """Links are down until the fabric manager trains them, and stay down without a bridge between cards."""
    host = Host(folder, (linked(0, -1, -1), linked(1, -1, -1)))
    for expected in (600, 1200, 2400):
        assert links_of(host.refresh()[0]["nvidia"]) == [[], []]
        assert host.calls != []
        host.refresh()
        assert host.calls == []
        assert host.wait() == expected
    host.put((linked(0, 1, -1), linked(1, 0, -1)))
    assert links_of(host.refresh()[0]["nvidia"]) == [[(address(1), 1)], [(address(0), 1)]]
    # One of two links is up. The other link comes up later.
    assert host.wait() == 4800
    host.put((linked(0, 1, 1), linked(1, 0, 0)))
    assert links_of(host.refresh()[0]["nvidia"]) == [[(address(1), 2)], [(address(0), 2)]]
    assert host.wait() == 0


def test_the_result_stays_if_nvml_fails_later_and_nvml_is_queried_daily(
    folder: Path,
) -> None:
    host = Host(folder, (linked(0, 1, -1), linked(1, 0, -1)))
    host.refresh()
    host.put((linked(0, 1), linked(1, 0)), "nvmlInitWithFlags error 18")
    waits = []
    for _ in range(9):
        waits.append(host.wait())
        assert links_of(host.refresh()[0]["nvidia"]) == [[(address(1), 1)], [(address(0), 1)]]
    assert waits[-2:] == [76_800, 86_400]


@pytest.mark.parametrize(
    "incomplete",
    [
        pytest.param(switched(3, 4, 12, results=("nvmlDeviceGetGpuFabricInfoV 0 2 0",)), id="joining"),
        pytest.param(switched(3, 4, 12, faults=("* error 15",)), id="lost"),
    ],
)
def test_a_gpu_without_a_response_is_queried_again(folder: Path, incomplete: Gpu) -> None:
    host = Host(folder, (*four()[:3], incomplete))
    host.refresh()
    assert host.wait() == 600


def test_a_gpu_that_becomes_partitioned_or_whole_is_queried_again(folder: Path) -> None:
    """MIG disables the links of its GPU."""
    host = Host(folder, four())
    host.refresh()
    split = replace(
        host.discover(),
        accelerators=tuple(
            replace(gpu, partitioned=True, links=(), island="") for gpu in host.discover().accelerators
        ),
    )
    assert host.calls != []
    refresh_links({"nvidia": split}, host.context, host.state)
    assert host.calls != []
    host.refresh()
    assert host.calls != []


def test_a_library_that_fails_is_not_queried_in_every_cycle(folder: Path) -> None:
    host = Host(folder, four())
    host.put(four(), "nvmlInitWithFlags error 18")
    done, _ = host.refresh()
    assert links_of(done["nvidia"]) == [[]] * 4
    assert all(gpu.usable for gpu in done["nvidia"].accelerators)
    assert host.calls == ["load"]
    host.put(four())
    assert links_of(host.refresh()[0]["nvidia"]) == [[]] * 4
    assert host.calls == []


def test_links_that_cannot_be_stored_are_a_finding(folder: Path) -> None:
    host = Host(folder, four())
    Path(host.state).write_text("no folder")
    done, findings = host.refresh()
    assert [finding.path for finding in findings] == [f"{host.state}/{KNOWN_LINKS.name}"]
    assert links_of(done["nvidia"]) == [[("", 12)]] * 4


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"schema": 1}', b'{"schema": 1, "boot": "", "links": [1]}']
)
def test_a_damaged_file_of_links_is_ignored(folder: Path, content: bytes) -> None:
    host = Host(folder, four())
    host.refresh()
    file = Path(host.state) / KNOWN_LINKS.name
    file.write_bytes(content)
    assert links_of(host.discover()) == [[]] * 4
    assert links_of(host.refresh()[0]["nvidia"]) == [[("", 12)]] * 4
    assert KNOWN_LINKS.read(host.state, Root(str(host.root))) != ()


def test_commands_print_the_stored_links(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host = Host(folder, four())
    host.state = str(host.root / "var/lib/cdigen")
    host.refresh()
    where = ("--root", str(host.root), "--nvml", "off", "--vendor", "nvidia")
    assert main(["inspect", "--json", *where]) == 0
    shown = from_document(json.loads(capsys.readouterr().out))
    assert links_of(shown["nvidia"]) == [[("", 12)]] * 4
    assert main(["topology", *where]) == 0
    assert "NV12" in capsys.readouterr().out

"""Links and memory of GPUs are asked once, kept, and true only of the same GPUs under the same driver."""

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
from cdigen.model.inventory import Inventory
from cdigen.model.inventory_json import from_document
from cdigen.model.strict import MAX_NUMBER
from cdigen.pipeline import discovery
from cdigen.pipeline.links import Refreshed, refreshed, with_known
from cdigen.store import known_links
from cdigen.value import replace
from cdigen.vendors.base import DiscoveryContext

TRACED = ("* trace",)
NO_MEMORY = "nvmlDeviceGetMemoryInfo error 3"


class Host:
    """A host with NVIDIA's GPUs, a library that stands in for NVML, and a state directory."""

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
        """What was asked of NVML since this was last looked at."""
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
            known_links=lambda: known_links.read(self.state, host),
        )

    def look(self) -> Inventory:
        """Look at the host as any command does, which asks nothing."""
        inventories, failures = discovery.discover(("nvidia",), self.context())
        assert failures == {}
        return with_known(inventories, self.context())["nvidia"]

    def wait(self) -> int:
        """Let the time pass after which links are asked for again, and return it, in seconds."""
        file = Path(self.state) / known_links.FILE
        document = json.loads(file.read_text())
        (entry,) = document["links"]
        # Longer ago than this machine has run: the time of asking lies ahead.
        entry["asked_s"] = MAX_NUMBER
        file.write_text(json.dumps(document))
        return int(entry["again_s"])

    def refresh(self) -> Refreshed:
        """Look as the daemon does, in one cycle."""
        return refreshed({"nvidia": self.look()}, self.context, self.state)


@pytest.fixture
def folder(real_nodes: None) -> Iterator[Path]:  # noqa: ARG001 - it makes sure that nodes can be made
    with trusted_folder() as place:
        yield place


def four() -> tuple[Gpu, ...]:
    return tuple(switched(number, 4, 12) for number in range(4))


def sizes_of(inventory: Inventory) -> list[int | None]:
    return [each.memory_mib for each in inventory.accelerators]


def links_of(inventory: Inventory) -> list[list[tuple[str, int]]]:
    return [[(link.peer, link.count) for link in gpu.links] for gpu in inventory.accelerators]


def test_links_are_asked_once_and_every_later_look_has_them(folder: Path) -> None:
    host = Host(folder, four())
    assert links_of(host.look()) == [[]] * 4
    assert host.calls == []
    first = host.refresh()
    assert first.findings == ()
    assert links_of(first.inventories["nvidia"]) == [[("", 12)]] * 4
    assert "nvmlDeviceGetNvLinkState" in host.calls
    assert links_of(host.look()) == [[("", 12)]] * 4
    assert {gpu.island for gpu in host.look().accelerators} == {f"nvlink-{address(0)}"}
    assert links_of(host.refresh().inventories["nvidia"]) == [[("", 12)]] * 4
    assert host.calls == []


def test_that_there_are_no_links_is_kept_as_well(folder: Path) -> None:
    host = Host(folder, (linked(0), linked(1)))
    assert links_of(host.refresh().inventories["nvidia"]) == [[], []]
    assert host.calls != []
    host.refresh()
    assert host.calls == []


def test_another_boot_another_load_of_the_driver_and_other_gpus_are_asked_anew(folder: Path) -> None:
    host = Host(folder, four())
    host.refresh()
    assert host.calls != []
    (host.root / "proc/sys/kernel/random/boot_id").write_text("8f3b2c1e-0000-4000-8000-000000000002\n")
    assert links_of(host.look()) == [[]] * 4
    host.refresh()
    assert host.calls != []
    module = host.root / "sys/module/nvidia"
    module.rename(module.with_name("old"))
    module.mkdir()
    (module / "version").write_text(f"{host.version}\n")
    assert links_of(host.look()) == [[]] * 4
    host.refresh()
    assert host.calls != []
    host.boot(5)
    host.refresh()
    assert host.calls != []


def test_a_gpu_that_is_lost_does_not_cost_the_others_their_links(folder: Path) -> None:
    """NVML may hang over it, so it is not asked again."""
    host = Host(folder, four())
    host.refresh()
    assert host.calls != []
    os.remove(host.root / "dev/nvidia3")
    assert links_of(host.refresh().inventories["nvidia"]) == [[("", 12)]] * 3 + [[]]
    assert host.calls == []


def test_memory_is_asked_with_the_links_once_and_each_gpu_has_its_own(folder: Path) -> None:
    host = Host(folder, (gpu(0, memory=24576 << 20), gpu(1), gpu(2, faults=(NO_MEMORY,))))
    assert sizes_of(host.refresh().inventories["nvidia"]) == [24576, 81559, None]
    assert host.calls.count("nvmlInitWithFlags") == 1
    assert sizes_of(host.look()) == [24576, 81559, None]
    # A GPU that has none of its own says so: there is nothing to ask again.
    assert host.wait() == 0
    assert host.calls == []


def test_one_gpu_alone_is_linked_to_nobody_and_asked_for_its_memory_alone(folder: Path) -> None:
    host = Host(folder, (linked(0),))
    assert sizes_of(host.refresh().inventories["nvidia"]) == [81559]
    assert "nvmlDeviceGetNvLinkState" not in host.calls
    assert host.wait() == 0
    host.refresh()
    assert host.calls == []


def test_memory_that_fails_is_asked_again_and_what_was_told_before_stays(folder: Path) -> None:
    """What a GPU that is being reset does not tell costs its node no units."""
    host = Host(folder, (gpu(0), gpu(1, faults=("nvmlDeviceGetMemoryInfo error 999",))))
    assert sizes_of(host.refresh().inventories["nvidia"]) == [81559, None]
    assert host.wait() == 600
    host.put((gpu(0, faults=("nvmlDeviceGetMemoryInfo error 999",)), gpu(1)))
    assert sizes_of(host.refresh().inventories["nvidia"]) == [81559, 81559]
    os.remove(host.root / "dev/nvidia1")
    assert sizes_of(host.look()) == [81559, 81559]


def test_a_library_that_must_not_be_asked_tells_no_memory(folder: Path) -> None:
    host = Host(folder, (gpu(0), gpu(1)))
    context = replace(host.context(), nvml="off")
    done = refreshed({"nvidia": host.look()}, lambda: context, host.state)
    assert sizes_of(done.inventories["nvidia"]) == [None, None]
    assert host.calls == []


def test_what_an_older_cdigen_kept_has_no_memory_and_is_asked_anew(folder: Path) -> None:
    host = Host(folder, four())
    host.refresh()
    file = Path(host.state) / known_links.FILE
    document = json.loads(file.read_text())
    for each in document["links"][0]["gpus"]:
        del each["memory_mib"]
    file.write_text(json.dumps({**document, "schema": 1}))
    assert sizes_of(host.refresh().inventories["nvidia"]) == [81559] * 4


def test_a_gpu_that_sleeps_is_not_woken(folder: Path) -> None:
    host = Host(folder, four())
    power = host.root / f"sys/bus/pci/devices/{address(1)}/power/runtime_status"
    power.parent.mkdir()
    power.write_text("suspended\n")
    assert links_of(host.refresh().inventories["nvidia"]) == [[]] * 4
    assert host.calls == []
    power.write_text("active\n")
    assert links_of(host.refresh().inventories["nvidia"]) == [[("", 12)]] * 4


def test_what_is_not_whole_is_asked_again_after_a_while_and_not_sooner(folder: Path) -> None:
    """At boot the fabric manager starts after the daemon."""
    host = Host(folder, tuple(switched(number, 4, 12, reached=False) for number in range(4)))
    assert links_of(host.refresh().inventories["nvidia"]) == [[]] * 4
    host.put(four())
    assert host.calls != []
    host.refresh()
    assert host.calls == []
    assert host.wait() == 600
    assert links_of(host.refresh().inventories["nvidia"]) == [[("", 12)]] * 4
    assert host.wait() == 0


def test_links_that_are_down_are_asked_for_again_ever_more_seldom(folder: Path) -> None:
    """They are until the fabric manager has trained them; for ever where no bridge joins two cards."""
    host = Host(folder, (linked(0, -1, -1), linked(1, -1, -1)))
    for expected in (600, 1200, 2400):
        assert links_of(host.refresh().inventories["nvidia"]) == [[], []]
        assert host.calls != []
        host.refresh()
        assert host.calls == []
        assert host.wait() == expected
    host.put((linked(0, 1, -1), linked(1, 0, -1)))
    assert links_of(host.refresh().inventories["nvidia"]) == [[(address(1), 1)], [(address(0), 1)]]
    # One of two is up; the other one comes later.
    assert host.wait() == 4800
    host.put((linked(0, 1, 1), linked(1, 0, 0)))
    assert links_of(host.refresh().inventories["nvidia"]) == [[(address(1), 2)], [(address(0), 2)]]
    assert host.wait() == 0


def test_a_library_that_does_not_answer_later_undoes_nothing_and_is_asked_at_least_once_a_day(
    folder: Path,
) -> None:
    host = Host(folder, (linked(0, 1, -1), linked(1, 0, -1)))
    host.refresh()
    host.put((linked(0, 1), linked(1, 0)), "nvmlInitWithFlags error 18")
    waits = []
    for _ in range(9):
        waits.append(host.wait())
        assert links_of(host.refresh().inventories["nvidia"]) == [[(address(1), 1)], [(address(0), 1)]]
    assert waits[-2:] == [76_800, 86_400]


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(switched(3, 4, 12, figures=("nvmlDeviceGetGpuFabricInfoV 0 2 0",)), id="joining"),
        pytest.param(switched(3, 4, 12, faults=("* error 15",)), id="lost"),
    ],
)
def test_a_gpu_that_tells_nothing_yet_is_asked_again(folder: Path, odd: Gpu) -> None:
    host = Host(folder, (*four()[:3], odd))
    host.refresh()
    assert host.wait() == 600


def test_a_gpu_that_becomes_partitioned_or_whole_is_asked_for_anew(folder: Path) -> None:
    """MIG takes the links of its GPU down."""
    host = Host(folder, four())
    host.refresh()
    split = replace(
        host.look(),
        accelerators=tuple(
            replace(gpu, partitioned=True, links=(), island="") for gpu in host.look().accelerators
        ),
    )
    assert host.calls != []
    refreshed({"nvidia": split}, host.context, host.state)
    assert host.calls != []
    host.refresh()
    assert host.calls != []


def test_a_library_that_refuses_is_not_asked_in_every_cycle_and_costs_nothing_else(folder: Path) -> None:
    host = Host(folder, four())
    host.put(four(), "nvmlInitWithFlags error 18")
    done = host.refresh()
    assert links_of(done.inventories["nvidia"]) == [[]] * 4
    assert all(gpu.usable for gpu in done.inventories["nvidia"].accelerators)
    assert host.calls == ["load"]
    host.put(four())
    assert links_of(host.refresh().inventories["nvidia"]) == [[]] * 4
    assert host.calls == []


def test_links_that_cannot_be_kept_are_a_finding(folder: Path) -> None:
    host = Host(folder, four())
    Path(host.state).write_text("no folder")
    done = host.refresh()
    assert [finding.path for finding in done.findings] == [f"{host.state}/{known_links.FILE}"]
    assert links_of(done.inventories["nvidia"]) == [[("", 12)]] * 4


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"schema": 1}', b'{"schema": 1, "boot": "", "links": [1]}']
)
def test_a_torn_file_is_as_good_as_none(folder: Path, content: bytes) -> None:
    host = Host(folder, four())
    host.refresh()
    file = Path(host.state) / known_links.FILE
    file.write_bytes(content)
    assert links_of(host.look()) == [[]] * 4
    assert links_of(host.refresh().inventories["nvidia"]) == [[("", 12)]] * 4
    assert known_links.read(host.state, Root(str(host.root))) != ()


def test_commands_that_show_links_show_those_that_are_kept(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = Host(folder, four())
    host.state = str(host.root / "var/lib/cdigen")
    host.refresh()
    where = ("--root", str(host.root), "--nvml", "off", "--vendor", "nvidia")
    assert main(["inspect", "--json", *where]) == 0
    shown = from_document(json.loads(capsys.readouterr().out))
    assert links_of(shown["nvidia"]) == [[("", 12)]] * 4
    assert main(["topology", *where]) == 0
    assert "NV12" in capsys.readouterr().out

"""A container with devices of two kinds finds the libraries of both kinds, in any order of the devices.

The host has three kinds of NVIDIA, with the profiles of the documentation. It has two kinds of another
vendor, each with a library. The second of these two kinds has a prefix: the fixed folder that its images
expect. The real cdigen writes the specs.
"""

import itertools
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.containers.chroot_host import BULLSEYE_IMAGE, DEBIAN_IMAGE, REDHAT_IMAGE, Host, running_host
from support.containers.gpu_hosts import GPUS, Driven, Way, install_hook, succeed, with_crun
from support.hosts.added_vendors import minimal, vendor
from support.hosts.nvidia_kernel import write_kernel_side
from support.own_trees import copy_tree

pytestmark = pytest.mark.e2e

GPU, COMPUTE, GRAPHICS = "nvidia.com/gpu=0", "nvidia.com/gpu-compute=0", "nvidia.com/gpu-graphics=0"
PLUG_IN, PREFIXED = "example.com/accel=0", "example.com/prefixed=0"
PAIRS = [
    pair
    for two in ((GPU, COMPUTE), (COMPUTE, GRAPHICS), (GPU, PLUG_IN), (COMPUTE, PLUG_IN), (GPU, PREFIXED))
    for pair in itertools.permutations(two)
]
WAYS = {
    "files": Way(layout="files", hook="none"),
    "files+hook": Way(layout="files", hook="cdigen"),
    "view": Way(layout="view", hook="none"),
    "view+hook": Way(layout="view", hook="cdigen"),
    "hwcaps": Way(layout="hwcaps", hook="none"),
}
HOOKED = tuple(name for name, delivery in WAYS.items() if delivery.hook == "cdigen")
# Device -> a library of its kind.
OWN = {
    GPU: "libcuda.so.1",
    COMPUTE: "libnvidia-ml.so.1",
    GRAPHICS: "libGLX_nvidia.so.0",
    PLUG_IN: "libaccelerat.so.1",
    PREFIXED: "libprefixed0.so.1",
}
CRUN = "crun"
PREFIX = "/usr/local/Example/driver"
CONFIGURATION = """
vendors: [nvidia, added]
profiles:
  - {name: default, class: gpu}
  - {name: compute, class: gpu-compute, capabilities: [compute, utility]}
  - {name: graphics, class: gpu-graphics, capabilities: [graphics]}
"""
MIXED = """
vendors: [nvidia, added]
profiles:
  - {name: default, class: gpu, layout: hwcaps, hook: none}
  - {name: compute, class: gpu-compute, capabilities: [compute, utility], layout: view, hook: cdigen}
  - {name: graphics, class: gpu-graphics, capabilities: [graphics], layout: files, hook: none}
"""
FILES = """from cdigen.model.cdi import ContainerEdits, Device, Draft, Payload
        from cdigen.model.inventory import DriverFile
        from cdigen.value import replace

        def draft(name, soname, prefix):
            library = DriverFile(
                kind='library', host_path=f'/opt/added/{soname}', capabilities=(), names=(soname,)
            )
            data = DriverFile(
                kind='config', host_path='/opt/added/version', capabilities=(), targets=(prefix + '/version',)
            )
            files = (library, data) if prefix else (library,)
            payload = Payload(
                vendor='added', version='1', architecture='x86_64', files=files, prefix=prefix
            )
            device = Device(name='0', edits=ContainerEdits(env=('ADDED=1',)))
            return Draft(
                kind=f'example.com/{name}', devices=(device,), edits=ContainerEdits(), payload=payload,
                profile=profiles[0],
            )

        return draft('accel', 'libaccelerat.so.1', ''), draft('prefixed', 'libprefixed0.so.1', '{prefix}')"""


@dataclass(kw_only=True)
class Hosted:
    """A running host; `alone` has the results of `found_alone`."""

    host: Host
    alone: dict[tuple[str, str, str], set[str]] = field(default_factory=dict)

    def found(
        self, *devices: str, image: str = DEBIAN_IMAGE, before: str = "true", options: str = ""
    ) -> set[str]:
        """Return the libraries of any kind that a container with DEVICES loads by name."""
        device_options = " ".join(f"--device {device}" for device in devices)
        # An image with a hard-coded prefix sets this variable.
        device_options += f" --env LD_LIBRARY_PATH={PREFIX}/lib64" if PREFIXED in devices else ""
        podman = f"podman run --rm {device_options} {options}"
        driven = (
            with_crun(self.host, device_options) if options == CRUN else Driven(host=self.host, podman=podman)
        )
        names = [*driven.driver, OWN[PLUG_IN], OWN[PREFIXED]]
        loaded = driven.loaded(image, names, before=before)
        return {name for name, path in loaded.items() if not path.startswith("fail")}

    def found_alone(self, device: str, image: str, before: str) -> set[str]:
        """Return the libraries that a container with only DEVICE loads."""
        key = device, image, before
        if key not in self.alone:
            self.alone[key] = self.found(device, image=image, before=before)
            assert OWN[device] in self.alone[key]
        return self.alone[key]

    def check(
        self, devices: tuple[str, str], *, image: str = DEBIAN_IMAGE, before: str = "true", options: str = ""
    ) -> None:
        """Check that a container with both DEVICES loads the libraries of each device."""
        first, second = (self.found_alone(device, image, before) for device in devices)
        assert self.found(*devices, image=image, before=before, options=options) == first | second


@pytest.fixture(scope="module")
def hosts(cache: Path, driver_tree: Path, images: Path) -> Iterator[Callable[[str], Hosted]]:
    """Return a function that starts and returns the host for a name in WAYS, or "mixed"."""
    made: dict[str, Hosted] = {}
    with tempfile.TemporaryDirectory(prefix="hosts-", dir=cache) as folder, ExitStack() as running:
        packages = Path(folder, "packages")
        packages.mkdir()
        vendor(packages, "added", minimal(edits=FILES.replace("{prefix}", PREFIX)))

        def start(name: str) -> Hosted:
            if name not in made:
                root = Path(folder) / name
                lay(root, driver_tree, packages, WAYS.get(name))
                made[name] = Hosted(host=running.enter_context(running_host(root, images=images)))
            return made[name]

        yield start


def lay(root: Path, driver_tree: Path, packages: Path, delivery: Way | None) -> None:
    """Make the root of a host; all kinds have DELIVERY, or the profiles of MIXED if DELIVERY is None."""
    copy_tree(driver_tree, root)
    write_kernel_side(root, GPUS)
    install_hook(root)
    (root / "opt/added").mkdir(parents=True)
    (root / "opt/added/version").write_text("1.0\n")
    library = (root / "usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.550.163.01").read_bytes()
    for device in (PLUG_IN, PREFIXED):
        # A real library with another SONAME of the same length.
        (root / "opt/added" / OWN[device]).write_bytes(
            library.replace(b"libnvidia-ml.so.1", OWN[device].encode())
        )
    (root / "etc/cdigen").mkdir(parents=True, exist_ok=True)
    (root / "etc/cdigen/config.yaml").write_text(CONFIGURATION if delivery else MIXED)
    generate = (sys.executable, "-m", "cdigen", "generate", "--root", str(root), "--write", "--verbose")
    environment = f"PYTHONPATH={packages}:{os.environ.get('PYTHONPATH', '')}"
    options = ("--layout", delivery.layout, "--hook", delivery.hook) if delivery else ()
    output = succeed("env", environment, *generate, *options)
    assert "mounts-covered" not in output


@pytest.mark.parametrize("delivery", WAYS)
@pytest.mark.parametrize("devices", PAIRS, ids="+".join)
def test_the_libraries_of_both_kinds_are_found(
    hosts: Callable[[str], Hosted], delivery: str, devices: tuple[str, str]
) -> None:
    hosts(delivery).check(devices)


@pytest.mark.parametrize("delivery", ["files", "view+hook", "hwcaps"])
@pytest.mark.parametrize("devices", PAIRS[:6:2], ids="+".join)
def test_the_libraries_of_both_kinds_are_found_in_a_container_that_crun_starts(
    hosts: Callable[[str], Hosted], delivery: str, devices: tuple[str, str]
) -> None:
    hosts(delivery).check(devices, options=CRUN)


@pytest.mark.parametrize("image", [REDHAT_IMAGE, BULLSEYE_IMAGE])
@pytest.mark.parametrize("delivery", ["files", "view+hook", "hwcaps"])
def test_the_libraries_of_both_kinds_are_found_in_the_images_redhat_and_bullseye(
    hosts: Callable[[str], Hosted], delivery: str, image: str
) -> None:
    hosts(delivery).check((COMPUTE, GRAPHICS), image=image)


@pytest.mark.parametrize("delivery", HOOKED)
@pytest.mark.parametrize("devices", PAIRS[2:6], ids="+".join)
def test_the_libraries_of_both_kinds_are_found_after_ldconfig_in_the_container(
    hosts: Callable[[str], Hosted], delivery: str, devices: tuple[str, str]
) -> None:
    hosts(delivery).check(devices, before="ldconfig")


@pytest.mark.parametrize("devices", PAIRS[:4], ids="+".join)
def test_mounts_of_two_kinds_with_different_layouts_do_not_cover_each_other(
    hosts: Callable[[str], Hosted], devices: tuple[str, str]
) -> None:
    hosts("mixed").check(devices)


@pytest.mark.parametrize("delivery", ["files", "view", "view+hook"])
def test_a_configuration_file_of_the_vendor_is_below_the_prefix(
    hosts: Callable[[str], Hosted], delivery: str
) -> None:
    run = f"podman run --rm --device {PREFIXED} {DEBIAN_IMAGE}"
    assert hosts(delivery).host.run(f"{run} cat {PREFIX}/version") == "1.0\n"


def test_each_kind_has_a_separate_folder_for_its_view(hosts: Callable[[str], Hosted]) -> None:
    """The default kind's view is at the folder that CUDA images expect; other views can be at a prefix."""
    host = hosts("view+hook").host
    specs = [
        json.loads(line)
        for line in host.run("for f in /run/cdi/*.json; do tr -d '\\n' <$f; echo; done").splitlines()
    ]
    views = {
        spec["kind"]: [
            mount["containerPath"]
            for mount in spec["containerEdits"]["mounts"]
            if re.fullmatch(r"/var/lib/cdigen/views/[a-z]+-[0-9a-f]{16}", mount["hostPath"])
        ]
        for spec in specs
    }
    assert views == {
        "nvidia.com/gpu": ["/usr/local/nvidia"],
        "nvidia.com/gpu-compute": ["/usr/local/cdigen/nvidia.com/gpu-compute"],
        "nvidia.com/gpu-graphics": ["/usr/local/cdigen/nvidia.com/gpu-graphics"],
        "example.com/accel": ["/usr/local/cdigen/example.com/accel"],
        "example.com/prefixed": [PREFIX],
    }

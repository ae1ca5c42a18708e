"""What becomes of the answers of NVIDIA's device plugin in each of its strategies, and by which policy.

A kubelet gives a container what the plugin's Allocate answers (k8s-device-plugin 0.20, internal/plugin/
server.go): variables, mounts, annotations of the container, CDI devices, nodes. The runtime applies CDI
devices and annotations before it asks NRI, so that what they give shows as nodes and variables; the names
themselves are told by containerd from 2.3 on alone.
"""

import pytest
from support.nri.host import DEVICES, LISTS, UUID, allowed, container, listing, outcome

from cdigen.config import AllowRule
from cdigen.nri.decision.select import DeviceNames
from cdigen.nri.pods import Container
from cdigen.value import replace

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
OWN = "k8s.device-plugin.nvidia.com"
# PASS_DEVICE_SPECS, and what CDI gives.
NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia0")
NAMES = DeviceNames((*DEVICES, "nvidia.com/gpu=none", f"{OWN}/gpu={UUID}"))
GPU, CHANNEL = f"nvidia.com/gpu={UUID}", "nvidia.com/imex-channel=7"
GDS, MOFED, GDRCOPY = (f"nvidia.com/{name}=all" for name in ("gds", "mofed", "gdrcopy"))
GATED = ("NVIDIA_GDS=enabled", "NVIDIA_MOFED=enabled", "NVIDIA_GDRCOPY=enabled")


ANY = allowed("annotation", "mounts", "environment")
LISTS_ONLY, ENV_ONLY = allowed("mounts"), allowed("environment")


def given(
    *env: str, mounts: tuple[str, ...] = (), nodes: tuple[str, ...] = (), cdi: tuple[str, ...] = ()
) -> Container:
    """Return a container as the runtime tells it; ENV is the plugin's over that of the image."""
    return replace(listing(*mounts), env=env, devices=nodes, cdi_devices=cdi)


ENVVAR = given(f"{VISIBLE}={UUID}")
MOUNTS = given(f"{VISIBLE}={LISTS}", mounts=(UUID,))


@pytest.mark.parametrize(
    ("here", "allow", "expected", "devices"),
    [
        pytest.param(ENVVAR, ANY, "inject", [GPU], id="envvar"),
        pytest.param(ENVVAR, LISTS_ONLY, "nothing", [], id="envvar, where it does not count"),
        pytest.param(
            given(f"{VISIBLE}={UUID}", "NVIDIA_IMEX_CHANNELS=7"),
            ANY,
            "inject",
            [GPU, CHANNEL],
            id="envvar with a channel",
        ),
        pytest.param(
            given(f"{VISIBLE}={UUID}", *GATED),
            ANY,
            "inject",
            [GPU, GDS, MOFED, GDRCOPY],
            id="envvar with GDS, MOFED and GDRCopy",
        ),
        pytest.param(given(f"{VISIBLE}=0"), ANY, "inject", ["nvidia.com/gpu=0"], id="envvar by index"),
        pytest.param(MOUNTS, ANY, "inject", [GPU], id="volume-mounts"),
        pytest.param(MOUNTS, LISTS_ONLY, "inject", [GPU], id="volume-mounts, where they alone count"),
        pytest.param(MOUNTS, ENV_ONLY, "refuse", [], id="volume-mounts, where they do not count"),
        pytest.param(MOUNTS, allowed("annotation"), "nothing", [], id="volume-mounts, where neither counts"),
        pytest.param(
            given(f"{VISIBLE}={LISTS}", *GATED, mounts=(UUID, "imex/7")),
            LISTS_ONLY,
            "inject",
            [GPU, CHANNEL, GDS, MOFED, GDRCOPY],
            id="volume-mounts with all there is",
        ),
        pytest.param(
            given(f"{VISIBLE}=all", mounts=(UUID,)), ANY, "inject", [GPU], id="volume-mounts under an image"
        ),
        pytest.param(
            given(f"{VISIBLE}={UUID}", nodes=NODES),
            ANY,
            "inject",
            ["nvidia.com/gpu=none"],
            id="envvar, with the nodes: it lacks the driver's files",
        ),
        pytest.param(
            given(f"{VISIBLE}={LISTS}", mounts=("0",), nodes=NODES),
            LISTS_ONLY,
            "inject",
            ["nvidia.com/gpu=none"],
            id="volume-mounts by index, with the nodes, as on Bottlerocket",
        ),
        pytest.param(
            given(f"{VISIBLE}=void", nodes=NODES), ANY, "served", [], id="cdi-annotations or cdi-cri"
        ),
        pytest.param(
            given(f"{VISIBLE}=void", nodes=NODES, cdi=(f"{OWN}/gpu={UUID}", f"{OWN}/gds=all")),
            ANY,
            "served",
            [],
            id="cdi-cri, told by containerd 2.3",
        ),
        pytest.param(
            given(f"{VISIBLE}=all", cdi=(f"{OWN}/gpu={UUID}",)),
            ANY,
            "served",
            [],
            id="cdi-cri with a spec that sets nothing",
        ),
        pytest.param(
            given(f"{VISIBLE}={LISTS}", mounts=(UUID,), nodes=NODES, cdi=(f"{OWN}/gpu={UUID}",)),
            ANY,
            "served",
            [],
            id="volume-mounts and cdi-cri",
        ),
        pytest.param(
            given(f"{VISIBLE}=void", mounts=(UUID,), nodes=NODES),
            LISTS_ONLY,
            "served",
            [],
            id="volume-mounts and cdi-annotations",
        ),
    ],
)
def test_each_strategy_gives_what_was_allocated_once(
    here: Container, allow: tuple[AllowRule, ...], expected: str, devices: list[str]
) -> None:
    decision = outcome(here=here, allow=allow, names=NAMES)
    assert (decision.outcome, list(decision.devices)) == (expected, devices), decision
    assert bool(decision.reason) is (expected == "refuse")


@pytest.mark.parametrize(
    "here", [given(f"{VISIBLE}={UUID}", *GATED), given(f"{VISIBLE}={LISTS}", *GATED, mounts=(UUID,))]
)
def test_what_the_plugin_switches_on_everywhere_stops_nobody_where_it_is_not_there(here: Container) -> None:
    names = DeviceNames(name for name in DEVICES if name.startswith("nvidia.com/gpu="))
    decision = outcome(here=here, names=names)
    assert (decision.devices, [note.cause for note in decision.notes]) == ((GPU,), ["no_spec"] * 3)


def test_a_container_beside_it_gets_nothing() -> None:
    assert outcome(here=container("HOME=/"), names=NAMES).outcome == "nothing"

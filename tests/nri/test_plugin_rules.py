"""`cdigen nri` with validation, with runtimes that drop CDI devices, and with image requirements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from support.nri.plugin import (
    DROPS_06,
    INJECTED_ANNOTATION,
    INJECTS_08,
    INJECTS_10,
    INJECTS_12,
    VISIBLE,
    Host,
    Plugin,
    cdi_devices,
    gpu_request,
    host,
    plugin,
)
from support.nri.runtime import Rejected, Runtime, pod

from cdigen.nri.wire.messages import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterator

DROPPED = "drops CDI devices of NRI plugins silently; .* since "
DOCKER: dict[str, Any] = {"name": "docker", "version": "29.3.0", "nri": (0, 11)}
# Runtimes that do not inject CDI devices, and the reason with which cdigen refuses their containers.
OTHERS: tuple[tuple[dict[str, Any], str], ...] = (
    (DROPS_06, DROPPED),
    ({"name": "containerd", "version": "2.0.5", "nri": (0, 8)}, DROPPED),
    ({"name": "containerd", "version": "v1.7.29", "nri": (0, 8)}, DROPPED),
    ({"name": "cri-o", "version": "1.33.2", "nri": (0, 9)}, DROPPED),
    (DOCKER, "rejects devices of NRI plugins: .* --device"),
    ({"name": "isulad", "version": "2.1.9", "nri": (0, 8)}, "is unknown to cdigen"),
)
NEEDS = "NVIDIA_REQUIRE_CUDA=cuda>=12.9"
MET = "NVIDIA_REQUIRE_CUDA=cuda>=11.0 driver>=535"


# Validation of the changes of all plugins.


@pytest.fixture(params=[INJECTS_10, INJECTS_12], ids=["NRI 0.10", "NRI 0.12"])
def validating(shared: Plugin, request: pytest.FixtureRequest) -> Iterator[Runtime]:
    made = shared.host.runtime(**request.param)
    yield made
    made.close()


def test_injected_devices_pass_validation(validating: Runtime) -> None:
    adjustment = validating.create(*gpu_request("all"))
    assert validating.validate(*gpu_request("all"), adjustment, ["20-cdigen"]) == ""


def test_additions_of_other_plugins_pass_validation(validating: Runtime) -> None:
    adjustment = validating.create(*gpu_request("0"))
    adjustment.cdi_devices.add(name="example.com/nic=0")
    adjustment.env.add(key="A", value="b")
    assert validating.validate(*gpu_request("0"), adjustment, ["10-other", "20-cdigen"]) == ""


def test_a_container_without_a_request_passes_validation(validating: Runtime) -> None:
    assert validating.validate(*gpu_request(None), CLASSES["Adjustment"]()) == ""
    assert validating.validate(pod(namespace="web"), gpu_request("all")[1], CLASSES["Adjustment"]()) == ""


def test_a_container_for_which_the_plugin_was_not_called_is_rejected(validating: Runtime) -> None:
    reason = validating.validate(*gpu_request("0"), CLASSES["Adjustment"](), ["10-other"])
    assert reason == (
        "cdigen: the container requests nvidia.com/gpu=0 and would start without nvidia.com/gpu=0"
    )


def test_a_container_whose_device_another_plugin_removed_is_rejected(validating: Runtime) -> None:
    adjustment = validating.create(*gpu_request("0,1"))
    del adjustment.cdi_devices[1]
    reason = validating.validate(*gpu_request("0,1"), adjustment, ["20-cdigen", "90-other"])
    assert reason.endswith("would start without nvidia.com/gpu=1")


def test_the_validation_rejects_a_refused_container_with_the_same_reason(validating: Runtime) -> None:
    with pytest.raises(Rejected) as caught:
        validating.create(*gpu_request("77"))
    assert validating.validate(*gpu_request("77"), CLASSES["Adjustment"]()) == caught.value.message


def test_a_rejection_names_the_conflicting_plugin(here: Host, running: Plugin) -> None:
    runtime = here.runtime(**INJECTS_12)
    adjustment = runtime.create(*gpu_request("0"))
    adjustment.env.add(key=VISIBLE, value="0,1")
    owners = {1: {INJECTED_ANNOTATION: "20-cdigen"}, 6: {VISIBLE: "90-greedy"}}
    reason = runtime.validate(*gpu_request("0"), adjustment, ["20-cdigen", "90-greedy"], owners)
    assert reason.endswith(
        "without nvidia.com/gpu=1: the plugin 90-greedy changed the requests of the container"
    )
    running.sees(lambda: running.lines("rejected"))
    (line,) = running.lines("rejected")
    assert line["plugin"] == "90-greedy"
    assert "the plugin 90-greedy" in line["reason"]


def test_validations_are_counted_and_rejections_logged(here: Host, running: Plugin) -> None:
    runtime = here.runtime(**INJECTS_12)
    runtime.validate(*gpu_request(None), CLASSES["Adjustment"]())
    runtime.validate(*gpu_request("1", name="robbed"), CLASSES["Adjustment"]())
    running.sees(lambda: running.lines("rejected"))
    running.sees(lambda: running.status.get("validations") == {"passed": 1, "rejected": 1})
    (line,) = running.lines("rejected")
    assert (line["level"], line["pod"]) == ("warning", "robbed")
    running.serves()
    assert running.metric('cdigen_nri_validations_total{result="rejected"}') == 1


# Runtimes that drop CDI devices.


@pytest.mark.parametrize(
    ("flavour", "reason"), OTHERS, ids=[f"{each['name']} {each['version']}" for each, _ in OTHERS]
)
def test_a_request_is_refused_on_a_runtime_that_injects_no_cdi_devices(
    shared: Plugin, flavour: dict[str, Any], reason: str
) -> None:
    runtime = shared.host.runtime(**flavour)
    with pytest.raises(Rejected, match=re.escape(f"{flavour['name']} {flavour['version']} ") + reason):
        runtime.create(*gpu_request("0"))
    assert runtime.create(*gpu_request(None)).ByteSize() == 0
    runtime.close()


def test_a_runtime_that_drops_devices_is_in_log_status_and_metrics(here: Host, running: Plugin) -> None:
    here.runtime(**DROPS_06)
    running.sees(lambda: running.lines("runtime"))
    (line,) = running.lines("runtime")
    assert (line["level"], line["policy"]) == ("warning", "refuse")
    assert "containerd 1.7.24~ds1 injects no CDI devices of NRI plugins (behaviour: drops)" in line["message"]
    assert line["hint"] == "containerd injects CDI devices since 1.7.30 and 2.1.0"
    running.sees(lambda: running.status.get("runtime", {}).get("cdi") == "drops")
    running.serves()
    row = '{cdi="drops",nri="0.6",runtime="containerd",version="1.7.24~ds1"}'
    assert running.metric(f"cdigen_nri_runtime_info{row}") == 1


@pytest.mark.usefixtures("real_nodes")
def test_the_policy_raw_injects_nodes_mounts_and_variables() -> None:
    with host() as here:
        here.configure(unsupported_cdi="raw")
        here.make_null()
        here.write_spec(mounts=[{"hostPath": "/lib/x.so", "containerPath": "/lib/x.so", "options": ["ro"]}])
        with plugin(here):
            runtime = here.runtime(**DROPS_06)
            adjustment = runtime.create(*gpu_request("0"))
            assert [device.path for device in adjustment.linux.devices] == ["/dev/0"]
            assert (adjustment.linux.devices[0].major, adjustment.linux.devices[0].minor) == (1, 3)
            assert [mount.destination for mount in adjustment.mounts] == ["/lib/x.so"]
            assert [(pair.key, pair.value) for pair in adjustment.env] == [("NVIDIA_VISIBLE_DEVICES", "void")]
            assert adjustment.annotations[INJECTED_ANNOTATION] == "nvidia.com/gpu=0"
            assert not adjustment.cdi_devices


@pytest.mark.usefixtures("real_nodes")
def test_the_policy_raw_does_not_apply_to_docker_or_to_runtimes_that_inject_cdi_devices() -> None:
    with host() as here:
        here.configure(unsupported_cdi="raw")
        here.make_null()
        with plugin(here):
            runtime = here.runtime(**DOCKER)
            with pytest.raises(Rejected, match="rejects devices"):
                runtime.create(*gpu_request("0"))
            runtime.close()
            assert cdi_devices(here.runtime(**INJECTS_08).create(*gpu_request("0"))) == ["nvidia.com/gpu=0"]


# Requirements, with the daemon's inventory of a driver for CUDA 12.4.


@pytest.fixture(params=["enforce", "warn", "off"])
def requiring(request: pytest.FixtureRequest) -> Iterator[tuple[Host, Plugin, str]]:
    with host() as here:
        here.configure(image_requirements=request.param)
        with plugin(here) as running:
            yield here, running, request.param


def counted(running: Plugin, cause: str, mode: str) -> None:
    """Wait until the metric for MODE has counted CAUSE once, or zero times if MODE is off."""
    running.serves()
    name = "refused" if mode == "enforce" else "ignored_requests"
    count = 0 if mode == "off" else 1
    running.sees(lambda: running.metric(f'cdigen_nri_{name}_total{{cause="{cause}"}}') == count)


def create(runtime: Runtime, mode: str, words: str, *env: str) -> None:
    """Create a container with ENV. Check that MODE enforce refuses the container with WORDS."""
    if mode == "enforce":
        with pytest.raises(Rejected, match=words):
            runtime.create(*gpu_request("all", *env))
    else:
        assert cdi_devices(runtime.create(*gpu_request("all", *env))) == ["nvidia.com/gpu=all"]


def test_the_policy_for_requirements_applies_with_and_without_an_inventory(
    requiring: tuple[Host, Plugin, str],
) -> None:
    here, running, mode = requiring
    runtime = here.runtime()
    create(runtime, mode, "there is no inventory: the cdigen daemon has not written one", NEEDS)
    counted(running, "no_inventory", mode)
    here.write_inventory()
    create(runtime, mode, "NVIDIA_REQUIRE_CUDA='cuda>=12.9' is not met: .* cuda 12.4", NEEDS)
    counted(running, "requirement", mode)
    assert cdi_devices(runtime.create(*gpu_request("all", MET))) == ["nvidia.com/gpu=all"]


def test_an_inventory_of_another_driver_is_ignored(
    requiring: tuple[Host, Plugin, str],
) -> None:
    here, _, mode = requiring
    here.write_inventory(driver="580.10.01")
    create(here.runtime(), mode, "it describes driver 550.163.01, but driver 580.10.01 is loaded", MET)


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b"null", b"\xff\xfe"])
def test_an_invalid_inventory_prevents_only_containers_with_requirements(here: Host, data: bytes) -> None:
    here.write_inventory(data=data)
    runtime = here.runtime()
    create(runtime, "enforce", "the inventory cannot be read", MET)
    assert cdi_devices(runtime.create(*gpu_request("0"))) == ["nvidia.com/gpu=0"]

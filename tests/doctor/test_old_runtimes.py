"""The doctor's remedies and the daemon's hints work for runtimes that read only older specs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from support.doctor.live_host import LiveHost, live_host
from support.waiting import pause, until

from cdigen.runtimes.releases import RUNTIME_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The runtime, its binary and release, and its newest cdiVersion.
OLD = [
    ("podman", "podman", "4.1.1", "0.4.0"),
    ("podman", "podman", "4.2.0", "0.4.0"),
    ("crio", "crio", "1.24.6", "0.3.0"),
]
CONFIGURATION = "/etc/cdigen/config.yaml"
RULE = "runtime-cannot-read"


@pytest.fixture
def live(tmp_path: Path, real_nodes: None) -> Iterator[LiveHost]:  # noqa: ARG001 - nodes must be real
    with live_host(tmp_path / "live") as host:
        yield host


def is_read(host: LiveHost, version: str) -> bool:
    spec = host.spec()
    return bool(spec["cdiVersion"] == version and not any(each["name"] == "0" for each in spec["devices"]))


def left(host: LiveHost, runtime: str) -> set[str]:
    """Return the failed checks of specs and of RUNTIME, without the check that its daemon is running."""
    return {
        check
        for check in host.wrong("--for", runtime)
        if check.startswith(("spec-", runtime)) and check != f"{runtime}-running"
    }


@pytest.mark.parametrize(("runtime", "binary", "release", "version"), OLD)
def test_the_remedy_of_the_doctor_fixes_the_failure(
    live: LiveHost, runtime: str, binary: str, release: str, version: str
) -> None:
    live.install(binary, release)
    live.run("cdigen generate --write --quiet")
    row = live.wrong("--for", runtime)["spec-version"]
    assert row["severity"] == "error"
    assert f"{runtime} {release} reads at most {version}; nvidia.com/gpu=0" in row["detail"]
    assert f"target: [{RUNTIME_NAMES[runtime]}-{release}]" in row["remedy"]
    live.run(row["remedy"])
    assert is_read(live, version)
    assert left(live, runtime) == set()
    # The number of the GPU does not resolve. The doctor lists the names that resolve.
    row = live.wrong("--for", runtime, "--device", "nvidia.com/gpu=0")["device-unknown"]
    assert "a name that begins with a digit needs cdiVersion 0.5.0" in row["detail"]
    assert "nvidia.com/gpu=GPU-" in row["detail"]


@pytest.mark.parametrize(("runtime", "binary", "release", "version"), OLD)
def test_the_remedy_of_the_doctor_stays_in_effect_while_the_daemon_runs(
    live: LiveHost, runtime: str, binary: str, release: str, version: str
) -> None:
    live.install(binary, release)
    with live.daemon():
        assert until(live.status)
        live.run(live.wrong("--for", runtime)["spec-version"]["remedy"])
        assert until(lambda: is_read(live, version))
        pause(1.0)
        assert is_read(live, version)
        assert left(live, runtime) == set()


def test_the_hint_of_the_daemon_fixes_its_finding_which_is_logged_once(live: LiveHost) -> None:
    live.install("podman", "4.2.0")
    live.install("crio", "1.24.6")
    live.install("dockerd", "28.0.1")
    with live.daemon() as log:
        assert until(live.status)
        found = [row for row in live.status()["findings"] if row["rule"] == RULE]
        assert [row["message"].partition(": ")[2] for row in found] == [
            "cri-o 1.24.6 ignores this file: the cdiVersion is 0.5.0, and the runtime reads 0.3.0 at most",
            "podman 4.2.0 ignores this file: the cdiVersion is 0.5.0, and the runtime reads 0.4.0 at most",
        ]
        (hint,) = {row["hint"] for row in found}
        assert hint == "target: [cri-o-1.24.6, podman-4.2.0]"
        assert "podman 4.2.0 ignores this file" in live.attempt("cdigen status").stdout
        cycle = live.status()["last_cycle"]["number"]
        live.run("mkdir -p /etc/cdi")
        live.run(f"mkdir -p /etc/cdigen && echo '{hint}' >{CONFIGURATION}")
        assert until(lambda: is_read(live, "0.3.0"))
        assert until(lambda: RULE not in {row["rule"] for row in live.status()["findings"]})
        assert live.status()["last_cycle"]["number"] > cycle
    assert [(line["level"], line["rule"]) for line in log if line["event"] == "finding"] == [
        ("warning", RULE)
    ] * 2


def test_a_runtime_without_cdi_has_a_finding_until_it_is_upgraded(live: LiveHost) -> None:
    live.install("podman", "3.4.4")
    with live.daemon():
        assert until(live.status)
        (row,) = (row for row in live.status()["findings"] if row["rule"] == RULE)
        assert (row["message"], row["hint"]) == (
            "/usr/bin/podman: podman 3.4.4 reads no CDI specs",
            "install podman 4.3 or newer",
        )
        live.install("podman", "5.4.2")
        live.run("mkdir -p /etc/cdigen && echo 'daemon: {debounce_s: 0.1}' >/etc/cdigen/config.yaml")
        assert until(lambda: RULE not in {row["rule"] for row in live.status()["findings"]})


@pytest.mark.parametrize(
    ("text", "is_added"),
    [
        ("mode: auto", True),
        ("# nothing yet\n", True),
        ("{mode: auto}\n", False),
        ("target: [docker-28]\n", False),
        ("profiles: [{name: gpu, class: gpu, target: [docker-28]}]\n", False),
    ],
)
def test_a_configuration_that_cdigen_cannot_append_to_is_changed_by_hand(
    live: LiveHost, text: str, *, is_added: bool
) -> None:
    live.install("podman", "4.2.0")
    live.run(f"mkdir -p /etc/cdigen && printf '%s' '{text}' >{CONFIGURATION} && cdigen generate --write -q")
    row = live.wrong("--for", "podman")["spec-version"]
    assert bool(row["remedy"]) == is_added
    if is_added:
        live.run(row["remedy"])
        assert live.run(f"cat {CONFIGURATION}").startswith(text)
    else:
        found = re.search(r"; set '(target: \[.*?\])' in ", row["detail"])
        assert found, row["detail"]
        changed = re.sub(r"target: \[docker-28\]", found[1], text)
        changed = changed if changed != text else f"{{mode: auto, {found[1]}}}\n"
        live.run(f"printf '%s' '{changed}' >{CONFIGURATION} && cdigen generate --write -q")
    assert is_read(live, "0.4.0")
    assert left(live, "podman") == set()

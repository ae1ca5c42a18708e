"""The name and version of a runtime determine its abilities (CDI devices, events of NRI)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.nri.decision.result.compat import abilities, is_rejected
from cdigen.runtimes.releases import NRI


@pytest.mark.parametrize(
    ("runtime", "version", "cdi"),
    [
        ("containerd", "1.7.24~ds1", "drops"),  # Debian 13
        ("containerd", "v1.7.29", "drops"),
        ("containerd", "v1.7.30", "injects"),
        ("containerd", "1.7.34-0ubuntu1", "injects"),
        ("containerd", "v2.0.0", "drops"),
        ("containerd", "v2.0.11", "drops"),
        ("containerd", "2.1.9+unknown", "injects"),  # Debian forky
        ("containerd", "v2.1.4-k3s1", "injects"),
        ("containerd", "2.3.4", "injects"),
        ("containerd", "3.0", "injects"),
        ("cri-o", "1.31.9", "drops"),
        ("cri-o", "1.33.5", "drops"),
        ("cri-o", "1.34.0", "injects"),
        ("cri-o", "1.36.3", "injects"),
        ("docker", "29.7.2", "refuses"),
        ("docker", "28.1.0", "unknown"),
        ("containerd", "1.6.20", "unknown"),
        ("containerd", "", "unknown"),
        ("containerd", "(devel)", "unknown"),
        ("podman", "5.4.2", "unknown"),
    ],
)
def test_the_handling_of_cdi_devices_depends_on_the_version(runtime: str, version: str, cdi: str) -> None:
    assert abilities(runtime, version).cdi == cdi


@pytest.mark.parametrize(
    ("version", "cdi", "events"),
    [
        ("2.1.0-rc.0", "drops", 0x0408),
        ("2.2.0-beta.2", "injects", 0x0408),
        ("2.2.0", "injects", 0x2408),
        ("2.0.0-rc.1", "drops", 0x0408),
        ("2.2.3-rc.1", "injects", 0x2408),
        ("1.7.30~rc1", "drops", 0x0408),
        ("1.7.0-beta.1", "drops", 0x0408),
    ],
)
def test_a_pre_release_lacks_the_abilities_that_its_release_adds(version: str, cdi: str, events: int) -> None:
    assert (abilities("containerd", version).cdi, abilities("containerd", version).events) == (cdi, events)


@pytest.mark.parametrize(
    ("runtime", "version", "nri_version", "nri", "events"),
    [
        ("containerd", "1.7.24~ds1", "", (0, 6), 0x0408),
        ("containerd", "2.1.9+unknown", "", (0, 8), 0x0408),
        ("containerd", "2.2.1", "", (0, 11), 0x2408),
        ("containerd", "2.3.4", "v0.12.1", (0, 12), 0x2408),
        ("containerd", "2.9.0", "v0.15.0", (0, 15), 0x2408),
        ("cri-o", "1.33.0", "", (0, 9), 0x0408),
        ("cri-o", "1.34.0", "", (0, 10), 0x2408),
        ("something", "1", "", (0, 3), 0x0408),
        ("something", "1", "v0.12.0", (0, 12), 0x2408),
        ("something", "1", "(devel)", (0, 12), 0x2408),
        ("something", "1", "v0.0.0-20260101", (0, 12), 0x2408),
        ("docker", "29.7.2", "v0.12.2", (0, 12), 0x0408),
    ],
)
def test_cdigen_subscribes_only_to_events_that_the_runtime_supports(
    runtime: str, version: str, nri_version: str, nri: tuple[int, int], events: int
) -> None:
    known = abilities(runtime, version, nri_version)
    assert (known.nri, known.events) == (nri, events)


def test_cdigen_does_not_subscribe_to_validations_that_the_runtime_refused() -> None:
    # The runtime was built with an older NRI than the table has for its release.
    able = abilities("containerd", "2.2.0")
    assert is_rejected(able, was_synchronized=False)
    assert not is_rejected(able, was_synchronized=True)
    assert not is_rejected(None, was_synchronized=False)
    again = abilities("containerd", "2.2.0", may_validate=False)
    assert (again.events, again.validates, again.cdi) == (0x0408, False, "injects")
    assert not is_rejected(again, was_synchronized=False)


def test_only_docker_accepts_no_device_nodes() -> None:
    assert not abilities("docker", "29.2.0").takes_devices
    assert abilities("containerd", "1.7.24").takes_devices


def test_the_remedy_for_a_runtime_that_drops_devices_is_a_release_that_injects() -> None:
    assert abilities("containerd", "2.0.5").remedy == "containerd injects CDI devices since 1.7.30 and 2.1.0"
    assert abilities("cri-o", "1.33.0").remedy == "cri-o injects CDI devices since 1.34.0"
    assert abilities("containerd", "2.1.9").remedy == ""
    assert abilities("docker", "29.2.0").remedy == ""


def test_the_rows_of_the_nri_table_are_in_order() -> None:
    for rows in NRI.values():
        assert list(rows) == sorted(rows, key=lambda row: row[0])
        assert [row[1] for row in rows] == sorted(row[1] for row in rows)


@given(st.sampled_from([*NRI, ""]) | st.text(), st.text(), st.text())
def test_any_version_text_results_in_valid_abilities(runtime: str, version: str, nri: str) -> None:
    known = abilities(runtime, version, nri)
    assert known.events in (0x0408, 0x2408)
    assert known.cdi in ("injects", "drops", "refuses", "unknown")

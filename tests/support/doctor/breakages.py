"""Ways to break a host, each with the diagnosis of `cdigen doctor`: `BREAKAGES`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from support.doctor.broken_host import KIND, NAME, BrokenHost

if TYPE_CHECKING:
    from collections.abc import Callable


def put_two_conflicting_specs(host: BrokenHost) -> None:
    for name in ("a.json", "b.json"):
        host.put(f"etc/cdi/{name}", host.document())


def name_a_new_version(host: BrokenHost) -> None:
    host.put(f"run/cdi/{NAME}", {**host.document(), "cdiVersion": "1.2.0"})


def set_other_directories(host: BrokenHost) -> None:
    host.put("etc/containers/containers.conf", '[engine]\ncdi_spec_dirs = ["/srv/cdi"]\n')


def remove_a_device(host: BrokenHost) -> None:
    document = host.document()
    devices = [device for device in document["devices"] if device["name"] != "1"]
    host.put(f"run/cdi/{NAME}", {**document, "devices": devices})


def put_a_stale_spec_of_others(host: BrokenHost) -> None:
    document = host.document()
    document["containerEdits"]["mounts"][0]["hostPath"] = "/usr/lib/gone.so"
    host.put("etc/cdi/nvidia.yaml", document)


def tear_the_spec(host: BrokenHost) -> None:
    host.spec.write_bytes(host.spec.read_bytes()[:-20])


def change_owner_of_directory(host: BrokenHost) -> None:
    os.chown(host.root / "run/cdi", 1000, 1000)


def change_owner_of_state(host: BrokenHost) -> None:
    os.chown(host.root / "var/lib/cdigen", 1000, 1000)


# The function that breaks the host, the doctor's options, and the diagnosis: check, severity, some detail.
BREAKAGES: dict[str, tuple[Callable[[BrokenHost], object], str, str, str, str]] = {
    "conflict of two specs of other programs": (
        put_two_conflicting_specs, f"--for podman --device {KIND}=0", "spec-conflict", "error", ""),
    "version too new": (name_a_new_version, "", "spec-refused", "error", "1.2.0"),
    "runtime reads other directories": (
        set_other_directories, "", "podman-directories", "error", "/etc/containers/containers.conf"),
    "missing node": (
        lambda host: host.path("dev/nvidia0").unlink(), "", "node-missing", "error", "/dev/nvidia0"),
    "bad JSON": (tear_the_spec, "", "spec-syntax", "error", "line"),
    "no spec": (lambda host: host.spec.unlink(), "", "spec-missing", "error", ""),
    "spec lacks a device": (remove_a_device, f"--device {KIND}=1", "spec-fresh", "error", "+1 device"),
    "only root reads the spec": (lambda host: host.spec.chmod(0o600), "", "spec-readable", "warning", ""),
    "others write the spec": (lambda host: host.spec.chmod(0o666), "", "spec-trust", "warning", ""),
    "directory of another user": (change_owner_of_directory, "", "spec-trust", "warning", ""),
    "state of another user": (change_owner_of_state, "", "state-dir", "warning", ""),
    "damaged state": (
        lambda host: host.put("var/lib/cdigen/state.json", "rubbish"), "", "state-dir", "warning", ""),
    "unused stale spec of others": (put_a_stale_spec_of_others, "", "spec-stale", "warning", ""),
    "broken file of another vendor": (
        lambda host: host.put("etc/cdi/other.json", '{"cdiVersion": "0.5.0", "kind": "other.com/thing"'),
        "", "spec-syntax", "warning", ""),
}  # fmt: skip

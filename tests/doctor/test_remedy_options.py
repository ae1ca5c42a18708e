"""The command in a remedy has those options of the doctor's call that the command accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from support.doctor.broken_host import BrokenHost

OWN = "usr/lib/x86_64-linux-gnu/nvidia/current"


def test_a_spec_is_written_with_the_search_paths_and_vendors_of_the_call(host: BrokenHost) -> None:
    (host.root / "opt").mkdir()
    (host.root / OWN).rename(host.root / "opt/nv")
    host.spec.unlink()
    options = ("--library-search-path /opt/nv", "--binary-search-path /usr/bin", "--vendor nvidia")
    row = host.result("spec-missing", *options)
    assert all(option in row["remedy"] for option in options)
    host.shell(row["remedy"])
    assert host.result("spec-missing", *options)["ok"]


def test_a_command_without_a_discovery_has_no_options_of_discovery(host: BrokenHost, tmp_path: Path) -> None:
    config = tmp_path / "own.yaml"
    config.write_text("")
    row = host.result(
        "device-unknown", "--mode gpu --vendor nvidia --device nvidia.com/gpu=9", f"--config {config}"
    )
    assert row["remedy"] == f"cdigen list --config {config} --root {host.root}"
    host.shell(row["remedy"])

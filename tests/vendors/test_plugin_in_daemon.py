"""The daemon updates the specs of a vendor of another package. A broken vendor affects no other vendor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.daemon.host import Host, daemon
from support.hosts.added_vendors import RAISE, lay_npus, like_acme, method, vendor

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")


def test_the_daemon_updates_the_specs_of_the_example(tmp_path: Path, acme: Path) -> None:
    host = Host(tmp_path / "host").make()
    lay_npus(host.root)
    host.configure("vendors: [nvidia, acme]\n")
    with daemon(host, PYTHONPATH=str(acme)) as running:
        running.sees(lambda: len(host.devices("acme.example-npu.json")) == 7)
        (host.root / "dev/accel/accel1").unlink()
        running.sees(lambda: host.devices("acme.example-npu.json") == {"0", "0000:41:00.0", "npu0", "all"})
        assert host.devices() == {"0", "1", "all"}


def status_of(running: Any, name: str) -> dict[str, Any]:
    return next(one for one in running.status["vendors"] if one["vendor"] == name)


# Name of a vendor -> its defect. One daemon loads all these vendors.
BROKEN = {
    "reader": method("discover(self, context)", RAISE),
    "counter": method("discover(self, context)", "return 7"),
    "watcher": method("watches(self, context)", RAISE),
    "lister": method("watches(self, context)", "return ('/dev/accel',)"),
    "creator": method("missing_nodes(self, context)", RAISE),
    "thief": "CDI_VENDOR = 'nvidia.com'",
}


def test_the_daemon_serves_other_vendors_if_several_vendors_are_broken(tmp_path: Path, guests: Path) -> None:
    host = Host(tmp_path / "host").make()
    lay_npus(host.root)
    for name, body in BROKEN.items():
        like_acme(guests, name, body)
    host.configure(f"vendors: [{', '.join(BROKEN)}, nvidia]\n")
    with daemon(host, PYTHONPATH=str(guests)) as running:
        running.rests()
        host.remove_gpu(1)
        running.sees(lambda: host.devices() == {"0", "all"})
        assert status_of(running, "nvidia")["state"] == "ready"
        for name in ("reader", "counter", "thief"):
            assert name in status_of(running, name)["reason"]
        # Other vendors have valid inventories. Of vendors with the same devices, the first vendor is used.
        assert len(host.devices("watcher.example-npu.json")) == 7
        for name in ("lister", "creator"):
            assert "is the node of watcher's NPU 0" in status_of(running, name)["reason"]
        assert running.stop()[0] == 0
        assert "Traceback" not in running.text


@pytest.mark.parametrize("name", ["lister", "creator"])
def test_the_daemon_serves_a_vendor_whose_method_watches_or_missing_nodes_fails(
    tmp_path: Path, guests: Path, name: str
) -> None:
    host = Host(tmp_path / "host").make()
    lay_npus(host.root)
    like_acme(guests, name, BROKEN[name])
    host.configure(f"vendors: [{name}]\n")
    with daemon(host, PYTHONPATH=str(guests)) as running:
        running.sees(lambda: len(host.devices(f"{name}.example-npu.json")) == 7)


def test_the_daemon_reports_why_a_vendor_cannot_be_loaded(tmp_path: Path, guests: Path) -> None:
    host = Host(tmp_path / "host").make()
    vendor(guests, "guest", "import there_is_no_such_module")
    host.configure("vendors: [guest, nvidia]\n")
    with daemon(host, PYTHONPATH=str(guests)) as running:
        running.sees(lambda: host.devices() == {"0", "1", "all"})
        assert "there_is_no_such_module" in status_of(running, "guest")["reason"]


def test_the_daemon_keeps_the_spec_of_a_vendor_whose_method_edits_fails(tmp_path: Path, guests: Path) -> None:
    """The second start of the daemon runs other code, as after an upgrade of the vendor's package."""
    host = Host(tmp_path / "host").make()
    lay_npus(host.root)
    good = "return super().edits(inventory, profiles)"
    like_acme(guests, "guest", method("edits(self, inventory, profiles)", good))
    host.configure("vendors: [guest, nvidia]\n")
    with daemon(host, PYTHONPATH=str(guests)) as running:
        running.sees(lambda: host.devices("guest.example-npu.json"))
    file = guests / "cdigen_guest.py"
    file.write_text(file.read_text().replace(good, RAISE))
    with daemon(host, PYTHONPATH=str(guests)) as running:
        running.rests()
        host.remove_gpu(1)
        running.sees(lambda: host.devices() == {"0", "all"})
        assert len(host.devices("guest.example-npu.json")) == 7

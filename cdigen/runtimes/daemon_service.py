"""Find the commands that start, stop and restart cdigen's own daemon on a host: ``service_of``.

By the unit or the init script that a package, "make install" or "cdigen install-service" has put there;
without either the daemon is a command like any other.
"""

from __future__ import annotations

from cdigen.runtimes.units import SYSTEM_FOLDERS
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

UNIT = "cdigen.service"
PLUGIN_UNIT = "cdigen-nri.service"
KUBELET_UNIT = "cdigen-kubelet.service"
_INIT_SCRIPT = "/etc/init.d/cdigen"
_BOOTED_WITH_SYSTEMD = "/run/systemd/system"  # sd_booted(3)


@frozen
class DaemonService:
    """Commands in quotes, each a part of a sentence; ``log`` is where it says why it ended, if anywhere.

    ``plugin`` is what starts the NRI plugin, ``kubelet`` the device plugins: "make install" puts a unit of
    each beside the daemon's.
    """

    start: str
    enable: str
    restart: str
    stop: str
    log: str = ""
    plugin: str = "'cdigen nri' as root"
    kubelet: str = "'cdigen kubelet' as root"

    def started(self) -> str:
        """Return how to start it, or to find out why it does not run."""
        return f"start it with {self.start}" + (f", or see why it ended {self.log}" if self.log else "")


SYSTEMD = DaemonService(
    start="'systemctl start cdigen'",
    enable="'systemctl enable --now cdigen'",
    restart="'systemctl restart cdigen'",
    stop="'systemctl disable --now cdigen'",
    log="with 'journalctl -u cdigen'",
    plugin="'systemctl start cdigen-nri'",
    kubelet="'systemctl start cdigen-kubelet'",
)
OPENRC = DaemonService(
    start="'rc-service cdigen start'",
    enable="'rc-update add cdigen default' and 'rc-service cdigen start'",
    restart="'rc-service cdigen restart'",
    stop="'rc-service cdigen stop'",
    log="in /var/log/cdigen.log",
)
_BY_HAND = "'cdigen run' as root: no service of cdigen's is installed here"
NONE = DaemonService(
    start=_BY_HAND,
    enable=_BY_HAND,
    restart=f"stop it, and start {_BY_HAND}",
    stop="Ctrl-C or SIGTERM: no service of cdigen's is installed here",
)


def service_of(host: Root) -> DaemonService:
    """Return how the daemon of HOST is handled."""
    has_unit = any(host.exists(f"{folder}/{UNIT}") for folder in SYSTEM_FOLDERS)
    has_script = host.exists(_INIT_SCRIPT)
    if has_unit and (not has_script or host.exists(_BOOTED_WITH_SYSTEMD)):
        return SYSTEMD
    return OPENRC if has_script else NONE

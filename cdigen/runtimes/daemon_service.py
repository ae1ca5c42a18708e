"""Find the commands that start, stop and restart the daemon of cdigen on a host.

The commands depend on the unit or the init script that a package, "make install" or "cdigen install-service"
installs. Without a unit or an init script, the daemon is an ordinary command.
"""

from __future__ import annotations

from cdigen.runtimes.units import has_unit
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
    """Commands in quotes, each for use in a sentence; ``log`` is the way to read the log, or empty.

    ``plugin`` starts the NRI plugin, and ``kubelet`` starts the device plugins. "make install" installs a
    separate unit for each of these two services.
    """

    start: str
    enable: str
    restart: str
    stop: str
    log: str = ""
    plugin: str = "'cdigen nri' as root"
    kubelet: str = "'cdigen kubelet' as root"

    def started(self) -> str:
        """Return the hint to start the daemon, with the location of the log."""
        return f"start it with {self.start}" + (f", or see its log {self.log}" if self.log else "")


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
_MANUALLY = "'cdigen run' as root: no service of cdigen is installed"
NONE = DaemonService(
    start=_MANUALLY,
    enable=_MANUALLY,
    restart=f"stop the daemon, and start {_MANUALLY}",
    stop="Ctrl-C or SIGTERM: no service of cdigen is installed",
)


def service_of(host: Root) -> DaemonService:
    """Return the commands for the daemon of HOST."""
    has_script = host.exists(_INIT_SCRIPT)
    if has_unit(host, UNIT) and (not has_script or host.exists(_BOOTED_WITH_SYSTEMD)):
        return SYSTEMD
    return OPENRC if has_script else NONE

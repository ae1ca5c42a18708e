"""The containerd that a Kubernetes distribution contains: its program, its files and its service.

The distribution writes the main configuration file at each start, so only the drop-ins, or a template, keep a
change. Sources: k3s pkg/agent/templates and pkg/agent/containerd/config.go (the drop-in folders of the main
file, and the templates), which RKE2 also contains; k0s's page "Runtime" and
pkg/component/worker/containerd/configurer.go at 1.35.7 and 1.36; microk8s-resources/wrappers/
run-containerd-with-args and default-args/containerd-template.toml of MicroK8s; Talos's page "Containerd".
"""

from __future__ import annotations

from cdigen import page_url
from cdigen.doctor.kubernetes_node.settings import installed_kubelet
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.runtimes.installed import place
from cdigen.runtimes.releases import UNKNOWN, RuntimeBehaviour, behaves
from cdigen.runtimes.settings import containerd
from cdigen.runtimes.settings.generated import GeneratedFile, generated_file
from cdigen.runtimes.units import Command, command
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.host.root import Root
    from cdigen.runtimes.releases import Release
    from cdigen.runtimes.settings.config_files import RuntimeSettings

_DROP_IN = "99-cdigen.toml"
# The first line of a main file that k0s writes (containerdTomlHeader).
_K0S_HEADER = b"# k0s_managed=true"
_RELEASE_FILES = ("/etc/os-release", "/usr/lib/os-release")
_LIMIT = 1 << 16
_PAGE = page_url("how-to/kubernetes/troubleshoot")


@frozen
class BundledContainerd:
    """The containerd of the distribution ``name``.

    ``main`` is the configuration file. cdigen may change files in ``folders``, or ``main`` if ``folders`` is
    empty. If ``is_merged`` is true, the distribution itself merges the files in ``folders`` key by key.
    ``template`` is the file that replaces a main file without drop-ins. ``unit`` restarts the containerd.
    """

    name: str
    binary: str
    main: str
    folders: tuple[str, ...] = ()
    is_merged: bool = False
    template: str = ""
    unit: str = ""


def _of_rancher(name: str, folder: str, binary: str) -> BundledContainerd:
    files = f"/var/lib/rancher/{folder}/agent/etc/containerd"
    return BundledContainerd(
        name=name,
        binary=f"/var/lib/rancher/{folder}/{binary}",
        main=f"{files}/config.toml",
        folders=(f"{files}/config-v3.toml.d", f"{files}/config.toml.d"),
        template=f"{files}/config.toml.tmpl",
    )


_K0S = BundledContainerd(
    name="k0s",
    binary="/var/lib/k0s/bin/containerd",
    main="/etc/k0s/containerd.toml",
    folders=("/etc/k0s/containerd.d",),
    is_merged=True,
)
# Distribution in ``settings`` -> its containerd.
_BUNDLED = {
    "k3s": _of_rancher("k3s", "k3s", "data/current/bin/containerd"),
    "RKE2": _of_rancher("RKE2", "rke2", "bin/containerd"),
    "k0s": _K0S,
    # MicroK8s replaces variables of the template at each start. They are in texts, so the template is TOML.
    "microk8s": BundledContainerd(
        name="MicroK8s",
        binary="/snap/microk8s/current/bin/containerd",
        main="/var/snap/microk8s/current/args/containerd-template.toml",
        unit="snap.microk8s.daemon-containerd.service",
    ),
}


def refuse_talos(host: Root) -> None:
    """Raise ConfigError if HOST is Talos, where no file of the host configures containerd."""
    if any(b"ID=talos" in _content(host, path).splitlines() for path in _RELEASE_FILES):
        raise ConfigError(
            "Talos writes containerd's configuration from the machine configuration: cdigen cannot change it",
            hint=f"add the keys to the machine configuration with 'talosctl patch machineconfig' ({_PAGE})",
        )


def bundled_containerd(host: Root) -> BundledContainerd | None:
    """Return the containerd of the distribution whose kubelet a unit of HOST starts.

    The result is None if no such unit exists, or if the kubelet uses a separate runtime.
    """
    kubelet = installed_kubelet(host)
    found = _BUNDLED.get(kubelet.distribution.name) if kubelet else None
    if kubelet is None or found is None or kubelet.endpoint != kubelet.distribution.endpoint:
        return None
    if command(host, kubelet.unit).values("--cri-socket"):  # k0s with a separate runtime
        return None
    if found is _K0S and not _is_of_k0s(host):
        found = replace(found, folders=(), is_merged=False)
    return replace(found, unit=found.unit or kubelet.unit)


def examined_containerd(host: Root, *, for_kubelet: bool = False) -> BundledContainerd | None:
    """Return the containerd of the distribution on HOST if the doctor examines it, otherwise None.

    If HOST also has a separate containerd, such as that of Docker, the doctor examines the containerd of the
    distribution only FOR_KUBELET. The result is also None if the distribution has not written its
    configuration yet.
    """
    found = bundled_containerd(host)
    if found is None or not host.exists(found.main):
        return None
    return found if for_kubelet or not place(host, "containerd") else None


def read_bundled(host: Root, bundled: BundledContainerd, release: Release | None) -> RuntimeSettings:
    """Return the settings of the containerd BUNDLED, also if no file of HOST keeps a change."""
    try:
        return read(host, bundled, release)
    except ConfigError:
        return containerd.read(host, release or UNKNOWN, Command(words=("--config", bundled.main)))


def read(host: Root, bundled: BundledContainerd, release: Release | None) -> RuntimeSettings:
    """Return the settings of the containerd BUNDLED; raise ConfigError if no file of HOST keeps a change."""
    if not host.exists(bundled.main):
        raise ConfigError(
            f"{bundled.main} does not exist: {bundled.name} has not written its configuration",
            hint=f"start it with 'systemctl start {bundled.unit}', then run the command again",
        )
    line = Command(words=("--config", bundled.main))
    for edited in [f"{folder}/{_DROP_IN}" for folder in bundled.folders] or [bundled.main]:
        found = containerd.read(host, release or UNKNOWN, line, edited)
        if bundled.is_merged:
            return replace(found, edited_file_is_read=True, has_only_edited_file=True)
        if found.edited_file_is_read:
            return found
    raise _refusal(bundled, bundled.main)


def can_configure(host: Root, release: Release | None) -> bool:
    """Return whether ``cdigen configure containerd`` can change the containerd of HOST's distribution."""
    bundled = bundled_containerd(host)
    if bundled is None or not host.exists(bundled.main):
        return False
    is_replaced = release is not None and behaves("containerd", release, RuntimeBehaviour.SECTIONS_REPLACED)
    if bundled.folders and is_replaced and not bundled.is_merged:
        return False
    try:
        read(host, bundled, release)
    except ConfigError:
        return False
    return True


def require_kept(bundled: BundledContainerd, paths: Iterable[str]) -> None:
    """Raise ConfigError if the distribution of BUNDLED overwrites a file in PATHS."""
    for path in paths:
        if bundled.folders and not path.startswith(tuple(f"{folder}/" for folder in bundled.folders)):
            raise _refusal(bundled, path)


def rewriter(host: Root, path: str) -> BundledContainerd | None:
    """Return the containerd of HOST's distribution if the distribution writes PATH at each start, else None.

    k3s and RKE2 add NVIDIA's runtimes if their programs exist (k3s's page "Advanced Options").
    """
    bundled = bundled_containerd(host)
    return bundled if bundled and bundled.template and path == bundled.main else None


def unchangeable(host: Root, path: str) -> GeneratedFile | None:
    """Return the file PATH if a declarative system, or HOST's distribution, writes it, else None."""
    bundled = rewriter(host, path)
    if bundled is None:
        return generated_file(host, "", path)
    return GeneratedFile(
        system=bundled.name,
        problem=f"{bundled.name} writes {shown(path)} at each start, with the runtimes whose programs exist",
        step=(
            f"remove the programs, or the tables in {bundled.template}, and run 'systemctl restart "
            f"{bundled.unit}'"
        ),
    )


def unit_of(host: Root, runtime: str, *, for_kubelet: bool) -> str:
    """Return the unit that restarts RUNTIME, a name in RUNTIME_NAMES, on HOST (``examined_containerd``)."""
    bundled = examined_containerd(host, for_kubelet=for_kubelet) if runtime == "containerd" else None
    return bundled.unit if bundled else runtime


def _refusal(bundled: BundledContainerd, path: str) -> ConfigError:
    place = bundled.template or bundled.folders[0]
    return ConfigError(
        f"{bundled.name} overwrites {shown(path)} at each start: cdigen does not change it",
        hint=f"add the keys to {place}, and run 'systemctl restart {bundled.unit}' ({_PAGE})",
    )


def _is_of_k0s(host: Root) -> bool:
    content = _content(host, _K0S.main)
    return not content or content.splitlines()[0].strip() == _K0S_HEADER


def _content(host: Root, path: str) -> bytes:
    try:
        return host.read(path, limit=_LIMIT)
    except OSError:
        return b""

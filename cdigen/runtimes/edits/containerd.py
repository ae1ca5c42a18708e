"""Plan the changes for containerd: the CDI keys of the CRI plugin, and NRI's switch and validator.

From 2.0 on, containerd merges the tables of a plugin from several files key by key (PR 9982). In 1.7, only
the last table of a plugin is used (issue 5837), so the keys must be in the file with that table.

cdigen writes a drop-in with the ``version`` of the main file. If a drop-in has a higher version, 2.0 to 2.2
drop the CRI section of the main file, because they do not migrate the section, and 2.3.0 to 2.3.4 do not
start.
"""

from __future__ import annotations

from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.runtimes.documents import DesiredKey, lookup, parse_toml
from cdigen.runtimes.edits import validator
from cdigen.runtimes.edits.plan import EditPlan, effective_file, merged_dirs, must_set, toml_changes
from cdigen.runtimes.releases import RuntimeBehaviour, behaves, has_validator
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.model.findings import Finding
    from cdigen.runtimes.edits.plan import Content, DesiredConfig
    from cdigen.runtimes.releases import Release
    from cdigen.runtimes.settings.config_files import RuntimeSettings

MAIN = "/etc/containerd/config.toml"
CRI_V2 = ("plugins", "io.containerd.grpc.v1.cri")
CRI_V3 = ("plugins", "io.containerd.cri.v1.runtime")
NRI = ("plugins", "io.containerd.nri.v1.nri")
# The rule of a file with a higher version than the first file (settings.containerd).
ORDER = "config-version-order"


@frozen
class _Files:
    """The configuration files, in the order in which containerd reads them; ``main`` is the main file."""

    main: str
    documents: dict[str, dict[str, Any]]
    version: int
    merges: bool

    def last_with(self, table: tuple[str, ...]) -> str:
        """Return the last file that has TABLE, or the main file if no file has TABLE."""
        # An empty table also replaces the earlier tables.
        paths = [path for path, document in self.documents.items() if lookup(document, table) is not None]
        return paths[-1] if paths else self.main


def plan(
    settings: RuntimeSettings, release: Release | None, desired: DesiredConfig, content: Content
) -> EditPlan:
    """Return the plan for the DESIRED configuration of containerd's CRI plugin.

    Raises ConfigError if no plan is possible.
    """
    _refuse_old(release, desired)
    if disabled := next((finding for finding in settings.findings if finding.rule == "cri-disabled"), None):
        raise ConfigError(
            f"{shown(disabled.path)} disables the CRI plugin (disabled_plugins), so no key has an effect",
            hint="remove the CRI plugin from disabled_plugins for Kubernetes; ctr and nerdctl need no change",
        )
    files = _files(settings, release, content)
    cri = CRI_V3 if files.version >= 3 else CRI_V2
    wanted: dict[str, tuple[DesiredKey, ...]] = {}

    def want(what: str, table: tuple[str, ...], key: DesiredKey) -> None:
        path = _target(settings, files, what, table)
        wanted[path] = (*wanted.get(path, ()), key)

    dirs = merged_dirs(settings.spec_dirs, desired.spec_dirs)
    if _needs_switch(settings, files):
        want("cdi", cri, DesiredKey(path=(*cri, "enable_cdi"), value=True))
    if must_set(settings, "spec_dirs", is_as_desired=dirs == settings.spec_dirs):
        want("spec_dirs", cri, DesiredKey(path=(*cri, "cdi_spec_dirs"), value=dirs))
    if desired.nri and must_set(settings, "nri", is_as_desired=settings.nri_enabled is True):
        want("nri", NRI, DesiredKey(path=(*NRI, "disable"), value=False))
    findings: tuple[Finding, ...] = ()
    if desired.nri_required:
        settings, keys, findings = validator.requiring(
            settings, files.documents, validator.CONTAINERD, is_release_known=release is not None
        )
        for key in keys:
            want(validator.SOURCE, NRI, key)
    version = DesiredKey(path=("version",), value=files.version)
    for path in wanted.keys() & {files.main, settings.edited_file}:
        wanted[path] = (version, *wanted[path])
    orders = (finding for finding in settings.findings if finding.rule == ORDER)
    changes = toml_changes(wanted, content, command="containerd")
    return EditPlan(changes=changes, findings=(*orders, *findings))


def _refuse_old(release: Release | None, desired: DesiredConfig) -> None:
    name = f"containerd {'.'.join(map(str, release or ()))}"
    if release is not None and behaves("containerd", release, RuntimeBehaviour.NO_CDI):
        raise ConfigError(f"{name} reads no CDI specs", hint="install containerd 1.7 or newer")
    if desired.nri_required and release is not None and not has_validator("containerd", release):
        raise validator.missing(name, "containerd 2.2")


def _needs_switch(settings: RuntimeSettings, files: _Files) -> bool:
    # enable_cdi is deprecated in 2.2, and 2.4 will remove the key. Releases that merge tables (from 2.0 on)
    # enable CDI by default, so cdigen does not write the key for these releases.
    is_on = settings.cdi_enabled is True
    return must_set(settings, "cdi", is_as_desired=is_on) and not (is_on and files.merges)


def _target(settings: RuntimeSettings, files: _Files, what: str, table: tuple[str, ...]) -> str:
    if settings.has_only_edited_file:
        return settings.edited_file
    if not files.merges:
        return files.last_with(table)
    source = settings.source(what)
    if source in files.documents and source not in {files.main, settings.edited_file}:
        return effective_file(settings, what)
    # If the main file does not import the folder of the drop-in, cdigen changes the main file. An import of
    # this folder would activate all other files in it.
    return (
        settings.edited_file if settings.edited_file_is_read and files.main in files.documents else files.main
    )


def _files(settings: RuntimeSettings, release: Release | None, content: Content) -> _Files:
    documents = {}
    for path in settings.files or (MAIN,):
        data = content(path)
        if data is not None:
            documents[path] = parse_toml(data, path)
    main = settings.files[0] if settings.files else MAIN
    document = documents.get(main, {})
    merges = settings.has_only_edited_file or (
        document.get("version", 2) >= 3
        if release is None
        else not behaves("containerd", release, RuntimeBehaviour.SECTIONS_REPLACED)
    )
    version = _version(document, main, merges=merges)
    for path, other in documents.items() if _mixes_versions(release) else ():
        if (declared := other.get("version", 0)) > version:
            raise ConfigError(
                f"{shown(path)} has version {declared} and {shown(main)} has version {version}: "
                "containerd ignores the plugins of the older file",
                hint=f"migrate {shown(main)} to the same version ('containerd config migrate')",
            )
    return _Files(main=main, documents=documents, version=version, merges=merges)


def _mixes_versions(release: Release | None) -> bool:
    """Return whether RELEASE merges files of several versions before it migrates them to one version."""
    if release is None:
        return False
    has_old_names = not behaves("containerd", release, RuntimeBehaviour.NEW_PLUGIN_NAMES)
    return has_old_names or behaves("containerd", release, RuntimeBehaviour.MIXED_VERSIONS)


def _version(document: dict[str, Any], main: str, *, merges: bool) -> int:
    """Return the configuration version for which all keys are written."""
    version: int = document.get("version", 0)
    if version >= 2:
        return version
    if "version" in document or "plugins" in document:
        raise ConfigError(
            f"{shown(main)} has version 1, which containerd 2 reads only in part: cdigen does not change it",
            hint=f"migrate the file to a new version ('containerd --config {shown(main)} config migrate')",
        )
    return 3 if merges and not document else 2

"""``plan`` for containerd: the CRI plugin's CDI keys, NRI's switch and validator, in the effective file.

Tables of one plugin in several files are merged key by key from 2.0 on (PR 9982); in 1.7 the last file that
has the plugin's table replaces all others (issue 5837), so there the keys belong in that table. A drop-in has
the ``version`` of the main file: with a higher one, 2.1 drops the main file's CRI section (it is no longer
migrated), and later releases do not start.
"""

from __future__ import annotations

from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.runtimes.documents import DesiredKey, lookup, parse_toml
from cdigen.runtimes.edits import validator
from cdigen.runtimes.edits.plan import Plan, effective_file, merged_dirs, must_set, toml_changes
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


@frozen
class _Files:
    """The main file and the others, in the order in which containerd reads them."""

    main: str
    documents: dict[str, dict[str, Any]]
    version: int
    merges: bool

    def last_with(self, table: tuple[str, ...]) -> str:
        """Return the last file that has TABLE, the main file if none has."""
        # An empty table replaces those before it as well.
        having = [path for path, one in self.documents.items() if lookup(one, table) is not None]
        return having[-1] if having else self.main


def plan(
    settings: RuntimeSettings, release: Release | None, desired: DesiredConfig, content: Content
) -> Plan:
    """Return the plan that gives containerd's CRI the DESIRED configuration; ConfigError if there is none."""
    _refuse_old(release, desired)
    if disabled := next((finding for finding in settings.findings if finding.rule == "cri-disabled"), None):
        raise ConfigError(
            f"{shown(disabled.path)} switches the CRI plugin off (disabled_plugins), so there is nothing to "
            "configure",
            hint="take it out of disabled_plugins if Kubernetes is to use this containerd; "
            "ctr and nerdctl read the spec directories themselves",
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
    if must_set(settings, "spec_dirs", is_so=dirs == settings.spec_dirs):
        want("spec_dirs", cri, DesiredKey(path=(*cri, "cdi_spec_dirs"), value=dirs))
    if desired.nri and must_set(settings, "nri", is_so=settings.nri_enabled is True):
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
    return Plan(changes=toml_changes(wanted, content, command="containerd"), findings=findings)


def _refuse_old(release: Release | None, desired: DesiredConfig) -> None:
    name = f"containerd {'.'.join(map(str, release or ()))}"
    if release is not None and behaves("containerd", release, RuntimeBehaviour.NO_CDI):
        raise ConfigError(f"{name} reads no CDI specs", hint="install containerd 1.7 or newer")
    if desired.nri_required and release is not None and not has_validator("containerd", release):
        raise validator.missing(name, "containerd 2.2")


def _needs_switch(settings: RuntimeSettings, files: _Files) -> bool:
    # 2.2 calls enable_cdi deprecated and 2.4 will drop it: releases with merged tables (2.0) have it on by
    # default, so there it is not written.
    is_on = settings.cdi_enabled is True
    return must_set(settings, "cdi", is_so=is_on) and not (is_on and files.merges)


def _target(settings: RuntimeSettings, files: _Files, what: str, table: tuple[str, ...]) -> str:
    if not files.merges:
        return files.last_with(table)
    source = settings.source(what)
    if source in files.documents and source not in {files.main, settings.edited_file}:
        return effective_file(settings, what)
    # Importing a folder would activate everything else in it: the main file is the smaller change.
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
    merges = (
        document.get("version", 2) >= 3
        if release is None
        else not behaves("containerd", release, RuntimeBehaviour.SECTIONS_REPLACED)
    )
    version = _version(document, main, merges=merges)
    for path, other in documents.items():
        if (said := other.get("version", 0)) > version:
            raise ConfigError(
                f"{shown(path)} is of version {said} and {shown(main)} of version {version}: "
                "containerd takes nothing of the older one's plugins",
                hint=f"bring {shown(main)} to the same version ('containerd config migrate')",
            )
    return _Files(main=main, documents=documents, version=version, merges=merges)


def _version(document: dict[str, Any], main: str, *, merges: bool) -> int:
    """Return the version for which all keys are to be written."""
    version: int = document.get("version", 0)
    if version >= 2:
        return version
    if "version" in document or "plugins" in document:
        raise ConfigError(
            f"{shown(main)} is of version 1, whose plugins containerd 2 does not read",
            hint=f"bring it to a new version ('containerd --config {shown(main)} config migrate')",
        )
    return 3 if merges and not document else 2

"""Read containerd's config.toml and all its imports, merged as the release merges them.

Sources: containerd cmd/containerd/server/config of 1.7 and 2.x. The effect of versions, imports and sections
was compared with ``containerd config dump`` of 1.7.24 and 2.1.9, and with the log of a running 2.1.9:

- 1.7 uses the table of a plugin only from the last file that has such a table. 2.x merges the tables key by
  key.
- The effective version is the version of the last file that sets a version. If no file sets a version, it
  is 1 in 1.7, and the newest version in 2.x.
- 2.x replaces the short names of version 1 in a file of version 1 or without a version. It reads the old name
  of the CRI plugin only in a document of version 2. Values under the new name have priority. From 2.3, each
  file is migrated separately to the newest version before the files are merged (LoadConfig at the tags).
- Only 2.3.0 to 2.3.4 do not start if a file has a higher version than the first file that sets a version.
- A missing imported file stops containerd. A pattern without a match does not stop containerd.
"""

from __future__ import annotations

import fnmatch
import posixpath

from cdigen.host.root import shown
from cdigen.runtimes.documents import lookup
from cdigen.runtimes.releases import UNKNOWN, RuntimeBehaviour, behaves, is_examined
from cdigen.runtimes.settings.config_files import DEFAULT_DIRS, ConfigFiles, RuntimeSettings, oci_runtimes
from cdigen.runtimes.units import command
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    from cdigen.host.root import Root
    from cdigen.model.findings import Severity
    from cdigen.runtimes.releases import Release
    from cdigen.runtimes.settings.config_files import OciRuntime
    from cdigen.runtimes.units import Command

    T = TypeVar("T")
    # The keys of a plugin's table, each with its file and its value.
    Section = dict[str, tuple[str, object]]

FILE = "/etc/containerd/config.toml"
FOLDER = "/etc/containerd/conf.d"
DROP_IN = f"{FOLDER}/99-cdigen.toml"
UNIT = "containerd.service"
ADDRESS = "/run/containerd/containerd.sock"
OLD_CRI, CRI, NRI = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime", "io.containerd.nri.v1.nri"
_MAX_FILES = 200


@frozen
class _File:
    path: str
    version: int
    imports: tuple[str, ...]
    disabled: tuple[str, ...]
    plugins: dict[str, object]


def _has_new_names(release: Release) -> bool:
    """Return whether RELEASE is 2.x, which has new names of plugins and merges tables key by key."""
    return behaves("containerd", release, RuntimeBehaviour.NEW_PLUGIN_NAMES)


def _merges_first(release: Release) -> bool:
    """Return whether RELEASE merges files of several versions before it migrates them to one version."""
    return not _has_new_names(release) or behaves("containerd", release, RuntimeBehaviour.MIXED_VERSIONS)


def newest_version(release: Release) -> int | None:
    """Return the newest version of a configuration that RELEASE reads; None if every version is possible."""
    if not _has_new_names(release):
        return 2 if behaves("containerd", release, RuntimeBehaviour.CHECKS_VERSION) else None
    if _merges_first(release):
        return 3
    return 4 if is_examined("containerd", release) else None


def read(
    host: Root, release: Release, started: Command | None = None, edited_file: str = ""
) -> RuntimeSettings:
    """Return the settings of the containerd with the command line STARTED.

    The default of STARTED is the command line in containerd's unit. EDITED_FILE is the file for changes, by
    default a drop-in if RELEASE merges tables, else the main file.
    """
    sources = ConfigFiles(host, "containerd does not start")
    line = started or command(host, UNIT)
    named = line.values("--config", "-c")[-1:]
    main = (*named, FILE)[0]
    files = _load(sources, main, is_needed=bool(named))
    version = _version(files, release)
    _check_version(sources, files, release)
    _check_order(sources, files, release)
    _check_names(sources, files, release, version)
    has_cdi = not behaves("containerd", release, RuntimeBehaviour.NO_CDI)  # releases without CDI have no NRI
    cri, nri = _sections(files, release, version)
    disabled = {name for file in files for name in file.disabled}
    dirs = _checked(sources.strings, cri, "cdi_spec_dirs", DEFAULT_DIRS)
    is_on = has_cdi and not behaves("containerd", release, RuntimeBehaviour.CDI_OFF)
    cdi = _checked(sources.boolean, cri, "enable_cdi", is_on)
    is_off = not has_cdi or behaves("containerd", release, RuntimeBehaviour.NRI_OFF)
    off = _checked(sources.boolean, nri, "disable", is_off)
    disabling = [file.path for file in files if not {"cri", OLD_CRI, CRI}.isdisjoint(file.disabled)]
    if disabling:
        text = " disables the CRI plugin: only ctr and Docker can use this containerd, Kubernetes cannot"
        sources.report("cri-disabled", disabling[0], text, severity="info")
        cdi = False
    is_labelled = False  # the default of containerd
    has_labels = _checked(sources.boolean, cri, "enable_selinux", is_labelled)
    _warn_of_unread(sources, files, release, version)
    wanted = edited_file or (DROP_IN if _has_new_names(release) else main)
    return RuntimeSettings(
        runtime="containerd",
        spec_dirs=dirs,
        cdi_enabled=cdi and has_cdi,
        nri_enabled=not off and not disabled & {"nri", NRI} if has_cdi else None,
        files=tuple(file.path for file in files),
        edited_file=wanted,
        findings=tuple(sources.findings),
        edited_file_is_read=wanted == main or _is_imported(files, wanted),
        has_dirs_key=has_cdi,
        set_by=_set_by(cri, nri),
        has_labels=has_labels,
        oci_runtimes=oci_runtimes(_oci_runtimes(files), ("options", "BinaryName")),
    )


def usual_runtimes(host: Root) -> tuple[OciRuntime, ...]:
    """Return the OCI runtimes in the usual main file and its imports, even if no containerd reads them."""
    files = _load(ConfigFiles(host, ""), FILE, is_needed=False)
    return oci_runtimes(_oci_runtimes(files), ("options", "BinaryName"))


def address(host: Root, started: Command) -> str:
    """Return the path of the socket of the containerd with the command line STARTED.

    The path is from the command line, from the main file, or the default.
    """
    option = started.values("--address", "-a")[-1:]
    sources = ConfigFiles(host, "")
    main = (*started.values("--config", "-c")[-1:], FILE)[0]
    found = "" if option else sources.table(main, sources.document(main) or {}, "grpc").get("address")
    return str((*option, *((found,) if isinstance(found, str) and found else ()), ADDRESS)[0])


def _oci_runtimes(files: list[_File]) -> Iterator[tuple[str, object, object]]:
    """Yield each file's table of runtimes under every name of the CRI plugin, including ignored names."""
    for file in files:
        for name in ("cri", OLD_CRI, CRI):
            table = lookup(file.plugins, (name, "containerd"))
            if isinstance(table, dict):
                yield file.path, table.get("runtimes"), table.get("default_runtime_name")


def _load(sources: ConfigFiles, main: str, *, is_needed: bool) -> list[_File]:
    """Return the main file and all imported files, in the order in which containerd merges them."""
    files: list[_File] = []
    pending = [(main, is_needed)]
    read: set[str] = set()
    while pending and len(read) < _MAX_FILES:
        path, needed = pending.pop(0)
        if path in read:
            continue
        read.add(path)
        document = sources.document(path, is_needed=needed)
        if document is not None:
            file = _file(sources, path, document)
            files.append(file)
            for pattern in (_absolute(path, pattern) for pattern in file.imports):
                # Only names with a star are patterns (resolveImports).
                found = _glob(sources, pattern) if "*" in pattern else [pattern]
                pending += [(each, True) for each in found]
    return files


def _file(sources: ConfigFiles, path: str, document: dict[str, object]) -> _File:
    version = document.get("version", 0)
    if not isinstance(version, int) or isinstance(version, bool):
        sources.wrong_type(path, "version", "a number")
        version = 0
    return _File(
        path=path,
        version=version,
        imports=sources.strings(path, "imports", document.get("imports", [])) or (),
        disabled=sources.strings(path, "disabled_plugins", document.get("disabled_plugins", [])) or (),
        plugins=sources.table(path, document, "plugins"),
    )


def _absolute(parent: str, pattern: str) -> str:
    """Return PATTERN, a path or pattern in the file PARENT, as an absolute path or pattern."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(parent), pattern))


def _glob(sources: ConfigFiles, pattern: str) -> list[str]:
    """Return the matches of PATTERN, also dot files; every part may have wildcards (Go's filepath.Glob)."""
    found = [""]
    for part in pattern.strip("/").split("/"):
        if not any(character in part for character in "*?["):
            found = [f"{folder}/{part}" for folder in found]
            continue
        found = [
            f"{folder}/{name}"
            for folder in found
            for name in sources.names(folder or "/")
            if fnmatch.fnmatchcase(name, part)
        ][:_MAX_FILES]
    return [path for path in found if not sources.is_missing(path)]


def _is_imported(files: list[_File], path: str) -> bool:
    return any(
        fnmatch.fnmatchcase(path, pattern) and pattern.count("/") == path.count("/")
        for file in files
        for pattern in (_absolute(file.path, pattern) for pattern in file.imports)
    )


def _version(files: list[_File], release: Release) -> int:
    if not _has_new_names(release):
        return ([file.version for file in files if file.version] or [1])[-1]
    # 2.x migrates a file of version 1 before the file is merged.
    return ([file.version for file in files if file.version > 1] or [3 if _merges_first(release) else 4])[-1]


def _check_version(sources: ConfigFiles, files: list[_File], release: Release) -> None:
    """Add a finding if a version is too new; before 2.3, only the last version is relevant."""
    newest = newest_version(release)
    declaring = [file for file in files if file.version]
    for file in declaring[-1:] if _merges_first(release) else declaring:
        if newest is not None and file.version > newest:
            text = f": version {file.version}, but this release reads {newest} at most"
            sources.report("config-version", file.path, sources.line_of(file.path, "version") + text)


def _check_order(sources: ConfigFiles, files: list[_File], release: Release) -> None:
    """Add a finding for each file with a higher version than the first file that sets a version.

    The finding is an error for the releases that do not start, and a warning for an unknown release.
    """
    is_refused = behaves("containerd", release, RuntimeBehaviour.NO_HIGHER_IMPORTS)
    declaring = [file for file in files if file.version]
    for file in declaring if is_refused or release == UNKNOWN else ():
        first = declaring[0]
        if file.version > first.version:
            text = (
                f"{sources.line_of(file.path, 'version')}: version {file.version}, but {shown(first.path)} "
                f"has version {first.version}: "
            )
            text += (
                "this release refuses an imported file with a higher version"
                if is_refused
                else "containerd 2.0 to 2.2 ignores tables of the older file, 2.3.0 to 2.3.4 does not start"
            )
            hint = (
                f"write the tables of {shown(file.path)} for version {first.version}, or install containerd "
                "2.3.5 or newer"
            )
            severity: Severity = "error" if is_refused else "warning"
            sources.report("config-version-order", file.path, text, severity=severity, hint=hint)


def _check_names(sources: ConfigFiles, files: list[_File], release: Release, version: int) -> None:
    """Add findings for plugins with short names of version 1 in a newer VERSION.

    containerd does not start with these names. 2.x checks only names in lists (disabled_plugins), and only
    in files of version 2 or newer.
    """
    is_old = not _has_new_names(release)
    for file in files:
        if version < 2 or (not is_old and file.version < 2):
            continue
        for name in [*file.disabled, *(file.plugins if is_old else ())]:
            if "." not in name:
                known = f"; the name in version 2 is {OLD_CRI}" if name == "cri" else ""
                line = sources.line_of_table(file.path, name)
                text = (
                    f"{line}: the plugin name {shown(name)} is valid only in version 1 of the configuration, "
                    f"but a newer version is in use{known}"
                )
                sources.report("config-version", file.path, text)


def _names(release: Release, version: int) -> tuple[str, ...]:
    """Return the names under which RELEASE reads the CRI plugin's table; the last name has priority."""
    if not _has_new_names(release):
        return ("cri",) if version < 2 else (OLD_CRI,)
    return (OLD_CRI, CRI) if version == 2 else (CRI,)


def _sections(files: list[_File], release: Release, version: int) -> tuple[Section, Section]:
    """Return the tables of the CRI plugin and the NRI plugin."""
    if not _merges_first(release):
        return _merge_migrated(files), _merge(files, NRI)
    cri: Section = {}
    if _has_new_names(release):
        renamed = [_renamed(file) for file in files]
        for name in _names(release, version):
            cri |= _merge(renamed, name)
        return cri, _merge(files, NRI)
    for name in _names(release, version):
        cri |= _last(files, name)
    return cri, _last(files, "nri" if version < 2 else NRI)


def _renamed(file: _File) -> _File:
    """Return FILE with the long name of the CRI plugin, if FILE has version 1 or no version."""
    if file.version > 1 or "cri" not in file.plugins:
        return file
    return replace(file, plugins={**file.plugins, OLD_CRI: file.plugins["cri"]})


def _merge_migrated(files: list[_File]) -> Section:
    found: Section = {}
    for file in files:
        names = (*(("cri",) if file.version < 2 else ()), *((OLD_CRI,) if file.version < 3 else ()), CRI)
        for name in names:
            found |= _merge([file], name)
    return found


def _merge(files: list[_File], name: str) -> Section:
    found: Section = {}
    for file in files:
        table = file.plugins.get(name)
        found |= {key: (file.path, value) for key, value in table.items()} if isinstance(table, dict) else {}
    return found


def _last(files: list[_File], name: str) -> Section:
    with_table = [file for file in files if isinstance(file.plugins.get(name), dict)]
    return _merge(with_table[-1:], name)


def _checked(check: Callable[[str, str, object], T | None], section: Section, key: str, default: T) -> T:
    """Return the value in SECTION at KEY if CHECK accepts it, else DEFAULT."""
    path, value = section.get(key, ("", None))
    found = check(path, key, value) if key in section else None
    return default if found is None else found


def _warn_of_unread(sources: ConfigFiles, files: list[_File], release: Release, version: int) -> None:
    """Add findings for tables of the CRI plugin under a name that RELEASE ignores in VERSION."""
    names = _names(release, version)
    for file in files if _merges_first(release) else ():
        for name in ("cri", OLD_CRI, CRI):
            is_renamed = name == "cri" and _has_new_names(release) and file.version < 2 and OLD_CRI in names
            if isinstance(file.plugins.get(name), dict) and name not in names and not is_renamed:
                text = (
                    f': plugins."{name}" is ignored; this release reads plugins."{names[-1]}" '
                    f"in a configuration of version {version}"
                )
                sources.report("config-passed-over", file.path, text, severity="warning")
    if not _has_new_names(release):
        _warn_of_replaced(sources, files, names[-1])


def _warn_of_replaced(sources: ConfigFiles, files: list[_File], name: str) -> None:
    with_table = [file for file in files if isinstance(file.plugins.get(name), dict)]
    for file in with_table[:-1]:
        text = f': plugins."{name}" is ignored: the table in {with_table[-1].path} replaces this table'
        sources.report("config-passed-over", file.path, text, severity="warning")


def _set_by(cri: Section, nri: Section) -> tuple[tuple[str, str], ...]:
    rows = (("cdi", cri, "enable_cdi"), ("nri", nri, "disable"), ("spec_dirs", cri, "cdi_spec_dirs"))
    return tuple((what, section[key][0]) for what, section, key in rows if key in section)

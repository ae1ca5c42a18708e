"""Read CRI-O's crio.conf, its drop-ins, and the arguments of crio in its systemd unit.

Sources: cri-o pkg/config, crio.conf(5), crio.conf.d(5). UpdateFromPath of cri-o reads all files in
crio.conf.d and its subfolders, with any name. So a backup file there is a part of the configuration. The
result of this module was not compared with a real crio.
"""

from __future__ import annotations

import stat

from cdigen.runtimes.releases import RuntimeBehaviour, behaves, nri_of
from cdigen.runtimes.settings.config_files import (
    DEFAULT_DIRS,
    HOOK_DIRS,
    ConfigFiles,
    RuntimeSettings,
    oci_runtimes,
)
from cdigen.runtimes.units import command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.runtimes.releases import Release
    from cdigen.runtimes.units import Command

FILE, FOLDER = "/etc/crio/crio.conf", "/etc/crio/crio.conf.d"
DROP_IN = "99-cdigen.conf"
UNITS = ("crio.service", "cri-o.service")


def read(host: Root, release: Release, started: Command | None = None) -> RuntimeSettings:
    """Return the settings of the CRI-O with the command line STARTED.

    The default of STARTED is the command line in CRI-O's unit.
    """
    sources = ConfigFiles(host, "CRI-O does not start")
    line = started or next(
        (found for found in (command(host, unit) for unit in UNITS) if found.file), command(host, UNITS[0])
    )
    named, folders = line.values("--config", "-c")[-1:], line.values("--config-dir", "-d")[-1:]
    main, folder = (*named, FILE)[0], (*folders, FOLDER)[0]
    dirs = DEFAULT_DIRS
    has_cdi = not behaves("cri-o", release, RuntimeBehaviour.NO_CDI)
    has_nri = nri_of("cri-o", release) is not None
    is_on = has_nri and not behaves("cri-o", release, RuntimeBehaviour.NRI_OFF)
    set_by: dict[str, str] = {}
    registered: list[tuple[str, object, object]] = []
    hook_dirs = HOOK_DIRS[:1]
    has_labels = True  # the default follows the host: crio.conf(5)
    for path in (main, *_below(sources, folder)):
        document = sources.document(path, is_needed=path != main or bool(named)) or {}
        runtime = sources.table(path, document, "crio", "runtime")
        if "cdi_spec_dirs" in runtime:
            listed = sources.strings(path, "cdi_spec_dirs", runtime["cdi_spec_dirs"])
            if listed is not None:
                dirs, set_by["spec_dirs"] = listed, path
        if "hooks_dir" in runtime:
            hook_dirs = sources.strings(path, "hooks_dir", runtime["hooks_dir"]) or hook_dirs
        if "selinux" in runtime:
            has_labels = sources.boolean(path, "selinux", runtime["selinux"]) is not False
        registered.append((path, runtime.get("runtimes"), runtime.get("default_runtime")))
        nri = sources.table(path, document, "crio", "nri")
        if "enable_nri" in nri:
            is_enabled = sources.boolean(path, "enable_nri", nri["enable_nri"])
            is_on, set_by["nri"] = is_on if is_enabled is None else is_enabled, path
    option = _dirs_of(line)
    if option:
        dirs, set_by["spec_dirs"] = option, f"the command line of {line.file}"
    flag = line.flag("--enable-nri")
    if flag is not None:
        is_on, set_by["nri"] = flag, f"the command line of {line.file}"
    return RuntimeSettings(
        runtime="cri-o",
        spec_dirs=dirs,
        cdi_enabled=has_cdi,  # always on
        nri_enabled=is_on if has_nri else None,
        files=tuple(sources.files),
        edited_file=f"{folder}/{DROP_IN}",
        findings=tuple(sources.findings),
        has_dirs_key=has_cdi,
        set_by=tuple(sorted(set_by.items())),
        oci_runtimes=oci_runtimes(registered, ("runtime_path",)),
        hook_dirs=tuple(line.values("--hooks-dir")) or hook_dirs,
        has_labels=has_labels if (labels := line.flag("--selinux")) is None else labels,
    )


def _below(sources: ConfigFiles, folder: str) -> list[str]:
    """Return all files below FOLDER in the order of filepath.Walk, which does not follow links to folders."""
    found: list[str] = []
    for name in sources.names(folder):
        path = f"{folder}/{name}"
        found += _below(sources, path) if _is_folder(sources.host, path) else [path]
    return found


def _is_folder(host: Root, path: str) -> bool:
    try:
        real, status = host.located(path)
        return stat.S_ISDIR(status.st_mode) and real.rpartition("/")[2] == path.rpartition("/")[2]
    except OSError:
        return False


def _dirs_of(line: Command) -> tuple[str, ...]:
    # An argument overrides the environment variable (urfave/cli). Both values are lists with commas.
    texts = line.values("--cdi-spec-dirs") or (dict(line.environment).get("CONTAINER_CDI_SPEC_DIRS", ""),)
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())

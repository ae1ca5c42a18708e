"""Read Docker's daemon.json, and the arguments of dockerd in its systemd unit.

Sources: moby daemon/config and daemon/command (CDISpecDirs, Features), PRs 45134, 49963, 51624, 51634. The
messages of Docker 28.5.2 about broken files were observed with ``dockerd --validate``. dockerd does not start
with a file that it cannot parse. dockerd also does not start if the file and an argument set the same option.

The dockerd of Canonical's snap reads another file. The unit runs ``snap run``, and a script of the snap adds
the option --config-file (canonical/docker-snap 29.3.1, bin/dockerd-wrapper).
"""

from __future__ import annotations

import posixpath

from cdigen.host.root import shown
from cdigen.runtimes.documents import lookup, parse_json
from cdigen.runtimes.installed import BINARIES, is_of_snap, place
from cdigen.runtimes.releases import LIBRARIES, NRI, RuntimeBehaviour, behaves, nri_of
from cdigen.runtimes.settings.config_files import DEFAULT_DIRS, ConfigFiles, RuntimeSettings, oci_runtimes
from cdigen.runtimes.units import SYSTEM_FOLDERS, USER_FOLDERS, Command, command
from cdigen.runtimes.users import ROOT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.runtimes.releases import Release
    from cdigen.runtimes.settings.config_files import OciRuntime
    from cdigen.runtimes.users import User

FILE = "/etc/docker/daemon.json"
UNIT = "docker.service"
SNAP_FILE = "/var/snap/docker/current/config/daemon.json"
SNAP_UNIT = "snap.docker.dockerd.service"
_DIRS, _FEATURES, _NRI = "cdi-spec-dirs", "features", "nri-opts"
# Key of the file -> option. dockerd compares the names in the file with the names of the options.
_OPTIONS = {_DIRS: "--cdi-spec-dir", _FEATURES: "--feature", _NRI: "--nri-opts"}
# The folders that dockerd-rootless.sh replaces by copies (rootlesskit --copy-up).
_COPIED = ("/etc/", "/run/", "/var/run/")
_TRUTHS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


def read(host: Root, release: Release, user: User | None) -> RuntimeSettings:
    """Return the settings of the system's dockerd, or of the rootless dockerd of USER."""
    sources = ConfigFiles(host, "dockerd does not start", user.reader() if user else ROOT)
    folders = (f"{user.config_home}/systemd/user", *USER_FOLDERS) if user else SYSTEM_FOLDERS
    is_snap = user is None and is_of_snap(place(host, BINARIES["docker"]))
    line = command(host, SNAP_UNIT if is_snap else UNIT, folders)
    named = line.values("--config-file")[-1:]
    own = f"{user.config_home}/docker/daemon.json" if user else SNAP_FILE if is_snap else FILE
    file = named[0] if named else own
    document = sources.document(file, parse_json, is_needed=bool(named)) or {}
    _check_names(sources, file, document, release)
    values, set_by = _values(sources, file, document, line)
    dirs = values.get(_DIRS)
    listed = dirs if isinstance(dirs, tuple) else _default_dirs(release, user)
    hidden = tuple(path for path in listed if user and is_hidden(path, release))
    # Docker has two switches that disable CDI: the feature ``cdi``, and a list of spec directories with one
    # empty text (moby daemon/command).
    has_cdi = not behaves("docker", release, RuntimeBehaviour.NO_CDI)
    has_nri = nri_of("docker", release) is not None
    is_on = listed != ("",) and has_cdi
    feature = lookup(values, (_FEATURES, "cdi"))
    is_on = is_on and (
        feature if isinstance(feature, bool) else not behaves("docker", release, RuntimeBehaviour.CDI_OFF)
    )
    return RuntimeSettings(
        runtime="docker",
        spec_dirs=() if listed == ("",) else tuple(path for path in listed if path not in hidden),
        hidden_dirs=hidden,
        cdi_enabled=is_on,
        nri_enabled=lookup(values, (_NRI, "enable")) is True if has_nri else None,
        files=tuple(sources.files),
        edited_file=file,
        findings=tuple(sources.findings),
        follows_links=_reads_user_dirs(release),
        has_dirs_key=has_cdi,
        set_by=set_by,
        rootless=user is not None,
        has_labels=document.get("selinux-enabled") is True or line.flag("--selinux-enabled") is True,
        oci_runtimes=oci_runtimes(_oci_runtimes(file, document, line), ("path",)),
    )


def usual_runtimes(host: Root) -> tuple[OciRuntime, ...]:
    """Return the OCI runtimes in the usual file, even if no dockerd reads the file."""
    document = ConfigFiles(host, "").document(FILE, parse_json) or {}
    return oci_runtimes(_oci_runtimes(FILE, document, Command(words=())), ("path",))


def _reads_user_dirs(release: Release) -> bool:
    """Return whether RELEASE skips unreadable directories, resolves links, and reads a user's directories."""
    return not (
        behaves("docker", release, RuntimeBehaviour.NO_CDI)
        or behaves("docker", release, RuntimeBehaviour.ROOTLESS_DIRS)
    )


def _default_dirs(release: Release, user: User | None) -> tuple[str, ...]:
    if user and _reads_user_dirs(release):
        return (*DEFAULT_DIRS, f"{user.config_home}/cdi", f"{user.runtime_dir}/cdi")
    return DEFAULT_DIRS


def is_hidden(path: str, release: Release) -> bool:
    """Return whether a rootless dockerd of RELEASE cannot see the spec directory PATH.

    dockerd-rootless.sh replaces /etc and /run by copies that consist of links, and the CDI library follows no
    link to a spec directory. The script of some releases mounts the two default directories.
    """
    clean = posixpath.normpath(path)
    if _reads_user_dirs(release) or not clean.startswith(_COPIED):
        return False
    is_default = clean in {*DEFAULT_DIRS, "/run/cdi"}
    return not is_default or behaves("docker", release, RuntimeBehaviour.ROOTLESS_NO_DIRS)


def _check_names(sources: ConfigFiles, file: str, document: dict[str, object], release: Release) -> None:
    """Add findings for keys that RELEASE does not support; dockerd rejects a file with an unknown key."""
    since = {_DIRS: LIBRARIES["docker"][0][0], _NRI: NRI["docker"][0][0]}
    for name in document:
        text = ""
        if name not in _OPTIONS and name.lower() in _OPTIONS:
            text = f"{shown(name)} must be written {name.lower()}"
        elif release < since.get(name, release):
            text = f"{name} is an unknown key before release {since[name][0]}.{since[name][1]}"
        if text:
            sources.report("config-unknown", file, f"{sources.line_of(file, name)}: {text}")


def _values(
    sources: ConfigFiles, file: str, document: dict[str, object], line: Command
) -> tuple[dict[str, object], tuple[tuple[str, str], ...]]:
    """Return two results from the file and the arguments: the settings by key, and pairs for ``set_by``."""
    values = _of_file(sources, file, document)
    set_by = dict.fromkeys(values, file)
    for name, value in _of_arguments(line).items():
        if name in document:
            text = f"{sources.line_of(file, name)}: {line.file} sets {name} too"
            hint = f"remove {_OPTIONS[name]} from the unit, or {name} from the file"
            sources.report("config-twice", file, text, hint=hint)
        values[name] = value
        set_by[name] = f"the command line of {line.file}"
    rows = (("spec_dirs", (_DIRS,)), ("cdi", (_FEATURES, "cdi")), ("nri", (_NRI, "enable")))
    return values, tuple((what, set_by[key[0]]) for what, key in rows if lookup(values, key) is not None)


def _of_file(sources: ConfigFiles, file: str, document: dict[str, object]) -> dict[str, object]:
    values: dict[str, object] = {}
    if document.get(_DIRS) is not None:
        dirs = sources.strings(file, _DIRS, document[_DIRS])
        values |= {_DIRS: dirs} if dirs is not None else {}
    for name in (_FEATURES, _NRI):
        if document.get(name) is not None:
            values[name] = sources.table(file, document, name)
    for name, value in (lookup(values, (_FEATURES,)) or {}).items():
        if value is not None:
            sources.boolean(file, name, value)
    return values


def _of_arguments(line: Command) -> dict[str, object]:
    arguments = {name: line.values(option) for name, option in _OPTIONS.items()}
    return {
        name: words if name == _DIRS else _pairs(",".join(words))
        for name, words in arguments.items()
        if words
    }


def _oci_runtimes(
    file: str, document: dict[str, object], line: Command
) -> tuple[tuple[str, object, object], ...]:
    added = dict(value.partition("=")[::2] for value in line.values("--add-runtime"))
    table = {name: {"path": path} for name, path in added.items()}
    default = (None, *line.values("--default-runtime"))[-1]
    return (file, document.get("runtimes"), document.get("default-runtime")), (line.file, table, default)


def _pairs(text: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        found[name] = _TRUTHS.get(value.lower(), value) if equals else False
    return found

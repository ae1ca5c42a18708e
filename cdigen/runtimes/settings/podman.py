"""Read podman's containers.conf: the CDI keys of every file that podman merges, in podman's order.

Sources: containers/common pkg/config (new.go) and its attributedstring; containers.conf(5); podman's
contrib/design-docs/config-file-parsing.md for 6.0. The orders of 4.3.1 and 5.8.6, for root and for a user,
were observed with strace(1). podman stops at the first file that it cannot read or parse.
"""

from __future__ import annotations

import posixpath

from cdigen.runtimes.releases import RuntimeBehaviour, behaves
from cdigen.runtimes.settings.config_files import DEFAULT_DIRS, HOOK_DIRS, ConfigFiles, RuntimeSettings
from cdigen.runtimes.users import ROOT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cdigen.host.root import Root
    from cdigen.runtimes.releases import Release
    from cdigen.runtimes.users import User

NAME = "containers.conf"
DROP_IN = "90-cdigen.conf"
_SHARE, _ETC = "/usr/share/containers", "/etc/containers"
_KEY = "cdi_spec_dirs"


def read(host: Root, release: Release, user: User | None, environment: Mapping[str, str]) -> RuntimeSettings:
    """Return podman's settings for USER, or for root if USER is None.

    ENVIRONMENT may contain CONTAINERS_CONF and CONTAINERS_CONF_OVERRIDE.
    """
    sources = ConfigFiles(host, "podman stops with an error", user.reader() if user else ROOT)
    home = _home(release, user)
    has_cdi = not behaves("podman", release, RuntimeBehaviour.NO_CDI)
    dirs = ("/etc/cdi",) if behaves("podman", release, RuntimeBehaviour.NO_RUN_CDI) else DEFAULT_DIRS
    set_by: list[tuple[str, str]] = []
    is_settable = has_cdi and not behaves("podman", release, RuntimeBehaviour.FIXED_SPEC_DIRS)
    appends, has_labels, oci_runtime = False, True, ""
    for path, is_needed in _files(sources, release, user, home, environment):
        document = sources.document(path, is_needed=is_needed)
        containers = sources.table(path, document or {}, "containers")
        if "label" in containers:
            has_labels = sources.boolean(path, "label", containers["label"]) is not False
        engine = sources.table(path, document or {}, "engine")
        if isinstance(engine.get("runtime"), str):
            oci_runtime = str(engine["runtime"])
        if _KEY not in engine or not is_settable:
            continue
        listed, append = _listed(sources, path, engine[_KEY])
        if listed is None:
            continue
        # The append option of a file also applies to all later files (attributedstring).
        appends = appends if append is None else append
        dirs = sources.bounded(path, _KEY, (*dirs, *listed) if appends else listed)
        set_by.append(("spec_dirs", path))
    return RuntimeSettings(
        runtime="podman",
        spec_dirs=dirs,
        cdi_enabled=has_cdi,
        files=tuple(sources.files),
        edited_file=f"{home or _ETC}/{NAME}.d/{DROP_IN}" if user else f"{_ETC}/{NAME}.d/{DROP_IN}",
        findings=tuple(sources.findings),
        edited_file_is_read=not environment.get("CONTAINERS_CONF"),
        has_dirs_key=is_settable,
        set_by=tuple(set_by[-1:]),
        rootless=user is not None,
        default_oci_runtime=oci_runtime,
        has_labels=has_labels,
        hook_dirs=HOOK_DIRS,
    )


def _home(release: Release, user: User | None) -> str:
    if user:
        return f"{user.config_home}/containers"
    return "/root/.config/containers" if behaves("podman", release, RuntimeBehaviour.ROOT_READS_HOME) else ""


def _files(
    sources: ConfigFiles, release: Release, user: User | None, home: str, environment: Mapping[str, str]
) -> Iterator[tuple[str, bool]]:
    """Yield pairs of a possible file and whether podman requires this file, in rising priority."""
    if path := environment.get("CONTAINERS_CONF"):
        yield path, True
    elif behaves("podman", release, RuntimeBehaviour.ONE_MAIN_FILE):
        yield from ((path, False) for path in _files_of_6(sources, user, home))
    else:
        yield from ((path, False) for path in _files_of_5(sources, release, user, home))
    if path := environment.get("CONTAINERS_CONF_OVERRIDE"):
        yield path, True


def _files_of_5(sources: ConfigFiles, release: Release, user: User | None, home: str) -> Iterator[str]:
    yield f"{_SHARE}/{NAME}"
    yield f"{_ETC}/{NAME}"
    yield from _conf_files(sources, f"{_ETC}/{NAME}.d")
    if user and behaves("podman", release, RuntimeBehaviour.READS_ROOTLESS_FILES):
        yield f"{_ETC}/containers.rootless.conf"
        yield from _conf_files(sources, f"{_ETC}/containers.rootless.conf.d")
        yield from _conf_files(sources, f"{_ETC}/containers.rootless.conf.d/{user.uid}")
    if home:
        yield f"{home}/{NAME}"
        yield from _conf_files(sources, f"{home}/{NAME}.d")


def _files_of_6(sources: ConfigFiles, user: User | None, home: str) -> Iterator[str]:
    """Yield one main file, then all drop-ins by name.

    Among drop-ins with equal names, only the drop-in of the last folder is used.
    """
    mains = (f"{home}/{NAME}", f"{_ETC}/{NAME}", f"{_SHARE}/{NAME}")
    yield from [path for path in mains if not sources.is_missing(path)][:1]
    by_user = ["rootless.conf.d", f"rootless.conf.d/{user.uid}"] if user else ["rootful.conf.d"]
    folders = [f"{base}/containers.{what}" for base in (_SHARE, _ETC) for what in ("conf.d", *by_user)]
    found: dict[str, str] = {}
    for folder in (*folders, f"{home}/{NAME}.d"):
        found |= {posixpath.basename(path): path for path in _conf_files(sources, folder)}
    yield from (found[name] for name in sorted(found))


def _conf_files(sources: ConfigFiles, folder: str) -> list[str]:
    return [f"{folder}/{name}" for name in sources.names(folder) if name.endswith(".conf")]


def _listed(sources: ConfigFiles, path: str, value: object) -> tuple[tuple[str, ...] | None, bool | None]:
    """Return the texts of a list, and the value of its option ``append`` (None if missing)."""
    items = value if isinstance(value, list) else [None]
    texts = tuple(item for item in items if isinstance(item, str))
    options = [item.get("append") for item in items if isinstance(item, dict) and set(item) <= {"append"}]
    if len(texts) + len(options) != len(items) or not all(isinstance(each, bool) for each in options):
        sources.wrong_type(path, _KEY, "a list of texts, with {append=true} at its end at most")
        return None, None
    return texts, bool(options[-1]) if options else None

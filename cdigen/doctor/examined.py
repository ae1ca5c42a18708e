"""The runtimes to examine, each with its release and configuration: ``examined_runtimes``."""

from __future__ import annotations

import os

from cdigen.cdi.library import NEWEST_RELEASE, newest_version
from cdigen.doctor.request import RUNTIME_NAMES
from cdigen.runtimes import settings
from cdigen.runtimes.releases import library_of, newest_release
from cdigen.runtimes.settings.runtime_settings import RuntimeSettings
from cdigen.runtimes.users import ROOT
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.doctor.request import DoctorRequest
    from cdigen.runtimes.installed import InstalledRuntime
    from cdigen.runtimes.users import Reader, User

# Stands for any runtime where the host has none that was found: the newest library, the configured places.
ANY_RUNTIME = "any runtime"


@frozen
class ExaminedRuntime:
    """A runtime that matters here: its name for people, its binary, and how it is configured."""

    name: str
    binary: InstalledRuntime | None
    settings: RuntimeSettings
    library: str
    newest: str
    reader: Reader

    @property
    def shown(self) -> str:
        """The runtime with its release, for people."""
        release = self.binary.release if self.binary else None
        return f"{self.name} {'.'.join(map(str, release))}" if release else self.name


def examined_runtimes(
    request: DoctorRequest, installed: Mapping[str, InstalledRuntime]
) -> tuple[ExaminedRuntime, ...]:
    """Return those of REQUEST that are INSTALLED, else all that are, else one that stands for any."""
    names = request.runtimes or tuple(installed)
    found = tuple(_runtime(request, name, installed[name]) for name in names if name in installed)
    return found or (_any_runtime(request),)


def _runtime(request: DoctorRequest, name: str, binary: InstalledRuntime) -> ExaminedRuntime:
    user = request.user if name in {"podman", "docker"} else None
    library, newest = library_of(RUNTIME_NAMES[name], newest_release(RUNTIME_NAMES[name]))
    read = settings.read(
        RUNTIME_NAMES[name],
        request.host,
        binary.release,
        _starter(request, name),
        environment=_environment(request),
    )
    reader = user.reader() if user and read.rootless else ROOT
    return ExaminedRuntime(
        name=name,
        binary=binary,
        settings=read,
        library=binary.library if binary.release else library,
        newest=binary.newest if binary.release else newest,
        reader=replace(reader, follows_links=read.follows_links),
    )


def _starter(request: DoctorRequest, name: str) -> User | None:
    """Return whose runtime NAME is meant: a user's own dockerd only where one is set up."""
    user = request.user
    if name == "podman":
        return user
    if name != "docker" or user is None:
        return None
    signs = (f"{user.config_home}/systemd/user/docker.service", f"{user.runtime_dir}/docker.sock")
    return user if any(request.host.exists(sign) for sign in signs) else None


def _environment(request: DoctorRequest) -> Mapping[str, str]:
    is_own = request.user is None or request.user.uid == os.geteuid()
    return os.environ if request.host.is_this_machine and is_own else {}


def _any_runtime(request: DoctorRequest) -> ExaminedRuntime:
    configured = RuntimeSettings(
        runtime=ANY_RUNTIME,
        spec_dirs=request.configuration.spec_dirs,
        cdi_enabled=None,
        nri_enabled=None,
        files=(),
        edited_file="",
        findings=(),
    )
    return ExaminedRuntime(
        name=ANY_RUNTIME,
        binary=None,
        settings=configured,
        library=NEWEST_RELEASE,
        newest=newest_version(NEWEST_RELEASE),
        reader=request.user.reader() if request.user else ROOT,
    )

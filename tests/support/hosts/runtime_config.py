"""A host's tree with the configuration files of runtimes: ``Tree``."""

from __future__ import annotations

import textwrap

from cdigen.host.root import Root
from cdigen.runtimes.edits import containerd, crio, docker, podman
from cdigen.runtimes.settings import read
from cdigen.runtimes.users import User
from cdigen.store.configfiles import current

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.runtimes.edits.plan import DesiredConfig, EditPlan
    from cdigen.runtimes.releases import Release
    from cdigen.runtimes.settings.config_files import RuntimeSettings

# The spec directories of a runtime whose configuration names no spec directory.
BOTH = ("/etc/cdi", "/var/run/cdi")
ALICE = User(
    name="alice",
    uid=1234,
    gid=1234,
    gids=(1234,),
    home="/home/alice",
    config_home="/home/alice/.config",
    runtime_dir="/run/user/1234",
)


class Tree:
    """The files of a host below FOLDER."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, path: str, text: str | bytes, mode: int = 0o644) -> None:
        place = self.folder / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        content = textwrap.dedent(text).encode() if isinstance(text, str) else text
        place.write_bytes(content)
        place.chmod(mode)

    def read(
        self, runtime: str, release: Release | None, user: User | None = None, **environment: str
    ) -> RuntimeSettings:
        return read(runtime, Root(str(self.folder)), release, user, environment=environment)

    def plan(self, runtime: str, release: Release | None, desired: DesiredConfig) -> EditPlan:
        """Return the changes that DESIRED needs, as ``cdigen configure`` makes them."""
        host = Root(str(self.folder))
        return _PLANS[runtime](
            self.read(runtime, release), release, desired, lambda path: current(host, path)
        )

    def apply(self, plan: EditPlan) -> None:
        """Write the files of PLAN."""
        for change in plan.changes:
            self.put(change.path, change.after or b"")


_PLANS = {"podman": podman.plan, "docker": docker.plan, "containerd": containerd.plan, "cri-o": crio.plan}


def finding_keys(settings: RuntimeSettings) -> list[tuple[str, str, str]]:
    """Return severity, rule and path of every finding."""
    return [(found.severity, found.rule, found.path) for found in settings.findings]

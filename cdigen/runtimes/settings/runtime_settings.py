"""``RuntimeSettings``: what a runtime's configuration says of CDI and NRI."""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.findings import Finding

# The library's own (pkg/cdi, DefaultSpecDirs), lowest priority first.
DEFAULT_DIRS: tuple[str, ...] = ("/etc/cdi", "/var/run/cdi")


@frozen
class RuntimeSettings:
    """What a runtime's configuration says; where it says nothing, the defaults of the release.

    ``spec_dirs``: where it looks for specs, priority rising. ``cdi_enabled`` and ``nri_enabled``: None where
    nobody can tell, or the runtime has no such thing (podman has no NRI). ``follows_links``: whether it
    follows a spec directory that is a symlink. ``files``: what was read and applied, in that order, all of
    which exist. ``edited_file``: the file that ``configure`` writes, a drop-in where the runtime has them;
    ``edited_file_is_read`` says whether the runtime would read it as its configuration is now.
    ``has_dirs_key``: whether this release has a key for the spec directories. ``set_by``: pairs of
    ``spec_dirs``, ``cdi``, ``nri`` and the file, or the words ``the command line of FILE``, that sets it; a
    default is not there. ``rootless``: whether these are a user's own settings.
    """

    runtime: str
    spec_dirs: tuple[str, ...]
    cdi_enabled: bool | None
    nri_enabled: bool | None
    files: tuple[str, ...]
    edited_file: str
    findings: tuple[Finding, ...]
    edited_file_is_read: bool = True
    follows_links: bool = False
    has_dirs_key: bool = False
    set_by: tuple[tuple[str, str], ...] = ()
    rootless: bool = False

    def source(self, what: str) -> str:
        """Return what sets WHAT (see ``set_by``), an empty text where it is the default."""
        return dict(self.set_by).get(what, "")

"""Plan the changes for podman: a drop-in of containers.conf with the spec directories.

There are no changes for releases that do not read the key ``cdi_spec_dirs``.
"""

from __future__ import annotations

from cdigen.model.errors import ConfigError
from cdigen.model.findings import Finding
from cdigen.runtimes.documents import DesiredKey
from cdigen.runtimes.edits.plan import EditPlan, effective_file, has_all, merged_dirs, must_set, toml_changes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.runtimes.edits.plan import Content, DesiredConfig
    from cdigen.runtimes.releases import Release
    from cdigen.runtimes.settings.config_files import RuntimeSettings

SPEC_DIRS = ("engine", "cdi_spec_dirs")


def plan(
    settings: RuntimeSettings, release: Release | None, desired: DesiredConfig, content: Content
) -> EditPlan:
    """Return the plan for the DESIRED configuration of podman; raise ConfigError if no plan is possible."""
    if desired.nri:
        raise ConfigError("podman has no NRI", hint="omit --nri")
    if release is not None and not settings.has_dirs_key:
        return _fixed_dirs(settings, release, desired)
    dirs = merged_dirs(settings.spec_dirs, desired.spec_dirs)
    if not must_set(settings, "spec_dirs", is_as_desired=dirs == settings.spec_dirs):
        return EditPlan()
    wanted = {effective_file(settings, "spec_dirs"): (DesiredKey(path=SPEC_DIRS, value=dirs),)}
    changes = toml_changes(wanted, content, command="podman")
    if release is not None:
        return EditPlan(changes=changes)
    text = "podman before 5.5 ignores cdi_spec_dirs and reads /etc/cdi and /var/run/cdi"
    unknown = Finding(severity="info", rule="release-unknown", path=settings.edited_file, message=text)
    return EditPlan(changes=changes, findings=(unknown,))


def _fixed_dirs(settings: RuntimeSettings, release: Release, desired: DesiredConfig) -> EditPlan:
    name = f"podman {'.'.join(map(str, release))}"
    if not has_all(settings.spec_dirs, desired.spec_dirs):
        raise ConfigError(
            f"{name} always reads {' and '.join(settings.spec_dirs)}: the directories cannot be configured",
            hint="put the specs into one of these directories, or install podman 5.5 or newer",
        )
    message = f"{name} always reads {' and '.join(settings.spec_dirs)}: no change is necessary"
    return EditPlan(
        findings=(Finding(severity="info", rule="spec-dirs-fixed", path="podman", message=message),)
    )

"""``plan`` for podman: a drop-in of containers.conf with the spec directories, if the release reads it."""

from __future__ import annotations

from cdigen.model.errors import ConfigError
from cdigen.model.findings import Finding
from cdigen.runtimes.documents import DesiredKey
from cdigen.runtimes.edits.plan import Plan, effective_file, has_all, merged_dirs, must_set, toml_changes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.runtimes.edits.plan import Content, DesiredConfig
    from cdigen.runtimes.releases import Release
    from cdigen.runtimes.settings.config_files import RuntimeSettings

SPEC_DIRS = ("engine", "cdi_spec_dirs")


def plan(
    settings: RuntimeSettings, release: Release | None, desired: DesiredConfig, content: Content
) -> Plan:
    """Return the plan that makes podman read the directories of DESIRED; ConfigError if there is none."""
    if desired.nri:
        raise ConfigError("podman has no NRI", hint="omit --nri")
    if release is not None and not settings.has_dirs_key:
        return _hard_wired(settings, release, desired)
    dirs = merged_dirs(settings.spec_dirs, desired.spec_dirs)
    if not must_set(settings, "spec_dirs", is_so=dirs == settings.spec_dirs):
        return Plan()
    wanted = {effective_file(settings, "spec_dirs"): (DesiredKey(path=SPEC_DIRS, value=dirs),)}
    changes = toml_changes(wanted, content, command="podman")
    if release is not None:
        return Plan(changes=changes)
    text = "podman before 5.5 ignores cdi_spec_dirs and reads /etc/cdi and /var/run/cdi"
    unknown = Finding(severity="info", rule="release-unknown", path=settings.edited_file, message=text)
    return Plan(changes=changes, findings=(unknown,))


def _hard_wired(settings: RuntimeSettings, release: Release, desired: DesiredConfig) -> Plan:
    name = f"podman {'.'.join(map(str, release))}"
    if not has_all(settings.spec_dirs, desired.spec_dirs):
        raise ConfigError(
            f"{name} reads {' and '.join(settings.spec_dirs)}, whatever its configuration says",
            hint="put the specs there, or install podman 5.5 or newer",
        )
    message = f"{name} reads {' and '.join(settings.spec_dirs)} and has no setting for it: nothing to do"
    return Plan(findings=(Finding(severity="info", rule="hard-wired", path="podman", message=message),))

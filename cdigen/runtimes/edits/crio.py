"""Plan the changes for CRI-O: a drop-in of crio.conf.

The drop-in sets the spec directories, and NRI's switch and validator.
"""

from __future__ import annotations

from cdigen.model.errors import ConfigError
from cdigen.runtimes.documents import DesiredKey, parse_toml
from cdigen.runtimes.edits import validator
from cdigen.runtimes.edits.plan import EditPlan, effective_file, merged_dirs, must_set, toml_changes
from cdigen.runtimes.releases import RuntimeBehaviour, behaves, has_validator, nri_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.findings import Finding
    from cdigen.runtimes.edits.plan import Content, DesiredConfig
    from cdigen.runtimes.releases import Release
    from cdigen.runtimes.settings.config_files import RuntimeSettings

SPEC_DIRS = ("crio", "runtime", "cdi_spec_dirs")
NRI = ("crio", "nri", "enable_nri")


def plan(
    settings: RuntimeSettings, release: Release | None, desired: DesiredConfig, content: Content
) -> EditPlan:
    """Return the plan for the DESIRED configuration of CRI-O; raise ConfigError if no plan is possible."""
    _refuse_old(release, desired)
    wanted: dict[str, tuple[DesiredKey, ...]] = {}

    def want(what: str, key: DesiredKey) -> None:
        path = effective_file(settings, what)
        wanted[path] = (*wanted.get(path, ()), key)

    dirs = merged_dirs(settings.spec_dirs, desired.spec_dirs)
    if must_set(settings, "spec_dirs", is_as_desired=dirs == settings.spec_dirs):
        want("spec_dirs", DesiredKey(path=SPEC_DIRS, value=dirs))
    if desired.nri and must_set(settings, "nri", is_as_desired=settings.nri_enabled is True):
        want("nri", DesiredKey(path=NRI, value=True))
    findings: tuple[Finding, ...] = ()
    if desired.nri_required:
        documents = {path: parse_toml(content(path) or b"", path) for path in settings.files}
        settings, keys, findings = validator.requiring(
            settings, documents, validator.CRIO, is_release_known=release is not None
        )
        for key in keys:
            want(validator.SOURCE, key)
    return EditPlan(changes=toml_changes(wanted, content, command="crio"), findings=findings)


def _refuse_old(release: Release | None, desired: DesiredConfig) -> None:
    if release is None:
        return
    if behaves("cri-o", release, RuntimeBehaviour.NO_CDI):
        raise ConfigError("this CRI-O reads no CDI specs", hint="install CRI-O 1.25 or newer")
    if desired.nri and nri_of("cri-o", release) is None:
        raise ConfigError("this CRI-O has no NRI", hint="install CRI-O 1.26 or newer, or omit --nri")
    if desired.nri_required and not has_validator("cri-o", release):
        raise validator.missing(f"CRI-O {'.'.join(map(str, release))}", "CRI-O 1.34")

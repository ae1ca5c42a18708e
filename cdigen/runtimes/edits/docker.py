"""Plan the changes for Docker: ``features.cdi`` and ``cdi-spec-dirs`` in daemon.json."""

from __future__ import annotations

from cdigen.host.root import shown
from cdigen.model.change import Change
from cdigen.model.errors import ConfigError
from cdigen.model.findings import Finding
from cdigen.runtimes.documents import DesiredKey, parse_json, set_json
from cdigen.runtimes.edits.plan import EditPlan, merged_dirs, must_set
from cdigen.runtimes.releases import RuntimeBehaviour, behaves
from cdigen.runtimes.settings.docker import is_hidden

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.runtimes.edits.plan import Content, DesiredConfig
    from cdigen.runtimes.releases import Release
    from cdigen.runtimes.settings.config_files import RuntimeSettings

FEATURE = ("features", "cdi")
SPEC_DIRS = ("cdi-spec-dirs",)


def plan(
    settings: RuntimeSettings, release: Release | None, desired: DesiredConfig, content: Content
) -> EditPlan:
    """Return the plan for the DESIRED configuration of Docker; raise ConfigError if no plan is possible."""
    if desired.nri:
        raise ConfigError(
            "Docker's NRI accepts no CDI devices from a plugin", hint="omit --nri; use --device instead"
        )
    if release is not None and behaves("docker", release, RuntimeBehaviour.NO_CDI):
        name = ".".join(map(str, release))
        raise ConfigError(f"Docker {name} reads no CDI specs", hint="install Docker 25.0 or newer")
    hidden = (
        [path for path in desired.spec_dirs if is_hidden(path, release)]
        if settings.rootless and release
        else []
    )
    if hidden:
        raise ConfigError(
            f"{', '.join(map(shown, hidden))}: a rootless dockerd of this release does not see the directory",
            hint="install Docker 29.2 or newer, or use --spec-dir with a directory outside /etc and /run",
        )
    before = content(settings.edited_file)
    after, keys = set_json(before or b"", _wanted(settings, release, desired), settings.edited_file)
    if not keys:
        return EditPlan()
    change = Change(path=settings.edited_file, before=before, after=after, keys=keys)
    return EditPlan(changes=(change,), findings=_notes(settings, release, after))


def _wanted(
    settings: RuntimeSettings, release: Release | None, desired: DesiredConfig
) -> tuple[DesiredKey, ...]:
    wanted = []
    is_on = settings.cdi_enabled is True
    needs_switch = release is None or not is_on or behaves("docker", release, RuntimeBehaviour.CDI_OFF)
    # dockerd does not start if the file and the command line set the same option. must_set prevents this.
    if needs_switch and must_set(settings, "cdi", is_as_desired=is_on):
        wanted.append(DesiredKey(path=FEATURE, value=True))
    dirs = merged_dirs(settings.spec_dirs, desired.spec_dirs)
    if must_set(settings, "spec_dirs", is_as_desired=dirs == settings.spec_dirs):
        wanted.append(DesiredKey(path=SPEC_DIRS, value=dirs))
    return tuple(wanted)


def _notes(settings: RuntimeSettings, release: Release | None, after: bytes) -> tuple[Finding, ...]:
    notes = []
    if release is None:
        text = "Docker before 25.0 does not start if its configuration contains 'cdi-spec-dirs'"
        notes.append(("release-unknown", text))
    if parse_json(after, settings.edited_file).get("live-restore") is not True:
        text = 'a restart of Docker stops its containers: "live-restore" is not true in its configuration'
        notes.append(("no-live-restore", text))
    return tuple(
        Finding(severity="warning", rule=rule, path=settings.edited_file, message=text)
        for rule, text in notes
    )

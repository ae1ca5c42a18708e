"""CRI-O: a drop-in of crio.conf with the spec directories, and the switch of NRI."""

from __future__ import annotations

from cdigen.model.errors import ConfigError
from cdigen.runtimes.edits.tomltext import Wanted
from cdigen.runtimes.edits.wish import Plan, last_word, merged_dirs, must_set, toml_changes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.runtimes.edits.wish import Content, Wish
    from cdigen.runtimes.settings import Settings
    from cdigen.runtimes.targets import Release

SPEC_DIRS = ("crio", "runtime", "cdi_spec_dirs")
NRI = ("crio", "nri", "enable_nri")
HAS_CDI: Release = (1, 24, 0)  # cri-o PR 5571
HAS_NRI: Release = (1, 26, 0)


def plan(settings: Settings, release: Release | None, wish: Wish, content: Content) -> Plan:
    """Return what makes CRI-O do as WISH says; ConfigError where it cannot be made to."""
    if release is not None and release < HAS_CDI:
        raise ConfigError("this CRI-O reads no CDI specs", hint="install CRI-O 1.24 or newer")
    if wish.nri and release is not None and release < HAS_NRI:
        raise ConfigError("this CRI-O has no NRI", hint="install CRI-O 1.26 or newer, or leave --nri away")
    wanted: dict[str, tuple[Wanted, ...]] = {}
    dirs = merged_dirs(settings.spec_dirs, wish.spec_dirs)
    if must_set(settings, "spec_dirs", is_so=dirs == settings.spec_dirs):
        wanted[last_word(settings, "spec_dirs")] = (Wanted(path=SPEC_DIRS, value=dirs),)
    if wish.nri and must_set(settings, "nri", is_so=settings.nri_enabled is True):
        path = last_word(settings, "nri")
        wanted[path] = (*wanted.get(path, ()), Wanted(path=NRI, value=True))
    return Plan(changes=toml_changes(wanted, content, command="crio"))

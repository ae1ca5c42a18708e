"""Delivery: ``deliver`` chooses the best way for a draft's files into containers that profile and host allow.

A layout or hook that this host cannot use is replaced by one that works everywhere, with a finding: a
container without a hook is better than none.
"""

from __future__ import annotations

import posixpath
import stat

from cdigen.cdi.hooks import cdigen_hook, hook_lines, nvidia_hook
from cdigen.cdi.layout import NO_VIEW, PlacedView, files_outside_view, lay_out, view_plan
from cdigen.host.interpreter import copied_from, outdated, settings_of, standard_library
from cdigen.host.root import shown
from cdigen.host.trust import untrusted, untrusted_below
from cdigen.model.errors import StoreError
from cdigen.model.findings import FindingCollector
from cdigen.model.loader import X86_64_V2, capability_folders
from cdigen.model.profile import STEPS
from cdigen.model.view import DEFAULT_KIND, view_target
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.cdi.hooks import HookProgram
    from cdigen.host.root import Root
    from cdigen.model.cdi import Draft, Payload, Step
    from cdigen.model.findings import Finding, Severity
    from cdigen.model.inventory import DriverFile

CPUINFO = "/proc/cpuinfo"
# What 'make install-hook' installs beside the script, in the folder lib.
HOOK_MODULE = "cdigen/hook/main.py"
_FILES_ONLY_CHOICES = frozenset(("auto", "files", "none"))


@frozen
class DeliveryOptions:
    """What delivery may use. Paths are the host's, but ``state_dir`` is one of this machine.

    Without ``hook_script`` there is no hook unless a profile names one; without ``state_dir`` there are no
    views. A missing view is made only with ``make_views``, by copying only with ``view_copies``.
    ``files_only`` is for containers that get their files below a folder of their own; with
    ``capability_folders_taken`` only the default kind may use the hwcaps folders of loaders.
    """

    hook_script: str = ""
    hook_python: str = ""
    nvidia_hook: str = ""
    state_dir: str = ""
    make_views: bool = False
    view_copies: bool = False
    files_only: bool = False
    capability_folders_taken: bool = False


DEFAULT_DELIVERY = DeliveryOptions()


def deliver(draft: Draft, host: Root | None, options: DeliveryOptions) -> tuple[Draft, tuple[Finding, ...]]:
    """Return DRAFT with the mounts, hooks and environment that bring its payload into containers.

    HOST is None for an inventory from elsewhere: nothing else is known of such a host.
    """
    if draft.payload is None:
        return draft, ()
    return _Delivery(draft, draft.payload, host, options).resolve()


class _Delivery:
    """The choices for one draft; the findings name replaced layouts and hooks."""

    def __init__(self, draft: Draft, payload: Payload, host: Root | None, options: DeliveryOptions) -> None:
        self._draft = draft
        self._payload = payload
        self._profile = draft.profile
        if options.files_only:
            self._profile = replace(draft.profile, layout="files", hook="none")
        self._host = host
        self._options = options
        self._view = NO_VIEW
        self._collector = FindingCollector()
        self._has_libraries = any(file.names for file in payload.files)
        layout, hook = draft.profile.layout, draft.profile.hook
        is_possible = _FILES_ONLY_CHOICES.issuperset((layout, hook))
        if options.files_only and self._has_libraries and not is_possible:
            self._report_unused_layout(
                f"the layout {layout} with the hook {hook} does not go with a container driver root, "
                "below which no loader looks by itself"
            )

    def resolve(self) -> tuple[Draft, tuple[Finding, ...]]:
        program = self._hook_program()
        if program is None:
            self._report_lost_compatibility()
        layout = self._layout(program)
        is_covering = self._options.capability_folders_taken and self._draft.kind != DEFAULT_KIND
        capable = layout in {"view", "hwcaps"} and not is_covering and not self._why_not_capability_folders()
        laid = lay_out(self._payload, layout, self._view, capable=capable)
        edits = self._draft.edits
        env = () if program else tuple(f"{name}={laid.folder}" for name in self._payload.folder_env)
        hooks = hook_lines(program, self._steps(laid.steps), self._profile.hook_required) if program else ()
        edits = replace(
            edits, env=(*edits.env, *env), mounts=(*edits.mounts, *laid.mounts), hooks=(*edits.hooks, *hooks)
        )
        return replace(self._draft, edits=edits, payload=None), tuple(self._collector.findings)

    def _steps(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """Return the steps that the profile wants: links first, forward compatibility before the cache."""
        wanted = [step for step in (*self._payload.steps, *steps) if step.name in self._profile.hook_steps]
        return tuple(sorted(wanted, key=lambda step: STEPS.index(step.name)))

    # The hook.

    def _hook_program(self) -> HookProgram | None:
        wanted = self._profile.hook
        if (
            wanted == "none"
            or not self._has_libraries
            or (wanted == "auto" and self._profile.layout == "hwcaps")
        ):
            return None
        options = self._options
        files: tuple[str, ...] = (options.nvidia_hook,)
        library = ""
        if wanted == "nvidia":
            program = nvidia_hook(options.nvidia_hook)
        else:
            python, original = self._interpreter()
            program = cdigen_hook(python, options.hook_script)
            library = f"{posixpath.dirname(options.hook_script)}/lib"
            files = (
                options.hook_script,
                f"{library}/{HOOK_MODULE}",
                python,
                *((settings_of(python),) if original else ()),
                *standard_library(self._host, original or python),
            )
        if self._host is None or not files[0]:
            return None if wanted == "auto" else program
        return program if self._is_trusted(self._host, files, library) else None

    def _interpreter(self) -> tuple[str, str]:
        """Return the Python that runs the hook; the original of a copy where the two differ."""
        python = self._options.hook_python
        original = copied_from(self._host, python)
        problem = outdated(self._host, python, original) if self._host and original else ""
        if not problem:
            return python, original
        self._collector.add(
            "warning",
            "hook-python-outdated",
            python,
            f"{python} is not a copy of the present interpreter ({problem}), so the hook runs {original}, "
            "into which a container with CAP_SYS_PTRACE in its user namespace may look",
            f"'install -m 0711 {original} {python}' (docs/hook.md)",
        )
        return original, ""

    def _is_trusted(self, host: Root, files: tuple[str, ...], library: str) -> bool:
        """Return whether HOST has FILES, and only root can have changed them or what is below LIBRARY."""
        missing = next((path for path in files if not host.exists(path)), "")
        if missing:
            self._collector.add(
                "info" if self._profile.hook == "auto" else "warning",
                "hook-missing",
                missing,
                f"{missing} is missing, so no hook runs when a container starts",
                "install the hook (docs/hook.md), or choose 'hook: none' in the profile",
            )
            return False
        problems = [untrusted(path, base=host.outer) for path in files]
        problem = next((text for text in problems if text), "") or untrusted_below(host, library)
        if problem:
            self._collector.add(
                "warning",
                "hook-untrusted",
                files[0],
                f"the hook would run as root, and {problem}; it is not used",
                "make root the owner of it and its folders, and the only one who can write",
            )
        return not problem

    # The layout.

    def _layout(self, program: HookProgram | None) -> str:
        """Return the layout. Layouts differ in how libraries are found: without any there is no choice."""
        wanted = self._profile.layout
        if not self._has_libraries:
            return "files"
        if program is not None and program.kind == "nvidia":
            if wanted not in {"auto", "files"}:
                self._report_unused_layout(
                    f"the layout {wanted} is not for NVIDIA's hooks, which link single files"
                )
            return "named"
        if wanted in {"view", "hwcaps"} and self._needs_default_kind(program):
            return "files"
        if wanted == "hwcaps":
            problem = self._why_not_capability_folders()
            if problem:
                self._report_unused_layout(f"the layout hwcaps is not for this host: {problem}")
            return "hwcaps" if not problem and self._has_view(is_requested=True) else "files"
        if wanted == "view" or (wanted == "auto" and program is not None):
            return self._view_or_files(program, is_requested=wanted == "view")
        return "files"

    def _needs_default_kind(self, program: HookProgram | None) -> bool:
        """Return whether only the default kind may use the folders of the layout, and this is another kind.

        With a hook a view may be anywhere. Two kinds in one container must not cover each other's files.
        """
        layout = self._profile.layout
        if self._draft.kind == DEFAULT_KIND or (layout == "view" and (program or self._payload.prefix)):
            return False
        how = " without a hook" if layout == "view" else ""
        own = f"/{self._profile.device_class}"
        is_of_profile = self._draft.kind.endswith(own) and not self._draft.yields
        self._report_unused_layout(
            f"the layout {layout}{how} is for {DEFAULT_KIND} alone: its folders are the same in every "
            "container, and of two kinds one would cover the other",
            severity="warning" if is_of_profile else "info",
        )
        return True

    def _view_or_files(self, program: HookProgram | None, *, is_requested: bool) -> str:
        if program is None and self._profile.hook != "none":
            if is_requested:
                self._report_unused_layout("the layout view needs a hook that can be used, or 'hook: none'")
            return "files"
        if not self._has_view(is_requested=is_requested):
            return "files"
        if program is None and not self._payload.prefix and self._why_not_capability_folders():
            self._collector.add(
                "info",
                "view-without-hook",
                self._draft.kind,
                "without a hook, libraries of the view are found only by images that look into "
                "/usr/local/nvidia/lib64 themselves, as CUDA's do",
                "'layout: files' needs neither",
            )
        return "view"

    def _why_not_capability_folders(self) -> str:
        """Return why loaders on this host do not look where ``hwcaps`` mounts; empty where they do."""
        if not capability_folders(self._payload.architecture):
            return f"{self._payload.architecture} has no such folders"
        missing = X86_64_V2 - _processor_flags(self._host)
        if missing:
            return f"they need a processor of level x86-64-v2; {CPUINFO} lacks {', '.join(sorted(missing))}"
        return ""

    def _has_view(self, *, is_requested: bool) -> bool:
        """Find or make the view of the payload; IS_REQUESTED: if there is none, report why."""
        host, state_dir = self._host, self._options.state_dir
        if host is None or not state_dir:
            if is_requested:
                self._report_no_view("an inventory from elsewhere has no files to make one of", "")
            return False
        from cdigen.store.views import publishing  # noqa: PLC0415 - most one-shot calls have none

        folders = frozenset(file.host_path for file in self._payload.files if _is_folder(host, file))
        if strays := files_outside_view(self._payload, folders):
            self._report_no_view(
                f"{shown(strays[0])} belongs below {self._payload.prefix}, and a view there can hold neither "
                "sockets nor folders",
                "",
            )
            return False
        plan = view_plan(self._payload, left_out=folders)
        try:
            if self._options.make_views:
                view = publishing.publish_view(plan, host, state_dir, copies=self._options.view_copies)
                # The same Root looks for its files, and remembers that the folder did not exist.
                host.forget_missing()
            else:
                found = publishing.find_view(plan, host, state_dir)
                if found is None:
                    if is_requested:
                        hint = "'cdigen generate --write' makes it"
                        self._report_no_view("none is published yet", hint, "view-unpublished")
                    return False
                view = found
        except StoreError as error:
            self._report_no_view(error.message, error.hint)
            return False
        apart = frozenset(file.source for file in plan.files if file.path in view.apart)
        self._view = PlacedView(
            source=view.path, target=view_target(self._draft.kind), left_out=folders | apart
        )
        self._collector.findings.extend(view.findings)
        refused = {file.source for file in plan.files if file.path in view.left_out}
        files = tuple(file for file in self._payload.files if file.host_path not in refused)
        self._payload = replace(self._payload, files=files)
        return True

    # Findings.

    def _report_lost_compatibility(self) -> None:
        """Report that there is no forward compatibility if the profile wants a hook to enable it."""
        wanted = [step.name for step in self._payload.steps if step.name in self._profile.hook_steps]
        if "enable-cuda-compat" in wanted:
            self._collector.add(
                "info",
                "no-forward-compatibility",
                self._draft.kind,
                "without a hook there is no CUDA forward compatibility: an image's newer libcuda "
                "(/usr/local/cuda/compat) is not used automatically",
                "install the hook (docs/hook.md), or set LD_LIBRARY_PATH=/usr/local/cuda/compat in the "
                "containers that need it",
            )

    def _report_unused_layout(self, message: str, severity: Severity = "warning") -> None:
        self._collector.add(
            severity,
            "layout-not-used",
            self._draft.kind,
            f"{message}; files are mounted one by one",
            "choose 'layout: auto' in the profile",
        )

    def _report_no_view(self, message: str, hint: str, rule: str = "view-not-made") -> None:
        self._collector.add(
            "warning",
            rule,
            self._draft.kind,
            f"files are mounted one by one, as there is no view with all of them: {message}",
            hint,
        )


def _is_folder(host: Root, file: DriverFile) -> bool:
    """Return whether FILE is a folder, which a view cannot hold: some of Tegra's lists name folders."""
    try:
        return file.kind not in {"library", "library32", "binary"} and stat.S_ISDIR(
            host.stat(file.host_path).st_mode
        )
    except OSError:
        return False


def _processor_flags(host: Root | None) -> frozenset[str]:
    """Return the features of the host's processor, by the kernel's names; none if they are unknown."""
    try:
        text = host.read(CPUINFO, limit=1 << 22).decode("ascii", "replace") if host else ""
    except OSError:
        return frozenset()
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split())

"""The delivery of a driver's files: ``deliver`` chooses a layout and a hook for a draft.

The profile and the host limit the choice. If this host cannot use a layout or hook, cdigen uses an
alternative that works on all hosts, and reports a finding. A container without a hook is better than no
container.
"""

from __future__ import annotations

import posixpath
import stat

from cdigen import page_url
from cdigen.cdi.hooks import cdigen_hook, hook_lines, nvidia_hook
from cdigen.cdi.layout import NO_VIEW, PlacedView, files_outside_view, lay_out, view_plan
from cdigen.host.interpreter import copied_from, outdated, settings_of, standard_library
from cdigen.host.root import shown
from cdigen.host.trust import untrusted, untrusted_below
from cdigen.model.errors import StoreError
from cdigen.model.findings import FindingCollector
from cdigen.model.loader import X86_64_V2, capability_folders
from cdigen.model.profile import OWN_HOOKS, STEPS
from cdigen.model.view import DEFAULT_KIND, view_target
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.cdi.hooks import HookProgram
    from cdigen.host.root import Root
    from cdigen.model.cdi import Draft, HookStep, Payload
    from cdigen.model.findings import Finding, Severity
    from cdigen.model.inventory import DriverFile

CPUINFO = "/proc/cpuinfo"
# The module that 'make install-hook' installs. Its path is relative to the folder lib in the folder of the
# script.
HOOK_MODULE = "cdigen/hook/main.py"
_HOOK_PAGE = page_url("how-to/start-up-hook")
_FILES_ONLY_CHOICES = frozenset(("auto", "files", "none"))


@frozen
class DeliveryOptions:
    """The options of delivery. Paths are paths of the host, but ``state_dir`` is a path of this machine.

    If ``hook_script`` is empty, cdigen adds a hook only if the profile names a hook. If ``state_dir`` is
    empty, there are no views. cdigen builds a missing view only if ``make_views`` is set. cdigen copies large
    files into a view only if ``copy_driver_files`` is set. ``files_only`` is set if containers get the
    driver's files in a separate folder. If ``default_kind_uses_hwcaps`` is set, only the default kind may use
    the hwcaps folders of loaders.
    """

    hook_script: str = ""
    hook_python: str = ""
    nvidia_hook: str = ""
    state_dir: str = ""
    make_views: bool = False
    copy_driver_files: bool = False
    files_only: bool = False
    default_kind_uses_hwcaps: bool = False


DEFAULT_DELIVERY = DeliveryOptions()


def deliver(draft: Draft, host: Root | None, options: DeliveryOptions) -> tuple[Draft, tuple[Finding, ...]]:
    """Return DRAFT with the mounts, hooks and environment that add its payload to containers.

    HOST is None for an inventory of another host, because the files of that host cannot be read.
    """
    if draft.payload is None:
        return draft, ()
    return _Delivery(draft, draft.payload, host, options).resolve()


class _Delivery:
    """The choices for a draft. The findings name the replaced layouts and hooks."""

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
                f"the layout {layout} with the hook {hook} does not work with a container driver root, "
                "which no loader searches"
            )

    def resolve(self) -> tuple[Draft, tuple[Finding, ...]]:
        program = self._hook_program()
        if program is None:
            self._report_lost_compatibility()
        layout = self._layout(program)
        is_reserved = self._options.default_kind_uses_hwcaps and self._draft.kind != DEFAULT_KIND
        capable = layout in {"view", "hwcaps"} and not is_reserved and not self._why_not_capability_folders()
        laid = lay_out(self._payload, layout, self._view, capable=capable)
        edits = self._draft.edits
        env = () if program else tuple(f"{name}={laid.folder}" for name in self._payload.folder_env)
        hooks = (
            hook_lines(program, self._steps(laid.steps), self._profile.required_hook_steps) if program else ()
        )
        edits = replace(
            edits, env=(*edits.env, *env), mounts=(*edits.mounts, *laid.mounts), hooks=(*edits.hooks, *hooks)
        )
        return replace(self._draft, edits=edits, payload=None), tuple(self._collector.findings)

    def _steps(self, steps: tuple[HookStep, ...]) -> tuple[HookStep, ...]:
        """Return the STEPS that the profile enables.

        The step for links is first. The step for forward compatibility is before the step for the loader
        cache.
        """
        enabled = [step for step in (*self._payload.steps, *steps) if step.name in self._profile.hook_steps]
        return tuple(sorted(enabled, key=lambda step: STEPS.index(step.name)))

    # The hook.

    def _hook_program(self) -> HookProgram | None:
        choice = self._profile.hook
        if (
            choice == "none"
            or not self._has_libraries
            or (choice == "auto" and self._profile.layout == "hwcaps")
        ):
            return None
        options = self._options
        files: tuple[str, ...] = (options.nvidia_hook,)
        library = ""
        if choice not in OWN_HOOKS:
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
            return None if choice == "auto" else program
        return program if self._is_trusted(self._host, files, library) else None

    def _interpreter(self) -> tuple[str, str]:
        """Return the Python copy that runs the hook, and the interpreter that was copied.

        If the copy is outdated, return that interpreter and "".
        """
        python = self._options.hook_python
        original = copied_from(self._host, python)
        problem = outdated(self._host, python, original) if self._host and original else ""
        if not problem:
            return python, original
        self._collector.add(
            "warning",
            "hook-python-outdated",
            python,
            f"{python} is not a copy of the present interpreter ({problem}). The hook runs {original}, "
            "which a container with CAP_SYS_PTRACE in its user namespace can read",
            f"'install -m 0711 {original} {python}'",
        )
        return original, ""

    def _is_trusted(self, host: Root, files: tuple[str, ...], library: str) -> bool:
        """Return whether HOST has FILES, and only root can change FILES and the content of LIBRARY."""
        missing = next((path for path in files if not host.exists(path)), "")
        if missing:
            self._collector.add(
                "info" if self._profile.hook == "auto" else "warning",
                "hook-missing",
                missing,
                f"{missing} is missing: no hook runs when a container starts",
                f"install the hook ({_HOOK_PAGE}), or choose 'hook: none' in the profile",
            )
            return False
        problems = [untrusted(path, base=host.outer) for path in files]
        problem = next((text for text in problems if text), "") or untrusted_below(host, library)
        if problem:
            self._collector.add(
                "warning",
                "hook-untrusted",
                files[0],
                f"the hook is not used, because it would run as root, and {problem}",
                "let root own the hook and its folders, and let only root write to them",
            )
        return not problem

    # The layout.

    def _layout(self, program: HookProgram | None) -> str:
        """Return the layout for the files of the payload.

        Without libraries, the layout is ``files``, because layouts differ only for libraries.
        """
        choice = self._profile.layout
        if not self._has_libraries:
            return "files"
        if program is not None and not program.is_own:
            if choice not in {"auto", "files"}:
                self._report_unused_layout(
                    f"the layout {choice} does not work with NVIDIA's hook, which links single files"
                )
            return "named"
        if choice in {"view", "hwcaps"} and self._needs_default_kind(program):
            return "files"
        if choice == "hwcaps":
            problem = self._why_not_capability_folders()
            if problem:
                self._report_unused_layout(f"the layout hwcaps does not work on this host: {problem}")
            return "hwcaps" if not problem and self._has_view(is_requested=True) else "files"
        if choice == "view" or (choice == "auto" and program is not None):
            return self._view_or_files(program, is_requested=choice == "view")
        return "files"

    def _needs_default_kind(self, program: HookProgram | None) -> bool:
        """Return whether only the default kind may use the layout, and the draft has another kind.

        The layout has the same folders for all kinds. Two kinds in a container must not hide the files of
        each other. With a hook, a view can be in any folder.
        """
        layout = self._profile.layout
        if self._draft.kind == DEFAULT_KIND or (layout == "view" and (program or self._payload.prefix)):
            return False
        how = " without a hook" if layout == "view" else ""
        own = f"/{self._profile.device_class}"
        is_of_profile = self._draft.kind.endswith(own) and not self._draft.yields
        self._report_unused_layout(
            f"the layout {layout}{how} is only for {DEFAULT_KIND}: all kinds have the same folders in this "
            "layout, and the files of one kind would hide the files of another kind",
            severity="warning" if is_of_profile else "info",
        )
        return True

    def _view_or_files(self, program: HookProgram | None, *, is_requested: bool) -> str:
        if program is None and self._profile.hook != "none":
            if is_requested:
                self._report_unused_layout("the layout view needs a usable hook, or 'hook: none'")
            return "files"
        if not self._has_view(is_requested=is_requested):
            return "files"
        if program is None and not self._payload.prefix and self._why_not_capability_folders():
            self._collector.add(
                "info",
                "view-without-hook",
                self._draft.kind,
                "without a hook, only images whose programs search /usr/local/nvidia/lib64 (such as CUDA "
                "images) find the libraries of the view",
                "'layout: files' needs no hook",
            )
        return "view"

    def _why_not_capability_folders(self) -> str:
        """Return the reason why loaders on this host do not search the folders of ``hwcaps``, or ""."""
        if not capability_folders(self._payload.architecture):
            return f"{self._payload.architecture} has no hwcaps folders"
        missing = X86_64_V2 - _processor_flags(self._host)
        if missing:
            lacking = ", ".join(sorted(missing))
            return f"hwcaps folders need a processor of level x86-64-v2; {CPUINFO} lacks {lacking}"
        return ""

    def _has_view(self, *, is_requested: bool) -> bool:
        """Find or build the view of the payload, and return whether there is a view.

        If IS_REQUESTED is set and there is no view, report the reason.
        """
        host, state_dir = self._host, self._options.state_dir
        if host is None or not state_dir:
            if is_requested:
                self._report_no_view("an inventory of another host has no files for a view", "")
            return False
        from cdigen.store.views import publishing  # noqa: PLC0415 - few commands use a view

        folders = frozenset(file.host_path for file in self._payload.files if _is_folder(host, file))
        if strays := files_outside_view(self._payload, folders):
            self._report_no_view(
                f"{shown(strays[0])} belongs in {self._payload.prefix}, and a view there cannot contain "
                "sockets or folders",
                "",
            )
            return False
        plan = view_plan(self._payload, left_out=folders)
        try:
            if self._options.make_views:
                view = publishing.publish_view(plan, host, state_dir, copies=self._options.copy_driver_files)
                # The host's Root checks the files of the view later. Its cache must not report that the
                # view's folder does not exist.
                host.forget_missing()
            else:
                found = publishing.find_view(plan, host, state_dir)
                if found is None:
                    if is_requested:
                        hint = "'cdigen generate --write' builds the view"
                        self._report_no_view("no view is published yet", hint, "view-unpublished")
                    return False
                view = found
        except StoreError as error:
            self._report_no_view(error.message, error.hint)
            return False
        separate = frozenset(file.source for file in plan.files if file.path in view.separate)
        self._view = PlacedView(
            source=view.path, target=view_target(self._draft.kind), left_out=folders | separate
        )
        self._collector.findings.extend(view.findings)
        refused = {file.source for file in plan.files if file.path in view.left_out}
        files = tuple(file for file in self._payload.files if file.host_path not in refused)
        self._payload = replace(self._payload, files=files)
        return True

    # Findings.

    def _report_lost_compatibility(self) -> None:
        """Report missing forward compatibility if the profile has the hook step for forward compatibility."""
        enabled = [step.name for step in self._payload.steps if step.name in self._profile.hook_steps]
        if "enable-cuda-compat" in enabled:
            self._collector.add(
                "info",
                "no-forward-compatibility",
                self._draft.kind,
                "without a hook there is no CUDA forward compatibility: an image's newer libcuda "
                "(/usr/local/cuda/compat) is not used automatically",
                f"install the hook ({_HOOK_PAGE}), or set LD_LIBRARY_PATH=/usr/local/cuda/compat in the "
                "containers that need it",
            )

    def _report_unused_layout(self, message: str, severity: Severity = "warning") -> None:
        self._collector.add(
            severity,
            "layout-not-used",
            self._draft.kind,
            f"{message}; the spec mounts single files",
            "set 'layout: auto' in the profile",
        )

    def _report_no_view(self, message: str, hint: str, rule: str = "view-not-made") -> None:
        self._collector.add(
            "warning",
            rule,
            self._draft.kind,
            f"the spec mounts single files, because there is no view with all of them: {message}",
            hint,
        )


def _is_folder(host: Root, file: DriverFile) -> bool:
    """Return whether FILE is a folder.

    A view cannot contain a folder as a file. Some of Tegra's file lists contain folders.
    """
    try:
        return file.kind not in {"library", "library32", "binary"} and stat.S_ISDIR(
            host.stat(file.host_path).st_mode
        )
    except OSError:
        return False


def _processor_flags(host: Root | None) -> frozenset[str]:
    """Return the kernel's names of the features of the host's processor.

    If the features are unknown, the result is empty.
    """
    try:
        text = host.read(CPUINFO, limit=1 << 22).decode("ascii", "replace") if host else ""
    except OSError:
        return frozenset()
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split())

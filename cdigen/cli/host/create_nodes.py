"""The command ``cdigen create-nodes``: create the device nodes that the kernel does not create.

cdigen-nodes.service runs this command at boot.
"""

from __future__ import annotations

import os
import sys

from cdigen import config
from cdigen.cli.shared import discovery_options, options, own_package, report
from cdigen.cli.shared.argument_checks import DISCOVERY_OPTIONS
from cdigen.cli.shared.option_table import add
from cdigen.host.containers import uses_host_kernel
from cdigen.host.root import shown
from cdigen.model.errors import HostError, StoreError
from cdigen.model.findings import errors
from cdigen.pipeline.driver.device_nodes import create_nodes, untrusted_sources, with_missing_nodes
from cdigen.pipeline.driver.kernel_modules import is_driver_loaded, load_modules
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cdigen.config import Settings
    from cdigen.host.root import Root
    from cdigen.model.findings import Finding
    from cdigen.vendors.base import BootNodes

EXAMPLES = """\
  cdigen create-nodes           load modules such as nvidia-uvm and create the device nodes
  cdigen create-nodes --json    the same, with the results as JSON
"""

# The time limit for a driver to initialize 16 GPUs. TimeoutStartSec= of cdigen-nodes.service is longer than
# this limit plus the time to load the modules.
DRIVER_DEADLINE_S = 30.0
_CHANGES = frozenset({"kernel-module-loaded", "node-created", "node-link-created"})


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    options.add_root_options(parser)
    add(parser.add_argument_group("discovery"), "--dev-root")
    # This command has only --dev-root. The configuration has the values of the others, except for NVML (off).
    parser.set_defaults(**dict.fromkeys(DISCOVERY_OPTIONS), vendor=None)
    parser.set_defaults(nvml="off")


def run(arguments: Namespace) -> int:
    """Run the command; return the exit code or raise a CdigenError."""
    host, settings = options.host_and_settings(arguments)
    # Before systemd starts the service, systemd itself checks for a container (ConditionVirtualization=).
    if host.is_this_machine and not _is_service() and uses_host_kernel():
        raise HostError(
            "this is a container: only the host can load kernel modules and create device nodes",
            hint="run 'cdigen create-nodes' on the host",
            kind="in-container",
        )
    findings: list[Finding] = []
    failures: list[HostError | StoreError] = []
    for name in discovery_options.vendor_names(arguments, settings):
        boot = registry.boot_nodes(name)
        try:
            findings += _create(arguments, host, settings, boot) if boot is not None else ()
        except Exception as error:  # noqa: BLE001 - a defect of one vendor's code must not affect others
            failures.append(registry.vendor_defect(name, error))
    if failures and not findings:
        raise failures[0]
    if arguments.json:
        report.print_json([{**finding.row(), "changed": finding.rule in _CHANGES} for finding in findings])
    for finding in findings:
        if finding.severity == "info":
            report.print_note(finding.message, arguments)
    report.print_findings((finding for finding in findings if finding.severity == "warning"), arguments)
    failed = errors(findings)
    if failed and os.geteuid() != 0:
        hint = own_package.as_root(*sys.argv[1:])
        return report.print_errors([StoreError("create-nodes changes the host: needs root", hint=hint)])
    failures += [StoreError(finding.message, hint=finding.hint, kind=finding.rule) for finding in failed]
    return report.print_errors(failures)


def _create(arguments: Namespace, host: Root, settings: Settings, boot: BootNodes) -> tuple[Finding, ...]:
    if not is_driver_loaded(host, boot.drivers, deadline_s=DRIVER_DEADLINE_S):
        report.print_note(f"the kernel module {boot.drivers[0]} is not loaded: nothing to create", arguments)
        return ()
    context = discovery_options.context(arguments, host, settings)
    if not boot.applies(context):
        return ()
    if host.is_this_machine:
        loaded = load_modules(host, boot.modules)
        context = discovery_options.context(arguments, host, settings)
    else:
        own = (config.DEFAULT_PATH,) if arguments.config is None else ()
        roots = (settings.driver_root, arguments.dev_root or settings.dev_root)
        if problem := untrusted_sources(boot, context, *own, *filter(None, roots)):
            raise HostError(
                f"no device node is created below {shown(host.outer)}: {problem}",
                hint="use a tree that only root can change",
                kind="root-untrusted",
            )
        loaded = ()
        report.print_note("kernel modules are skipped with --root: they need a running system", arguments)
    findings = (*loaded, *create_nodes(boot, context))
    return with_missing_nodes(findings, boot, context, severity="info" if _is_service() else "error")


def _is_service() -> bool:
    """Return whether systemd has started this process, as in cdigen-nodes.service (systemd.exec(5)).

    The service does not fail if the administrator has excluded a module or disabled the creation of nodes.
    """
    return os.getppid() == 1 and "INVOCATION_ID" in os.environ

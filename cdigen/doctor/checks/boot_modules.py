"""Modules that must be loaded after a driver, and the service that loads them and creates nodes at boot."""

from __future__ import annotations

import shlex

from cdigen.doctor.checks.driver import CAUSES
from cdigen.doctor.result import Remedy, Topic
from cdigen.host.kernelmodules import module_exclusion, module_state
from cdigen.host.procfs import kernel_release
from cdigen.runtimes.units import is_enabled
from cdigen.vendors import registry
from cdigen.vendors.kernel.nodes import node_remedy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.doctor.context import Context
    from cdigen.doctor.result import CheckResult
    from cdigen.vendors.base import BootModule

TOPIC = Topic(name="nodes")
MODULES = "node-modules"
_UNIT = "cdigen-nodes.service"
# The last two start the first.
_UNITS = (_UNIT, "cdigen.service", "cdigen-once.service")


def at_boot(context: Context, *, is_by_module: bool = True) -> str:
    """Return the step that creates missing nodes at each boot, as the continuation of a sentence.

    If IS_BY_MODULE is set, loading the driver's modules is enough. The result is empty if the service that
    creates nodes is enabled, or if the kernel creates the nodes.
    """
    vendors = filter(context.concerns, (*context.inventories, *context.failures))
    boots = [boot for boot in map(registry.boot_nodes, vendors) if boot is not None]
    if any(is_enabled(context.host, unit) for unit in _UNITS) or not any(
        boot.applies(context.request.discovery_context) for boot in boots
    ):
        return ""
    if not is_by_module:
        return f"; to repeat this at each boot, enable {_UNIT}"
    needed = ", ".join(module.name for boot in boots for module in boot.modules if module.is_required)
    return f"; to repeat this at each boot, enable {_UNIT}, or list {needed} in /etc/modules-load.d"


def unloaded_modules(context: Context) -> Iterator[CheckResult]:
    """Report the installed modules that are not loaded, although only some containers need them.

    A missing module that all containers need is the reason for a missing node, which the check of the nodes
    reports.
    """
    release = kernel_release(context.host)
    installed = context.text(f"/lib/modules/{release}/modules.dep", limit=4 << 20) if release else ""
    for name in filter(context.concerns, context.inventories):
        boot = registry.boot_nodes(name)
        if boot is None or not boot.applies(context.request.discovery_context):
            continue
        for module in boot.modules:
            if module.is_required or not any(f"/{each}.ko" in installed for each in _file_names(module)):
                continue
            if module_exclusion(context.host, module.name, module.kernel_names):
                continue
            if any(module_state(context.host, each) for each in module.kernel_names):
                yield TOPIC.passed(MODULES, f"the module {module.name} is loaded")
                continue
            command = Remedy(
                argv=tuple(shlex.split(node_remedy(context.host, context.request.discovery_context.dev))),
                why="load the module",
            )
            text = f"the module {module.name} is not loaded: {module.without}"
            yield TOPIC.warning(MODULES, text, (command,), because=CAUSES)


def _file_names(module: BootModule) -> tuple[str, ...]:
    names = (module.name, *module.kernel_names)
    return (*names, *(name.replace("_", "-") for name in names))

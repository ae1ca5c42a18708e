"""The options of all commands: ``OPTIONS`` has the arguments of ``add_argument`` for each option."""

from __future__ import annotations

from argparse import ArgumentTypeError

from cdigen.config import DEFAULT_PATH, MODES
from cdigen.model.profile import HOOKS, LAYOUTS, NAMINGS, is_naming
from cdigen.vendors.registry import NAMES, VENDORS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import _ActionsContainer
    from collections.abc import Iterator
    from typing import Any


def not_empty(text: str) -> str:
    """Return TEXT, the value of an option; raise ArgumentTypeError if it is empty.

    argparse adds the name of the option to the error.
    """
    if not text:
        raise ArgumentTypeError("must not be empty")
    return text


class _Namings:
    """The valid values of --naming, for argparse; an iteration yields the namings of cdigen's vendors.

    The set contains each valid name of a naming, because a vendor of another package can have other namings.
    """

    def __iter__(self) -> Iterator[str]:
        return iter(NAMINGS)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and is_naming(word)


def _flag(text: str) -> dict[str, Any]:
    return {"action": "store_true", "help": text}


def _value(metavar: str, text: str, **more: Any) -> dict[str, Any]:
    return {"metavar": metavar, "type": not_empty, "help": text, **more}


def _values(metavar: str, text: str, **more: Any) -> dict[str, Any]:
    return _value(metavar, text, action="append", **more)


def _choice(choices: tuple[str, ...], text: str, default: str | None = None) -> dict[str, Any]:
    return {"choices": choices, "help": text, "default": default}


_STRATEGIES = ("binpack", "spread")

# fmt: off
OPTIONS = {
    # Options of most commands.
    "--config": _value("FILE", f"the configuration (default: {DEFAULT_PATH})"),
    "--json": _flag("print one JSON document and nothing else on stdout"),
    "--root": _value("DIR", "use the folder DIR as the host", default="/"),
    "--run-dir": _value("DIR", "the run directory of the daemon"),
    "--spec-dir": _values("DIR",
        "a spec directory instead of the default ones; repeatable, the last has priority"),
    "--standby": _flag("if another instance serves this host, wait until it ends, then take over at once"),
    "--dry-run": _flag("print the result, and remove nothing"),
    # The discovery of devices.
    "--vendor": _values("NAME", f"only this vendor: {', '.join(VENDORS)}, or a vendor of another package",
        type=None, choices=NAMES),
    "--driver-root": _value("DIR", "the folder with the driver's files (a driver container)"),
    "--dev-root": _value("DIR", "the folder with the device nodes"),
    "--library-search-path": _values("DIR", "search libraries only in DIR"),
    "--binary-search-path": _values("DIR", "search programs only in DIR"),
    "--config-search-path": _values("DIR", "search data files only in DIR"),
    "--mode": _choice(MODES, "the kind of host (default: auto)"),
    "--nvml": _value("auto|off|PATH", "whether to query NVML for data that /proc and /sys lack"),
    "--inventory": _value("FILE", "an inventory ('cdigen inspect --json') instead of a host"),
    "--strict": _flag("fail if a requested vendor has no devices or is incomplete"),
    # The selection and the form of specs.
    "--kind": _values("KIND", "only this kind, such as nvidia.com/gpu"),
    "--profile": _values("NAME", "only this profile of the configuration"),
    "--naming": _values("NAMING",
        f"name devices by {', '.join(NAMINGS)}, or by a naming of another package's vendor (repeatable; "
        "default: the naming of the vendor)", type=None, choices=_Namings()),
    "--target": _values("RUNTIME",
        "write specs that this runtime release can read, such as podman-4.3 or containerd-1.7.24; without a "
        "patch level, the oldest release of the series applies; repeatable, the strictest target applies "
        "(default: the key target of the configuration)"),
    "--layout": _choice(LAYOUTS,
        "how containers get the driver's files (default: the layout of the profile, or auto)"),
    "--hook": _choice(HOOKS,
        "the hook that runs when a container starts (default: the hook of the profile, or auto)"),
    "--container-driver-root": _value("DIR", "containers get the driver's files in DIR"),
    # cdigen generate
    "--write": _flag("write into the last spec directory, one file per kind"),
    "--output": _value("FILE", "write into FILE"),
    "--output-dir": _value("DIR", "write into DIR, one file per kind"),
    "--format": _choice(("json", "yaml"), "the format (default: json)", "json"),
    "--replace-foreign": _flag("move a clashing foreign spec aside (with --write)"),
    "--withdraw": _flag(
        "remove cdigen's specs of vendors and kinds that the host no longer has (with --write)"),
    # cdigen configure
    "--undo": _flag("restore the files as they were before this command changed them"),
    "--nri": _flag("also enable NRI (containerd, crio)"),
    "--nri-required": _flag(
        "like --nri, and no container starts without the plugin (containerd 2.2, CRI-O 1.34)"),
    "--rootless": _flag("configure the rootless Docker of the user who runs this command (docker)"),
    "--restart": _flag("restart the runtime after a change"),
    # cdigen docker-args
    "--form": _choice(("cdi", "classic"),
        "cdi: CDI names; classic: nodes, groups and a volume, for engines without CDI (default: cdi)", "cdi"),
    # cdigen doctor
    "--for": _values("RUNTIME", "", type=None, dest="runtimes"),
    "--device": _values("NAME", "check only this device, such as nvidia.com/gpu=0"),
    "--user": _value("NAME", "check the rootless containers of this user (default: the present user)"),
    "--migrate": _value("FILE",
        "print the leftovers of NVIDIA's, AMD's and Intel's tools, and the steps to cdigen, without changes; "
        "with FILEs (scripts, unit and compose files): their requests for GPUs, and replacements",
        type=None, nargs="*"),
    "--bundle": _value("FILE", "pack the evidence into FILE (tar.gz)"),
    # cdigen extender
    "--kubeconfig": _value("FILE", "the kubeconfig for the API server, for GPUs that are shared by memory"),
    "--resource": _value("NAME", "resource of memory units (default: aliyun.com/gpu-mem)"),
    "--count-resource": _value("NAME", "resource of the number of GPUs (default: aliyun.com/gpu-count)"),
    "--strategy": _choice(_STRATEGIES,
        "fill GPUs one after the other, or use the emptiest (default: binpack)", "binpack"),
    "--node-strategy": _choice(_STRATEGIES,
        "prefer the fullest nodes, or the emptiest (default: as --strategy)"),
    "--listen": _value("HOST:PORT", ""),
    "--tls-cert": _value("FILE", "certificate of the extender; with it, only TLS is served"),
    "--tls-key": _value("FILE", "private key, if the file of --tls-cert does not contain it"),
    "--client-ca": _value("FILE", "CA of client certificates; with it, clients need a certificate"),
    "--client-name": _values("NAME",
        "common name or alternative name of client certificates (repeatable; default: any)"),
    "--token-file": _value("FILE",
        "token that clients must send, as Bearer token or as password of Basic authentication"),
    # cdigen health
    "--mark": _value("DEVICE",
        "mark a device as unhealthy until --clear: a CDI name, number, UUID or PCI address"),
    "--reason": _value("TEXT", "the reason for --mark, one line of at most 200 characters", type=str),
    "--clear": _value("DEVICE",
        "remove the mark from a device, and clear causes that are events (Xids, resets, PCIe errors); causes "
        "that the daemon still finds remain"),
    # cdigen inspect
    "--stats": _flag(
        "show statistics of the devices instead: memory, utilization, temperature, power, processes"),
    # cdigen install-service
    "--remove": _flag(
        "stop the services, withdraw the specs, remove state, views and the files of this command"),
    "--no-start": _flag("only install the files; enable, start and restart nothing"),
    "--prefix": _value("DIR", "install below DIR (default: /usr)", default="/usr"),
    "--destdir": _value("DIR", "use DIR as /; this host is not changed, and no service is started"),
    # cdigen kubelet
    "--kubelet-dir": _value("DIR", ""),
    "--node-name": _value("NAME", "the name of this node at the API server (default: the host's name)"),
    "--daemon-run-dir": _value("DIR",
        "the run directory of 'cdigen run', which reports devices and health (default: daemon.run_dir in the "
        "configuration)"),
    # cdigen nri
    "--socket": _value("PATH", "the runtime's socket for plugins"),
    "--index": _value("NN", "the position among plugins, 00 to 99 (default: 20)"),
    "--name": _value("NAME", "the name of the plugin"),
    # cdigen resolve
    "--env": _values("KEY=VALUE", "a variable of the container; repeatable", type=str),
    "--image-config": _value("FILE",
        "the output of 'podman image inspect' or 'docker image inspect' for the container's image (-: "
        "standard input); --env overrides the variables of the image"),
    "--annotation": _values("KEY=VALUE", "an annotation of the pod; repeatable", type=str),
    "--label": _values("KEY=VALUE", "a label of the pod; repeatable", type=str),
    "--namespace": _value("NAME", "the namespace of the pod (default: default)", default="default"),
    "--runtime-handler": _value(
        "NAME", "the runtime handler of the pod (default: none)", type=str, default=""),
    "--container": _value("NAME", "the name of the container", type=str, default=""),
    "--mount": _values("SOURCE:PATH", "a mount of SOURCE, a path of the host, at PATH; repeatable"),
    "--privileged": _flag("the container is privileged"),
    "--device-node": _values("PATH", "a device node that the container already has; repeatable"),
    "--cdi-device": _values("NAME", "a CDI device that the container already has; repeatable"),
    # cdigen topology
    "--svg": _value("FILE", "draw a picture into FILE ('/dev/stdout' prints it) instead of the matrix"),
    # cdigen validate
    "--host": _flag("also compare the paths with this host (see --root)"),
    "--loader": _values("VERSION",
        "check whether this version of the CDI library loads FILE, such as 0.8.0 or next; if not, or if this "
        "is unknown, exit with 1; repeatable", type=str, default=[]),
    "--schema": _flag("apply the JSON Schema also to specs with thousands of mounts"),
    # cdigen withdraw
    "--with-hook": _flag(
        "only specs that run cdigen's hook; without the hook, containers with these specs do not start"),
}
# fmt: on


def add(to: _ActionsContainer, *names: str, **changes: Any) -> None:
    """Add the options NAMES to TO, a parser or a group; CHANGES replace arguments of ``add_argument``."""
    for name in names:
        to.add_argument(name, **{**OPTIONS[name], **changes})


def takes_value(name: str) -> bool:
    """Return whether NAME is an option with exactly one value."""
    row = OPTIONS.get(name, _flag(""))
    return row.get("action") != "store_true" and "nargs" not in row

"""Options that say which specs to generate, and what becomes of them: ``GenerateOptions``."""

from __future__ import annotations

from cdigen.cli import discovery_options, options
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.model.profile import HOOKS, LAYOUTS, NAMINGS, is_naming
from cdigen.pipeline.delivery import DeliveryOptions
from cdigen.pipeline.generate import GenerateOptions
from cdigen.value import replace
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from cdigen.config import Settings
    from cdigen.host.root import Root
    from cdigen.model.profile import Profile
    from cdigen.runtimes.targets import Target


class _Namings:
    """The namings that may be given: those of the tree's vendors, and any that another package may have."""

    def __iter__(self) -> Iterator[str]:
        return iter(NAMINGS)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and is_naming(word)


def add_options(parser: ArgumentParser, *, note: str | None = None) -> None:
    """Add the options that say which specs are wanted, and how; NOTE stands above them in the help."""
    group = parser.add_argument_group("which specs", note)
    group.add_argument(
        "--kind", metavar="KIND", action="append", help="only this kind, such as nvidia.com/gpu"
    )
    group.add_argument(
        "--profile", metavar="NAME", action="append", help="only this profile of the configuration"
    )
    group.add_argument(
        "--naming",
        metavar="HOW",
        action="append",
        choices=_Namings(),
        help=f"name devices by {', '.join(NAMINGS)}, or as a vendor of another package has it (repeat it; "
        "default: the vendor's own)",
    )
    group.add_argument(
        "--target",
        metavar="RUNTIME",
        action="append",
        help="make it fit a runtime, such as podman-4.3 or containerd-1.7.24; without a patch level the "
        "oldest of the series is meant; repeat it, the strictest counts",
    )
    group.add_argument(
        "--layout",
        choices=LAYOUTS,
        help="how the driver's files reach containers (default: the profile's, which is auto)",
    )
    group.add_argument(
        "--hook",
        choices=HOOKS,
        help="what runs when a container starts (default: the profile's, which is auto)",
    )
    group.add_argument(
        "--container-driver-root", metavar="DIR", help="containers get the driver's files below DIR"
    )


def generate_options(arguments: Namespace, settings: Settings) -> GenerateOptions:
    """Return what ARGUMENTS and SETTINGS ask for; raises ConfigError."""
    given = options.absolute("--container-driver-root", arguments.container_driver_root)
    return GenerateOptions(
        profiles=_profiles(arguments, settings),
        kinds=options.kinds(arguments),
        target=_target(arguments),
        container_driver_root=given or settings.container_driver_root,
    )


def _profiles(arguments: Namespace, settings: Settings) -> tuple[Profile, ...]:
    known = {profile.name: profile for profile in settings.offered_profiles}
    wanted = arguments.profile or known
    for name in wanted:
        if name not in known:
            raise ConfigError(
                f"--profile {shown(name)!r} is not configured", hint=f"configured are {', '.join(known)}"
            )
    for naming in arguments.naming or ():
        if not registry.has_naming(naming, discovery_options.vendor_names(arguments, settings)):
            raise ConfigError(
                f"--naming {naming} is of none of the vendors that are asked",
                hint=f"any vendor may have {', '.join(NAMINGS)}; others are those of packages that are named",
            )
    given: dict[str, object] = {
        "names": tuple(dict.fromkeys(arguments.naming or ())),
        "layout": arguments.layout,
        "hook": arguments.hook,
    }
    changes = {name: value for name, value in given.items() if value}
    return tuple(replace(known[name], **changes) for name in dict.fromkeys(wanted))


def delivery_options(arguments: Namespace, host: Root, settings: Settings, *, write: bool) -> DeliveryOptions:
    """Return by what the driver's files may reach containers; only with WRITE is anything made for it."""
    return DeliveryOptions(
        hook_script=settings.hook,
        hook_python=settings.hook_python,
        nvidia_hook=settings.nvidia_hook,
        state_dir="" if arguments.inventory else options.outer_directory(host, settings.state_dir),
        make_views=write,
        view_copies=settings.view_copies,
    )


def _target(arguments: Namespace) -> Target | None:
    if not arguments.target:
        return None
    from cdigen.runtimes import targets  # noqa: PLC0415 - only where it is asked for

    return targets.strictest(tuple(targets.parse(text) for text in arguments.target))

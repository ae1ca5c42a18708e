"""The options that select the specs to generate, and the resulting ``GenerateOptions``."""

from __future__ import annotations

from cdigen.cli.shared import discovery_options, options
from cdigen.cli.shared.option_table import add
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.model.profile import NAMINGS, capability_profiles
from cdigen.pipeline.delivery import DeliveryOptions
from cdigen.pipeline.generate import GenerateOptions
from cdigen.value import replace
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cdigen.config import Settings
    from cdigen.host.root import Root
    from cdigen.model.profile import Profile
    from cdigen.runtimes.targets import Target


def add_options(parser: ArgumentParser, *, note: str | None = None) -> None:
    """Add the options that select specs and their form; the help prints NOTE above these options."""
    group = parser.add_argument_group("specs", note)
    add(group, "--kind", "--profile", "--naming", "--target", "--layout", "--hook", "--container-driver-root")


def explicit_settings(arguments: Namespace) -> dict[str, object]:
    """Return the values of configuration keys that ARGUMENTS set; raise ConfigError for an invalid path."""
    explicit: dict[str, object] = {
        "target": tuple(dict.fromkeys(arguments.target or ())),
        "driver_root": options.absolute("--driver-root", arguments.driver_root),
        "dev_root": options.absolute("--dev-root", arguments.dev_root),
        "container_driver_root": options.absolute("--container-driver-root", arguments.container_driver_root),
        "library_search_paths": tuple(arguments.library_search_path or ()),
        "binary_search_paths": tuple(arguments.binary_search_path or ()),
        "config_search_paths": tuple(arguments.config_search_path or ()),
        "mode": arguments.mode,
        "nvml": arguments.nvml,
    }
    return {key: value for key, value in explicit.items() if value}


def explicit_profile_settings(arguments: Namespace) -> dict[str, object]:
    """Return the values that options of ARGUMENTS set in every profile, by key."""
    explicit: dict[str, object] = {
        "names": tuple(dict.fromkeys(arguments.naming or ())),
        "layout": arguments.layout,
        "hook": arguments.hook,
        "target": tuple(dict.fromkeys(arguments.target or ())),
    }
    return {key: value for key, value in explicit.items() if value}


def selected_profiles(arguments: Namespace, settings: Settings) -> tuple[Profile, ...]:
    """Return the profiles that ARGUMENTS select, with the options of ARGUMENTS, or raise ConfigError."""
    known = {profile.name: profile for profile in settings.effective_profiles}
    selected = arguments.profile or known
    for name in selected:
        if name not in known:
            raise ConfigError(
                f"--profile {shown(name)!r} is not configured", hint=f"configured: {', '.join(known)}"
            )
    for naming in arguments.naming or ():
        if not registry.has_naming(naming, discovery_options.vendor_names(arguments, settings)):
            raise ConfigError(
                f"--naming {naming}: none of the selected vendors has this naming",
                hint=f"use one of {', '.join(NAMINGS)}, or name the vendor of another package with --vendor",
            )
    return tuple(
        replace(known[name], **explicit_profile_settings(arguments)) for name in dict.fromkeys(selected)
    )


def generate_options(arguments: Namespace, settings: Settings) -> GenerateOptions:
    """Return the options that ARGUMENTS and SETTINGS define, or raise ConfigError."""
    driver_root = options.absolute("--container-driver-root", arguments.container_driver_root)
    return replace(
        configured_options(settings, selected_profiles(arguments, settings), tuple(arguments.target or ())),
        kinds=options.kinds(arguments),
        container_driver_root=driver_root or settings.container_driver_root,
    )


def configured_options(
    settings: Settings, profiles: tuple[Profile, ...] = (), target: tuple[str, ...] = ()
) -> GenerateOptions:
    """Return the options of SETTINGS; non-empty PROFILES and TARGET replace the configured values.

    Raises ConfigError for an invalid target.
    """
    profiles = profiles or settings.effective_profiles
    every = (*profiles, *capability_profiles(profiles))
    return GenerateOptions(
        profiles=profiles,
        target=_strictest(target or settings.target),
        class_targets=tuple(
            (profile.device_class, own) for profile in every if (own := _strictest(profile.target))
        ),
        container_driver_root=settings.container_driver_root,
    )


def _strictest(texts: tuple[str, ...]) -> Target | None:
    if not texts:
        return None
    from cdigen.runtimes import targets  # noqa: PLC0415 - only with a target

    return targets.strictest(tuple(targets.parse(text) for text in texts))


def delivery_options(arguments: Namespace, host: Root, settings: Settings, *, write: bool) -> DeliveryOptions:
    """Return the options for the delivery of driver files; cdigen builds views only if WRITE is true."""
    return DeliveryOptions(
        hook_script=settings.hook,
        hook_python=settings.hook_python,
        nvidia_hook=settings.nvidia_hook,
        state_dir="" if arguments.inventory else options.outer_directory(host, settings.state_dir),
        make_views=write,
        copy_driver_files=settings.copy_driver_files,
    )

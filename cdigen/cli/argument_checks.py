"""Refuse arguments that name missing things or have no effect: silence would look like success."""

from __future__ import annotations

import os
import stat

from cdigen.cli import report
from cdigen.host.root import reason, shown
from cdigen.model.errors import ConfigError, StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from cdigen.host.root import Root
    from cdigen.vendors.base import DiscoveryContext

# What says where to look on a host; an inventory is what was found there.
_WHERE_TO_LOOK = (
    "driver_root", "dev_root", "library_search_path", "binary_search_path", "config_search_path", "mode",
    "nvml",
)  # fmt: skip


def require_folders(option: str, paths: list[str] | None, *, hint: str) -> None:
    """Raise ConfigError where one of PATHS, folders of this machine that OPTION named, is not there.

    A link to a folder passes: whoever reads the folder judges it.
    """
    for path in paths or ():
        try:
            is_folder = stat.S_ISDIR(os.stat(path).st_mode)
        except FileNotFoundError:
            raise ConfigError(f"{option} {shown(path)} does not exist", hint=hint) from None
        except OSError as error:
            raise ConfigError(f"{option} {shown(path)}: {reason(error)}", hint=hint) from None
        except ValueError:
            raise ConfigError(f"{option} {shown(path)} is not a path", hint=hint) from None
        if not is_folder:
            raise ConfigError(f"{option} {shown(path)} is not a folder", hint=hint)


def require_spec_directories(arguments: Namespace) -> None:
    """Raise ConfigError where a spec directory that a command is to read was named and is not there."""
    hint = "name a directory that holds specs; the default ones need not exist"
    require_folders("--spec-dir", arguments.spec_dir, hint=hint)


def require_sources(arguments: Namespace, where: DiscoveryContext) -> None:
    """Raise ConfigError where a search path or an NVML library was named and is not there."""
    for option, paths in (
        ("--library-search-path", arguments.library_search_path),
        ("--binary-search-path", arguments.binary_search_path),
        ("--config-search-path", arguments.config_search_path),
    ):
        for path in paths or ():
            _require_folder_of(where.driver, option, path)
    library = arguments.nvml
    if library is not None and library.startswith("/") and not os.path.isfile(library):
        raise ConfigError(
            f"--nvml {shown(library)} is not a file that exists",
            hint="name the driver's libnvidia-ml.so.1, or give auto or off",
        )


def _require_folder_of(driver: Root, option: str, path: str) -> None:
    try:
        problem = "" if stat.S_ISDIR(driver.located(path)[1].st_mode) else "is not a folder"
    except FileNotFoundError:
        problem = "does not exist"
    except OSError as error:
        problem = f"cannot be searched: {reason(error)}"
    if problem:
        below = f" below {shown(driver.outer)}" if driver.outer else ""
        raise ConfigError(
            f"{option} {shown(path)} {problem}{below}",
            hint="name a folder of the driver root, as the driver sees it",
        )


def note_missing_spec_directories(arguments: Namespace) -> None:
    """Say which spec directories were named and are not there, to a command that writes nothing."""
    for path in arguments.spec_dir or ():
        if not os.path.lexists(path):
            report.print_note(
                f"--spec-dir {shown(path)} does not exist, and only --write makes it", arguments
            )


def refuse_beside_inventory(arguments: Namespace) -> None:
    """Raise ConfigError where an option says where to look although an inventory says what was found."""
    given = [name for name in _WHERE_TO_LOOK if getattr(arguments, name) is not None]
    if given:
        raise ConfigError(
            f"--{given[0].replace('_', '-')} has no meaning with --inventory, which says what was found",
            hint="give it to 'cdigen inspect --json' on the host itself",
        )


def require_parent(option: str, path: str) -> None:
    """Raise StoreError where the folder of the file PATH, which OPTION named, is not there."""
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.lexists(folder):
        raise StoreError(
            f"{option} {shown(path)}: the folder {shown(folder)} does not exist",
            hint="make it with 'mkdir -p', or name another file",
        )

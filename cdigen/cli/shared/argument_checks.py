"""Reject arguments that have no effect, and paths in arguments that do not exist.

If cdigen ignored such an argument, the command would appear successful.
"""

from __future__ import annotations

import os
import stat

from cdigen.cli.shared import report
from cdigen.host.root import reason, shown
from cdigen.model.errors import ConfigError, StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from cdigen.host.root import Root
    from cdigen.vendors.context import DiscoveryContext

# The options of a discovery. They have no effect with an inventory, because no discovery runs.
DISCOVERY_OPTIONS = (
    "driver_root", "dev_root", "library_search_path", "binary_search_path", "config_search_path", "mode",
    "nvml",
)  # fmt: skip


def require_folders(option: str, paths: list[str] | None, *, hint: str) -> None:
    """Raise ConfigError if one of PATHS is not an existing folder.

    PATHS are the values of OPTION. They are paths on this machine. A link to a folder is valid. The code that
    reads the folder checks the link.
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
    """Raise ConfigError if a command that reads specs has a --spec-dir that does not exist."""
    hint = "use an existing directory with specs, or omit --spec-dir"
    require_folders("--spec-dir", arguments.spec_dir, hint=hint)


def require_sources(arguments: Namespace, where: DiscoveryContext) -> None:
    """Raise ConfigError if a search path or an NVML library that an option names does not exist."""
    for files in ("library", "binary", "config"):
        for path in getattr(arguments, f"{files}_search_path") or ():
            _require_folder_of(where.driver, f"--{files}-search-path", path)
    library = arguments.nvml
    if library is not None and library.startswith("/") and not os.path.isfile(library):
        raise ConfigError(
            f"--nvml {shown(library)} is not a file",
            hint="--nvml auto, off, or the path of the driver's libnvidia-ml.so.1",
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
            hint="a path such as /usr/lib64 starts at the driver root",
        )


def note_missing_spec_directories(arguments: Namespace) -> None:
    """Print a note for each missing directory of --spec-dir, in a command that writes nothing."""
    for path in arguments.spec_dir or ():
        if not os.path.lexists(path):
            report.print_note(f"--spec-dir {shown(path)} does not exist; only --write creates it", arguments)


def refuse_beside_inventory(arguments: Namespace) -> None:
    """Raise ConfigError if ARGUMENTS contain both --inventory and an option of discovery."""
    explicit = [name for name in DISCOVERY_OPTIONS if getattr(arguments, name) is not None]
    if explicit:
        raise ConfigError(
            f"--{explicit[0].replace('_', '-')} has no effect with --inventory: nothing is discovered",
            hint="use the option with 'cdigen inspect --json' on the host of the inventory",
        )


def require_parent(option: str, path: str) -> None:
    """Raise StoreError if the folder of the file PATH (the value of OPTION) does not exist."""
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.lexists(folder):
        raise StoreError(
            f"{option} {shown(path)}: the folder {shown(folder)} does not exist",
            hint=f"mkdir -p {shown(folder)}",
        )

"""The Python modules that cdigen imports from other packages, and the commands that install them."""

from __future__ import annotations

import sys

from cdigen.model.errors import ConfigError

# Module -> (its Python package, package of Debian and Ubuntu). RPM distributions provide each module as
# python3dist(PACKAGE) (Fedora's Python packaging guidelines).
_PACKAGES = {
    "google": ("protobuf", "python3-protobuf"),
    "grpc": ("grpcio", "python3-grpcio"),
    "jsonschema": ("jsonschema", "python3-jsonschema"),
    "prometheus_client": ("prometheus-client", "python3-prometheus-client"),
    "structlog": ("structlog", "python3-structlog"),
    "tomlkit": ("tomlkit", "python3-tomlkit"),
    "watchdog": ("watchdog", "python3-watchdog"),
    "yaml": ("pyyaml", "python3-yaml"),
}


def missing_module(error: ImportError) -> ConfigError | None:
    """Return the error for users if ERROR is about a missing module of another package, otherwise None."""
    module = (error.name or "").partition(".")[0]
    if module not in _PACKAGES or not isinstance(error, ModuleNotFoundError):
        return None
    return ConfigError(
        f"this command needs the Python module {module}, which is not installed",
        hint=installation(module),
        kind="module-missing",
    )


def installation(module: str) -> str:
    """Return the command that installs MODULE for this cdigen."""
    from cdigen.cli.shared import own_package  # noqa: PLC0415 - only for a hint

    package, of_debian = _PACKAGES[module]
    if command := own_package.addition(package):
        return command
    if sys.prefix != sys.base_prefix:
        return f"{sys.executable} -m pip install {package}"
    return f"apt install {of_debian} (Debian, Ubuntu); dnf install 'python3dist({package})' (Fedora, EPEL)"

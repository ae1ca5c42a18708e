"""Errors by who must act; the command line turns each into one line and an exit code.

``CdigenError`` is the base: a message (what, where, the value) and a hint (the next step).
"""


class CdigenError(Exception):
    """Report a failure that ends the command.

    ``kind`` is the machine-readable name that ``--json`` prints; ``exit_code`` is the documented
    status of the process.
    """

    exit_code = 1
    default_kind = "error"

    def __init__(self, message: str, *, hint: str = "", kind: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.kind = kind or self.default_kind


class ConfigError(CdigenError):
    """Report wrong usage or configuration: whoever typed it must act."""

    exit_code = 2
    default_kind = "usage"


class HostError(CdigenError):
    """Report a host that is not ready: no GPU, no driver, versions that differ.

    ``driver`` is the version of the kernel's driver, if one runs that has no devices to offer.
    """

    exit_code = 3
    default_kind = "host-not-ready"
    driver = ""


class SpecError(CdigenError):
    """Report a computed spec that breaks a rule or would clash, and was not written."""

    exit_code = 4
    default_kind = "spec-invalid"


class StoreError(CdigenError):
    """Report reading or writing that failed: permission, space, a read-only file system."""

    exit_code = 5
    default_kind = "io"

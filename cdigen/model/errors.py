"""The errors of cdigen, with one class per kind of necessary action.

The command line prints each error as one line and ends with its exit code. ``CdigenError`` is the base class.
An error has a message (object, problem, value) and a hint (the next step).
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


def described(error: Exception) -> str:
    """Return the type and the text of ERROR in one line of at most 300 characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")[:300]


class ConfigError(CdigenError):
    """Report wrong usage of the command line, or a wrong configuration."""

    exit_code = 2
    default_kind = "usage"


class HostError(CdigenError):
    """Report a host that is not ready: no GPU, no driver, versions that differ.

    If a kernel driver is loaded but has no usable device, ``driver`` is its version. Otherwise it is empty.
    """

    exit_code = 3
    default_kind = "host-not-ready"
    driver = ""


class SpecError(CdigenError):
    """Report a spec that cdigen does not write, because it breaks a rule or conflicts with another spec."""

    exit_code = 4
    default_kind = "spec-invalid"


class WithheldError(SpecError):
    """Report a spec that is withheld because the host lacks a device node that its containers need."""

    exit_code = 3
    default_kind = "spec-withheld"


class StoreError(CdigenError):
    """Report a failed read or write: no permission, no space, a read-only file system."""

    exit_code = 5
    default_kind = "io"

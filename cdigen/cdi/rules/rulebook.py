"""List every rule of spec files, with its severity and one sentence; make findings of them.

``finding`` is the only way the modules of this folder make a Finding, so a rule without a row here
cannot be reported. ``docs/rules.md`` has a section per row: why, from which source, what to do.
An error is what every loader refuses, and what breaks later although loaders accept it (docs/rules.md);
the rest are warnings.
"""

from __future__ import annotations

from cdigen.model.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.findings import Severity

ERRORS: dict[str, str] = {
    "additional-gid": "An additional group is an integer from 1 to 4294967295.",
    "annotation-key": "An annotation's key is a Kubernetes qualified name.",
    "annotation-size": "Annotations hold no more than 256 KiB of keys and values.",
    "control-character": "A file holds no control characters but TAB, LF and CR.",
    "device-duplicate": "Each device of a file has its own name.",
    "device-edits-empty": "Each device has at least one edit of its own.",
    "device-name": "A device's name is letters, digits and inner _ . : -, at most 253 of them.",
    "devices-empty": "A file has at least one device.",
    "duplicate-key": "An object has each key once.",
    "empty-document": "A file is not empty.",
    "env-control-character": "An environment entry holds neither NUL nor a line break.",
    "env-syntax": "An environment entry is KEY=VALUE with a key that is not empty.",
    "escaped-slash": "A slash is written without a backslash.",
    "hook-name": "A hook is one of the six of the OCI runtime specification.",
    "hook-timeout": "A hook's timeout is absent or at least one second.",
    "json-syntax": "A .json file is JSON (RFC 8259).",
    "key-split": "A key and its colon stand on one line.",
    "key-too-long": "A key is at most 1024 characters long, as written, up to its colon.",
    "kind-length": "A kind's vendor has at most 253 characters, its class at most 63.",
    "kind-one-letter": "A kind's vendor and class have at least two characters.",
    "kind-syntax": "A kind is vendor/class, each of letters, digits and inner _ . -.",
    "leading-tab": "No TAB stands before the first brace or in a line after the last one.",
    "loader-crashes": "No runtime that was named crashes on the file.",
    "loader-refuses": "Every runtime that was named accepts the file.",
    "lone-surrogate": "A text holds whole Unicode characters.",
    "missing-field": "A required field is present.",
    "mount-not-bind": "A mount has a type or one of the options bind and rbind.",
    "net-device-duplicate": "Each network device is given once, to one name.",
    "net-device-name": "A network device's names are not empty.",
    "node-file-mode": "A device node's fileMode is an integer from 0 to 4095 (octal 7777).",
    "node-number": "A device node's major and minor numbers are not negative.",
    "node-owner": "A device node's uid and gid are integers from 0 to 4294967295.",
    "node-permissions": "A device node's permissions are letters out of r, w and m.",
    "node-type": "A device node's type is b, c or p.",
    "not-an-object": "The document is an object.",
    "not-utf8": "A file is UTF-8.",
    "null-entry": "A list of edits has no null entry.",
    "number-not-finite": "A number is finite.",
    "number-out-of-range": "A number fits into 64 bits.",
    "path-control-character": "A path holds neither NUL nor a line break.",
    "path-not-absolute": "A path begins with a slash.",
    "path-not-clean": "A device node's path has no empty, . or .. component and no slash at its end.",
    "rdt-closid": "intelRdt.closID is / or a file name below 4096 bytes.",
    "rdt-removed-field": "intelRdt has neither enableCMT nor enableMBM.",
    "schema": "The document is valid under schemas/cdi.schema.json.",
    "several-documents": "A file holds one document.",
    "string-too-long": "A text is short enough for the kernel.",
    "surrogate-escape": "A character outside the basic plane is written as itself, not as two escapes.",
    "too-deep": "A document is at most 100 levels deep.",
    "too-large": "A file is at most 16 MiB.",
    "too-many-values": "A file has at most 600,000 commas (.json) or 300,000 values (.yaml).",
    "trailing-data": "Nothing follows the document.",
    "unknown-field": "An object has no field but those of the CDI specification, exactly spelt.",
    "version-too-low": "cdiVersion is at least what the content needs.",
    "version-unknown": "cdiVersion is a released version of the CDI specification.",
    "wrong-type": "A field has the JSON type of the CDI specification.",
    "yaml-alias": "A YAML file uses no anchors and aliases.",
    "yaml-key": "A YAML mapping has text keys.",
    "yaml-syntax": "A .yaml file is YAML 1.1.",
    "yaml-tag": "A YAML file uses no tags.",
}

WARNINGS: dict[str, str] = {
    "byte-order-mark": "A file begins without a byte order mark.",
    "env-repeated": "A list of environment entries sets each key once.",
    "hook-env-loader": "A hook's environment sets no LD_ variable.",
    "hook-env-missing": "A hook has an environment of its own.",
    "hook-not-create-container": "A hook runs at createContainer.",
    "hook-timeout-missing": "A hook has a timeout.",
    "host-path-redundant": "hostPath is given only where it differs from path.",
    "kind-not-dns": "A kind's vendor is a lower-case DNS name.",
    "line-separator": "A text holds no line separator of YAML (U+0085, U+2028, U+2029).",
    "mount-type-missing": "A mount has a type.",
    "mounts-covered": "Devices of two kinds, requested together, do not cover each other's mounts.",
    "more-findings": "A document has at most 1000 findings.",
    "node-numbers-given": "A device node's numbers are left to the runtime.",
    "path-repeated": "A list of nodes or mounts uses each container path once.",
    "path-unusual": "A mount's or a hook's path is clean.",
    "version-higher-than-needed": "cdiVersion is not higher than the content needs.",
}

RULES: dict[str, str] = ERRORS | WARNINGS


def finding(
    rule: str, path: str, message: str, hint: str = "", *, place: tuple[int, int] | None = None
) -> Finding:
    """Return a finding of RULE, with the severity of the rule; KeyError where no such rule exists."""
    if rule not in RULES:
        raise KeyError(rule)
    severity: Severity = "error" if rule in ERRORS else "warning"
    return Finding(severity=severity, rule=rule, path=path, message=message, hint=hint, place=place)


def finding_at(rule: str, text: str, offset: int, words: tuple[str, str]) -> Finding:
    """Return a finding of RULE of what stands at OFFSET of TEXT; the position comes between the two WORDS."""
    line, column = text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
    message = f"{words[0]} at line {line}, column {column}{words[1]}"
    return finding(rule, "$", message, place=(line, column))

"""The list of the rules of spec files with the severity of each rule, and the function ``finding``.

The modules in this folder, except ``hostcheck``, create findings only with ``finding``. Therefore, every rule
that these modules report is in the list. etc/help/references/findings.yaml, the source of
docs/reference/findings.md, has the meaning and the remedy of each rule. A rule is an error if all loaders
refuse the file, or if the loaders accept the file but the container fails later. All other rules are
warnings.
"""

from __future__ import annotations

from cdigen.model.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.findings import Severity

ERRORS = frozenset((
    "additional-gid", "annotation-key", "annotation-size", "control-character", "device-duplicate",
    "device-edits-empty", "device-name", "devices-empty", "duplicate-key", "empty-document",
    "env-control-character", "env-syntax", "escaped-slash", "hook-name", "hook-timeout", "json-syntax",
    "key-split", "key-too-long", "kind-length", "kind-one-letter", "kind-syntax", "leading-tab",
    "loader-crashes", "loader-refuses", "lone-surrogate", "missing-field", "mount-not-bind",
    "net-device-duplicate", "net-device-name", "node-file-mode", "node-number", "node-owner",
    "node-permissions", "node-type", "not-an-object", "not-utf8", "null-entry", "number-not-finite",
    "number-out-of-range", "path-control-character", "path-not-absolute", "path-not-clean",
    "rdt-closid", "rdt-removed-field", "schema", "several-documents", "string-too-long",
    "surrogate-escape", "too-deep", "too-large", "too-many-values", "trailing-data", "unknown-field",
    "version-too-low", "version-unknown", "wrong-type", "yaml-alias", "yaml-key", "yaml-syntax",
    "yaml-tag",
))  # fmt: skip
WARNINGS = frozenset((
    "byte-order-mark", "env-repeated", "hook-env-loader", "hook-env-missing",
    "hook-not-create-container", "hook-timeout-missing", "host-path-redundant", "kind-not-dns",
    "line-separator", "loader-unknown", "more-findings", "mount-type-missing", "mounts-covered",
    "node-numbers-given", "path-repeated", "path-unusual", "version-higher-than-needed",
))  # fmt: skip


def finding(
    rule: str, path: str, message: str, hint: str = "", *, place: tuple[int, int] | None = None
) -> Finding:
    """Return a finding of RULE with the severity of RULE; raise KeyError if RULE does not exist."""
    if rule not in ERRORS | WARNINGS:
        raise KeyError(rule)
    severity: Severity = "error" if rule in ERRORS else "warning"
    return Finding(severity=severity, rule=rule, path=path, message=message, hint=hint, place=place)


def finding_at(rule: str, text: str, offset: int, words: tuple[str, str]) -> Finding:
    """Return a finding of RULE at OFFSET in TEXT.

    The message contains the line and the column, between the two texts in WORDS.
    """
    line, column = text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
    message = f"{words[0]} at line {line}, column {column}{words[1]}"
    return finding(rule, "$", message, place=(line, column))

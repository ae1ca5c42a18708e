"""The command ``cdigen config check``: print every fault in the configuration file with line and column."""

from __future__ import annotations

import sys

from cdigen import config
from cdigen.cli.shared import options, report
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.model.findings import errors, finding_of
from cdigen.value import replace
from cdigen.vendors.registry import require_distinct_kinds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from cdigen.host.root import Root
    from cdigen.model.findings import Finding

EXAMPLES = """\
  cdigen config check                      check the file, as 'systemctl reload cdigen' does first
  cdigen config check --config new.yaml    check a file before you install it in /etc/cdigen
  cdigen config check --json               print every fault as JSON
"""

WRONG = 2


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "action",
        metavar="check",
        choices=("check",),
        help="check every key: exit 0 if all are valid, 2 if not, 5 if the file cannot be read",
    )
    options.add_root_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; return the exit code or raise a CdigenError."""
    host = options.host_root(arguments)
    settings, found = options.configuration(arguments, host)
    file = arguments.config or host.outer_path(config.DEFAULT_PATH)
    found = (*found, *_vendor_conflicts(settings, file))
    wrong = errors(found)
    found = (*found, *_nvidia_findings(host, settings))
    if arguments.json:
        report.print_json({"file": file, "valid": not wrong, "findings": [_row(one) for one in found]})
    else:
        report.write(sys.stdout, "".join(f"{shown(config.format_fault(one))}\n" for one in found))
    if not found:
        exists = arguments.config is not None or host.exists(config.DEFAULT_PATH)
        text = "valid" if exists else "does not exist, which is valid: every key has a default"
        report.print_note(f"{shown(file)}: {text}", arguments)
    return WRONG if wrong else 0


def _vendor_conflicts(settings: config.Settings, file: str) -> tuple[Finding, ...]:
    try:
        require_distinct_kinds(settings.vendors)
    except ConfigError as error:
        return (replace(finding_of(error, file), rule=config.RULE),)
    return ()


def _nvidia_findings(host: Root, settings: config.Settings) -> tuple[Finding, ...]:
    """Return findings on ``nvidia_config``. Errors become warnings, because cdigen kubelet still runs."""
    if not settings.kubelet.nvidia_config:
        return ()
    from cdigen.kubelet.resources.nvidia_file import read_nvidia_file  # noqa: PLC0415 - few have the file

    found = read_nvidia_file(host, settings.kubelet)[1]
    return tuple(replace(one, severity="warning") if one.severity == "error" else one for one in found)


def _row(finding: Finding) -> dict[str, Any]:
    line, column = finding.place or (None, None)
    return {**finding.row(), "line": line, "column": column}

"""Print the outcomes of specs, write the files of --output, and remove unused views."""

from __future__ import annotations

import os

from cdigen.cli.shared import report
from cdigen.host.root import shown
from cdigen.model.errors import StoreError
from cdigen.pipeline.publish import PublishOutcome, refused_outcome
from cdigen.store import plainfiles
from cdigen.store.views.folder import VIEWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from cdigen.pipeline.generate import GeneratedSpec


def save_spec(spec: GeneratedSpec, path: str, content: bytes) -> PublishOutcome:
    """Write CONTENT (the text of SPEC) atomically into the user's file PATH, and return the outcome."""
    try:
        plainfiles.save_file(path, content)
    except StoreError as error:
        return refused_outcome(spec.kind, path, error, spec.findings)
    return PublishOutcome(kind=spec.kind, file=path, result="written", findings=spec.findings)


def print_outcome(outcome: PublishOutcome, arguments: Namespace) -> None:
    """Print OUTCOME on stderr. The caller reports the error of OUTCOME."""
    file = shown(outcome.file)
    if outcome.result == "withdrawn":
        report.print_note(f"{file}: withdrawn, because {outcome.reason}", arguments)
    elif outcome.result in {"written", "unchanged"}:
        devices = f", {outcome.devices} names of {outcome.kind}" if outcome.devices else ""
        report.print_note(f"{file}: {outcome.result}{devices}", arguments)
    for path in outcome.set_aside:
        report.print_note(f"moved a foreign spec aside: {shown(path)}", arguments)


def prune_views(state_dir: str, directories: tuple[str, ...], arguments: Namespace) -> None:
    """Remove unused views, once in each boot.

    ``generate --write`` calls this function before it writes the new specs. The views of the new specs
    already exist. The old specs are still on the disk, so their views stay. If a view cannot be removed, it
    only uses space, and cdigen still writes the new specs.
    """
    if not os.path.isdir(f"{state_dir}/{VIEWS}"):
        return
    from cdigen.store.views.pruning import prune_after_boot  # noqa: PLC0415 - not every host has views

    try:
        rows = prune_after_boot(state_dir, spec_dirs=directories)
    except StoreError as error:
        report.print_note(f"old views stay: {error.message}", arguments)
        return
    for row in rows:
        if row.result == "removed":
            report.print_note(f"{shown(state_dir)}/{VIEWS}/{row.name}: removed, {row.reason}", arguments)

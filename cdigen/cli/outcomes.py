"""Report what became of specs: files that the user named, pruned views, one line for each outcome."""

from __future__ import annotations

import os

from cdigen.cli import report
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
    """Write CONTENT, which is SPEC in its format, into a file that the user named, whole or not at all."""
    try:
        plainfiles.save_file(path, content)
    except StoreError as error:
        return refused_outcome(spec.kind, path, error, spec.findings)
    return PublishOutcome(kind=spec.kind, file=path, result="written", findings=spec.findings)


def print_outcome(outcome: PublishOutcome, arguments: Namespace) -> None:
    """Say on standard error what became of one kind, unless it was refused, which is an error to raise."""
    file = shown(outcome.file)
    if outcome.result == "withdrawn":
        report.print_note(f"{file}: withdrawn, because {outcome.reason}", arguments)
    elif outcome.result in {"written", "unchanged"}:
        devices = f", {outcome.devices} devices of {outcome.kind}" if outcome.devices else ""
        report.print_note(f"{file}: {outcome.result}{devices}", arguments)
    for path in outcome.set_aside:
        report.print_note(f"moved another's spec aside: {shown(path)}", arguments)


def prune_views(state_dir: str, directories: tuple[str, ...], arguments: Namespace) -> None:
    """Remove the views that nobody uses any more, once after a boot.

    The views of the new specs are published already, and those of the old ones are still named. What
    cannot be removed takes space and harms nobody, so the specs are written in any case.
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

"""The leftovers of other tools, and the steps of a migration to cdigen."""

from __future__ import annotations

from cdigen.doctor.result import command_line
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.doctor.result import Remedy


@frozen
class Leftover:
    """Files, units or settings of another tool on the host.

    ``tool`` is the name of the tool. ``kind`` is packages, programs, units, spec, runtime, hook or plugin.
    ``where`` contains the packages, units or paths.
    """

    tool: str
    kind: str
    where: tuple[str, ...]
    detail: str = ""


@frozen
class MigrationStep:
    """A step of a migration; after the step, all containers that worked before still work.

    ``commands`` perform the step, and ``undo`` reverts the step. ``by_hand`` and ``undo_by_hand`` are actions
    without a command. Users perform these actions after the commands.
    """

    name: str
    why: str
    commands: tuple[Remedy, ...] = ()
    by_hand: str = ""
    undo: tuple[Remedy, ...] = ()
    undo_by_hand: str = ""

    def row(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "step": self.name,
            "why": self.why,
            "command": command_line(self.commands),
            "commands": [command.row() for command in self.commands],
            "by_hand": self.by_hand,
            "undo": command_line(self.undo),
            "undo_commands": [command.row() for command in self.undo],
            "undo_by_hand": self.undo_by_hand,
        }


@frozen
class Migration:
    """The leftovers, the steps in order, and the tools to keep, each with the reason."""

    leftovers: tuple[Leftover, ...]
    steps: tuple[MigrationStep, ...]
    kept: tuple[str, ...]

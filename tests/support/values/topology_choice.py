"""`choose`: the choice of accelerators or parts by value; `AvailableDevices` chooses by position."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from cdigen.model.inventory import Accelerator
from cdigen.topology.choose import AcceleratorPart, AvailableDevices

if TYPE_CHECKING:
    from collections.abc import Iterable

Unit = TypeVar("Unit", Accelerator, AcceleratorPart)


def choose(
    available: Iterable[Unit],
    must_include: Iterable[Unit],
    count: int,
    *,
    every: Iterable[Unit] = (),
    spread: bool = False,
) -> tuple[Unit, ...]:
    """Return COUNT units of AVAILABLE; EVERY are all units of the host, or empty if all are available."""
    free: tuple[Unit, ...] = tuple(available)
    stock = AvailableDevices((*every, *free))
    numbers = {unit: number for number, unit in enumerate(stock.units)}
    required = [numbers[unit] for unit in must_include if unit in free]
    chosen = stock.choose((numbers[unit] for unit in free), required, count, spread=spread)
    return tuple(stock.units[number] for number in chosen)  # type: ignore[misc]

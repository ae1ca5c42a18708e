"""``cdigen health --mark`` and ``--clear``: a person's word that a device is not to be used, or may be.

The book is read here, and only the daemon writes it: what is cleared goes into the file of marks.
"""

from __future__ import annotations

import re
import sys
import time

from cdigen.cli import options, report
from cdigen.health import book_file, clearing, marks
from cdigen.health.annotate import MARKED
from cdigen.health.book import Clear
from cdigen.health.identity import address_of, is_another
from cdigen.host.clocks import boottime
from cdigen.host.procfs import boot_id
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.pipeline.device_names import by_name
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from cdigen.config import Settings
    from cdigen.health.book import DeviceRecord, Evidence
    from cdigen.health.marks import Mark
    from cdigen.host.root import Root
    from cdigen.pipeline.device_names import KnownDevice

_LISTED = "'cdigen health' lists them"
_MOST = 8
_SHOWN = 80
# The daemon writes a new cause into inventory.json first, and into health.json as soon as the disk allows.
_WRITTEN_WITHIN_S, _RETRY_S = 3.0, 0.05
# As lspci and NVML write it: without a domain, or with one of eight digits.
_PCI = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])", re.ASCII)


@frozen
class _Changed:
    """What became of the mark of the device ``name``; ``mark`` is None where there was none.

    ``cleared`` are the causes that count no more, ``stay`` those that do, each with why.
    """

    name: str
    mark: Mark | None
    marked: bool
    changed: bool
    cleared: tuple[str, ...] = ()
    stay: tuple[tuple[str, str], ...] = ()


def require_sense(arguments: Namespace) -> None:
    """Raise ConfigError where the options do not go together."""
    if arguments.mark is not None and arguments.clear is not None:
        raise ConfigError("--mark and --clear exclude each other", hint="see 'cdigen health --help'")
    if arguments.reason is not None and arguments.mark is None:
        raise ConfigError("--reason has no meaning without --mark", hint="see 'cdigen health --help'")
    if arguments.mark is not None and arguments.reason is None:
        raise ConfigError(
            "--mark needs --reason", hint="whoever finds the device marked will ask for it: --reason TEXT"
        )


def change(
    arguments: Namespace,
    host: Root,
    settings: Settings,
    devices: tuple[KnownDevice, ...],
    *,
    is_running: bool,
) -> int:
    """Mark or clear one of DEVICES, and print what became of it; returns the exit code.

    Where no daemon IS RUNNING, more may have happened to it than the last one has written down. ConfigError:
    it does not name one device. StoreError: the mark cannot be written.
    """
    state_dir = options.outer_directory(host, settings.state_dir)
    made = _mark(arguments, state_dir, devices) if arguments.mark is not None else None
    done = made or _clear(arguments.clear, state_dir, devices, boot_id(host), is_running=is_running)
    if arguments.json:
        report.print_json(_row(done, devices))
    else:
        report.write(sys.stdout, "".join(f"{shown(line)}\n" for line in _lines(done)))
    return 0


def _mark(arguments: Namespace, state_dir: str, devices: tuple[KnownDevice, ...]) -> _Changed:
    device = only(_named(arguments.mark, devices), "--mark", arguments.mark)
    before = next((one for one in marks.read_marks(state_dir)[0] if _is_of(one, device)), None)
    if before is not None and before.reason == arguments.reason:
        return _Changed(name=device.name, mark=before, marked=True, changed=False)
    try:
        made = marks.mark(
            state_dir, device.vendor, device.accelerator, arguments.reason, instance=device.instance
        )
    except ValueError as error:
        raise ConfigError(f"--reason {error}", hint="say it in a few words") from None
    return _Changed(name=device.name, mark=made, marked=True, changed=True)


def _clear(
    word: str, state_dir: str, devices: tuple[KnownDevice, ...], boot: str, *, is_running: bool
) -> _Changed:
    found = _named(word, devices)
    if not found:
        # A device that is not there any more may still have its mark.
        names = {word.lower(), _canonical(word)}
        removed = marks.clear(state_dir, lambda one: not names.isdisjoint(_names_of(one)))
        if removed:
            return _Changed(name=removed[0].address, mark=removed[0], marked=False, changed=True)
    device = only(found, "--clear", word)
    removed = marks.clear(state_dir, lambda one: _is_of(one, device))
    record = _record(state_dir, device, boot)
    retry_until_s = time.monotonic() + _WRITTEN_WITHIN_S
    while is_running and not _has_causes(record, device) and time.monotonic() < retry_until_s:
        time.sleep(_RETRY_S)
        record = _record(state_dir, device, boot)
    now_s = boottime()
    events, rest = _own_evidence(record, device) if record is not None else ((), ())
    is_said = bool(boot and (events or not is_running or not _has_causes(record, device)))
    if is_said:
        marks.clear_events(state_dir, _word(device, boot, now_s))
    stay = {one.cause: _why(one, device) for one in rest}
    return _Changed(
        name=device.name,
        mark=next(iter(removed), None),
        marked=False,
        changed=bool(removed) or is_said,
        cleared=tuple(dict.fromkeys(one.cause for one in events if one.cause not in stay)),
        stay=tuple(stay.items()),
    )


def _word(device: KnownDevice, boot: str, now_s: float) -> Clear:
    gpu = device.accelerator
    return Clear(
        vendor=device.vendor,
        address=address_of(gpu),
        uuid=gpu.uuid,
        device_id=gpu.device_id,
        instance=device.instance,
        boot=boot,
        at_s=now_s,
    )


def _has_causes(record: DeviceRecord | None, device: KnownDevice) -> bool:
    """Return whether RECORD has the causes of DEVICE in the inventory, which the daemon writes first."""
    recorded = {one.cause for one in record.evidence} if record is not None else set()
    return {cause.cause for cause in device.causes} - {MARKED} <= recorded


def _record(state_dir: str, device: KnownDevice, boot: str) -> DeviceRecord | None:
    """Return the daemon's record of DEVICE in this BOOT."""
    book, _ = book_file.read(state_dir, boot, boottime())
    place = device.vendor, address_of(device.accelerator)
    return next(
        (
            one
            for one in book.devices
            if (one.vendor, one.address) == place and not is_another(one, device.accelerator)
        ),
        None,
    )


def _own_evidence(
    record: DeviceRecord, device: KnownDevice
) -> tuple[tuple[Evidence, ...], tuple[Evidence, ...]]:
    """Return what of RECORD a clear of DEVICE ends, and what stays."""
    of_it = [one for one in record.evidence if clearing.is_of(device.instance, one.instance)]
    whole = [one for one in record.evidence if device.instance and not one.instance]
    events = tuple(one for one in of_it if clearing.is_event(one))
    return events, (*whole, *(one for one in of_it if not clearing.is_event(one)))


def _why(evidence: Evidence, device: KnownDevice) -> str:
    if device.instance and not evidence.instance:
        return f"it is a cause of the whole device {address_of(device.accelerator)}"
    return "the daemon saw it when it last looked"


def only(found: tuple[KnownDevice, ...], option: str, word: str) -> KnownDevice:
    """Return the one device in FOUND, or of a GPU and its partitions the GPU; raises ConfigError.

    WORD, which OPTION gave, names what was found.
    """
    whole = [device for device in found if device.partition is None]
    if len(whole) == 1 and all(device.accelerator is whole[0].accelerator for device in found):
        return whole[0]
    if len(found) == 1:
        return found[0]
    said = f"{option} {shown(word[:_SHOWN])!r}"
    if not found:
        raise ConfigError(f"{said} names no device that the daemon knows", hint=_LISTED)
    names = ", ".join(device.name for device in found[:_MOST])
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    raise ConfigError(f"{said} names {len(found)} devices: {shown(names)}{more}", hint="name one of them")


def _named(word: str, devices: tuple[KnownDevice, ...]) -> tuple[KnownDevice, ...]:
    """Return which of DEVICES WORD names: a CDI name or the end of one, a UUID, a PCI address."""
    if found := by_name(devices).get(word):
        return found
    lower, address = word.lower(), _canonical(word)
    return tuple(
        device
        for device in devices
        if word == device.name
        or any(word == name.partition("=")[2] for name in (device.name, *device.names))
        or lower == (device.uuid or "").lower()
        or (device.partition is None and address == device.accelerator.address)
    )


def _canonical(word: str) -> str:
    """Return WORD as sysfs writes it where it is a PCI address, else in lower case."""
    match = _PCI.fullmatch(word.lower())
    if match is None:
        return word.lower()
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function}"


def _is_of(mark: Mark, device: KnownDevice) -> bool:
    return mark.instance == device.instance and mark.is_on(device.vendor, device.accelerator)


def _names_of(mark: Mark) -> set[str]:
    return {mark.address, (mark.uuid or mark.address).lower()}


def _row(done: _Changed, devices: tuple[KnownDevice, ...]) -> dict[str, object]:
    device = next((one for one in devices if one.name == done.name), None)
    mark = done.mark
    return {
        "device": done.name,
        "address": device.accelerator.address if device else done.name,
        "uuid": device.uuid if device else mark and mark.uuid,
        "instance": device.instance if device else (mark.instance if mark else ""),
        "marked": done.marked,
        "reason": mark.reason if mark else "",
        "changed": done.changed,
        "cleared": list(done.cleared),
        "stay": [cause for cause, _ in done.stay],
    }


def _lines(done: _Changed) -> list[str]:
    lines = [f"{done.name}: {cause} counts no more" for cause in done.cleared]
    lines += [f"{done.name}: {cause} stays: {why}" for cause, why in done.stay]
    if done.mark is None:
        return lines or [f"{done.name} was not marked"]
    if not done.marked:
        return [f"{done.name} is not marked any more ({done.mark.reason})", *lines]
    already = "" if done.changed else " already"
    return [f"{done.name} is marked as unhealthy{already}: {done.mark.reason}"]

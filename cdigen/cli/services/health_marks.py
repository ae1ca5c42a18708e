"""The options ``cdigen health --mark`` and ``--clear``: mark a device as unhealthy, or clear it.

``--clear`` removes the mark and the events of a device. Only the daemon writes the health state. Therefore,
this command writes a clear (a request to remove events) into the file of marks. The daemon reads this file.
"""

from __future__ import annotations

import sys
import time

from cdigen.cli.shared import options, report
from cdigen.health import clearing, marks, state_file
from cdigen.health.annotate import MARKED
from cdigen.health.state import ManualClear, address_of, is_another
from cdigen.host.clocks import boottime
from cdigen.host.procfs import boot_id
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.model.names import full_pci_address
from cdigen.pipeline.device_names import devices_by_name
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from cdigen.config import Settings
    from cdigen.health.marks import Mark
    from cdigen.health.state import DeviceRecord, Evidence
    from cdigen.host.root import Root
    from cdigen.pipeline.device_names import KnownDevice

_LISTED = "run 'cdigen health', which lists the devices"
_MOST = 8
_SHOWN = 80
# The daemon writes a new cause first into inventory.json, and then, as soon as the disk permits, into
# health.json. The command waits up to 3 s for health.json.
_WRITTEN_WITHIN_S, _RETRY_S = 3.0, 0.05


@frozen
class _Changed:
    """The result of a mark or a clear for the device ``name``.

    ``mark`` is the mark that was set, found or removed, or None. ``cleared`` has the cleared causes.
    ``requested`` has the causes that the daemon has not saved: it decides about them in its next cycle.
    ``remaining`` has the causes that remain, each with the reason.
    """

    name: str
    mark: Mark | None
    marked: bool
    changed: bool
    cleared: tuple[str, ...] = ()
    requested: tuple[str, ...] = ()
    remaining: tuple[tuple[str, str], ...] = ()


def check_options(arguments: Namespace) -> None:
    """Raise ConfigError for --mark with --clear, and for only one of --mark and --reason."""
    if arguments.mark is not None and arguments.clear is not None:
        raise ConfigError("--mark and --clear exclude each other", hint="see 'cdigen health --help'")
    if arguments.reason is not None and arguments.mark is None:
        raise ConfigError("--reason needs --mark", hint="see 'cdigen health --help'")
    if arguments.mark is not None and arguments.reason is None:
        raise ConfigError("--mark needs --reason", hint="--reason TEXT; 'cdigen health' prints the text")


def change(
    arguments: Namespace,
    host: Root,
    settings: Settings,
    devices: tuple[KnownDevice, ...],
    *,
    is_running: bool,
) -> int:
    """Mark or clear one of DEVICES, and print the result; return the exit code.

    IS_RUNNING is false if no daemon runs. Then the health state can lack the latest events. Raises
    ConfigError if the option does not name a single device, and StoreError if the mark cannot be written.
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
        raise ConfigError(f"--reason {error}", hint="use a short reason") from None
    return _Changed(name=device.name, mark=made, marked=True, changed=True)


def _clear(
    word: str, state_dir: str, devices: tuple[KnownDevice, ...], boot: str, *, is_running: bool
) -> _Changed:
    found = _named(word, devices)
    if not found:
        # A device can have a mark after it was removed from the host.
        names = {word.lower(), full_pci_address(word) or word.lower()}
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
    events, others = _own_evidence(record, device) if record is not None else ((), ())
    is_recorded = bool(boot and (events or not is_running or not _has_causes(record, device)))
    if is_recorded:
        gpu = device.accelerator
        request = ManualClear(
            vendor=device.vendor,
            address=address_of(gpu),
            uuid=gpu.uuid,
            device_id=gpu.device_id,
            instance=device.instance,
            boot=boot,
            at_s=now_s,
        )
        marks.clear_events(state_dir, request)
    remaining = {one.cause: _reason(one, device) for one in others}
    return _Changed(
        name=device.name,
        mark=next(iter(removed), None),
        marked=False,
        changed=bool(removed) or is_recorded,
        cleared=tuple(dict.fromkeys(one.cause for one in events if one.cause not in remaining)),
        requested=_unsaved_causes(record, device) if is_recorded else (),
        remaining=tuple(remaining.items()),
    )


def _has_causes(record: DeviceRecord | None, device: KnownDevice) -> bool:
    """Return whether RECORD has all causes that the inventory lists for DEVICE.

    The daemon writes the inventory before the record.
    """
    return not _unsaved_causes(record, device)


def _unsaved_causes(record: DeviceRecord | None, device: KnownDevice) -> tuple[str, ...]:
    recorded = {one.cause for one in record.evidence} if record is not None else set()
    causes = dict.fromkeys(cause.cause for cause in device.causes)
    return tuple(cause for cause in causes if cause not in {MARKED, *recorded})


def _record(state_dir: str, device: KnownDevice, boot: str) -> DeviceRecord | None:
    """Return the daemon's record of DEVICE in the boot BOOT, or None if there is no record."""
    state, _ = state_file.read(state_dir, boot, boottime())
    place = device.vendor, address_of(device.accelerator)
    return next(
        (
            one
            for one in state.devices
            if (one.vendor, one.address) == place and not is_another(one, device.accelerator)
        ),
        None,
    )


def _own_evidence(
    record: DeviceRecord, device: KnownDevice
) -> tuple[tuple[Evidence, ...], tuple[Evidence, ...]]:
    """Return the evidence of RECORD that a clear of DEVICE removes, and the evidence that remains."""
    own = [one for one in record.evidence if clearing.includes(device.instance, one.instance)]
    of_whole_device = [one for one in record.evidence if device.instance and not one.instance]
    events = tuple(one for one in own if clearing.is_event(one))
    return events, (*of_whole_device, *(one for one in own if not clearing.is_event(one)))


def _reason(evidence: Evidence, device: KnownDevice) -> str:
    if device.instance and not evidence.instance:
        return f"a cause of the whole device {address_of(device.accelerator)}"
    return "the last check of the daemon found this cause"


def only(found: tuple[KnownDevice, ...], option: str, word: str) -> KnownDevice:
    """Return the single device of FOUND, or the whole GPU if FOUND is a GPU with its partitions.

    WORD is the value of OPTION that matches FOUND. Raises ConfigError if FOUND is empty or has several
    devices.
    """
    whole = [device for device in found if device.partition is None]
    if len(whole) == 1 and all(device.accelerator is whole[0].accelerator for device in found):
        return whole[0]
    if len(found) == 1:
        return found[0]
    option_text = f"{option} {shown(word[:_SHOWN])!r}"
    if not found:
        raise ConfigError(f"{option_text} matches no device of the daemon", hint=_LISTED)
    names = ", ".join(device.name for device in found[:_MOST])
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    raise ConfigError(
        f"{option_text} matches {len(found)} devices: {shown(names)}{more}", hint="name one of these devices"
    )


def _named(word: str, devices: tuple[KnownDevice, ...]) -> tuple[KnownDevice, ...]:
    """Return the devices of DEVICES whose name is WORD.

    A name is a CDI name, the part of a CDI name after ``=``, a UUID or a PCI address.
    """
    if found := devices_by_name(devices).get(word):
        return found
    lower, address = word.lower(), full_pci_address(word) or word.lower()
    return tuple(
        device
        for device in devices
        if word == device.name
        or any(word == name.partition("=")[2] for name in (device.name, *device.names))
        or lower == (device.uuid or "").lower()
        or (device.partition is None and address == device.accelerator.address)
    )


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
        "remaining": [cause for cause, _ in done.remaining],
    }


def _lines(done: _Changed) -> list[str]:
    lines = [f"{done.name}: {cause} cleared" for cause in done.cleared]
    lines += [
        f"{done.name}: {cause}: clear requested, health.json does not have this cause; 'cdigen health' shows "
        "the result"
        for cause in done.requested
    ]
    lines += [f"{done.name}: {cause} not cleared: {reason}" for cause, reason in done.remaining]
    if done.mark is None:
        empty = "events are cleared when the daemon starts" if done.changed else "not marked"
        return lines or [f"{done.name}: {empty}"]
    if not done.marked:
        return [f"{done.name}: mark removed ({done.mark.reason})", *lines]
    already = "" if done.changed else "already "
    return [f"{done.name}: {already}marked as unhealthy ({done.mark.reason})"]

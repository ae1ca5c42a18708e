"""Generate the CDI specs of a host: the list of the stages, and those that write nothing.

A host becomes specs on its disk in six stages, each a function of its own module:

1. discover: ``discovery.discover`` asks each vendor what the host has; the answer is an inventory each
   (``device_nodes.make_nodes`` comes before it, where the configuration allows making nodes);
2. name: ``naming.named_drafts`` makes a draft for each kind, its devices named as the profiles say;
3. deliver: ``delivery.deliver`` chooses how the driver's files reach containers: layout, hook, view;
4. build: ``relocate``, ``fit`` and ``build`` (cdigen.cdi) make a document that the target can read;
5. check: ``check.check_document`` checks it against CDI's rules and the host;
6. publish: ``publish.publish_spec`` writes it where runtimes look, ``withdraw.withdraw_spec`` removes a spec
   whose devices are gone.

``generate_specs`` runs the stages 2 to 5. Its callers discover before and publish after it: a command prints,
the daemon first decides for each vendor whether its specs are to change (``daemon.states``).
"""

from __future__ import annotations

from cdigen.cdi.build import ALL, build, conflicting_variables
from cdigen.cdi.layout import relocate
from cdigen.model.errors import ConfigError, SpecError
from cdigen.model.findings import Finding
from cdigen.model.names import NONE
from cdigen.model.profile import DEFAULT
from cdigen.pipeline.check import check_document
from cdigen.pipeline.delivery import DEFAULT_DELIVERY, deliver
from cdigen.pipeline.discovery import DEFECT, vendor_defect
from cdigen.pipeline.fit import fit
from cdigen.pipeline.naming import named_drafts
from cdigen.value import frozen, replace
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from cdigen.host.root import Root
    from cdigen.model.cdi import Draft
    from cdigen.model.inventory import Inventory
    from cdigen.model.profile import Profile
    from cdigen.pipeline.delivery import DeliveryOptions
    from cdigen.runtimes.targets import Target


@frozen
class GeneratedSpec:
    """The spec of one kind: the document, its bytes, and the findings of all stages.

    ``driver`` is the driver version that it is made for, as its vendor writes it, or empty. ``yields``:
    where another program's spec serves the kind, this one is not written.
    """

    vendor: str
    kind: str
    driver: str
    document: dict[str, Any]
    content: bytes
    findings: tuple[Finding, ...]
    yields: bool = False


@frozen
class GenerateOptions:
    """Which specs to generate.

    ``profiles`` give the kinds of GPUs; ``kinds``, if not empty, limits them; ``target`` is the runtime
    that has to read them; containers get the driver's files below ``container_driver_root``.
    """

    profiles: tuple[Profile, ...] = (DEFAULT,)
    kinds: tuple[str, ...] = ()
    target: Target | None = None
    container_driver_root: str = "/"


DEFAULT_OPTIONS = GenerateOptions()


def generate_specs(
    inventories: Mapping[str, Inventory],
    *,
    host: Root | None,
    options: GenerateOptions = DEFAULT_OPTIONS,
    delivery: DeliveryOptions = DEFAULT_DELIVERY,
) -> tuple[tuple[GeneratedSpec, ...], dict[str, SpecError]]:
    """Return the specs of INVENTORIES, by vendor, and the errors of those that cannot be made, by kind.

    HOST is None for inventories of another host: the specs are then not checked against it. DELIVERY limits
    how the driver's files get into containers; a view is made here if it allows that. A kind fails if it does
    not fit the target, or breaks a rule: then cdigen has a defect, or the host has changed since it was read.
    ConfigError: two specs would have the same kind.
    """
    specs: list[GeneratedSpec] = []
    failures: dict[str, SpecError] = {}
    delivery = _delivery_for(options, delivery)
    for vendor, inventory in inventories.items():
        try:
            drafts, naming_findings = named_drafts(vendor, inventory, options.profiles)
        except Exception as error:  # noqa: BLE001 - a defect of one vendor's code costs no other's specs
            kind = f"{registry.cdi_vendor(vendor)}/{options.profiles[0].device_class}"
            defect = vendor_defect(vendor, error)
            failures[kind] = SpecError(defect.message, hint=defect.hint, kind=DEFECT)
            continue
        for draft in drafts:
            if options.kinds and draft.kind not in options.kinds:
                continue
            _refuse_second_spec(draft.kind, (*failures, *(spec.kind for spec in specs)))
            try:
                document, content, findings = _generate_document(draft, host, options, delivery)
            except SpecError as error:
                failures[draft.kind] = error
                continue
            spec = GeneratedSpec(
                vendor=vendor,
                kind=draft.kind,
                driver=inventory.driver.version,
                document=document,
                content=content,
                findings=(*inventory.findings, *naming_findings.get(draft.kind, ()), *findings),
                yields=draft.yields,
            )
            specs.append(spec)
    return tuple(specs), failures


def _generate_document(
    draft: Draft, host: Root | None, options: GenerateOptions, delivery: DeliveryOptions
) -> tuple[dict[str, Any], bytes, tuple[Finding, ...]]:
    """Return the document of DRAFT, its bytes and findings. SpecError: it must not be written."""
    delivered, delivery_findings = deliver(draft, host, delivery)
    relocated = relocate(delivered, options.container_driver_root)
    fitted, fit_findings = fit(relocated, options.target)
    document = build(fitted)
    content, check_findings = check_document(document, host=host, target=options.target)
    findings = (*delivery_findings, *_variables_without_all(draft), *fit_findings, *check_findings)
    return document, content, findings


def _delivery_for(options: GenerateOptions, delivery: DeliveryOptions) -> DeliveryOptions:
    """Return DELIVERY with what OPTIONS imply for every draft."""
    is_default_covering = any(
        profile.needs_capability_folders()
        for profile in options.profiles
        if profile.device_class == DEFAULT.device_class
    )
    return replace(
        delivery,
        files_only=options.container_driver_root != "/",
        capability_folders_taken=is_default_covering,
    )


def _refuse_second_spec(kind: str, kinds: Iterable[str]) -> None:
    if kind in kinds:
        raise ConfigError(f"two specs would have the kind {kind}", hint="give the profile another class")


def _variables_without_all(draft: Draft) -> tuple[Finding, ...]:
    """Return which variables the device ``all`` does not set, because the devices set different values."""
    has_own = any(device.name == ALL for device in draft.devices)
    entries = [entry for device in draft.devices if device.name != NONE for entry in device.edits.env]
    names = () if has_own or not draft.has_all else conflicting_variables(entries)
    message = f"the devices of {draft.kind} set {', '.join(names)} differently: {ALL} sets none of it"
    hint = "ask for the devices one by one; the vendor's code may have a device 'all' of its own"
    finding = Finding(
        severity="warning", rule="all-without-variable", path=draft.kind, message=message, hint=hint
    )
    return (finding,) if names else ()


def defective_vendors(failures: Mapping[str, SpecError], names: Iterable[str]) -> dict[str, SpecError]:
    """Return the FAILURES of those vendors NAMES whose code failed: their kinds are unknown."""
    return {
        registry.vendor_of(kind, names): error for kind, error in failures.items() if error.kind == DEFECT
    }

"""Generate the CDI specs of a host.

cdigen writes the specs of a host in six stages. Each stage is a function in a separate module:

1. discover: ``discovery.discover`` returns the inventory of each vendor's devices on the host.
2. name: ``naming.named_drafts`` returns a draft of each kind, with the device names of the profiles.
3. deliver: ``delivery.deliver`` chooses the layout, the hook and the view for the driver's files.
4. build: ``relocate``, ``fit`` and ``build`` (cdigen.cdi) return a document that the target can read.
5. check: ``check.check_document`` checks the document against CDI's rules and the host.
6. publish: ``publish.publish_spec`` writes the document into a spec directory. ``withdraw.withdraw_spec``
   removes the spec of a kind that has no devices on this host.

``generate_specs`` runs the stages 2 to 5. Its callers run stage 1 before and stage 6 after this function.
Before stage 6, the daemon decides for each vendor whether to change the specs of the vendor
(``daemon.cycle.states``). A command can print the specs instead.
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
from cdigen.pipeline.fit import fit
from cdigen.pipeline.naming import named_drafts, withheld_error
from cdigen.value import frozen, replace
from cdigen.vendors import registry
from cdigen.vendors.registry import DEFECT

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
    """The spec of a kind: the document, its bytes, and the findings of all stages.

    ``driver`` is the driver version of the spec in the vendor's notation, or "". ``yields``: cdigen does not
    write the spec if another program's spec serves the kind.
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
    """The specs to generate.

    ``profiles`` determine the kinds of GPUs. If ``kinds`` is not empty, only specs of these kinds are
    generated. ``target`` is the runtime that must be able to read the specs. ``class_targets`` has other
    targets for single classes. ``container_driver_root`` is the folder of the driver's files in containers.
    """

    profiles: tuple[Profile, ...] = (DEFAULT,)
    kinds: tuple[str, ...] = ()
    target: Target | None = None
    class_targets: tuple[tuple[str, Target], ...] = ()
    container_driver_root: str = "/"

    def target_of(self, kind: str) -> Target | None:
        """Return the runtime that must be able to read the spec of KIND, or None."""
        return dict(self.class_targets).get(kind.partition("/")[2], self.target)


DEFAULT_OPTIONS = GenerateOptions()


def generate_specs(
    inventories: Mapping[str, Inventory],
    *,
    host: Root | None,
    options: GenerateOptions = DEFAULT_OPTIONS,
    delivery: DeliveryOptions = DEFAULT_DELIVERY,
) -> tuple[tuple[GeneratedSpec, ...], dict[str, SpecError]]:
    """Return the specs of INVENTORIES, ordered by vendor, and the errors of the kinds without a spec.

    HOST is None for inventories of another host. Then the function does not check the paths of the specs.
    DELIVERY limits layouts and hooks. The function builds a view if DELIVERY permits this. A kind has an
    error if the target cannot read its spec or if the spec breaks a rule. The reason for a broken rule is a
    defect of cdigen or a change of the host after discovery. ConfigError: two specs would have the same kind.
    """
    specs: list[GeneratedSpec] = []
    failures: dict[str, SpecError] = {}
    delivery = _delivery_for(options, delivery)
    for vendor, inventory in inventories.items():
        try:
            drafts, naming_findings = named_drafts(vendor, inventory, options.profiles)
        except Exception as error:  # noqa: BLE001 - a defect of one vendor's code must not affect others
            kind = f"{registry.cdi_vendor(vendor)}/{options.profiles[0].device_class}"
            defect = registry.vendor_defect(vendor, error)
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
    """Return the document of DRAFT, its bytes and findings. SpecError: the spec must not be written."""
    if (error := withheld_error(draft)) is not None:
        raise error
    delivered, delivery_findings = deliver(draft, host, delivery)
    relocated = relocate(delivered, options.container_driver_root)
    target = options.target_of(draft.kind)
    fitted, fit_findings = fit(relocated, target)
    document = build(fitted)
    content, check_findings = check_document(document, host=host, target=target)
    findings = (*delivery_findings, *_variables_without_all(draft), *fit_findings, *check_findings)
    return document, content, findings


def _delivery_for(options: GenerateOptions, delivery: DeliveryOptions) -> DeliveryOptions:
    """Return DELIVERY with the limits of OPTIONS that apply to all drafts."""
    uses_hwcaps = any(
        profile.needs_capability_folders()
        for profile in options.profiles
        if profile.device_class == DEFAULT.device_class
    )
    return replace(
        delivery, files_only=options.container_driver_root != "/", default_kind_uses_hwcaps=uses_hwcaps
    )


def _refuse_second_spec(kind: str, kinds: Iterable[str]) -> None:
    if kind in kinds:
        raise ConfigError(f"two specs would have the kind {kind}", hint="give the profile another class")


def _variables_without_all(draft: Draft) -> tuple[Finding, ...]:
    """Return a finding if ``all`` lacks a variable because the devices have different values."""
    has_own = any(device.name == ALL for device in draft.devices)
    entries = [entry for device in draft.devices if device.name != NONE for entry in device.edits.env]
    names = () if has_own or not draft.has_all else conflicting_variables(entries)
    listed = ", ".join(names)
    message = f"the devices of {draft.kind} set different values of {listed}: the device {ALL} sets no value"
    hint = "request the devices one by one; the vendor's code can define a device 'all' of its own"
    finding = Finding(
        severity="warning", rule="all-without-variable", path=draft.kind, message=message, hint=hint
    )
    return (finding,) if names else ()


def defective_vendors(failures: Mapping[str, SpecError], names: Iterable[str]) -> dict[str, SpecError]:
    """Return the FAILURES of the vendors in NAMES whose code failed.

    The kinds of these vendors are unknown.
    """
    return {
        registry.vendor_of(kind, names): error for kind, error in failures.items() if error.kind == DEFECT
    }

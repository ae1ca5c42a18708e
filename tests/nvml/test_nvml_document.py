"""A JSON document of the child process is rejected if it does not have the expected structure."""

import json
from typing import Any

import pytest
from support.values.json_values import Place, at, changed, places

from cdigen.vendors.nvidia.nvml.document import (
    InvalidNvmlDocument,
    NvmlError,
    NvmlFailure,
    NvmlReport,
    NvmlValues,
    read,
)

ERROR: dict[str, Any] = {"call": "nvmlDeviceGetUUID", "name": "NVML_ERROR_GPU_IS_LOST", "code": 15}
MIG = {
    "index": 2, "uuid": "MIG-1", "gpu_instance": 7, "compute_instance": 0,
    "profile": "1g.10gb", "graphics": False, "memory_mib": 9984,
}  # fmt: skip
PLACE = {"index": 0, "address": "0000:65:00.0"}
REPORT = {"gpus": [{**PLACE, "uuid": "GPU-1", "mig_mode": True, "migs": [MIG], "error": ERROR}]}
GPU_HEALTH = {
    "error": ERROR, "recovery_action": 1, "reset": False, "drain_and_reset": True, "remap_failed": False,
    "ecc_uncorrected": 3, "fabric_state": 3, "fabric_status": 0,
}  # fmt: skip
HEALTH = {"gpus": [{**PLACE, "error": None, "health": GPU_HEALTH}]}
VALUES: dict[str, Any] = {
    **dict.fromkeys(NvmlValues.__annotations__, 7),
    "processes": [{"pid": 7, "memory": 1 << 40}],
}
GPU_STATS = {
    "error": ERROR,
    "values": VALUES,
    "migs": [{"gpu_instance": 7, "compute_instance": 0, "values": VALUES}],
}
STATS = {"gpus": [{**PLACE, "error": None, "stats": GPU_STATS}]}
FAILURE = {"stage": "nvml", "message": "no", "error": ERROR}

# Values that are invalid for every key.
WRONG: tuple[object, ...] = ({}, -1, 1.5, "a\nb", "\x1b[31m", "a" * 1025, 1 << 32, [1], [[]], [None])


def altered(document: object, place: Place, new: object) -> bytes:
    return json.dumps(changed(document, place, new)).encode()


def cases() -> list[tuple[dict[str, Any], Place]]:
    return [(document, path) for document in (REPORT, FAILURE) for path in places(document)]


def test_a_report_is_read() -> None:
    report = read(json.dumps(REPORT).encode())
    assert isinstance(report, NvmlReport)
    assert report.gpus[0].migs[0].index == 2
    assert report.gpus[0].error == NvmlError(**ERROR)


def test_a_failure_is_read() -> None:
    assert read(json.dumps(FAILURE).encode()) == NvmlFailure(
        stage="nvml", message="no", error=NvmlError(**ERROR)
    )


@pytest.mark.parametrize(("document", "path"), cases(), ids=str)
def test_a_wrong_value_anywhere_is_rejected(document: dict[str, Any], path: Place) -> None:
    for wrong in WRONG:
        with pytest.raises(InvalidNvmlDocument) as error:
            read(altered(document, path, wrong))
        assert str(error.value).isprintable()


@pytest.mark.parametrize("path", list(places(STATS)), ids=str)
def test_a_wrong_value_anywhere_in_the_statistics_is_rejected(path: Place) -> None:
    report = read(json.dumps(STATS).encode(), ("stats",))
    assert isinstance(report, NvmlReport)
    assert report.gpus[0].stats is not None
    assert report.gpus[0].stats.migs[0].values.memory_used == 7
    for wrong in (*(each for each in WRONG if each != 1 << 32), 1 << 62, True):
        with pytest.raises(InvalidNvmlDocument):
            read(altered(STATS, path, wrong), ("stats",))


@pytest.mark.parametrize("path", list(places(HEALTH)), ids=str)
def test_a_wrong_value_anywhere_in_the_health_is_rejected(path: Place) -> None:
    report = read(json.dumps(HEALTH).encode(), ("health",))
    assert isinstance(report, NvmlReport)
    assert report.gpus[0].health is not None
    assert report.gpus[0].uuid is None
    for wrong in WRONG:
        with pytest.raises(InvalidNvmlDocument):
            read(altered(HEALTH, path, wrong), ("health",))


@pytest.mark.parametrize(("document", "path"), cases(), ids=str)
def test_an_object_with_an_additional_or_missing_field_is_rejected(
    document: dict[str, Any], path: Place
) -> None:
    value = at(document, path)
    if not isinstance(value, dict):
        return
    for other in ({**value, "more": 1}, *({k: v for k, v in value.items() if k != gone} for gone in value)):
        with pytest.raises(InvalidNvmlDocument):
            read(altered(document, path, other))


def test_a_document_that_is_cut_off_anywhere_is_rejected() -> None:
    whole = json.dumps(REPORT).encode()
    for length in range(len(whole)):
        with pytest.raises(InvalidNvmlDocument):
            read(whole[:length])


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("gpus", 0, "address"), "00000000:65:00.0"),
        (("gpus", 0, "address"), "0000:6A:00.0"),
        (("gpus", 0, "uuid"), ""),
    ],
)
def test_a_text_in_another_format_is_rejected(path: Place, wrong: object) -> None:
    with pytest.raises(InvalidNvmlDocument):
        read(altered(REPORT, path, wrong))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b"9" * 10_000,
        json.dumps(REPORT).encode() + b"{}",
        b"rubbish\n" + json.dumps(REPORT).encode(),
        json.dumps(REPORT).replace("15", "NaN").encode(),
    ],
    ids=lambda document: repr(document[:40]),
)
def test_data_that_is_not_exactly_one_valid_document_is_rejected(data: bytes) -> None:
    with pytest.raises(InvalidNvmlDocument):
        read(data)

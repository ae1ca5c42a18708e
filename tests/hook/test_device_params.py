"""The driver's parameters with ModifyDeviceFiles turned off."""

import pytest

from cdigen.hook.device_params import without_modification

REAL = b"ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\n"


def test_only_the_one_line_is_changed() -> None:
    assert without_modification(REAL) == REAL.replace(b"Files: 1", b"Files: 0")


@pytest.mark.parametrize(
    "content", [b"", b"ModifyDeviceFiles: 0\n", b"ModifyDeviceFiles: 10\n", b"XModifyDeviceFiles: 1\n"]
)
def test_other_content_is_left_alone(content: bytes) -> None:
    assert without_modification(content) is None

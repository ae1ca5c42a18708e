"""The text of the driver's params file, in which the hook sets ModifyDeviceFiles to 0."""

import pytest

from cdigen.hook.device_params import without_modification

REAL = b"ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\n"


def test_only_the_line_modifydevicefiles_is_changed() -> None:
    assert without_modification(REAL) == REAL.replace(b"Files: 1", b"Files: 0")


@pytest.mark.parametrize(
    "content", [b"", b"ModifyDeviceFiles: 0\n", b"ModifyDeviceFiles: 10\n", b"XModifyDeviceFiles: 1\n"]
)
def test_content_in_which_no_line_sets_modifydevicefiles_to_1_is_not_changed(content: bytes) -> None:
    assert without_modification(content) is None

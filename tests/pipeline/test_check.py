"""A document is checked before it becomes a spec: by CDI's rules, for the target, against the host."""

from pathlib import Path
from typing import Any

import pytest

from cdigen.host.root import Root
from cdigen.model.errors import SpecError
from cdigen.pipeline.check import check_document, check_written


def document(**edits: Any) -> dict[str, Any]:
    device = {"name": "0", "containerEdits": edits or {"env": ["A=1"]}}
    return {"cdiVersion": "0.5.0", "kind": "acme.com/gpu", "devices": [device]}


def test_a_good_document_becomes_bytes_that_read_back_as_good() -> None:
    content, findings = check_document(document(), host=None, target=None)
    assert findings == ()
    check_written(content)


def test_a_document_that_breaks_a_rule_is_refused_with_the_first_of_its_errors() -> None:
    with pytest.raises(SpecError, match=r"the spec of acme.com/gpu breaks a rule .*env"):
        check_document(document(env=["no equals sign"]), host=None, target=None)


def test_what_the_host_lacks_is_an_error_only_where_a_host_is_given(tmp_path: Path) -> None:
    mount = {"hostPath": "/usr/bin/tool", "containerPath": "/usr/bin/tool", "options": ["ro", "bind"]}
    check_document(document(mounts=[mount]), host=None, target=None)
    with pytest.raises(SpecError, match="/usr/bin/tool"):
        check_document(document(mounts=[mount]), host=Root(str(tmp_path)), target=None)


def test_bytes_that_the_disk_gave_back_wrong_are_refused() -> None:
    with pytest.raises(SpecError, match="read back from the disk is wrong"):
        check_written(b'{"cdiVersion": "0.5.0"')

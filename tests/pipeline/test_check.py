"""cdigen checks a document before it becomes a spec: with CDI's rules, the target, and the host."""

from pathlib import Path
from typing import Any

import pytest

from cdigen.host.root import Root
from cdigen.model.errors import SpecError
from cdigen.pipeline.check import check_document, check_written


def document(**edits: Any) -> dict[str, Any]:
    device = {"name": "0", "containerEdits": edits or {"env": ["A=1"]}}
    return {"cdiVersion": "0.5.0", "kind": "acme.com/gpu", "devices": [device]}


def test_a_valid_document_becomes_valid_bytes() -> None:
    content, findings = check_document(document(), host=None, target=None)
    assert findings == ()
    check_written(content)


def test_a_document_that_breaks_a_rule_is_refused_with_its_first_error() -> None:
    with pytest.raises(SpecError, match=r"the spec of acme.com/gpu breaks a rule .*env"):
        check_document(document(env=["no equals sign"]), host=None, target=None)


def test_a_missing_path_is_an_error_only_with_a_host(tmp_path: Path) -> None:
    mount = {"hostPath": "/usr/bin/tool", "containerPath": "/usr/bin/tool", "options": ["ro", "bind"]}
    check_document(document(mounts=[mount]), host=None, target=None)
    with pytest.raises(SpecError, match="/usr/bin/tool"):
        check_document(document(mounts=[mount]), host=Root(str(tmp_path)), target=None)


def test_invalid_bytes_from_the_disk_are_refused() -> None:
    with pytest.raises(SpecError, match="spec file on the disk is not valid"):
        check_written(b'{"cdiVersion": "0.5.0"')

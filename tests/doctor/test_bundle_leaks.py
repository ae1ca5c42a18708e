"""The bundle contains no files of users, and no secrets from specs and configurations."""

import json
import os
from typing import Any

import pytest
from support.doctor.broken_host import BrokenHost
from support.doctor.bundles import packed
from support.values.unhealthy_gpus import FELL, example, save, with_causes

from cdigen.value import replace

SECRET = "s3cr3t7f2a"
ALICE = "root:x:0:0::/root:/bin/sh\nalice:x:4242:4242::/home/alice:/bin/sh\n"


def bundle(host: BrokenHost, *options: str) -> dict[str, str]:
    """Write a bundle for HOST, with or without failures, and return its texts by file name."""
    return packed(host, *options, code=None)


def specs(texts: dict[str, str]) -> list[dict[str, Any]]:
    """Return the bundle's rows about spec files, one for each file and reader."""
    return [file for scan in json.loads(texts["specs.json"]) for file in scan["specs"]]


def leaks(texts: dict[str, str]) -> list[str]:
    return [name for name, text in texts.items() if SECRET in text]


def add_alice(host: BrokenHost, *, may_read: bool) -> None:
    """Add the user alice, with a link in her spec directory to a file. If MAY_READ, she may read the file."""
    host.put("etc/passwd", ALICE)
    folder = host.put("home/alice/.config/containers/containers.conf", "").parent
    (folder / "containers.conf").write_text('[engine]\ncdi_spec_dirs = ["/home/alice/cdi", "/var/run/cdi"]\n')
    (host.root / "home/alice/cdi").mkdir()
    edits = {"containerEdits": {"deviceNodes": [{"path": f"/dev/{SECRET}"}]}}
    other = {"cdiVersion": "0.5.0", "kind": "other.com/thing", "devices": [{"name": "a", **edits}]}
    host.put("root/private.json", other, mode=0o644 if may_read else 0o600)
    host.link("home/alice/cdi/x.json", "/root/private.json")


@pytest.mark.parametrize("may_read", [True, False])
def test_a_link_of_a_user_leaks_nothing(host: BrokenHost, *, may_read: bool) -> None:
    add_alice(host, may_read=may_read)
    texts = bundle(host, "--user alice")
    assert not leaks(texts)
    states = {file["path"].rpartition("/")[2]: file["state"] for file in specs(texts)}
    assert states["x.json"] == ("loaded" if may_read else "file-unreadable")


def test_no_result_quotes_a_spec_that_the_user_may_not_read(host: BrokenHost) -> None:
    add_alice(host, may_read=False)
    document = host.document()
    document["containerEdits"] = {"deviceNodes": [{"path": f"/dev/{SECRET}"}]}
    host.put("root/private.json", document, mode=0o600)
    assert not leaks(bundle(host, "--user alice"))


def test_a_rejected_spec_is_listed_with_its_rule_and_without_its_value(host: BrokenHost) -> None:
    host.put("etc/cdi/other.yaml", spec_with(f'    env: ["{SECRET}"]'))
    found = [file["rules"] for file in specs(bundle(host)) if file["path"] == "/etc/cdi/other.yaml"]
    assert [rule[:4] for rule in found[0]] == ["env-"]


def test_no_detail_quotes_a_rejected_spec_of_a_required_kind(host: BrokenHost) -> None:
    document = host.document()
    document["containerEdits"]["env"] = [SECRET]
    host.put("run/cdi/nvidia.com-gpu.json", document)
    texts = bundle(host)
    assert not json.loads(texts["doctor.json"])[0]["ok"]
    assert not leaks(texts)


def test_a_configuration_that_the_user_may_not_read_is_left_out(host: BrokenHost) -> None:
    add_alice(host, may_read=False)
    file = host.path("home/alice/.config/containers/containers.conf")
    host.put("root/private.toml", f'[engine.{SECRET}]\nruntime = "{SECRET}"\n', mode=0o600)
    file.unlink()
    file.symlink_to("/root/private.toml")
    assert not leaks(bundle(host, "--user alice"))


def test_a_link_to_a_closed_directory_lists_no_files(host: BrokenHost) -> None:
    add_alice(host, may_read=False)
    folder = host.put(f"root/closed/{SECRET}.json", "{}").parent
    folder.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(folder, 0, 0)
    (host.root / "home/alice/cdi/x.json").unlink()
    (host.root / "home/alice/cdi").rmdir()
    host.link("home/alice/cdi", "/root/closed")
    assert not leaks(bundle(host, "--user alice"))


@pytest.mark.parametrize("name", ["shadow.json", "shadow.yaml"])
@pytest.mark.parametrize(
    "content",
    [
        f"root:$6${SECRET}:1::::::\ndaemon:*:1::::::\n",
        json.dumps({"auths": {"r.example": {"auth": SECRET}}}),
        json.dumps({"kind": {"x": SECRET}, "devices": SECRET, "containerEdits": [SECRET]}),
    ],
)
def test_a_file_that_is_not_a_spec_is_not_quoted_through_a_link(
    host: BrokenHost, name: str, content: str
) -> None:
    host.put("etc/shadow", content, mode=0o600)
    host.link(f"run/cdi/{name}", "/etc/shadow")
    texts = bundle(host)
    assert f"/var/run/cdi/{name}" in [file["path"] for file in specs(texts)]
    assert not leaks(texts)


def spec_with(edits: str) -> str:
    return (
        "cdiVersion: '0.6.0'\nkind: other.com/thing\ndevices:\n- name: a\n  containerEdits:\n"
        f"    deviceNodes: [{{path: /dev/null}}]\n{edits}\n"
    )


HOOK = "    hooks: [{hookName: prestart,"
YAML = {
    "bare": f"    env:\n    - TOKEN={SECRET}",
    "flow": f"    env: [TOKEN={SECRET}]",
    "folded": f"    env:\n    - >-\n      TOKEN=a\n      {SECRET}",
    "quoted": f'    env: ["TOKEN=\\"{SECRET}"]',
    "dotted name": f"    env: [a.b={SECRET}]",
    "dashed name": f"    env: [TOKEN-X={SECRET}]",
    "escaped name": f'    env: ["\\u0041B={SECRET}"]',
    "no name": f'    env: ["{SECRET}", "={SECRET}"]',
    "a key by NVIDIA": f"    env: [NVIDIA_API_KEY={SECRET}]",
    "variables that are no list": f"    env: {{TOKEN: {SECRET}}}",
    "a hook": f"{HOOK} path: /bin/x, args: [x, --key={SECRET}, -p{SECRET}, {SECRET}]}}]",
    "NVIDIA's hook": f"{HOOK} path: /usr/bin/nvidia-ctk, args: [--key={SECRET}, {SECRET}]}}]",
    "a hook's variables": f"    hooks: [{{hookName: prestart, path: /bin/x, env: [TOKEN={SECRET}]}}]",
    "a mount": f"    mounts: [{{hostPath: /x, containerPath: /x, options: [password={SECRET}]}}]",
    "annotations of a device": f"  annotations: {{a.b/c: {SECRET}}}",
    "annotations": f"annotations: {{a.b/c: {SECRET}}}",
    "an unknown field": f"x-login: {SECRET}",
    "a comment": f"# {SECRET}",
    "broken": f"password: {SECRET}\n  - [",
}


@pytest.mark.parametrize("edits", YAML.values(), ids=YAML)
def test_secrets_of_a_spec_are_left_out(host: BrokenHost, edits: str) -> None:
    host.put("etc/cdi/other.yaml", spec_with(edits))
    texts = bundle(host)
    assert "/etc/cdi/other.yaml" in [file["path"] for file in specs(texts)]
    assert not leaks(texts)


JSON = [
    '"env": ["A=\\"q", "TOKEN=\\"%s"]',
    '"env": ["\\u0041B=%s", "TOKEN-X=%s"]',
    '"env": ["A=1"}, "password": "%s"',
]


@pytest.mark.parametrize("edits", JSON)
def test_secrets_of_a_spec_in_json_are_left_out(host: BrokenHost, edits: str) -> None:
    text = '{"cdiVersion": "0.6.0", "kind": "o.com/x", "devices": [{"name": "a", "containerEdits": {%s}}]}'
    host.put("etc/cdi/other.json", text % edits.replace("%s", SECRET))
    assert not leaks(bundle(host))


def test_only_settings_that_cdigen_parses_are_in_the_bundle(tmp_path_host: BrokenHost) -> None:
    host = tmp_path_host
    nvidia = {
        "path": "/usr/bin/nvidia-container-runtime",
        "runtimeArgs": [SECRET],
        "options": {"conn": SECRET},
    }
    host.put(
        "etc/docker/daemon.json",
        {
            "features": {"cdi": True},
            "runtimes": {"nvidia": nvidia},
            "exec-opts": ["native.cgroupdriver=systemd", SECRET],
        },
    )
    runc = 'plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc'
    host.put(
        "etc/containerd/config.toml",
        f'version = 2\n[{runc}]\nruntime_type = "io.containerd.runc.v2"\npod_annotations = ["{SECRET}"]\n'
        f'[{runc}.options]\nBinaryName = "/usr/bin/runc"\nconn = "{SECRET}"\n',
    )
    host.put("etc/containers/containers.conf", '[engine.runtimes]\ncrun = ["/usr/bin/crun"]\n')
    texts = bundle(host)
    assert not leaks(texts)
    docker = next(row for row in json.loads(texts["specs.json"]) if row["runtime"] == "docker")
    assert (docker["cdi"], docker["files"]) == (True, ["/etc/docker/daemon.json"])


def test_comments_of_cdigens_own_configuration_are_left_out(host: BrokenHost) -> None:
    host.put("etc/cdigen/config.yaml", f"# {SECRET}\nnvml: 'off'\n")
    texts = bundle(host)
    assert not leaks(texts)
    assert json.loads(texts["configuration.json"])["nvml"] == "off"


def test_a_number_of_thousands_of_digits_does_not_break_the_bundle(host: BrokenHost) -> None:
    digits = "9" * 5000
    host.put("etc/cdi/other.json", f'{{"cdiVersion": {digits}, "kind": "o.com/x", "devices": []}}')
    host.put("etc/cdi/other.yaml", f"cdiVersion: {digits}\nkind: o.com/x\ndevices: []\n")
    assert "doctor.json" in bundle(host)


def test_an_unhealthy_device_has_only_the_names_of_its_causes(host: BrokenHost) -> None:
    mark = replace(FELL, cause="marked", detail=f"{SECRET} of alice")
    save(host.root, with_causes(example(), 3, FELL, mark))
    texts = bundle(host)
    assert not leaks(texts)
    rows = {row["device"]: row for row in json.loads(texts["health.json"])}
    assert [cause["cause"] for cause in rows["nvidia.com/gpu=3"]["causes"]] == ["xid-79", "marked"]

"""The bundle contains derived data, no files of the host, and no identifying names."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doctor.broken_host import KIND, BrokenHost
from support.doctor.bundles import packed

from cdigen.doctor.bundle import Redaction

UUID = "GPU-5a1c7e42-8f0e-4d3b-9c52-7b6d1e0f0000"
SECRET = "s3cr3t-registry-token"


def test_the_bundle_contains_data_that_cdigen_derives_from_the_host(host: BrokenHost) -> None:
    texts = packed(host)
    assert texts.keys() == {
        "doctor.json", "versions.json", "configuration.json", "inventory.json", "failures.json", "specs.json",
        "generated/nvidia.com-gpu.json",
    }  # fmt: skip
    assert json.loads(texts["doctor.json"])[0].keys() >= {"check", "ok", "severity"}
    assert json.loads(texts["configuration.json"])["spec_dirs"] == ["/etc/cdi", "/var/run/cdi"]
    assert json.loads(texts["inventory.json"])["vendors"]["nvidia"]["driver"]["version"] == "550.163.01"
    assert json.loads(texts["generated/nvidia.com-gpu.json"])["kind"] == KIND


def test_the_bundle_has_the_state_of_each_spec_file_for_each_runtime(host: BrokenHost) -> None:
    broken = {"cdiVersion": "0.5.0", "kind": "other.com/thing", "devices": []}
    host.put("etc/cdi/other.json", broken)
    own, podman = json.loads(packed(host, code=1)["specs.json"])
    assert [own["runtime"], podman["runtime"]] == ["cdigen", "podman"]
    refused, ours = podman["specs"]
    assert (refused["path"], refused["state"]) == ("/etc/cdi/other.json", "file-refused")
    assert refused["rules"] == ["devices-empty"]
    assert (ours["state"], ours["ours"], ours["kind"]) == ("loaded", True, KIND)


def test_results_that_quote_files_have_no_detail(host: BrokenHost) -> None:
    rows = json.loads(packed(host)["doctor.json"])
    assert {row["topic"] for row in rows if "detail" in row} <= {
        "configuration", "driver", "nodes", "daemon", "user"
    }  # fmt: skip


def test_only_the_owner_may_read_the_bundle(host: BrokenHost) -> None:
    packed(host)
    assert (host.root.parent / "report.tar.gz").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["file", "link", "dangling link"])
def test_no_file_is_overwritten_and_no_link_is_followed(host: BrokenHost, tmp_path: Path, kind: str) -> None:
    file, target = tmp_path / "report.tar.gz", tmp_path / "target"
    if kind != "dangling link":
        target.write_text("precious")
    if kind == "file":
        file.write_text("precious")
    else:
        file.symlink_to(target)
    host.shell(f"cdigen doctor --root {host.root} --bundle {file}", code=5)
    assert target.exists() == (kind != "dangling link")
    assert kind == "dangling link" or "precious" in (file.read_text(), target.read_text())


def test_credentials_and_environments_of_configurations_are_left_out(tmp_path_host: BrokenHost) -> None:
    host = tmp_path_host
    docker = {
        "features": {"cdi": True},
        "proxies": {"http-proxy": f"http://me:{SECRET}@proxy"},
        "registry-mirrors": [f"https://{SECRET}@mirror"],
        "log-opts": {"splunk-token": SECRET, "env": SECRET},
    }
    host.put("etc/docker/daemon.json", docker)
    host.put(
        "etc/containers/containers.conf",
        f'[containers]\nenv = ["TOKEN={SECRET}"]\n[engine]\ncdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\n',
    )
    registry = 'plugins."io.containerd.grpc.v1.cri".registry.configs."r.example".auth'
    host.put("etc/containerd/config.toml", f'version = 2\n[{registry}]\npassword = "{SECRET}"\n')
    assert not [name for name, text in packed(host).items() if SECRET in text]


def test_an_invalid_configuration_is_not_quoted(host: BrokenHost) -> None:
    host.put("etc/containers/containers.conf", f'[containers\nenv = ["TOKEN={SECRET}"]\n')
    assert not [name for name, text in packed(host, code=1).items() if SECRET in text]


def test_links_out_of_the_host_are_not_followed(host: BrokenHost, tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text(json.dumps({"kind": SECRET}))
    host.put("etc/cdi/x", "")
    host.link("etc/cdi/leak.json", str(outside))
    assert not [name for name, text in packed(host, code=1).items() if SECRET in text]


def test_each_identifying_name_has_a_single_replacement(host: BrokenHost) -> None:
    host.put("etc/hostname", "gpu-box-17.lab.example.org\n")
    host.put("etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n")
    host.put("etc/cdigen/config.yaml", "spec_dirs: [/home/bob/gpu-box-17, /srv/alice, /var/run/cdi]\n")
    texts = packed(host, code=None)
    everything = "".join(texts.values())
    for name in (UUID, "alice", "bob", "gpu-box-17", "lab.example.org"):
        assert name not in everything
    redacted = json.loads(texts["inventory.json"])["vendors"]["nvidia"]["accelerators"][0]["uuid"]
    assert redacted.startswith("GPU-00000000-0000-0000-0000-")
    assert redacted in texts["generated/nvidia.com-gpu.json"]


def test_the_bundle_contains_no_serial_number(host: BrokenHost) -> None:
    assert "serial" not in "".join(packed(host).values()).lower()


WORDS = st.sampled_from([UUID, "alice", "host1", "MIG-5a1c7e428f0e4d3b9c527b6d1e0f0000", "/home/bob/x"])


@given(st.lists(WORDS, min_size=1, max_size=8))
def test_all_identifying_names_are_replaced_and_equal_names_stay_equal(words: list[str]) -> None:
    redaction = Redaction({"host1", "alice"})
    redacted = [redaction.redacted(word) for word in words]
    assert redaction.redacted({"\n".join(words): words}) == {"\n".join(map(str, redacted)): redacted}
    assert len({*map(str, redacted)}) == len(set(words))
    for word in ("5a1c7e42", "alice", "host1", "bob"):
        assert word not in str(redacted)


@pytest.mark.parametrize("uuid", ["0xEA35F57CC80DEB35", "0xA35F57CC80DEB35"])
def test_the_unique_id_of_an_amd_gpu_is_replaced(uuid: str) -> None:
    assert uuid not in str(Redaction().redacted({f"amd.com/gpu={uuid}": uuid}))


@pytest.mark.parametrize("text", ["0000:01:00.0", "570.86.15", "libcuda.so.1", "nvidia.com/gpu=0", "malice"])
def test_texts_without_identifying_names_are_unchanged(text: str) -> None:
    assert Redaction({"alice"}).redacted(text) == text


def test_a_missing_folder_is_not_created(host: BrokenHost, tmp_path: Path) -> None:
    host.shell(f"cdigen doctor --root {host.root} --bundle {tmp_path}/no/report.tar.gz", code=5)
    assert not os.path.exists(tmp_path / "no")

"""The evidence for a bug report: what is in it, what is not, and what is redacted."""

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


def test_it_holds_what_cdigen_derived_of_the_host(host: BrokenHost) -> None:
    texts = packed(host)
    assert texts.keys() == {
        "doctor.json", "versions.json", "configuration.json", "inventory.json", "failures.json", "specs.json",
        "wanted/nvidia.com-gpu.json",
    }  # fmt: skip
    assert json.loads(texts["doctor.json"])[0].keys() >= {"check", "ok", "severity"}
    assert json.loads(texts["configuration.json"])["spec_dirs"] == ["/etc/cdi", "/var/run/cdi"]
    assert json.loads(texts["inventory.json"])["vendors"]["nvidia"]["driver"]["version"] == "550.163.01"
    assert json.loads(texts["wanted/nvidia.com-gpu.json"])["kind"] == KIND


def test_it_tells_what_each_runtime_makes_of_the_spec_files(host: BrokenHost) -> None:
    broken = {"cdiVersion": "0.5.0", "kind": "other.com/thing", "devices": []}
    host.put("etc/cdi/other.json", broken)
    own, podman = json.loads(packed(host, code=1)["specs.json"])
    assert [own["runtime"], podman["runtime"]] == ["cdigen", "podman"]
    refused, ours = podman["specs"]
    assert (refused["path"], refused["state"]) == ("/etc/cdi/other.json", "file-refused")
    assert refused["rules"] == ["devices-empty"]
    assert (ours["state"], ours["ours"], ours["kind"]) == ("loaded", True, KIND)


def test_of_families_that_quote_files_no_detail_is_told(host: BrokenHost) -> None:
    rows = json.loads(packed(host)["doctor.json"])
    assert {row["topic"] for row in rows if "detail" in row} <= {
        "configuration", "driver", "nodes", "daemon", "user"
    }  # fmt: skip


def test_only_its_owner_may_read_it(host: BrokenHost) -> None:
    packed(host)
    assert (host.root.parent / "report.tar.gz").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["file", "link", "dangling link"])
def test_nothing_is_written_over_and_no_link_is_followed(host: BrokenHost, tmp_path: Path, kind: str) -> None:
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


def test_credentials_and_the_environment_of_configurations_stay_at_home(tmp_path_host: BrokenHost) -> None:
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


def test_nothing_is_told_of_a_configuration_that_cannot_be_parsed(host: BrokenHost) -> None:
    host.put("etc/containers/containers.conf", f'[containers\nenv = ["TOKEN={SECRET}"]\n')
    assert not [name for name, text in packed(host, code=1).items() if SECRET in text]


def test_links_out_of_the_host_are_not_followed(host: BrokenHost, tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text(json.dumps({"kind": SECRET}))
    host.put("etc/cdi/x", "")
    host.link("etc/cdi/leak.json", str(outside))
    assert not [name for name, text in packed(host, code=1).items() if SECRET in text]


def test_what_identifies_has_another_name_the_same_one_everywhere(host: BrokenHost) -> None:
    host.put("etc/hostname", "gpu-box-17.lab.example.org\n")
    host.put("etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n")
    host.put("etc/cdigen/config.yaml", "spec_dirs: [/home/bob/gpu-box-17, /srv/alice, /var/run/cdi]\n")
    texts = packed(host, code=None)
    everything = "".join(texts.values())
    for name in (UUID, "alice", "bob", "gpu-box-17", "lab.example.org"):
        assert name not in everything
    redacted = json.loads(texts["inventory.json"])["vendors"]["nvidia"]["accelerators"][0]["uuid"]
    assert redacted.startswith("GPU-00000000-0000-0000-0000-")
    assert redacted in texts["wanted/nvidia.com-gpu.json"]


def test_nothing_in_it_is_called_a_serial_number(host: BrokenHost) -> None:
    assert "serial" not in "".join(packed(host).values()).lower()


def test_the_option_of_older_releases_means_a_bundle(host: BrokenHost) -> None:
    host.shell(f"cdigen doctor --root {host.root} --mask", code=2)
    packed(host, "--mask")


WORDS = st.sampled_from([UUID, "alice", "host1", "MIG-5a1c7e428f0e4d3b9c527b6d1e0f0000", "/home/bob/x"])


@given(st.lists(WORDS, min_size=1, max_size=8))
def test_nothing_that_identifies_is_left_and_equal_things_stay_equal(words: list[str]) -> None:
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
def test_what_identifies_nobody_is_left_as_it_is(text: str) -> None:
    assert Redaction({"alice"}).redacted(text) == text


def test_a_root_user_may_pack_into_no_folder_that_is_missing(host: BrokenHost, tmp_path: Path) -> None:
    host.shell(f"cdigen doctor --root {host.root} --bundle {tmp_path}/no/report.tar.gz", code=5)
    assert not os.path.exists(tmp_path / "no")

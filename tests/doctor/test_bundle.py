"""The evidence for a bug report: what is in it, what is not, and what is masked."""

import io
import json
import os
import tarfile
from pathlib import Path

import pytest
from doctor.brokenhost import NAME, BrokenHost
from hypothesis import given
from hypothesis import strategies as st

from cdigen.doctor.masking import Masks

UUID = "GPU-5a1c7e42-8f0e-4d3b-9c52-7b6d1e0f0000"
SECRET = "s3cr3t-registry-token"


def pack(host: BrokenHost, *options: str) -> dict[str, str]:
    """Pack the evidence and return its texts by their names."""
    file = host.root.parent / "report.tar.gz"
    file.unlink(missing_ok=True)
    host.shell(" ".join(("cdigen doctor --quiet", f"--root {host.root} --bundle {file}", *options)), code=0)
    with tarfile.open(fileobj=io.BytesIO(file.read_bytes())) as archive:
        members = archive.getmembers()
        assert all(member.isfile() and member.name.startswith("cdigen-doctor/") for member in members)
        assert not any(".." in member.name.split("/") for member in members)
        texts = {}
        for member in members:
            content = archive.extractfile(member)
            assert content is not None
            texts[member.name.removeprefix("cdigen-doctor/")] = content.read().decode()
    return texts


def test_it_holds_what_the_checks_said_and_what_they_looked_at(host: BrokenHost) -> None:
    texts = pack(host)
    assert {"doctor.json", "versions.json", "inventory.json", "listing.txt"} < texts.keys()
    assert json.loads(texts[f"specs/var/run/cdi/{NAME}"]) == host.document()
    assert json.loads(texts["doctor.json"])[0].keys() >= {"check", "ok", "detail", "remedy"}
    assert texts["system/proc/driver/nvidia/version"].startswith("NVRM version")
    assert UUID in texts["inventory.json"]


def test_only_its_owner_may_read_it(host: BrokenHost) -> None:
    pack(host)
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
    texts = pack(host)
    assert not [name for name, text in texts.items() if SECRET in text]
    assert '"cdi": true' in texts["runtimes/etc/docker/daemon.json"]
    assert "/var/run/cdi" in texts["runtimes/etc/containers/containers.conf"]
    assert "auth" in texts["runtimes/etc/containerd/config.toml"]


def test_a_configuration_that_cannot_be_parsed_is_left_out_whole(host: BrokenHost) -> None:
    host.put("etc/containers/containers.conf", f'[containers\nenv = ["TOKEN={SECRET}"]\n')
    file = host.root.parent / "report.tar.gz"
    host.shell(f"cdigen doctor --root {host.root} --bundle {file}", code=1)
    with tarfile.open(file) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            assert content is not None
            assert SECRET.encode() not in content.read()


def test_variables_that_specs_set_are_named_without_their_values(host: BrokenHost) -> None:
    edits = {"containerEdits": {"env": [f"API_TOKEN={SECRET}", "NVIDIA_VISIBLE_DEVICES=void"]}}
    other = {"cdiVersion": "0.5.0", "kind": "other.com/thing", "devices": [{"name": "a", **edits}]}
    host.put("etc/cdi/other.json", other)
    text = pack(host)["specs/etc/cdi/other.json"]
    assert SECRET not in text
    assert "API_TOKEN=" in text
    assert "NVIDIA_VISIBLE_DEVICES=void" in text


def test_links_out_of_the_host_are_not_followed(host: BrokenHost, tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text(json.dumps({"kind": SECRET}))
    host.put("etc/cdi/x", "")
    host.link("etc/cdi/leak.json", str(outside))
    file = host.root.parent / "report.tar.gz"
    host.shell(f"cdigen doctor --root {host.root} --bundle {file}", code=1)
    assert SECRET.encode() not in b"".join(_contents(file))


def _contents(file: Path) -> list[bytes]:
    with tarfile.open(file) as archive:
        return [content.read() for member in archive if (content := archive.extractfile(member)) is not None]


def test_masks_give_other_names_and_the_same_ones_everywhere(host: BrokenHost) -> None:
    host.put("etc/hostname", "gpu-box-17\n")
    host.put("etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n")
    host.put("etc/cdigen/config.yaml", "# written by alice on gpu-box-17\nnvml: 'off'\n")
    texts = pack(host, "--mask")
    everything = "".join(texts.values())
    assert UUID not in everything
    assert "alice" not in everything
    assert "gpu-box-17" not in everything
    masked = json.loads(texts["inventory.json"])["vendors"]["nvidia"]["accelerators"][0]["uuid"]
    assert masked.startswith("GPU-00000000-0000-0000-0000-")
    assert masked in texts[f"specs/var/run/cdi/{NAME}"]


def test_masking_means_a_bundle(host: BrokenHost) -> None:
    host.shell(f"cdigen doctor --root {host.root} --mask", code=2)


WORDS = st.sampled_from(
    [
        "GPU-5a1c7e42-8f0e-4d3b-9c52-7b6d1e0f0000",
        "alice",
        "host1",
        "52:54:00:12:34:56",
        "10.1.2.3",
        "Serial: 0324518",
    ]
)


@given(st.lists(WORDS, min_size=1, max_size=8))
def test_nothing_that_is_masked_is_left_and_equal_things_stay_equal(words: list[str]) -> None:
    masks = Masks(hosts={"host1"}, users={"alice"})
    masked = [masks.masked(word) for word in words]
    assert masks.masked("\n".join(words)) == "\n".join(masked)
    assert len(set(masked)) == len(set(words))
    assert not any(word.split()[-1] in other for word in words for other in masked)


def test_a_root_user_may_pack_into_no_folder_that_is_missing(host: BrokenHost, tmp_path: Path) -> None:
    host.shell(f"cdigen doctor --root {host.root} --bundle {tmp_path}/no/report.tar.gz", code=5)
    assert not os.path.exists(tmp_path / "no")

"""The Debian packages are installed, upgraded, removed and purged on clean hosts with systemd.

The tests of a release use the same host. After each test, cdigen is purged.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containers.booted_host import GPUS, GpuHost, eventually, gpu_host
from support.containers.booted_kubelet import GPU, PRETENDED, healthy, kubelet_at
from support.containers.chroot_host import DEBIAN_IMAGE, running_host
from support.containers.debian_packages import APT, NEXT, Debs, build, one_file, pynvml_repository
from support.containers.starting_containers import REFUSAL, Starts
from support.containers.upgrade_host import REPLAYED
from support.hosts.nvidia_kernel import write_kernel_side
from support.installation.installing import done, make, snapshot
from support.own_trees import copied_tree, copy_tree
from support.paths import REPOSITORY
from support.processes import succeeded

pytestmark = pytest.mark.e2e

RELEASES = {"trixie": "550.163.01", "bookworm": "535.216.03"}
SPEC = "/run/cdi/nvidia.com-gpu.json"
VIEW = "/usr/local/nvidia/lib64/"
HOOK = "/usr/libexec/cdigen/cdigen-hook"
SERVICES = ("cdigen", "cdigen-nri", "cdigen-kubelet")
ROUNDS = int(os.environ.get("CDIGEN_SOAK_PACKAGES", "1"))
RUN = f"podman run --rm --device nvidia.com/gpu=0 {DEBIAN_IMAGE}"
# Files that apt, dpkg, podman and the driver's packages write.
OF_OTHERS = (
    "var/lib/dpkg", "var/lib/apt", "var/cache", "var/log", "var/lib/containers",
    "var/lib/systemd/deb-systemd", "run", "dev", "proc", "sys", "tmp", "root", "var/tmp",
    "etc/ld.so.cache", "etc/cni", "etc/containers/networks", "debs",
)  # fmt: skip
# Behaviour that is the same on all releases is tested on one release.
ON_DEBIAN_13 = pytest.mark.parametrize("release", ["trixie"], indirect=True)


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def debs(cache: Path, release: str) -> Iterator[Debs]:
    with tempfile.TemporaryDirectory(prefix="debs-", dir=cache) as folder:
        yield build(cache, release, Path(folder))


@pytest.fixture(scope="module")
def clean(cache: Path, images: Path, release: str, debs: Debs) -> Iterator[GpuHost]:
    """Boot a host on which cdigen was never installed."""
    tree = cache / f"host-{release}"
    with gpu_host(tree, RELEASES[release], images=images, install=debs.lay_into) as found:
        found.host.run("apt-get update --quiet")
        yield found


@pytest.fixture
def tree(cache: Path, release: str, debs: Debs) -> Iterator[Path]:
    """Return the tree of a host that was not booted, with the files of the kernel in /kernel."""
    with copied_tree(cache / f"host-{release}", cache) as root:
        debs.lay_into(root)
        write_kernel_side(root / "kernel", GPUS, driver_version=RELEASES[release])
        yield root


@pytest.fixture
def gpus(clean: GpuHost) -> Iterator[GpuHost]:
    yield clean
    clean.host.run(f"{APT} purge '?name(cdigen)'")
    clean.host.run("rm -rf /run/cdi/* /etc/cdi; echo PURGE | debconf-communicate cdigen")


SHOW_GPUS = "mount --bind /kernel/proc/driver /proc/driver; mount --bind /kernel/proc/devices /proc/devices"


@ON_DEBIAN_13
def test_a_host_without_systemd_gets_its_spec_from_the_package(tree: Path, images: Path, debs: Debs) -> None:
    (tree / "debs/a-driver.deb").write_bytes(
        one_file(debs.now.parent, "usr/lib/firmware/nvidia/0/gsp.bin").read_bytes()
    )
    with running_host(tree, images=images, state=tree / "kernel") as host:
        host.run(f"{SHOW_GPUS}; apt-get update --quiet; {APT} install /debs/now/*cdigen_*.deb", timeout_s=300)
        assert host.run(f"{RUN} dlopen-all libcuda.so.1").startswith("ok ")
        host.run(f"rm {SPEC}; dpkg --install /debs/a-driver.deb")
        assert host.run(f"{RUN} dlopen-all libcuda.so.1").startswith("ok ")
        host.run(f"{APT} purge '?name(cdigen)'")
        assert REFUSAL in host.attempt(f"{RUN} true").stderr


@ON_DEBIAN_13
def test_in_a_chroot_the_package_starts_no_service_and_writes_no_spec(tree: Path, images: Path) -> None:
    """The chroot is like that of debootstrap, on a machine with GPUs."""
    with running_host(tree, images=images, state=tree / "kernel") as host:
        host.run(
            "mkdir /image; mount --rbind / /image; "
            "mount -t proc proc /image/proc; mount -t tmpfs run /image/run; "
            f"mkdir --parents /image/run/systemd/system; {SHOW_GPUS.replace(' /proc', ' /image/proc')}"
        )
        wanted = f"apt-get update --quiet; {APT} install /debs/now/*cdigen_*.deb; cdigen --version"
        host.run(f'chroot /image sh -euc "{wanted}"', timeout_s=300)
        # The GPUs are visible in the chroot.
        assert "nvidia.com/gpu" in host.run("chroot /image cdigen generate")
        assert (
            host.run("find /image/run /image/var/lib/cdigen -type f -path '*cdi*' 2>/dev/null || true") == ""
        )


@ON_DEBIAN_13
def test_the_package_has_every_file_of_the_documentation(debs: Debs, tmp_path: Path) -> None:
    done(make("install-documentation", tmp_path / "made"))
    (package,) = debs.now.glob("cdigen_*.deb")
    succeeded(["dpkg-deb", "--extract", package, tmp_path / "package"])
    assert files(tmp_path / "made") - files(tmp_path / "package") == set()


def files(tree: Path) -> set[str]:
    return {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()}


def install(gpus: GpuHost, folder: str = "now", *packages: str) -> None:
    """Install PACKAGES of FOLDER with apt, by default the packages that a container with a GPU needs."""
    there = {path.name.partition("_")[0]: path.name for path in (gpus.root / "debs" / folder).iterdir()}
    wanted = packages or ("cdigen", "python3-cdigen")
    files = " ".join(f"/debs/{folder}/{there[name]}" for name in wanted)
    gpus.host.run(f"{APT} install {files}", timeout_s=300)


def purge(gpus: GpuHost) -> None:
    gpus.host.run(f"{APT} purge --autoremove '?name(cdigen)'")


def system(gpus: GpuHost) -> dict[str, object]:
    """Return all files of the host, without files that package managers and runtimes write."""
    return {path: report for path, report in snapshot(gpus.root).items() if not path.startswith(OF_OTHERS)}


def spec(gpus: GpuHost) -> str:
    return gpus.host.attempt(f"cat {SPEC}").stdout


def assert_a_container_has_the_driver(gpus: GpuHost) -> None:
    assert gpus.host.run(f"{RUN} dlopen-all libcuda.so.1").startswith(f"ok {VIEW}")


def test_a_container_has_a_gpu_after_installation_and_no_file_is_left_after_purge(
    gpus: GpuHost, debs: Debs
) -> None:
    before = system(gpus)
    install(gpus, "now", *(path.name.partition("_")[0] for path in debs.now.glob("*.deb")))
    assert_a_container_has_the_driver(gpus)
    assert gpus.host.run(f"systemctl is-active {' '.join(SERVICES)}").split() == ["active"] * len(SERVICES)
    journal = f"journalctl --output=cat --unit={' --unit='.join(SERVICES)}"
    # The device plugins run with grpcio of the release.
    waiting = '"resource": "nvidia.com/gpu", "state": "waiting"'
    assert eventually(lambda: waiting in gpus.host.run(journal))
    assert "Traceback" not in gpus.host.run(journal)
    assert gpus.host.run(f"dpkg --verify {' '.join(SERVICES)}") == ""
    purge(gpus)
    assert system(gpus) == before
    left = gpus.host.run("find /run /var/lib /etc -name '*cdigen*' -not -path '/var/lib/dpkg/*'")
    # Only the drop-ins of this test may remain.
    assert set(left.split()) <= {
        f"/etc/systemd/system/{unit}.service.d" for unit in ("cdigen", "cdigen-once")
    }
    assert REFUSAL in gpus.host.attempt(f"{RUN} true").stderr


def test_a_kubelet_has_gpus_after_installation_and_upgrade_until_removal(gpus: GpuHost, debs: Debs) -> None:
    packages = tuple(path.name.partition("_")[0] for path in debs.now.glob("*.deb"))
    install(gpus, "now", *packages)
    gpus.host.run(f"echo '{PRETENDED}' >>/etc/cdigen/config.yaml; systemctl restart cdigen")
    with kubelet_at(gpus, "/var/lib/kubelet") as kubelet:
        assert eventually(lambda: len(healthy(kubelet)) == 2)
        (device,) = kubelet.endpoints[GPU].allocate(healthy(kubelet)[0]).cdi_devices
        run = f"podman run --rm --device {device.name} {DEBIAN_IMAGE}"
        assert gpus.host.run(f"{run} dlopen-all libcuda.so.1").startswith("ok ")
        pid = gpus.host.run("systemctl show --property=MainPID --value cdigen-kubelet").strip()
        assert "/usr/lib/python3/dist-packages/grpc/_cython/cygrpc." in gpus.host.run(f"cat /proc/{pid}/maps")
        install(gpus, "later", *packages)
        assert eventually(lambda: len(kubelet.registered) > 1 and len(healthy(kubelet)) == 2)
        gpus.host.run(f"{APT} remove cdigen-kubelet")
        assert kubelet.endpoints[GPU].ended.wait(5)
        assert os.listdir(kubelet.plugins) == ["kubelet.sock"]


def test_containers_start_while_cdigen_is_upgraded_and_downgraded(gpus: GpuHost) -> None:
    install(gpus)
    # Containers load the driver from the view only if the hook works.
    starts = Starts(gpus.host, gpus.versions, below=VIEW)
    with starts:
        for _ in range(ROUNDS):
            install(gpus, "later")
            assert gpus.host.run("cdigen --version") == f"cdigen {NEXT}\n"
            install(gpus)
    print(f"{ROUNDS} upgrades and downgrades: {starts.counts()}")
    assert starts.wrong() == []
    assert starts.counts().keys() == {"driver"}
    assert json.loads(gpus.host.run("cdigen status --json"))["vendors"][0]["state"] == "ready"


def nvml_module(gpus: GpuHost) -> dict[str, object]:
    script = f"{SHOW_GPUS}; cdigen doctor --json --vendor nvidia"
    rows = json.loads(gpus.host.attempt(f"unshare --mount sh -c '{script}'").stdout)
    (found,) = (row for row in rows if row["check"] == "nvml-module")
    return dict(found)


@ON_DEBIAN_13
def test_without_pynvml_the_doctor_lists_missing_values_and_its_remedy_installs_pynvml(gpus: GpuHost) -> None:
    install(gpus)
    row = nvml_module(gpus)
    assert (row["ok"], row["checked"]) == (True, False)
    assert "temperature" in str(row["detail"])
    folder = gpus.root / "debs/contrib"
    folder.mkdir()
    pynvml_repository(folder)
    source = "/etc/apt/sources.list.d/contrib.list"
    gpus.host.run(f"echo 'deb [trusted=yes] file:/debs/contrib ./' >{source}; apt-get update --quiet")
    try:
        gpus.host.run(str(row["remedy"]))
        assert nvml_module(gpus)["detail"] == "the Python module pynvml is installed"
    finally:
        gpus.host.run(f"{APT} purge python3-pynvml; rm {source}; apt-get update --quiet")


@ON_DEBIAN_13
def test_the_sources_are_not_installed_over_an_installed_package(gpus: GpuHost) -> None:
    install(gpus)
    (gpus.root / "srv/sources").mkdir()
    copy_tree(REPOSITORY / "etc", gpus.root / "srv/sources/etc")
    paths = "BINDIR=/usr/bin LIBDIR=/usr/lib LIBEXECDIR=/usr/libexec UNITDIR=/usr/lib/systemd/system"
    run = f"env --chdir=/srv/sources DESTDIR= {paths} HOOK_PYTHON=/usr/bin/python3 etc/install install-hook"
    try:
        refused = gpus.host.attempt(run)
        assert refused.returncode == 2
        begin, _, remedy = refused.stderr.strip().partition("; remove the package first: ")
        assert begin == f"etc/install: {HOOK}: owned by the installed package cdigen, nothing was changed"
        assert gpus.host.run("dpkg --verify cdigen") == ""
        gpus.host.run(f"{remedy} --yes")
        assert gpus.host.attempt(f"test -e {HOOK}").returncode != 0
    finally:
        gpus.host.run("rm -r /srv/sources")


@ON_DEBIAN_13
def test_during_removal_each_container_has_the_driver_or_is_refused_by_the_runtime(gpus: GpuHost) -> None:
    install(gpus)
    starts = Starts(gpus.host, gpus.versions)
    with starts:
        assert eventually(lambda: starts.counts().get("driver", 0) > 1)
        gpus.host.run(f"{APT} remove '?name(cdigen)'")
        assert eventually(lambda: starts.counts().get("refused", 0) > 0)
    assert starts.wrong() == []
    assert spec(gpus) == ""
    assert not (gpus.root / "usr/libexec/cdigen").exists()


@ON_DEBIAN_13
def test_with_the_debconf_setting_keep_specs_a_spec_without_a_hook_stays_after_removal(gpus: GpuHost) -> None:
    install(gpus)
    gpus.host.run("echo 'cdigen cdigen/keep-specs boolean true' | debconf-set-selections")
    gpus.host.run(f"{APT} remove '?name(cdigen)'")
    assert HOOK not in spec(gpus)
    message = gpus.host.run(f"{RUN} dlopen-all libcuda.so.1")
    assert message.startswith("ok /usr/lib/x86_64-linux-gnu/libcuda.so"), message


@ON_DEBIAN_13
def test_without_the_daemon_a_change_of_a_driver_package_rewrites_the_spec(gpus: GpuHost, debs: Debs) -> None:
    driver = one_file(debs.now.parent, "usr/lib/firmware/nvidia/0/gsp.bin")
    installed = gpus.root / "debs/a-driver.deb"
    installed.write_bytes(driver.read_bytes())
    install(gpus)
    gpus.host.run("dpkg --install /debs/a-driver.deb")
    assert "Starting" not in gpus.host.run("journalctl --unit=cdigen-once --output=cat")
    gpus.host.run(f"systemctl disable --now cdigen; rm {SPEC}; dpkg --remove a-driver")
    assert_a_container_has_the_driver(gpus)
    # A masked unit is not started.
    gpus.host.run(f"systemctl mask cdigen-once; rm {SPEC}; dpkg --install /debs/a-driver.deb")
    assert spec(gpus) == ""
    gpus.host.run("systemctl unmask cdigen-once; dpkg --purge a-driver")


@pytest.mark.parametrize("release", ["bookworm"], indirect=True)
def test_the_spec_has_the_new_driver_version_after_a_real_upgrade(gpus: GpuHost) -> None:
    install(gpus)
    older, newer = gpus.versions
    folder = f"/{REPLAYED}/{newer}"
    gpus.host.run(f"{APT} install {folder}/*.deb", timeout_s=300)
    gpus.load_module(newer)
    assert eventually(lambda: newer in spec(gpus))
    assert_a_container_has_the_driver(gpus)
    # The spec also has the new version if the daemon does not run.
    gpus.host.run("systemctl disable --now cdigen")
    gpus.load_module(older)
    gpus.host.run(f"{APT} install /{REPLAYED}/{older}/*.deb", timeout_s=300)
    assert older in spec(gpus)
    assert_a_container_has_the_driver(gpus)


@ON_DEBIAN_13
def test_dpkg_completes_a_configuration_that_was_killed(gpus: GpuHost) -> None:
    install(gpus)
    killed = 0
    for delay in (0.1, 0.3, 0.6, 1.0):
        configure = f"setsid dpkg-reconfigure cdigen & pid=$!; sleep {delay}; kill -KILL -$pid"
        killed += gpus.host.attempt(configure).returncode == 0
        gpus.host.run(f"{RUN} true")
        gpus.host.run("dpkg --configure --pending")
    assert killed
    assert_a_container_has_the_driver(gpus)
    assert gpus.host.run("dpkg --audit") == ""


@ON_DEBIAN_13
def test_the_configuration_of_python_compiles_the_hook_and_succeeds_without_place_hook(gpus: GpuHost) -> None:
    install(gpus)
    configure = "DEBIAN_FRONTEND=noninteractive dpkg-reconfigure python3"
    compiled = f"find {HOOK.removesuffix('cdigen-hook')}lib/ -name '*.pyc'"
    wanted = sorted(gpus.host.run(compiled).split())
    gpus.host.run(f"{compiled} -delete; /usr/share/python3/runtime.d/cdigen.rtupdate pre-rtupdate 3.11 3.13")
    assert gpus.host.run(compiled) == ""
    gpus.host.run(configure)
    assert sorted(gpus.host.run(compiled).split()) == wanted != []
    place = "/usr/share/cdigen/place-hook"
    gpus.host.run(f"mv {place} {place}.away; {configure}; mv {place}.away {place}")


@ON_DEBIAN_13
def test_removal_succeeds_if_the_hook_is_missing_and_purge_keeps_files_of_another_cdigen(
    gpus: GpuHost,
) -> None:
    install(gpus)
    another = "/usr/local/libexec/cdigen"
    gpus.host.run("rm -r /usr/libexec/cdigen; dpkg --remove cdigen-nri cdigen-kubelet cdigen")
    gpus.host.run(f"mkdir -p {another} /var/lib/cdigen/views/x; touch {another}/cdigen-hook")
    gpus.host.run(f"dpkg --purge cdigen; [ -d /var/lib/cdigen/views/x ]; rm -r {another} /var/lib/cdigen")
    gpus.host.run("rm -rf /etc/cdigen /run/cdigen")


@ON_DEBIAN_13
def test_containers_start_while_usr_is_read_only_and_apt_fails(gpus: GpuHost) -> None:
    install(gpus)
    host = gpus.host
    host.run("mount --bind /usr /usr && mount -o remount,bind,ro /usr")
    for command in ("install /debs/later/*cdigen_*.deb", "remove '?name(cdigen)'"):
        assert host.attempt(f"{APT} {command}").returncode != 0
        assert eventually(lambda: host.attempt(f"{RUN} true").returncode == 0)
    host.run("mount -o remount,bind,rw /usr && umount --lazy /usr; dpkg --configure --pending")
    install(gpus, "later")
    assert_a_container_has_the_driver(gpus)


@ON_DEBIAN_13
def test_a_foreign_spec_is_unchanged_by_installation_and_purge(gpus: GpuHost) -> None:
    foreign = json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "x"}]})
    gpus.host.put(SPEC, foreign)
    install(gpus)
    assert spec(gpus) == foreign
    assert "foreign" in gpus.host.attempt("cdigen status").stdout
    purge(gpus)
    assert spec(gpus) == foreign

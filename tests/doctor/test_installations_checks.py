"""What the doctor says where more than one cdigen is installed."""

from support.doctor.broken_host import BrokenHost

DEBIAN = "usr/lib/python3/dist-packages/cdigen/__init__.py"
PIPX = "opt/pipx/venvs/cdigen/lib/python3.13/site-packages/cdigen/__init__.py"


def put(host: BrokenHost, path: str, version: str) -> None:
    host.put(path, f'"""cdigen."""\n\n__version__ = "{version}"\n')


def test_a_package_and_pipx_on_one_host_are_both_named_with_what_the_service_starts(host: BrokenHost) -> None:
    put(host, DEBIAN, "0.1.0")
    put(host, PIPX, "0.2.0")
    host.put("usr/lib/systemd/system/cdigen.service", "[Service]\nExecStart=/usr/bin/cdigen run\n")
    row = host.result("installations")
    assert (row["ok"], row["severity"]) == (False, "warning")
    assert "0.1.0 in /usr/lib/python3/dist-packages (Debian's package)" in row["detail"]
    assert "0.2.0 in /opt/pipx/venvs/cdigen/lib/python3.13/site-packages (pipx)" in row["detail"]
    assert "the service starts /usr/bin/cdigen" in row["detail"]
    # pipx looks in the caller's home without these.
    variables = "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin"
    removal = f"'cdigen install-service --remove && {variables} pipx uninstall cdigen'"
    assert f"'apt remove python3-cdigen', or {removal}" in row["detail"]


def test_make_install_is_told_from_an_rpm_by_its_list(host: BrokenHost) -> None:
    put(host, "usr/lib/cdigen/cdigen/__init__.py", "0.1.0")
    assert "0.1.0 in /usr/lib/cdigen (an RPM)" in host.result("installations")["detail"]
    host.put("usr/lib/cdigen/installed", "f /usr/bin/cdigen\n")
    row = host.result("installations")
    assert row["ok"]
    assert "one cdigen is installed: 0.1.0 in /usr/lib/cdigen (make install)" in row["detail"]


def test_the_package_of_debian_12_is_told_from_an_rpm_by_dpkgs_list(host: BrokenHost) -> None:
    put(host, "usr/lib/cdigen/cdigen/__init__.py", "0.1.0")
    host.put("var/lib/dpkg/info/cdigen.list", "/.\n")
    assert "0.1.0 in /usr/lib/cdigen (Debian's package)" in host.result("installations")["detail"]


def test_what_is_no_cdigen_does_not_count(host: BrokenHost) -> None:
    put(host, PIPX, "0.2.0")
    host.put(DEBIAN, "import antigravity\n")
    assert host.result("installations")["ok"]


def test_without_any_installation_nothing_is_wrong(host: BrokenHost) -> None:
    assert host.result("installations")["detail"] == "cdigen runs uninstalled"

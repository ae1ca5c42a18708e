"""The doctor's check of several installations of cdigen."""

from support.doctor.broken_host import BrokenHost

DEBIAN = "usr/lib/python3/dist-packages/cdigen/__init__.py"
PIPX = "opt/pipx/venvs/cdigen/lib/python3.13/site-packages/cdigen/__init__.py"


def put(host: BrokenHost, path: str, version: str) -> None:
    host.put(path, f'"""cdigen."""\n\n__version__ = "{version}"\n')


def test_two_installations_are_a_warning_with_the_command_of_the_service(host: BrokenHost) -> None:
    put(host, DEBIAN, "0.1.0")
    put(host, PIPX, "0.2.0")
    host.put("usr/lib/systemd/system/cdigen.service", "[Service]\nExecStart=/usr/bin/cdigen run\n")
    row = host.result("installations")
    assert (row["ok"], row["severity"]) == (False, "warning")
    assert "0.1.0 in /usr/lib/python3/dist-packages (Debian's package)" in row["detail"]
    assert "0.2.0 in /opt/pipx/venvs/cdigen/lib/python3.13/site-packages (pipx)" in row["detail"]
    assert "the service starts /usr/bin/cdigen" in row["detail"]
    # Without these variables, pipx uses the home directory of the user.
    variables = "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin"
    removal = f"'cdigen install-service --remove && {variables} pipx uninstall cdigen'"
    assert f"'apt remove python3-cdigen', or {removal}" in row["detail"]


def test_the_list_of_files_distinguishes_make_install_from_an_rpm(host: BrokenHost) -> None:
    put(host, "usr/lib/cdigen/cdigen/__init__.py", "0.1.0")
    assert "0.1.0 in /usr/lib/cdigen (an RPM)" in host.result("installations")["detail"]
    host.put("usr/lib/cdigen/installed", "f /usr/bin/cdigen\n")
    row = host.result("installations")
    assert row["ok"]
    assert "one installation: 0.1.0 in /usr/lib/cdigen (make install)" in row["detail"]


def test_a_folder_without_a_version_is_ignored(host: BrokenHost) -> None:
    put(host, PIPX, "0.2.0")
    host.put(DEBIAN, "import antigravity\n")
    assert host.result("installations")["ok"]


def test_without_an_installation_the_check_passes(host: BrokenHost) -> None:
    assert host.result("installations")["detail"] == "cdigen is not installed"

"""The real child process reads the files of devices in /sys. The read of a file may hang."""

import os
from pathlib import Path

from support.hosts.driver_files import put
from support.waiting import by_deadline

from cdigen.host.root import Root
from cdigen.vendors.kernel.device_files import NO_ANSWER, FilesToRead, read_devices


def test_texts_and_rates_are_read_and_missing_files_are_left_out(tmp_path: Path) -> None:
    put(tmp_path / "sys/a/temp1_input", b"41000\n")
    put(tmp_path / "sys/a/energy1_input", b"5\n")
    wanted = FilesToRead(
        files=("/sys/a/temp1_input", "/sys/a/none"), counters=("/sys/a/energy1_input", "/sys/no")
    )
    results = read_devices(Root(str(tmp_path)), {"a": wanted, "b": FilesToRead()})
    assert dict(results["a"].texts) == {"/sys/a/temp1_input": "41000\n"}
    assert dict(results["a"].rates) == {"/sys/a/energy1_input": 0.0}
    assert results["a"].number("/sys/a/temp1_input") == 41000
    assert results["a"].number("/sys/a/none") is None
    assert (results["b"].problem, dict(results["b"].texts)) == ("", {})


def test_a_device_that_hangs_does_not_delay_other_devices(tmp_path: Path) -> None:
    put(tmp_path / "sys/healthy/temp1_input", b"41000\n")
    (tmp_path / "sys/broken").mkdir()
    os.mkfifo(tmp_path / "sys/broken/temp1_input")
    names = ("broken", "healthy")
    wanted = {name: FilesToRead(files=(f"/sys/{name}/temp1_input",)) for name in names}
    results = by_deadline(
        lambda deadline_s: read_devices(Root(str(tmp_path)), wanted, deadline_s=deadline_s),
        lambda results: results["healthy"].texts,
    )
    assert results["healthy"].number("/sys/healthy/temp1_input") == 41000
    assert (results["broken"].problem, dict(results["broken"].texts)) == (NO_ANSWER, {})


def test_a_text_that_is_not_a_number_becomes_none(tmp_path: Path) -> None:
    for text in ("", "x", "1e3", "²", "9" * 21):
        put(tmp_path / "sys/file", text.encode())
        results = read_devices(Root(str(tmp_path)), {"a": FilesToRead(files=("/sys/file",))})
        assert results["a"].number("/sys/file") is None
    put(tmp_path / "sys/file", b"-5000\n")
    results = read_devices(Root(str(tmp_path)), {"a": FilesToRead(files=("/sys/file",))})
    assert results["a"].number("/sys/file") == -5000


def test_without_a_request_no_child_process_is_started() -> None:
    assert read_devices(Root("/"), {}) == {}

"""Files of devices that may hang, read by the real child."""

import os
from pathlib import Path

from support.hosts.driver_files import put
from support.waiting import by_deadline

from cdigen.host.root import Root
from cdigen.vendors.kernel.device_files import NO_ANSWER, Wanted, read_devices


def test_texts_and_rates_are_read_and_what_is_missing_is_left_out(tmp_path: Path) -> None:
    put(tmp_path / "sys/a/temp1_input", b"41000\n")
    put(tmp_path / "sys/a/energy1_input", b"5\n")
    wanted = Wanted(files=("/sys/a/temp1_input", "/sys/a/none"), counters=("/sys/a/energy1_input", "/sys/no"))
    told = read_devices(Root(str(tmp_path)), {"a": wanted, "b": Wanted()})
    assert dict(told["a"].texts) == {"/sys/a/temp1_input": "41000\n"}
    assert dict(told["a"].rates) == {"/sys/a/energy1_input": 0.0}
    assert told["a"].number("/sys/a/temp1_input") == 41000
    assert told["a"].number("/sys/a/none") is None
    assert (told["b"].problem, dict(told["b"].texts)) == ("", {})


def test_a_device_that_hangs_keeps_no_other_from_being_read(tmp_path: Path) -> None:
    put(tmp_path / "sys/well/temp1_input", b"41000\n")
    (tmp_path / "sys/ill").mkdir()
    os.mkfifo(tmp_path / "sys/ill/temp1_input")
    names = ("ill", "well")
    wanted = {name: Wanted(files=(f"/sys/{name}/temp1_input",)) for name in names}
    told = by_deadline(
        lambda deadline_s: read_devices(Root(str(tmp_path)), wanted, deadline_s=deadline_s),
        lambda told: told["well"].texts,
    )
    assert told["well"].number("/sys/well/temp1_input") == 41000
    assert (told["ill"].problem, dict(told["ill"].texts)) == (NO_ANSWER, {})


def test_a_text_that_is_no_number_is_none(tmp_path: Path) -> None:
    for text in ("", "x", "1e3", "²", "9" * 21):
        put(tmp_path / "sys/file", text.encode())
        told = read_devices(Root(str(tmp_path)), {"a": Wanted(files=("/sys/file",))})
        assert told["a"].number("/sys/file") is None
    put(tmp_path / "sys/file", b"-5000\n")
    told = read_devices(Root(str(tmp_path)), {"a": Wanted(files=("/sys/file",))})
    assert told["a"].number("/sys/file") == -5000


def test_nothing_wanted_starts_nothing() -> None:
    assert read_devices(Root("/"), {}) == {}

"""The configuration file: every key, and every fault with its line."""

import re
from time import process_time

import pytest
from support.config_text import LISTS, PATHS, exact_refusal, read, refusal

from cdigen import config, page_url
from cdigen.config import MAX_SIZE, DaemonConfig, Settings
from cdigen.model.profile import Profile
from cdigen.vendors.registry import VENDORS


def test_an_empty_file_has_the_default_settings() -> None:
    assert read("") == Settings()
    assert read("# only a comment\n") == Settings()


EVERY_KEY = """
vendors: [nvidia]
spec_dirs: [/etc/cdi, /run/cdi]
state_dir: /var/lib/other
driver_root: /run/nvidia/driver
dev_root: /srv
library_search_paths:
  - /opt/lib64
  - "/opt/my driver"
binary_search_paths: [/opt/bin]
config_search_paths: [/opt/share]
container_driver_root: /usr/local/nvidia
mode: gpu
nvml: /usr/lib64/libnvidia-ml.so.1
mps_pipe_dir: /run/mps
mps_uid: 1000
profiles:
  - {name: all, class: gpu}
  - name: compute
    class: gpu-compute
    capabilities: [compute, utility]
    names: [type-index, pci]
    graphics: false
    x11: false
    firmware: false
    sockets: false
    mps: true
    compat32: true
    whole_gpus: true
"""


def test_every_key_is_read() -> None:
    assert read(EVERY_KEY) == Settings(
        vendors=("nvidia",),
        spec_dirs=("/etc/cdi", "/run/cdi"),
        state_dir="/var/lib/other",
        driver_root="/run/nvidia/driver",
        dev_root="/srv",
        library_search_paths=("/opt/lib64", "/opt/my driver"),
        binary_search_paths=("/opt/bin",),
        config_search_paths=("/opt/share",),
        container_driver_root="/usr/local/nvidia",
        mode="gpu",
        nvml="/usr/lib64/libnvidia-ml.so.1",
        mps_pipe_dir="/run/mps",
        mps_uid=1000,
        profiles=(
            Profile(name="all", device_class="gpu"),
            Profile(
                name="compute",
                device_class="gpu-compute",
                capabilities=("compute", "utility"),
                names=("type-index", "pci"),
                graphics=False,
                x11=False,
                firmware=False,
                sockets=False,
                mps=True,
                compat32=True,
                whole_gpus=True,
            ),
        ),
    )


def test_an_unquoted_off_is_off_although_yaml_reads_it_as_false() -> None:
    assert read("nvml: off").nvml == "off"
    assert read("nvml: 'off'").nvml == "off"
    assert "auto, off or the path" in refusal("nvml: on")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("profiles: []", "must not be empty"),
        ("profiles: [1]", "profiles must be a list of mappings"),
        ("profiles: [{name: ab}]", "the key 'class' is missing"),
        ("profiles: [{name: ab, class: a.b}]", "class must be 2 to 63 letters"),
        ("profiles: [{name: x, class: gpu}]", "profiles: name must be 2 to 63 letters"),
        ("profiles: [{name: ab, class: g}]", "profiles: class must be 2 to 63 letters"),
        ("profiles: [{name: 1b, class: gpu}]", "ending with a letter or digit, not '1b'"),
        ("profiles: [{name: ab, class: cd, names: [Index]}]", "names must be one of index, uuid"),
        ("profiles: [{name: ab, class: cd, names: [npu]}]", "names must be one of index, uuid"),
        (
            "profiles:\n- {name: ab, class: cd}\n- {name: ab, class: ef}",
            "c.yaml:3: a second profile is named 'ab'",
        ),
        (
            "profiles:\n- {name: ab, class: cd}\n- {name: ef, class: cd}",
            "c.yaml:3: a second profile has the class",
        ),
        ("profiles:\n- {name: ab, class: cd,\n   mps: 1}", "c.yaml:3: profiles: mps must be true or false"),
        (
            "profiles:\n- {name: ab, class: cd,\n   capability: []}",
            "c.yaml:3: profiles: unknown key 'capability'",
        ),
        ("mps_uid: 010", "must be a number"),
        ("mps_uid: -1", "must be a number"),
        ("copy_driver_files: 1", "must be true or false"),
        ("mode: nvml", "must be one of auto"),
    ],
)
def test_faults_of_profiles_and_switches_are_reported(text: str, problem: str) -> None:
    assert problem in refusal(text)


@pytest.mark.parametrize("key", PATHS)
@pytest.mark.parametrize(
    "value", ["1", "~", "true", "[/a]", "{a: /b}", "''", "relative", "/a/../b", "/./a", '"/a\\nb"']
)
def test_an_invalid_path_is_rejected_with_key_and_line(key: str, value: str) -> None:
    message = refusal(f"# comment\n{key}: {value}\n")
    assert message.startswith(f"c.yaml:2: {key} must be an absolute path")


@pytest.mark.parametrize("key", LISTS)
@pytest.mark.parametrize("value", ["/a", "1", "~", "{a: /b}", "!odd [/a]", "!!set {/a}"])
def test_an_invalid_list_is_rejected_with_key_and_line(key: str, value: str) -> None:
    assert refusal(f"\n\n{key}: {value}\n").startswith(f"c.yaml:3: {key} must be a list, not ")


@pytest.mark.parametrize("key", [key for key in LISTS if key != "vendors"])
def test_a_wrong_item_is_reported_with_its_line(key: str) -> None:
    message = refusal(f"{key}:\n  - /a\n  - /b\n  - c\n")
    assert message.startswith(f"c.yaml:4: {key} must be an absolute path")
    assert "not 'c'" in message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("spec_dirs:\n- /a\n- /b\n- /a\n", "4: spec_dirs contains '/a' twice"),
        ("spec_dirs: []\n", "1: spec_dirs must not be empty"),
        ("vendors:\n- ati\n", "2: vendors must be one of nvidia, amd, intel, not 'ati'"),
        ("vendors: []\nspec_dir: /a\n", "2: unknown key 'spec_dir'; did you mean 'spec_dirs'?"),
        ("state_dir: /a\ndev_root: /b\nstate_dir: /a\n", "3: duplicate key 'state_dir'"),
        ("daemon: {debounce_s: soon}", "1: daemon: debounce_s must be a number of seconds"),
        (
            "health: {clear_after_minutes: soon}",
            "1: health: clear_after_minutes must be a number of minutes from 0.01 to 86400, not 'soon'",
        ),
        ("health: {probe_minutes: 0}", "1: health: probe_minutes must be a number of minutes"),
        (
            "health: {ignore: [Xid 63]}",
            "1: health: ignore must be the name of a cause, such as xid-63, not 'Xid 63'",
        ),
        ("health: {unhealthy_in_spec: maybe}", "1: health: unhealthy_in_spec must be true or false"),
    ],
)
def test_a_wrong_key_or_value_is_reported_with_its_line(text: str, problem: str) -> None:
    assert refusal(text).startswith(f"c.yaml:{problem}")


def test_the_options_of_a_vendor_are_read() -> None:
    settings = read("vendor_options: {amd: {rocm_libraries: true}, nvidia: {}}\n")
    assert settings.vendor_options == {"amd": {"rocm_libraries": True}, "nvidia": {}}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("vendor_options: []\n", "c.yaml:1: vendor_options must be a mapping"),
        ("vendor_options: {ati: {}}\n", "c.yaml:1: vendor_options: unknown key 'ati'"),
        ("vendor_options:\n  amd: true\n", "c.yaml:2: vendor_options: amd must be a mapping"),
        (
            "vendor_options:\n  amd: {rocm_library: yes}\n",
            "c.yaml:2: vendor_options: amd: unknown key 'rocm_library'; did you mean 'rocm_libraries'?",
        ),
        (
            "vendor_options:\n  amd: {rocm_libraries: 1}\n",
            "c.yaml:2: vendor_options: amd: rocm_libraries must be true or false",
        ),
    ],
)
def test_the_options_of_a_vendor_are_checked(text: str, problem: str) -> None:
    assert refusal(text).startswith(problem)


def test_for_an_unknown_key_without_a_similar_key_the_hint_is_the_documentation() -> None:
    assert refusal("colour: blue\n") == (
        f"c.yaml:1: unknown key 'colour' (see {page_url('reference/configuration')})"
    )


@pytest.mark.parametrize("key", ["1", "~", "[a]", "{a: b}", "<<", "!!int state_dir", "!odd state_dir", "''"])
def test_a_key_that_is_not_text_is_rejected(key: str) -> None:
    assert refusal(f"? {key}\n: /a\n").startswith("c.yaml:1: a key must be a text")


@pytest.mark.parametrize(
    "text", ["[]", "- /a\n", "hello\n", "1\n", "~\n", "!odd {}\n", "!!set {state_dir}\n"]
)
def test_a_file_that_is_not_a_mapping_is_rejected(text: str) -> None:
    assert refusal(text).startswith("c.yaml:1: the file is not a mapping of keys to values")


def test_every_fault_is_reported() -> None:
    message = refusal("colour: 1\nstate_dir: 2\nspec_dirs: []\n")
    assert [f"c.yaml:{line}: " in message for line in (1, 2, 3)] == [True, True, True]


def test_a_message_has_ten_problems_and_the_number_of_further_problems() -> None:
    message = refusal("".join(f"key{number}: 1\n" for number in range(500)))
    assert "; and 490 more (" in message
    assert len(message) < 3500


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("vendors:\n\t- nvidia\n", "2:1"),
        ("vendors: [nvidia\n", "2:1"),
        ("a: b: c\n", "1:5"),
        ("state_dir: '/a\n", "2:1"),
        ("vendors: *nothing\n", "1:10"),
        ("state_dir: /a\n---\nstate_dir: /b\n", "2:1"),
        ("%ODD\n---\n", "1:5"),
        ('state_dir: "\\ud83d"\n', "1:15"),
    ],
)
def test_a_yaml_error_is_reported_with_line_and_column(text: str, where: str) -> None:
    assert exact_refusal(text).startswith(f"c.yaml:{where}: ")


@pytest.mark.parametrize("data", [b"# a\nstate_dir: \xff\n", b"# a\nstate_dir: \x01\n", b"\n\0"], ids=repr)
def test_invalid_bytes_are_reported_with_their_line(data: bytes) -> None:
    assert refusal(data).startswith("c.yaml:2: ")


def test_a_byte_order_mark_is_ignored() -> None:
    assert read(b"\xef\xbb\xbfstate_dir: /a\n").state_dir == "/a"


def test_an_alias_has_the_value_of_its_anchor() -> None:
    given = read("library_search_paths: &folders [/a]\nconfig_search_paths: *folders\n")
    assert given.library_search_paths == given.config_search_paths == ("/a",)


@pytest.mark.parametrize("text", ["vendors: &a [*a]\n", "&a state_dir: *a\n", "&a {vendors: *a}\n"])
def test_an_alias_inside_its_own_anchor_is_refused(text: str) -> None:
    assert refusal(text).startswith("c.yaml:1: ")


@pytest.mark.wall_clock
def test_nested_aliases_are_refused_within_a_second() -> None:
    laughs = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40))
    before = process_time()
    assert refusal(f"a0: &a0 [ha]\n{laughs}").startswith("c.yaml:1: unknown key 'a0'")
    assert process_time() - before < 1


def test_a_file_as_large_as_the_limit_is_read() -> None:
    text = "state_dir: /a\n# " + "x" * MAX_SIZE
    assert read(text[:MAX_SIZE]).state_dir == "/a"


def test_a_larger_file_is_refused() -> None:
    assert refusal(b"#" * (MAX_SIZE + 1)).startswith(f"c.yaml: the file is larger than {MAX_SIZE} bytes")


@pytest.mark.parametrize("nest", ["[", "{", "{a: ", "- ", "? ", "a: {? [", "!!seq [", "&a ["])
def test_a_file_that_is_nested_too_deeply_is_refused(nest: str) -> None:
    assert refusal((nest * (MAX_SIZE // len(nest)))[:MAX_SIZE]).startswith("c.yaml:1: nested too deeply")


def test_long_and_odd_values_are_shown_in_one_short_line() -> None:
    for text in (
        "state_dir: " + "x" * 10_000,
        "? " + "y" * 10_000 + "\n: 1",
        'state_dir: "\\e[31m"',
        "a: !<\\n> x",
    ):
        assert refusal(text).isprintable()
        assert len(refusal(text)) < 400


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("state_dir: /etc/cdi\n", "state_dir"),
        ("spec_dirs: [/srv/cdi]\ndaemon: {run_dir: /srv//cdi/}\n", "daemon: run_dir"),
        ("daemon: {run_dir: /run/cdi}\n", "daemon: run_dir"),
    ],
)
def test_a_folder_of_cdigen_must_not_be_a_spec_directory(text: str, name: str) -> None:
    assert f"{name} must not be a spec directory" in refusal(text)


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("state_dir: 1\n\nspec_dirs: [/a, b]\n", ("1:12", "3:17")),
        ("daemon: {debounce_s: x, max_delay_s: 1, settle_timeout_s: y}\n", ("1:22", "1:59")),
        ("profiles:\n- {name: ab}\n- {name: 1, class: cd}\n", ("2:3", "3:10")),
        ("nri:\n  allow:\n  - {labels: {}}\n", ("3:5",)),
        ("colour: 1\n", ("1:1",)),
        ("spec_dirs: [a, /b, c, /b]\n", ("1:13", "1:20", "1:23")),
        ("nri: {allow: [{namespaces: [A B, ok, 3]}]}\n", ("1:29", "1:38")),
        ("state_dir: /a\n# \u00e4\nx: \x01\n", ("3:4",)),
        (b"# \xc3\xa4 \xff\n", ("1:5",)),
        ("spec_dirs: [/a]\nstate_dir: /a\n", ("2:12",)),
    ],
)
def test_every_problem_has_its_line_and_column(text: str | bytes, places: tuple[str, ...]) -> None:
    assert tuple(re.findall(r"c\.yaml:(\d+:\d+): ", exact_refusal(text))) == places


def test_valid_keys_apply_despite_invalid_keys() -> None:
    text = """
colour: blue
state_dir: /srv/state
spec_dirs: relative
daemon: {run_dir: /run/other, debounce_s: never}
profiles: [{name: 1}]
"""
    settings, found = config.read(text.encode(), file="c.yaml", vendors=tuple(VENDORS))
    assert settings == Settings(state_dir="/srv/state", daemon=DaemonConfig(run_dir="/run/other"))
    assert [finding.place for finding in found] == [(2, 1), (4, 12), (5, 43), (6, 12), (6, 19)]
    assert {finding.severity for finding in found} == {"error"}


@pytest.mark.parametrize("text", ["a: [", "- a\n", b"\xff", "x" * (MAX_SIZE + 1)], ids=range(4))
def test_a_file_without_a_mapping_has_the_default_settings(text: str | bytes) -> None:
    data = text.encode() if isinstance(text, str) else text
    settings, found = config.read(data, file="c.yaml", vendors=tuple(VENDORS))
    assert (settings, len(found)) == (Settings(), 1)

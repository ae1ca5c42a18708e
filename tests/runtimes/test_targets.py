"""The CDI library of a runtime's release, and the combination of several targets."""

from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.cdi.version import KNOWN_VERSIONS, is_newer, release_order
from cdigen.model.errors import ConfigError
from cdigen.runtimes.releases import LIBRARIES, library_of
from cdigen.runtimes.targets import Target, parse, strictest

ROWS = [
    (f"{runtime}-{'.'.join(map(str, first))}", library, library_of(runtime, first)[1])
    for runtime, rows in LIBRARIES.items()
    for first, library in rows
]
NAMES = [name for name, _, _ in ROWS]


def read(text: str) -> tuple[str, str]:
    target = parse(text)
    return target.library, target.newest


def refused(text: str) -> ConfigError:
    """Return the error for TEXT; check that the error is one line with a hint."""
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert caught.value.message.isprintable()
    assert caught.value.hint.isprintable()
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("text", "library", "newest"),
    [
        ("podman-4.1", "0.4.0", "0.4.0"),
        ("podman-4.2.1", "0.4.0", "0.4.0"),
        ("podman-4.3", "0.5.2", "0.5.0"),
        ("podman-4.3.1", "0.5.2", "0.5.0"),
        ("podman-4.9.3", "0.6.2", "0.6.0"),
        ("podman-5", "0.6.2", "0.6.0"),
        ("podman-5.1", "0.7.2", "0.7.0"),
        ("podman-5.4", "0.8.0", "0.8.0"),
        ("podman-5.8", "1.0.1", "1.0.0"),
        ("podman-6.0", "1.1.0", "1.1.0"),
        ("docker-25", "0.6.2", "0.6.0"),
        ("docker-25.0", "0.6.2", "0.6.0"),
        ("docker-26.0", "0.6.2", "0.6.0"),
        ("docker-26.1.0", "0.7.1", "0.7.0"),
        ("docker-26.1.4", "0.7.2", "0.7.0"),
        ("docker-27.3", "0.7.2", "0.7.0"),
        ("docker-27.4", "0.8.0", "0.8.0"),
        ("docker-28.0.4", "0.8.1", "0.8.0"),
        ("docker-29.1", "1.0.1", "1.0.0"),
        ("docker-29.2", "1.1.0", "1.1.0"),
        ("docker-29.7", "1.1.0", "1.1.0"),
        ("containerd-1.7", "0.5.4", "0.5.0"),
        ("containerd-1.7.10", "0.5.4", "0.5.0"),
        ("containerd-1.7.13", "0.6.2", "0.6.0"),
        ("containerd-1.7.15", "0.6.2", "0.6.0"),
        ("containerd-1.7.16", "0.7.2", "0.7.0"),
        ("containerd-1.7.24", "0.7.2", "0.7.0"),
        ("containerd-1.7.27", "0.8.1", "0.8.0"),
        ("containerd-2.0", "0.8.0", "0.8.0"),
        ("containerd-2.2.0", "1.0.1", "1.0.0"),
        ("containerd-2.3", "1.1.0", "1.1.0"),
        ("cri-o-1.24", "0.3.2", "0.3.0"),
        ("cri-o-1.25.2", "0.5.2", "0.5.0"),
        ("cri-o-1.30", "0.7.2", "0.7.0"),
        ("cri-o-1.34", "1.0.1", "1.0.0"),
        ("buildkit-0.20", "0.8.0", "0.8.0"),
        ("buildkit-0.25", "1.0.1", "1.0.0"),
        ("nerdctl-2.1", "1.0.1", "1.0.0"),
        ("apptainer-1.5", "1.1.0", "1.1.0"),
    ],
)
def test_a_release_has_the_library_of_its_series(text: str, library: str, newest: str) -> None:
    assert read(text) == (library, newest)


def test_a_target_without_a_patch_level_is_the_oldest_release_of_its_series() -> None:
    assert parse("containerd-1.7") == parse("containerd-1.7.0")
    assert parse("podman-4.3").name == "podman-4.3.0"
    assert parse("docker-25").name == "docker-25.0.0"


def test_a_release_between_two_rows_has_the_values_of_the_row_before_it() -> None:
    assert read("containerd-1.7.11") == read("containerd-1.7.0")
    assert read("containerd-1.7.26") == read("containerd-1.7.16")
    assert read("docker-27.3") == read("docker-26.1.1")
    assert read("buildkit-0.27") == read("buildkit-0.21")


def test_a_release_after_the_last_row_has_the_values_of_the_last_row() -> None:
    assert read("podman-99") == read("podman-6.0")
    assert read("nerdctl-3.0.1") == read("nerdctl-2.1")


def test_cri_o_has_two_spellings() -> None:
    assert parse("crio-1.30") == parse("cri-o-1.30")


def test_only_libraries_from_0_6_0_on_accept_a_dot_in_a_class() -> None:
    for name in NAMES:
        target = parse(name)
        assert target.dots_in_class is (release_order(target.library) >= (0, 6, 0))


def test_docker_before_29_5_does_not_apply_additional_groups() -> None:
    assert parse("docker-29.4.9").forgets_gids == "docker-29.4.9"
    assert parse("docker-29.5").forgets_gids == ""
    assert {parse(name).forgets_gids for name in NAMES if not name.startswith("docker")} == {""}


@pytest.mark.parametrize(
    ("text", "oldest"),
    [
        ("podman-4.0.9", "podman-4.1.0"),
        ("podman-4", "podman-4.1.0"),
        ("docker-24.0.9", "docker-25.0.0"),
        ("containerd-1.6.30", "containerd-1.7.0"),
        ("containerd-1", "containerd-1.7.0"),
        ("crio-1.23", "cri-o-1.24.0"),
        ("buildkit-0", "buildkit-0.20.0"),
    ],
)
def test_a_release_without_cdi_is_refused_with_the_oldest_release_that_has_cdi(
    text: str, oldest: str
) -> None:
    assert oldest in refused(text).hint
    assert parse(oldest).library == LIBRARIES[oldest.rpartition("-")[0]][0][1]


@pytest.mark.parametrize("text", ["kubernetes-1.30", "Podman-5.1", "podman -5.1", "a-b-1", "-o-1"])
def test_an_unknown_runtime_is_refused_with_the_known_runtimes(text: str) -> None:
    error = refused(text)
    assert text in error.message
    assert all(runtime in error.hint for runtime in LIBRARIES)


@pytest.mark.parametrize(
    "text",
    [
        "", "-", "podman", "podman-", "-5.1", "5.1", "podman-5.", "podman-.1", "podman-5..1", "podman-v5.1",
        "podman-5.1.0.0", "podman-5.1-rc1", "podman-5.1 ", "podman-+5", "podman-\u0665", "podman-\u00b2",
        "podman-" + "9" * 5000, "pod\nman-5\x1b",
    ],
)  # fmt: skip
def test_a_text_without_a_runtime_and_a_version_is_refused_with_an_example(text: str) -> None:
    error = refused(text)
    assert "podman-4.3" in error.hint
    assert all(runtime in error.hint for runtime in LIBRARIES)


@given(st.text() | st.builds("{}-{}".format, st.sampled_from([*LIBRARIES, "crio"]), st.text("0123456789.v")))
def test_any_text_is_a_target_or_a_configuration_error(text: str) -> None:
    try:
        target = parse(text)
    except ConfigError:
        refused(text)
    else:
        assert parse(target.name) == target


def test_the_table_of_libraries_is_sorted() -> None:
    assert list(LIBRARIES) == sorted(LIBRARIES)
    for rows in LIBRARIES.values():
        assert [first for first, _ in rows] == sorted({first for first, _ in rows})


@pytest.mark.parametrize(("name", "library", "newest"), ROWS)
def test_a_library_supports_spec_versions_up_to_its_own_version(name: str, library: str, newest: str) -> None:
    known = [version for version in KNOWN_VERSIONS if not is_newer(version, library)]
    assert newest == known[-1], name


def test_a_later_release_supports_at_least_the_same_spec_versions() -> None:
    for runtime, rows in LIBRARIES.items():
        for (before, _), (after, _) in pairwise(rows):
            assert not is_newer(library_of(runtime, before)[1], library_of(runtime, after)[1])


def test_without_targets_there_is_no_strictest_target() -> None:
    assert strictest(()) is None


@pytest.mark.parametrize("name", [*NAMES, "docker-29.4"])
def test_a_single_target_is_the_strictest_target(name: str) -> None:
    assert strictest((parse(name), parse(name))) == parse(name)


def test_the_strictest_target_has_the_name_of_the_target_with_the_oldest_library() -> None:
    targets = tuple(map(parse, ("docker-25", "containerd-1.7", "podman-4.3", "podman-5.1")))
    chosen = strictest(targets)
    assert chosen is not None
    assert (chosen.name, chosen.newest, chosen.dots_in_class) == ("podman-4.3.0", "0.5.0", False)


def test_the_strictest_target_names_the_release_that_does_not_apply_groups() -> None:
    chosen = strictest((parse("podman-5.1"), parse("docker-28")))
    assert chosen is not None
    assert (chosen.name, chosen.forgets_gids) == ("podman-5.1.0", "docker-28.0.0")


targets = st.sampled_from([*NAMES, "docker-29.4", "docker-29.5"]).map(parse)


@given(st.lists(targets, min_size=1, max_size=4, unique=True))
def test_the_strictest_target_accepts_only_common_features_in_any_order(drawn: list[Target]) -> None:
    chosen = strictest(tuple(drawn))
    assert chosen is not None
    assert not any(is_newer(chosen.newest, target.newest) for target in drawn)
    assert chosen.newest in {target.newest for target in drawn}
    assert chosen.dots_in_class is all(target.dots_in_class for target in drawn)
    assert bool(chosen.forgets_gids) is any(target.forgets_gids for target in drawn)
    assert {strictest(order) for order in permutations(drawn)} == {chosen}

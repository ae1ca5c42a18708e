"""Which CDI library a runtime's release holds, and how several targets become one."""

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
    """Return the error that TEXT meets, after a look at its form: one line, and what to do next."""
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
        ("docker-26.1.4", "0.6.2", "0.6.0"),
        ("docker-28.0.4", "0.8.0", "0.8.0"),
        ("docker-29.0", "1.0.1", "1.0.0"),
        ("docker-29.7", "1.1.0", "1.1.0"),
        ("containerd-1.7", "0.5.4", "0.5.0"),
        ("containerd-1.7.10", "0.5.4", "0.5.0"),
        ("containerd-1.7.13", "0.6.2", "0.6.0"),
        ("containerd-1.7.24", "0.7.2", "0.7.0"),
        ("containerd-1.7.27", "0.8.1", "0.8.0"),
        ("containerd-2.0", "0.8.0", "0.8.0"),
        ("containerd-2.2.0", "1.0.1", "1.0.0"),
        ("containerd-2.3", "1.1.0", "1.1.0"),
        ("cri-o-1.24", "0.3.2", "0.3.0"),
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


def test_without_a_patch_level_the_oldest_of_the_series_is_meant() -> None:
    assert parse("containerd-1.7") == parse("containerd-1.7.0")
    assert parse("podman-4.3").name == "podman-4.3.0"
    assert parse("docker-25").name == "docker-25.0.0"


def test_a_release_between_two_rows_has_what_the_row_before_it_says() -> None:
    assert read("containerd-1.7.12") == read("containerd-1.7.0")
    assert read("containerd-1.7.26") == read("containerd-1.7.20")
    assert read("docker-27.4") == read("docker-25")
    assert read("buildkit-0.27") == read("buildkit-0.21")


def test_a_release_after_the_last_row_has_what_that_says() -> None:
    assert read("podman-99") == read("podman-6.0")
    assert read("nerdctl-3.0.1") == read("nerdctl-2.1")


def test_cri_o_has_two_spellings() -> None:
    assert parse("crio-1.30") == parse("cri-o-1.30")


def test_only_libraries_from_0_6_0_on_take_a_dot_in_a_class() -> None:
    for name in NAMES:
        target = parse(name)
        assert target.dots_in_class is (release_order(target.library) >= (0, 6, 0))


def test_docker_forgets_additional_groups_until_29_5() -> None:
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
def test_a_release_without_cdi_is_refused_and_the_oldest_with_it_named(text: str, oldest: str) -> None:
    assert oldest in refused(text).hint
    assert parse(oldest).library == LIBRARIES[oldest.rpartition("-")[0]][0][1]


@pytest.mark.parametrize("text", ["kubernetes-1.30", "Podman-5.1", "podman -5.1", "a-b-1", "-o-1"])
def test_an_unknown_runtime_is_refused_and_the_known_ones_named(text: str) -> None:
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
def test_what_is_no_runtime_and_version_is_refused_with_an_example(text: str) -> None:
    error = refused(text)
    assert "podman-4.3" in error.hint
    assert all(runtime in error.hint for runtime in LIBRARIES)


@given(st.text() | st.builds("{}-{}".format, st.sampled_from([*LIBRARIES, "crio"]), st.text("0123456789.v")))
def test_any_text_is_a_target_whose_name_is_the_same_target_or_a_configuration_error(text: str) -> None:
    try:
        target = parse(text)
    except ConfigError:
        refused(text)
    else:
        assert parse(target.name) == target


def test_the_table_is_sorted() -> None:
    assert list(LIBRARIES) == sorted(LIBRARIES)
    for rows in LIBRARIES.values():
        assert [first for first, _ in rows] == sorted({first for first, _ in rows})


@pytest.mark.parametrize(("name", "library", "newest"), ROWS)
def test_a_library_knows_the_versions_up_to_its_own(name: str, library: str, newest: str) -> None:
    known = [version for version in KNOWN_VERSIONS if not is_newer(version, library)]
    assert newest == known[-1], name


def test_a_later_release_never_knows_less() -> None:
    for runtime, rows in LIBRARIES.items():
        for (before, _), (after, _) in pairwise(rows):
            assert not is_newer(library_of(runtime, before)[1], library_of(runtime, after)[1])


def test_of_no_targets_none_is_the_strictest() -> None:
    assert strictest(()) is None


@pytest.mark.parametrize("name", [*NAMES, "docker-29.4"])
def test_of_one_target_it_is_the_strictest(name: str) -> None:
    assert strictest((parse(name), parse(name))) == parse(name)


def test_the_strictest_has_the_name_of_the_oldest_library() -> None:
    targets = tuple(map(parse, ("docker-25", "containerd-1.7", "podman-4.3", "podman-5.1")))
    chosen = strictest(targets)
    assert chosen is not None
    assert (chosen.name, chosen.newest, chosen.dots_in_class) == ("podman-4.3.0", "0.5.0", False)


def test_the_strictest_remembers_which_runtime_forgets_groups() -> None:
    chosen = strictest((parse("podman-5.1"), parse("docker-28")))
    assert chosen is not None
    assert (chosen.name, chosen.forgets_gids) == ("podman-5.1.0", "docker-28.0.0")


targets = st.sampled_from([*NAMES, "docker-29.4", "docker-29.5"]).map(parse)


@given(st.lists(targets, min_size=1, max_size=4, unique=True))
def test_the_strictest_accepts_only_what_all_accept_in_whatever_order_they_come(given: list[Target]) -> None:
    chosen = strictest(tuple(given))
    assert chosen is not None
    assert not any(is_newer(chosen.newest, target.newest) for target in given)
    assert chosen.newest in {target.newest for target in given}
    assert chosen.dots_in_class is all(target.dots_in_class for target in given)
    assert bool(chosen.forgets_gids) is any(target.forgets_gids for target in given)
    assert {strictest(order) for order in permutations(given)} == {chosen}

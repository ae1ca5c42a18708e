"""The plugin's book of who has its devices."""

from cdigen.nri.book import MAX_DEVICES, MAX_HELD, Book, Held, marked
from cdigen.nri.pods import ContainerName


def held(number: int, at_s: float | None = 1.0) -> Held:
    name = ContainerName(namespace="ml", pod=f"pod-{number}", container="main")
    return Held(id=f"c{number}", name=name, devices=("nvidia.com/gpu=0",), at_s=at_s)


def test_beyond_its_size_the_oldest_go() -> None:
    book = Book()
    for number in range(MAX_HELD + 3):
        book.note(held(number))
    assert [book.held()[0].id, book.held()[-1].id, len(book.held())] == ["c3", f"c{MAX_HELD + 2}", MAX_HELD]
    book.add(held(number) for number in range(10_000))
    assert len(book.held()) == MAX_HELD


def test_what_was_there_before_does_not_replace_what_is_known() -> None:
    book = Book()
    book.note(held(1))
    book.add([held(1, None), held(2, None)])
    assert [one.at_s for one in book.held()] == [1.0, None]
    assert (book.forget("c1"), book.forget("c1")) == (True, False)
    book.clear()
    assert book.held() == ()


def test_a_mark_of_any_length_is_cut() -> None:
    assert marked("a.com/b=0,a.com/b=1") == ("a.com/b=0", "a.com/b=1")
    assert len(marked(",".join(["x"] * 1_000_000))) == MAX_DEVICES
    assert len(marked("x" * 1_000_000)[0]) < 5000

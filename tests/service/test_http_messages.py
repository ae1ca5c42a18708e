"""The heads of requests: strict grammar, and the routes that they select."""

from __future__ import annotations

import re
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.service.http.messages import MAX_BODY, MAX_HEAD, body_length, encode, parse_head
from cdigen.service.http.routes import RefusedRequest, Request, Response, find_route


def test_a_head_has_method_path_query_and_headers() -> None:
    head = parse_head(b"GET /a/b?c=d?e HTTP/1.1\r\nHost:  one \r\nx-two:\r\nHOST: three\r\n\r\n")
    assert (head.method, head.path, head.query, head.is_kept) == ("GET", "/a/b", "c=d?e", True)
    assert head.header("host") == "one, three"
    assert head.header("X-Two") == head.header("Missing") == ""


@pytest.mark.parametrize(
    ("version", "connection", "is_kept"),
    [
        ("1.1", "", True),
        ("1.1", "Connection: Close\r\n", False),
        ("1.1", "Connection: keep-alive\r\nConnection: close\r\n", False),
        ("1.0", "Connection: keep-alive\r\n", False),
    ],
)
def test_only_http_1_1_keeps_connections(version: str, connection: str, *, is_kept: bool) -> None:
    assert parse_head(f"GET / HTTP/{version}\r\n{connection}\r\n".encode()).is_kept == is_kept


@pytest.mark.parametrize(
    "head",
    [
        b"", b"\r\n", b"GET /\r\n\r\n", b"GET / HTTP/2.0\r\n\r\n", b"GET / HTTP/1.1 \r\n\r\n",
        b"GET  / HTTP/1.1\r\n\r\n", b"get / HTTP/1.1\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\n\r\n",
        *(b"GET / HTTP/1.1\r\n" + fields + b"\r\n" for fields in (
            b"A: b\n", b" A: b\r\n", b"A: b\r\n c: d\r\n", b"A : b\r\n", b"A\r\n", b": b\r\n", b"A: b\rC\r\n",
            b"A: \0\r\n", b"From x\r\n",
        )),
    ],
)  # fmt: skip
def test_a_head_that_is_not_strict_http_is_refused(head: bytes) -> None:
    with pytest.raises(RefusedRequest) as refused:
        parse_head(head)
    assert refused.value.response.status == "400 Bad Request"


@given(st.lists(st.tuples(st.from_regex(re.compile(r"[!#$%&'*+.^_`|~A-Za-z0-9-]+"), fullmatch=True),
                          st.text(st.characters(min_codepoint=32, max_codepoint=126)))))  # fmt: skip
def test_every_valid_header_is_read(fields: list[tuple[str, str]]) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    head = parse_head(f"GET / HTTP/1.1\r\n{lines}\r\n".encode())
    expected: dict[str, list[str]] = {}
    for name, value in fields:
        expected.setdefault(name.lower(), []).append(value.strip(" "))
    assert head.headers == expected


@pytest.mark.parametrize(
    "fields",
    [b'Content-Type: multipart/x;"' + b";" * (MAX_HEAD - 99) + b"\r\n", b"A:\r\n" * (MAX_HEAD // 4 - 9)],
)
def test_no_head_needs_much_time(fields: bytes) -> None:
    begun_s = time.thread_time()
    assert parse_head(b"GET / HTTP/1.1\r\n" + fields + b"\r\n").method == "GET"
    assert time.thread_time() - begun_s < 1.0


@given(st.binary())
def test_any_bytes_are_a_head_or_are_refused(data: bytes) -> None:
    for each in (data, b"GET / HTTP/1.1\r\n" + data + b"\r\n\r\n"):
        with suppress(RefusedRequest):
            parse_head(each)


@pytest.mark.parametrize(
    ("method", "lines", "expected"),
    [
        ("GET", "", 0), ("GET", "Content-Length: 0\r\n", 0), ("POST", "Content-Length: 7\r\n", 7),
        ("POST", f"Content-Length: {MAX_BODY}\r\n", MAX_BODY),
        ("GET", "Content-Length: 1\r\n", "400"), ("HEAD", "Transfer-Encoding: chunked\r\n", "400"),
        ("POST", "Content-Length: 7 \r\n", 7), ("POST", "", "411"), ("POST", "Content-Length: +7\r\n", "411"),
        ("POST", "Content-Length: 0x7\r\n", "411"), ("POST", "Content-Length: ²\r\n", "411"),
        ("POST", "Content-Length: 7\r\nContent-Length: 8\r\n", "411"),
        ("POST", "Content-Length: 7\r\nTransfer-Encoding: gzip\r\n", "411"),
        ("POST", f"Content-Length: {MAX_BODY + 1}\r\n", "413"),
        ("POST", "Content-Length: " + "9" * 5000 + "\r\n", "411"),
    ],
)  # fmt: skip
def test_a_body_needs_one_length_within_the_limit(method: str, lines: str, expected: int | str) -> None:
    head = parse_head(f"{method} / HTTP/1.1\r\n{lines}\r\n".encode("latin-1"))
    if isinstance(expected, int):
        assert body_length(head) == expected
    else:
        with pytest.raises(RefusedRequest) as refused:
            body_length(head)
        assert refused.value.response.status[:3] == expected


def test_a_response_without_a_body_has_the_length_of_the_body() -> None:
    response = Response(body=b"abc", headers=(("Allow", "GET"),))
    assert encode(response, with_body=True, is_last=False).endswith(b"\r\nAllow: GET\r\n\r\nabc")
    head = encode(response, with_body=False, is_last=True)
    assert b"\r\nContent-Length: 3\r\n" in head
    assert head.endswith(b"\r\nConnection: close\r\n\r\n")


def test_a_route_is_found_by_method_and_path() -> None:
    def named(name: str) -> Response:
        return Response(body=name.encode())

    routes = {
        "/a": lambda _: named("get"),
        "POST /a": lambda _: named("post"),
        "/a/*": lambda _: named("child"),
        "POST /b": lambda _: named("b"),
    }
    request = Request(path="/")
    for method, path, name in (
        ("GET", "/a", b"get"), ("HEAD", "/a", b"get"), ("POST", "/a", b"post"), ("GET", "/a/x", b"child"),
        ("GET", "/a/", b"child"), ("POST", "/b", b"b"),
    ):  # fmt: skip
        assert find_route(routes, method, path)(request).body == name
    for method, path, status in (
        ("GET", "/", "404"), ("GET", "/a/x/y", "404"), ("GET", "*", "404"),
        ("GET", "http://host/a", "404"), ("POST", "/a/x", "405"), ("GET", "/b", "405"), ("PUT", "/a", "405"),
    ):  # fmt: skip
        with pytest.raises(RefusedRequest) as refused:
            find_route(routes, method, path)
        assert refused.value.response.status[:3] == status
    assert refused.value.response.headers == (("Allow", "GET, HEAD, POST"),)

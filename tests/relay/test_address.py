"""The URLs of publishers: what they say, or an error that repeats no password."""

import pytest

from sqlqueue import DeclarationError
from sqlqueue.relay.targets.address import parse


@pytest.mark.parametrize("between", ["#", "/", "?", "1#", "1/", "1?", "#/?", "@#", "#@"])
@pytest.mark.parametrize("scheme", ["redis", "amqps", "nats", "kafka"])
def test_a_password_that_is_not_encoded_is_refused_and_not_repeated(scheme: str, between: str) -> None:
    """Else its part before that is taken for a port, its user for a host, and the rest for nothing."""
    for end in ("", ":6379", "/orders", "/?timeout=3"):
        with pytest.raises(DeclarationError) as caught:
            parse(f"{scheme}://shop:hush{between}hush@host{end}")
        assert f"percent-encode / ? # @ in the password of the {scheme} URL" in str(caught.value)
        assert "hush" not in str(caught.value)


def test_one_that_is_encoded_is_read() -> None:
    address = parse("redis://sh%40p:%23hush%2F%3F%40@host:7/orders")
    assert (address.username, address.password, address.hosts) == ("sh@p", "#hush/?@", (("host", 7),))
    assert "hush" not in repr(address)


def test_an_at_sign_in_the_password_needs_no_encoding_where_that_is_all() -> None:
    assert parse("redis://shop:hu@sh@host").password == "hu@sh"


@pytest.mark.parametrize("url", ["redis://host?stream=orders#1", "kafka://host/orders#1", "nats://host/#"])
def test_a_fragment_is_refused(url: str) -> None:
    """It would vanish; a topic or stream of that name is written with %23."""
    with pytest.raises(DeclarationError, match=r"URL has a '#', and what follows would count for nothing: write %23"):
        parse(url)


@pytest.mark.parametrize("hosts", ["a,,b", ",a", "a,", "a:1,:2", "shop:hush@a,,b"])
def test_an_empty_host_among_several_is_refused(hosts: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        parse(f"kafka://{hosts}/orders")
    assert str(caught.value) == "the kafka URL names several hosts, and one of them is empty; leave it out"


def test_without_any_host_it_is_this_machine() -> None:
    assert parse("kafka:///orders").hosts == (("localhost", None),)
    assert parse("kafka://:9093/orders").hosts == (("localhost", 9093),)


@pytest.mark.parametrize("port", ["0", "65536", "hush", "-1", "1_0", "\u0661"])
def test_a_port_that_is_none_is_reported_without_it(port: str) -> None:
    """It may be the password of a login whose @ is missing."""
    with pytest.raises(DeclarationError) as caught:
        parse(f"nats://shop:{port}")
    assert str(caught.value) == "the nats URL has a port that is not in 1 to 65535"


@pytest.mark.parametrize("url", ["nats://shop:hush@[::1", "nats://shop:hush\u2100@host", "nats://[hush]@host]"])
def test_what_cannot_be_read_is_reported_without_it(url: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        parse(url)
    assert "the nats URL cannot be read" in str(caught.value)
    assert "hush" not in str(caught.value)

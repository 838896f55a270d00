"""Endpoints: how they are written, and where a worker finds them in a network of its own."""

from __future__ import annotations

import pytest

from runner.sandbox.endpoints import Endpoint, added_addresses, hosts_file, listeners, read_endpoint


def endpoints(*texts: str) -> tuple[Endpoint, ...]:
    return tuple(map(read_endpoint, texts))


@pytest.mark.parametrize(
    ("text", "host", "port", "shown"),
    [
        ("db.example:5432", "db.example", 5432, "db.example:5432"),
        ("DB.Example:1", "db.example", 1, "db.example:1"),
        ("localhost:65535", "localhost", 65535, "localhost:65535"),
        ("10.1.2.3:80", "10.1.2.3", 80, "10.1.2.3:80"),
        ("[2001:DB8:0:0::5]:443", "2001:db8::5", 443, "[2001:db8::5]:443"),
        ("1.example:80", "1.example", 80, "1.example:80"),
        ("my_service:80", "my_service", 80, "my_service:80"),
    ],
)
def test_a_host_and_a_port_are_read(text: str, host: str, port: int, shown: str) -> None:
    endpoint = read_endpoint(text)
    assert (endpoint.host, endpoint.port, str(endpoint)) == (host, port, shown)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("db.example", "not of the form"),
        ("db.example:", "not of the form"),
        ("db.example:https", "not of the form"),
        ("https://db.example:443", "not of the form"),
        ("me:word@db.example:1", "not of the form"),
        ("2001:db8::5:443", "not of the form"),
        ("[2001:db8::5]", "not of the form"),
        ("db.example:0", "not a port"),
        ("db.example:65536", "not a port"),
        ("db.example:٣", "not of the form"),
        ("dätenbank:1", "xn--"),
        ("a..b:1", "single dots"),
        (f"{'a' * 64}.example:1", "single dots"),
        (f"{'a.' * 127}b:1", "single dots"),
        # what the C library takes for 127.0.0.1, and other programs for a name
        ("127.1:1", "not every program reads the same"),
        ("2130706433:1", "not every program reads the same"),
        ("0x7f.1:1", "not every program reads the same"),
        ("0177.0.0.1:1", "not every program reads the same"),
        ("0.0.0.0:1", "for several machines or for none"),
        ("[::]:1", "for several machines or for none"),
        ("224.0.0.1:1", "for several machines or for none"),
        ("255.255.255.255:1", "for several machines or for none"),
        ("[::ffff:10.0.0.1]:1", "write it as IPv4"),
        ("[fe80::1]:1", "of one link"),
    ],
)
def test_what_leads_nowhere_or_not_everywhere_to_the_same_place_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_endpoint(text)


def test_each_name_has_a_loopback_address_of_its_own_and_each_address_is_itself() -> None:
    places = endpoints(
        "a.example:443", "b.example:443", "a.example:80", "10.0.0.7:5432", "[2001:db8::5]:443", "[::1]:9"
    )
    assert [(found.address, str(found.endpoint)) for found in listeners(places)] == [
        ("127.64.0.1", "a.example:443"),
        ("127.64.0.2", "b.example:443"),
        ("127.64.0.1", "a.example:80"),
        ("10.0.0.7", "10.0.0.7:5432"),
        ("2001:db8::5", "[2001:db8::5]:443"),
        ("::1", "[::1]:9"),
    ]


def test_a_loopback_address_that_is_meant_itself_stands_for_no_name() -> None:
    places = endpoints("a.example:80", "127.64.0.1:80")
    assert [found.address for found in listeners(places)] == ["127.64.0.2", "127.64.0.1"]


def test_localhost_is_where_it_always_is() -> None:
    assert [found.address for found in listeners(endpoints("localhost:80"))] == ["127.0.0.1"]
    # one socket cannot be two
    both = listeners(endpoints("localhost:80", "127.0.0.1:80", "localhost:81"))
    assert [(found.address, str(found.endpoint)) for found in both] == [
        ("127.0.0.1", "localhost:80"),
        ("127.0.0.1", "localhost:81"),
    ]


def test_only_addresses_beyond_loopback_have_to_be_added() -> None:
    places = endpoints(
        "a.example:1", "localhost:1", "127.0.0.53:1", "[::1]:1", "10.0.0.7:1", "10.0.0.7:2", "[2001:db8::5]:1"
    )
    assert added_addresses(places) == ("10.0.0.7", "2001:db8::5")


def test_the_hosts_file_has_the_names_and_no_others() -> None:
    assert hosts_file(()) == "127.0.0.1 localhost benchmax\n::1 localhost\n"
    assert hosts_file(endpoints("a.example:443", "a.example:80", "localhost:1", "10.0.0.7:1", "b:1")) == (
        "127.0.0.1 localhost benchmax\n::1 localhost\n127.64.0.1 a.example\n127.64.0.2 b\n"
    )
    # the sandbox's own name, if that is a place
    assert hosts_file(endpoints("benchmax:1")) == "127.0.0.1 localhost\n::1 localhost\n127.64.0.1 benchmax\n"

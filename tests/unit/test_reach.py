"""What a worker may connect to, put together from what the caller says."""

from __future__ import annotations

from typing import Any

import pytest

from benchmax.auth import StaticBearerAuth
from runner.broker import Binding
from runner.errors import UsageError
from runner.limits import MAX_ENDPOINTS
from runner.reach import Reach, read_reach

AUTH = StaticBearerAuth("unused-token")


def reached(**options: Any) -> list[str]:
    return [str(endpoint) for endpoint in read_reach("model-only", **{"auth": None, **options}).endpoints]


def test_models_bindings_and_further_places_are_put_together() -> None:
    assert reached(
        endpoints=["https://api.example/v1", "http://localhost:8000/v1", "https://API.example:443/v2"],
        auth={"judge": Binding(AUTH, urls=["https://judge.example/v1", "http://[::1]/v1"]), "plain": AUTH},
        allow=["db.example:5432", "[2001:db8::5]:6379", "localhost:8000"],
    ) == [
        "api.example:443",
        "localhost:8000",
        "judge.example:443",
        "[::1]:80",
        "db.example:5432",
        "[2001:db8::5]:6379",
    ]


@pytest.mark.parametrize("network", ["open", "none"])
def test_places_have_no_meaning_where_everything_or_nothing_is_reached(network: str) -> None:
    assert read_reach(network, auth={"judge": Binding(AUTH, urls=["https://judge.example"])}) == Reach(network)
    given: list[dict[str, Any]] = [{"allow": ["db.example:1"]}, {"endpoints": ["https://api.example"]}]
    for options in given:
        (name,) = options
        with pytest.raises(UsageError, match=f"{name} has no meaning with the network mode {network}"):
            read_reach(network, auth=None, **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"allow": ["db.example"]}, "allow: 'db.example' cannot be reached: it is not of the form HOST:PORT"),
        ({"allow": ["me:hunter2@db.example:1"]}, "allow: 'db.example:1' cannot be reached"),
        ({"allow": "db.example:1"}, r"allow must be a list, got one string. Write allow=\['db.example:1'\]"),
        ({"endpoints": "https://api.example"}, "endpoints must be a list"),
        (
            {"endpoints": ["ftp://api.example"]},
            "endpoints: 'ftp://api.example' cannot be reached: it is not a base URL",
        ),
        (
            {"endpoints": ["https://me:hunter2@api.example"]},
            "endpoints: 'api.example' cannot be reached: it names a user",
        ),
        ({"endpoints": ["http://127.1/v1"]}, "not every program reads the same"),
        ({"allow": [f"db.example:{n}" for n in range(1, MAX_ENDPOINTS + 2)]}, "101 places are to be reached"),
    ],
)
def test_what_cannot_be_reached_is_refused_by_the_name_of_the_option(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        reached(**options)
    assert "hunter2" not in str(caught.value)


def test_a_request_is_held_to_what_its_worker_can_reach() -> None:
    reach = read_reach("model-only", endpoints=["https://api.example/v1"], allow=["10.0.0.7:8000"], auth=None)
    for url in ("https://api.example/v1", "https://API.example:443/other", "http://10.0.0.7:8000/v1"):
        reach.check(url)
    for url, text in {
        "https://api.example:444/v1": r"pass endpoints=\['https://api.example:444'\]",
        "http://api.example/v1": r"pass endpoints=\['http://api.example'\]",
        "https://me:hunter2@api.example/v1": "it names a user",
    }.items():
        with pytest.raises(ValueError, match=text) as caught:
            reach.check(url)
        assert "hunter2" not in str(caught.value)


# -- with the gateway -----------------------------------------------------------------------------------------


def test_a_worker_reaches_the_gateway_in_the_place_of_models_and_bindings() -> None:
    auth: dict[str, Any] = {
        "judge": Binding(AUTH, urls=["https://judge.example/v1", "http://[::1]:81/v1"]),
        "plain": AUTH,
    }
    reach = read_reach(
        "model-only", credentials="gateway", endpoints=["https://api.example/v1"], allow=["db.example:5432"], auth=auth
    )
    places = ["benchmax-gateway:80", "judge.example:443", "[::1]:81", "db.example:5432"]
    assert [str(endpoint) for endpoint in reach.endpoints] == places
    assert [address.origin for address in reach.intercepted] == ["https://judge.example", "http://[::1]:81"]


def test_models_need_not_be_named_for_the_gateway_and_hold_requests_if_they_are() -> None:
    read_reach("model-only", credentials="gateway", auth=None).check("https://anything.example/v1")
    reach = read_reach("model-only", credentials="gateway", endpoints=["https://api.example/v1"], auth=None)
    reach.check("https://api.example/v2")
    with pytest.raises(ValueError, match=r"pass endpoints=\['https://other\.example'\]"):
        reach.check("https://other.example/v1")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"network": "none"},
            "no meaning with the network mode none: the gateway could not be reached",
        ),
        ({"allow": ["judge.example:443"]}, "allow: judge.example:443 is a place where the gateway answers itself"),
        ({"allow": ["benchmax-gateway:80"]}, "allow: benchmax-gateway:80 is a place where the gateway answers"),
        (
            {
                "auth": {
                    "one": Binding(AUTH, urls=["http://h.example:7/v1"]),
                    "two": Binding(AUTH, "https://h.example:7"),
                }
            },
            "auth: h.example:7 is bound as http and as https. A port speaks one of them",
        ),
    ],
)
def test_what_the_gateway_cannot_stand_for_is_refused(options: dict[str, Any], text: str) -> None:
    given = {"auth": {"judge": Binding(AUTH, urls=["https://judge.example/v1"])}, **options}
    with pytest.raises(UsageError, match=text):
        read_reach(given.pop("network", "model-only"), credentials="gateway", **given)


@pytest.mark.parametrize("network", ["open", "none"])
def test_elsewhere_requests_are_nobodys_business(network: str) -> None:
    Reach(network).check("anything")

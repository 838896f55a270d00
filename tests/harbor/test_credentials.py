"""Credentials of sandbox providers: what they take, what they give, and how long they are in the environment."""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from benchmax.envs.harbor import CustomSandboxCredentials, DaytonaCredentials, ModalCredentials, SandboxCredentials
from benchmax.envs.harbor.credentials import sandbox_credentials_scope

# -- values ---------------------------------------------------------------------------------------------------

GIVEN: list[tuple[SandboxCredentials, str | None, dict[str, str]]] = [
    (
        ModalCredentials("sesame-id", "sesame-secret"),
        "modal",
        {"MODAL_TOKEN_ID": "sesame-id", "MODAL_TOKEN_SECRET": "sesame-secret", "MODAL_MAX_THROTTLE_WAIT": "60"},
    ),
    (
        ModalCredentials("sesame-id", "sesame-secret", 0),
        "modal",
        {"MODAL_TOKEN_ID": "sesame-id", "MODAL_TOKEN_SECRET": "sesame-secret", "MODAL_MAX_THROTTLE_WAIT": "0"},
    ),
    (DaytonaCredentials(api_key="sesame"), "daytona", {"DAYTONA_API_KEY": "sesame"}),
    (
        DaytonaCredentials(jwt_token="sesame", organization_id="sesame-org", target="eu"),
        "daytona",
        {"DAYTONA_JWT_TOKEN": "sesame", "DAYTONA_ORGANIZATION_ID": "sesame-org", "DAYTONA_TARGET": "eu"},
    ),
    (CustomSandboxCredentials({"KEY": "sesame"}), None, {"KEY": "sesame"}),
    (CustomSandboxCredentials({"KEY": "sesame"}, provider="e2b"), "e2b", {"KEY": "sesame"}),
]


@pytest.mark.parametrize(("credentials", "provider", "variables"), GIVEN)
def test_each_kind_says_for_whom_and_what(
    credentials: SandboxCredentials, provider: str | None, variables: dict[str, str]
) -> None:
    assert isinstance(credentials, SandboxCredentials)
    assert credentials.provider == provider
    assert credentials.host_environment() == variables
    assert "sesame" not in repr(credentials)
    assert pickle.loads(pickle.dumps(credentials)) == credentials


REFUSED: list[tuple[type[Exception], str, Callable[[], object]]] = [
    (ValueError, "token_id", lambda: ModalCredentials("", "s")),
    (ValueError, "token_secret", lambda: ModalCredentials("i", "")),
    (ValueError, "token_id", lambda: ModalCredentials(None, "s")),  # type: ignore[arg-type]
    *[
        (ValueError, "non-negative integer", lambda wait=wait: ModalCredentials("i", "s", wait))
        for wait in (-1, True, 1.5, "1", None)
    ],
    (ValueError, "exactly one", lambda: DaytonaCredentials()),
    (ValueError, "exactly one", lambda: DaytonaCredentials(api_key="k", jwt_token="j", organization_id="o")),
    (ValueError, "exactly one", lambda: DaytonaCredentials(jwt_token="j")),
    (ValueError, "exactly one", lambda: DaytonaCredentials(organization_id="o")),
    (ValueError, "exactly one", lambda: DaytonaCredentials(api_key="k", organization_id="o")),
    (ValueError, "api_key", lambda: DaytonaCredentials(api_key="")),
    (ValueError, "target", lambda: DaytonaCredentials(api_key="k", target="")),
    (TypeError, "mapping", lambda: CustomSandboxCredentials([("A", "b")])),  # type: ignore[arg-type]
    (ValueError, "at least one", lambda: CustomSandboxCredentials({})),
    (ValueError, "names", lambda: CustomSandboxCredentials({"": "b"})),
    (ValueError, "values", lambda: CustomSandboxCredentials({"A": ""})),
    (ValueError, "values", lambda: CustomSandboxCredentials({"A": 1})),  # type: ignore[dict-item]
    (ValueError, "provider", lambda: CustomSandboxCredentials({"A": "b"}, provider=" ")),
]


@pytest.mark.parametrize(("error", "text", "make"), REFUSED)
def test_what_cannot_be_credentials_is_refused(error: type[Exception], text: str, make: Callable[[], object]) -> None:
    with pytest.raises(error, match=text):
        make()


def test_variables_are_copied() -> None:
    values = {"A": "b"}
    credentials = CustomSandboxCredentials(values)
    values["C"] = "d"
    given: Any = credentials.host_environment()
    given["E"] = "f"
    assert credentials.host_environment() == {"A": "b"}


@pytest.mark.parametrize(
    ("credentials", "state"),
    [
        (ModalCredentials("i", "s", 5), ["modal", "i", "s", 5]),
        (DaytonaCredentials(api_key="k", target="t"), ["daytona", "k", None, None, "t"]),
        (CustomSandboxCredentials({"A": "b"}, "e2b"), [{"A": "b"}, "e2b"]),
    ],
)
def test_the_state_in_a_pickle_is_the_list_of_fields(credentials: Any, state: list[object]) -> None:
    assert credentials.__getstate__() == state


# -- scope ----------------------------------------------------------------------------------------------------

A1, A2 = CustomSandboxCredentials({"SCOPE_A": "one"}), CustomSandboxCredentials({"SCOPE_A": "one"})
B = CustomSandboxCredentials({"SCOPE_A": "two", "SCOPE_B": "two"})


@pytest.fixture(autouse=True)
def the_environment_is_put_back() -> Iterator[None]:
    assert seen() == {}
    yield
    assert seen() == {}


def seen() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("SCOPE_")}


async def test_no_credentials_change_nothing() -> None:
    before = dict(os.environ)
    async with sandbox_credentials_scope(None):
        assert dict(os.environ) == before


async def test_variables_are_there_for_the_duration_and_what_was_there_comes_back() -> None:
    os.environ["SCOPE_A"] = "before"
    try:
        with pytest.raises(RuntimeError, match="inside"):
            async with sandbox_credentials_scope(B):
                assert seen() == {"SCOPE_A": "two", "SCOPE_B": "two"}
                raise RuntimeError("inside")
        assert seen() == {"SCOPE_A": "before"}
    finally:
        del os.environ["SCOPE_A"]


async def test_the_same_object_may_enter_again() -> None:
    async with sandbox_credentials_scope(A1):
        async with sandbox_credentials_scope(A1):
            assert seen() == {"SCOPE_A": "one"}
        assert seen() == {"SCOPE_A": "one"}


@pytest.mark.parametrize("other", [A2, B])
async def test_another_object_cannot_nest_even_with_equal_values(other: CustomSandboxCredentials) -> None:
    async with sandbox_credentials_scope(A1):
        with pytest.raises(RuntimeError, match="cannot nest"):
            async with sandbox_credentials_scope(other):
                pass
        assert seen() == {"SCOPE_A": "one"}


class Holding:
    """A scope in a task of its own, which is held until it is let go."""

    def __init__(self, credentials: SandboxCredentials) -> None:
        self.entered, self.let_go = asyncio.Event(), asyncio.Event()
        self.seen: dict[str, str] = {}
        self.task = asyncio.create_task(self._hold(credentials))

    async def _hold(self, credentials: SandboxCredentials) -> None:
        async with sandbox_credentials_scope(credentials):
            self.seen = seen()
            self.entered.set()
            await self.let_go.wait()

    async def end(self) -> None:
        self.let_go.set()
        await self.task


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_equal_variables_are_shared_until_the_last_one_leaves() -> None:
    first, second = Holding(A1), Holding(A2)
    await asyncio.gather(first.entered.wait(), second.entered.wait())
    await first.end()
    assert seen() == {"SCOPE_A": "one"}
    await second.end()
    assert seen() == {}


async def test_other_variables_wait_until_nobody_uses_those_that_are_set() -> None:
    first, second, other = Holding(A1), Holding(A2), Holding(B)
    await settle()
    await first.end()
    await settle()
    assert not other.entered.is_set()
    assert seen() == {"SCOPE_A": "one"}
    await second.end()
    await other.entered.wait()
    assert other.seen == {"SCOPE_A": "two", "SCOPE_B": "two"}
    await other.end()


async def test_one_that_is_cancelled_while_it_waits_holds_nothing_up() -> None:
    first, gone, other = Holding(A1), Holding(B), Holding(B)
    await settle()
    gone.task.cancel()
    await settle()
    await first.end()
    await other.entered.wait()
    await other.end()
    assert gone.task.cancelled()


async def test_a_task_that_outlives_its_scope_keeps_the_variables_it_entered_for() -> None:
    async with sandbox_credentials_scope(A1):
        inner = Holding(A1)
        await inner.entered.wait()
    assert seen() == {"SCOPE_A": "one"}
    other = Holding(B)
    await settle()
    assert not other.entered.is_set()
    await inner.end()
    await other.entered.wait()
    await other.end()


async def test_a_task_whose_scope_is_over_begins_anew() -> None:
    go = asyncio.Event()

    async def later() -> dict[str, str]:
        await go.wait()
        async with sandbox_credentials_scope(B):
            return seen()

    async with sandbox_credentials_scope(A1):
        task = asyncio.create_task(later())
        await settle()
    go.set()
    assert await task == {"SCOPE_A": "two", "SCOPE_B": "two"}


async def test_scopes_of_other_event_loops_are_waited_for() -> None:
    first = Holding(A1)
    await first.entered.wait()

    async def elsewhere() -> dict[str, str]:
        async with sandbox_credentials_scope(B):
            return seen()

    other = asyncio.create_task(asyncio.to_thread(asyncio.run, elsewhere()))
    await settle()
    assert seen() == {"SCOPE_A": "one"}
    await first.end()
    assert await other == {"SCOPE_A": "two", "SCOPE_B": "two"}


async def test_variables_that_cannot_be_set_leave_nothing_behind() -> None:
    class Broken:
        provider = None

        def host_environment(self) -> Mapping[str, str]:
            return {"SCOPE_A": "one", "SCOPE_B": "nul\0"}

    with pytest.raises(ValueError, match="null"):
        async with sandbox_credentials_scope(Broken()):
            pass
    async with sandbox_credentials_scope(B):
        assert seen() == {"SCOPE_A": "two", "SCOPE_B": "two"}

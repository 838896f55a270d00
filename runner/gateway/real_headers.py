"""The real headers of model calls, got by a clerk at the moment when a call is sent on; see `Credentials`.

Comes in: a call that a worker's client made with a session key. Goes out: its source is told the same as if that client
had asked for headers, and gives them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from runner.broker import CallScope, Clerk
from runner.broker.address import read_address
from runner.gateway.exchange import ModelCall
from runner.gateway.session import Session
from runner.protocol import HeaderRequest

QUESTIONS: Final = 64
"""Base URLs under which the clients of one binding's session may ask and be told apart."""


class OwnHeaders:
    """The credentials of a rollout's own model; see `Credentials`.

    Args:
        clerk: Gets them.
        inner: What the rollout's call may ask for.
        asked: What its client would ask.
    """

    def __init__(self, clerk: Clerk, inner: CallScope, asked: HeaderRequest) -> None:
        self._clerk = clerk
        self._inner = inner
        self._asked = asked

    async def headers(self, call: ModelCall) -> Mapping[str, str]:
        """Return the headers of one call."""
        return await self._clerk.headers(self._inner, self._asked)

    async def rejected(self, call: ModelCall, headers: Mapping[str, str]) -> bool:
        """Tell the source that they were refused."""
        return await self._clerk.rejected(self._inner, self._asked, headers)


class BoundHeaders:
    """A binding as one rollout, or a call as a whole, may use it; also its credentials, see `Credentials`.

    Args:
        clerk: Gets the real headers.
        inner: What the call may ask for.
        name: Of the binding.
        rollout: Who uses it; `None` for the call as a whole.
        base_url: Where it is used first.
    """

    def __init__(self, clerk: Clerk, inner: CallScope, name: str, rollout: str | None, base_url: str) -> None:
        self._clerk = clerk
        self.inner = inner
        self.name = name
        self._rollout = rollout
        self._base_url = base_url
        self._questions: OrderedDict[str, HeaderRequest] = OrderedDict()
        self.session: Session

    def note(self, base_url: str, request: HeaderRequest) -> None:
        """Remember how a worker's client asks at a base URL, so that the source is told the same."""
        self._questions[base_url] = request
        self._questions.move_to_end(base_url)
        if len(self._questions) > QUESTIONS:
            self._questions.popitem(last=False)

    def asked(self, call: ModelCall | None) -> HeaderRequest:
        """Return what the worker's client would ask for a call: about the place that it goes to, and no other.

        Args:
            call: The call; `None` for any at the first base URL.
        """
        # who may have headers is decided by the place, not by what is asked there
        goes_to = self._base_url if call is None or call.url is None else call.url.partition("?")[0]
        address = read_address(goes_to)
        covering = [url for url in self._questions if read_address(url).covers(address)]
        # a place that the key is good for may be one that nobody has asked about
        base_url = max(covering, key=lambda url: len(read_address(url).path), default=goes_to)
        question = self._questions.get(base_url)
        document = call.document if call is not None and isinstance(call.document, dict) else {}
        model = document.get("model", "" if question is None else question.model)
        return HeaderRequest(
            request=0,
            call=0,
            binding=self.name,
            rollout=self._rollout,
            base_url=base_url,
            model=model if isinstance(model, str) else "",
            rollout_id="" if question is None else question.rollout_id,
        )

    async def headers(self, call: ModelCall) -> Mapping[str, str]:
        """Return the headers of one call."""
        return await self._clerk.headers(self.inner, self.asked(call))

    async def rejected(self, call: ModelCall, headers: Mapping[str, str]) -> bool:
        """Tell the source that they were refused."""
        return await self._clerk.rejected(self.inner, self.asked(call), headers)

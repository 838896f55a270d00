"""A client that adds headers which could change who is asked, for whom, or as whom: they stay behind."""

from __future__ import annotations

from tests.unit.gateway_lab import SECRET, lab

SMUGGLED = {
    "api-key": "mine",
    "x-api-key": "mine",
    "proxy-authorization": "Basic mine",
    "cookie": "session=mine",
    "host": "elsewhere.example",
    "x-forwarded-host": "elsewhere.example",
    "x-forwarded-for": "10.0.0.1",
    "forwarded": "for=10.0.0.1",
    "x-http-method-override": "DELETE",
    "x-original-url": "/admin",
    "connection": "x-kept, close",
    "x-kept": "no",
    "te": "trailers",
    "accept-encoding": "br",
    "transfer-encoding-x": "kept",
}


async def test_none_of_them_arrives() -> None:
    async with lab() as made:
        session = made.open()
        headers = {**SMUGGLED, "x-stainless-lang": "kept"}
        answer = await made.ask(
            "POST", f"{session.path}/chat/completions", key=session.key, body=b'{"messages": []}', headers=headers
        )
        assert answer.status in (200, 400)
        for asked in made.endpoint.asked:
            assert asked.headers["authorization"] == f"Bearer {SECRET}"
            assert "mine" not in repr(asked)
            assert "elsewhere" not in repr(asked)
            assert "10.0.0.1" not in repr(asked)
            assert asked.headers["x-stainless-lang"] == "kept"
            assert asked.headers["host"] in made.endpoint.url
            assert not {"x-kept", "te", "x-original-url", "x-http-method-override"} & asked.headers.keys()

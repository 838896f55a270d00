"""A credential source that could not take notice of a refusal once is told of the next one."""

from __future__ import annotations

from tests.unit.gateway_lab import SECRET, Asked, Wire, completion, lab


async def test_a_source_is_told_again_of_headers_for_which_it_had_no_others() -> None:
    async def only_the_new_one(asked: Asked, wire: Wire) -> None:
        if asked.headers["authorization"] == "Bearer the-new-one":
            await wire.whole(completion())
        else:
            await wire.whole({"error": {"message": "no", "code": "invalid_api_key"}}, 401)

    async with lab() as made:
        made.endpoint.doing = only_the_new_one
        session = made.open()
        # its own server is down, say
        assert (await made.post(session)).status == 401
        made.keys.keys = [SECRET, "the-new-one"]
        made.keys.worth_another_try = True
        assert (await made.post(session)).status == 200
        assert len(made.keys.told) == 2

"""The search tool: how it is offered, what its calls do, and the text that the model gets."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmax.envs import Example, RolloutRequest, StaticBearerAuth
from benchmax.rag.env import MAX_TOOL_OUTPUT_CHARS, TOOL_OUTPUT_TRUNCATION_SUFFIX, extract_source_ids
from tests.contract.loopback import ModelServer, call, completion
from tests.contract.rag_lab import RECORDED, Corpus, env_at, found

HEADER = "1.\n   Content: "


async def text_of(*results: Any) -> str:
    text: str = await env_at(corpus=Corpus(results)).run_tool("r", "search", query="q")
    return text


async def parameters(*modes: str) -> Any:
    (tool,) = await env_at(corpus=Corpus(modes=modes)).list_tools()
    function: Any = tool["function"]
    assert (tool["type"], function["name"], function["strict"]) == ("function", "search", False)
    assert function["description"]
    return function["parameters"]


# --- how it is offered


async def test_it_takes_a_query_and_perhaps_a_limit() -> None:
    schema = await parameters("lexical")
    assert schema["required"] == ["query"]
    assert {name: field["type"] for name, field in schema["properties"].items()} == {
        "query": "string",
        "limit": "integer",
    }
    assert "10" in schema["properties"]["limit"]["description"]


async def test_a_mode_is_offered_only_where_there_is_a_choice() -> None:
    assert "mode" not in (await parameters())["properties"]
    mode = (await parameters("vector", "lexical", "hybrid"))["properties"]["mode"]
    assert (mode["type"], mode["enum"]) == ("string", ["hybrid", "lexical", "vector"])
    assert "hybrid" in mode["description"]


@pytest.mark.parametrize(("modes", "default"), RECORDED["default_modes"])
async def test_the_default_mode_is_hybrid_or_lexical_or_the_first(modes: list[str], default: str) -> None:
    corpus = Corpus(modes=modes)
    env = env_at(corpus=corpus)
    assert env._default_mode == default
    await env.run_tool("r", "search", query="q")
    assert corpus.asked == [("q", default, 10)]


# --- what its calls do


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ({"query": "q"}, ("q", "hybrid", 10)),
        ({"query": "q", "mode": "vector", "limit": 3}, ("q", "vector", 3)),
        ({"query": "q", "mode": "made up"}, ("q", "made up", 10)),
        ({"query": "q", "mode": ""}, ("q", "hybrid", 10)),
        ({"query": "q", "mode": None}, ("q", "hybrid", 10)),
        ({"query": "q", "limit": "many"}, ("q", "hybrid", "many")),
        ({"query": "q", "limit": 0}, ("q", "hybrid", 0)),
        ({"query": "q", "page": 2, "self": 1}, ("q", "hybrid", 10)),
        ({"query": 5}, (5, "hybrid", 10)),
    ],
)
async def test_a_call_reaches_the_client_with_its_arguments(arguments: dict[str, Any], asked: Any) -> None:
    corpus = Corpus(modes=["hybrid", "vector"])
    assert await env_at(corpus=corpus).run_tool("r", "search", **arguments) == "No results found."
    assert corpus.asked == [asked]


async def test_the_client_is_called_by_the_names_query_mode_and_top_k() -> None:
    class ByName:
        available_modes = ("lexical",)

        async def search(self, **arguments: Any) -> list[Any]:
            self.arguments = arguments
            return []

    corpus: Any = ByName()
    await env_at(corpus=corpus).run_tool("r", "search", query="q", limit=2)
    assert corpus.arguments == {"query": "q", "mode": "lexical", "top_k": 2}


@pytest.mark.parametrize("query", ["", None])
async def test_an_empty_query_is_told_to_the_model(query: Any) -> None:
    corpus = Corpus()
    text = await env_at(corpus=corpus).run_tool("r", "search", query=query)
    assert text.startswith("Error")
    assert "query" in text
    assert corpus.asked == []


async def test_a_missing_query_is_a_python_error() -> None:
    with pytest.raises(TypeError, match="query"):
        await env_at().run_tool("r", "search", limit=3)


async def test_an_unknown_tool_is_told_to_the_model() -> None:
    assert (await env_at().run_tool("r", "browse", url="x")).startswith("Error: Unknown tool")


async def test_a_subclass_may_bring_another_search_and_further_tools() -> None:
    from benchmax.rag import RagEnv

    class Mine(RagEnv):
        async def _search_tool(self, /, query: str, mode: str | None = None, limit: int = 10, **ignored: Any) -> str:
            return f"mine: {query}"

    env: Any = Mine(Corpus(), judge_base_url="http://x", judge_model="m")
    env._tools["shout"] = ({"type": "function", "function": {"name": "shout"}}, env._search_tool)
    assert [tool["function"]["name"] for tool in await env.list_tools()] == ["search", "shout"]
    assert await env.run_tool("r", "search", query="q") == await env.run_tool("r", "shout", query="q") == "mine: q"


# --- through a whole rollout


async def outcome(server: ModelServer, env: Any, *replies: Any) -> Any:
    server.script(*replies)
    example = Example("e", {"prompt_messages": [{"role": "user", "content": "q"}]})
    return await env.run_rollout(RolloutRequest("r", example, "m", server.url, StaticBearerAuth("t"), "eval"))


def searches(count: int = 1, **arguments: Any) -> Any:
    query = json.dumps({"query": "q", **arguments})
    return completion(None, calls=[call("search", query, f"c{n}") for n in range(count)])


async def test_a_call_without_a_query_ends_the_rollout_with_tool_error(model_server: ModelServer) -> None:
    result = await outcome(model_server, env_at(), completion(None, calls=[call("search", '{"limit": 3}')]))
    assert (result.termination_reason, result.rewards) == ("tool_error", {})


async def test_a_client_that_raises_ends_the_rollout_with_tool_error(model_server: ModelServer) -> None:
    class Broken(Corpus):
        async def search(self, query: str, mode: str = "auto", top_k: int = 10) -> Any:
            raise ConnectionError("index away")

    result = await outcome(model_server, env_at(corpus=Broken()), searches())
    assert result.termination_reason == "tool_error"


async def test_more_searches_than_the_budget_end_with_tool_budget_exceeded(model_server: ModelServer) -> None:
    corpus = Corpus()
    result = await outcome(model_server, env_at(corpus=corpus, max_search_calls=2), searches(), searches(2))
    assert result.termination_reason == "tool_budget_exceeded"
    assert len(corpus.asked) == 1


async def test_after_the_last_search_one_turn_is_left_for_the_answer(model_server: ModelServer) -> None:
    corpus = Corpus([found("a")])
    result = await outcome(
        model_server, env_at(corpus=corpus, max_search_calls=2), searches(), searches(), completion("done")
    )
    assert result.termination_reason == "finished"
    assert [message["role"] for message in result.messages] == ["user", *["assistant", "tool"] * 2, "assistant"]
    assert model_server.requests[0].body["tools"] == await env_at(corpus=corpus).list_tools()


# --- the text of results


@pytest.mark.parametrize(("results", "text"), RECORDED["result_texts"])
async def test_results_are_written_as_recorded(results: list[Any], text: str) -> None:
    assert await text_of(*results) == text


async def test_a_result_has_a_header_its_metadata_and_its_content() -> None:
    assert await text_of(
        found("docs/a.md", "First.", score=0.456, metadata={"title": "T", "page": 3}), {"content": "Second."}
    ) == (
        "1. — [source: docs/a.md] (score: 0.46)\n"
        "   Metadata: {'title': 'T', 'page': 3}\n"
        "   Content: First.\n"
        "2.\n"
        "   Content: Second."
    )


@pytest.mark.parametrize(
    "hidden",
    [{"content": 1}, {"_local_hash": 1}, {"chunk_hash": 1}, {"char_count": 1}, {"_any": 1}, {"x": None}, {"x": ""}],
)
async def test_bookkeeping_and_empty_metadata_are_not_shown(hidden: dict[str, Any]) -> None:
    assert "Metadata" not in await text_of(found("a", metadata=hidden))
    assert "Metadata: {'y': 0}" in await text_of(found("a", metadata={**hidden, "y": 0}))


async def test_fields_that_are_missing_or_none_show_nothing() -> None:
    assert await text_of({}) == "1.\n   Content: "
    assert await text_of({"content": "c", "source": None, "metadata": None, "score": None}) == "1.\n   Content: c"


@pytest.mark.parametrize(("length", "cut"), [(MAX_TOOL_OUTPUT_CHARS, False), (MAX_TOOL_OUTPUT_CHARS + 1, True)])
async def test_a_text_is_cut_only_beyond_the_limit(length: int, cut: bool) -> None:
    whole = HEADER + "x" * (length - len(HEADER))
    text = await text_of({"content": whole.removeprefix(HEADER)})
    kept = MAX_TOOL_OUTPUT_CHARS - len(TOOL_OUTPUT_TRUNCATION_SUFFIX)
    assert text == (whole[:kept] + TOOL_OUTPUT_TRUNCATION_SUFFIX if cut else whole)
    assert len(text) == MAX_TOOL_OUTPUT_CHARS


async def test_white_space_before_the_cut_goes() -> None:
    kept = MAX_TOOL_OUTPUT_CHARS - len(TOOL_OUTPUT_TRUNCATION_SUFFIX) - len(HEADER)
    content = "x" * (kept - 5) + " \n \n " + "y" * 100
    assert await text_of({"content": content}) == HEADER + "x" * (kept - 5) + TOOL_OUTPUT_TRUNCATION_SUFFIX


@given(st.lists(st.text(alphabet="ab./-", min_size=1, max_size=8), max_size=4), st.integers(0, 6000))
@settings(deadline=None)
def test_no_text_is_longer_than_the_limit_and_scoring_reads_its_labels_back(sources: list[str], size: int) -> None:
    text = asyncio.run(text_of(*(found(source, "x" * size) for source in sources)))
    assert len(text) <= MAX_TOOL_OUTPUT_CHARS
    read = extract_source_ids(text)
    assert read <= set(sources)
    assert read == set(sources) or text.endswith(TOOL_OUTPUT_TRUNCATION_SUFFIX)

"""Constructing a search environment, what it tells the model first, and its dataset."""

from __future__ import annotations

import json
import math
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from benchmax.auth import InjectedAuth, StaticBearerAuth
from benchmax.envs import canonical_example_id
from benchmax.rag import RagEnv, SearchClient
from benchmax.rewards import Judge
from tests.contract.rag_lab import NOWHERE, RECORDED, Corpus, chunks, env_at

JUDGE: dict[str, Any] = {"judge_base_url": "http://x", "judge_model": "m"}


def made(**options: Any) -> Any:
    return RagEnv(Corpus(), **{**JUDGE, **options})


# --- construction


@pytest.mark.parametrize("missing", ["judge_base_url", "judge_model"])
@pytest.mark.parametrize("value", ["", None])
def test_a_judge_is_required_before_anything_else(missing: str, value: Any) -> None:
    with pytest.raises(ValueError, match="requires judge_base_url"):
        made(**{missing: value}, max_search_calls=0, max_turns=0)


@pytest.mark.parametrize("value", [0, -1, True, 2.0, "2", None])
def test_the_search_budget_is_a_positive_integer(value: Any) -> None:
    with pytest.raises(ValueError, match="max_search_calls"):
        made(max_search_calls=value, max_turns=0)


def test_turns_are_checked_before_the_judge() -> None:
    with pytest.raises(ValueError, match="positive integer"):
        made(max_turns=0, judge_timeout=-1)


@pytest.mark.parametrize(("options", "named"), [({"judge_timeout": 0}, "timeout"), ({"judge_model": " "}, "model")])
def test_the_judge_is_checked_by_its_own_rules(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        made(**options)
    with pytest.raises(TypeError, match="ModelAuth"):
        made(judge_auth="token")


@pytest.mark.parametrize("name", ["w_conciseness", "w_search_efficiency", "w_citation_precision", "anything"])
def test_keywords_it_does_not_know_are_type_errors(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        made(**{name: 0.3})


def test_a_judge_cannot_be_left_out() -> None:
    construct: Any = RagEnv
    with pytest.raises(TypeError, match="judge_base_url"):
        construct(Corpus())


def test_turns_follow_the_search_budget_unless_said() -> None:
    assert [(env.max_turns, env.max_tool_calls) for env in (made(), made(max_search_calls=3))] == [(11, 10), (4, 3)]
    assert (made(max_search_calls=3, max_turns=2).max_turns, made(max_turns=2).max_tool_calls) == (2, 10)


def test_weights_are_taken_as_they_are() -> None:
    weights: Any = {"w_correctness": -1, "w_retrieval_hit": math.inf, "w_length": "x"}
    env = made(**weights)
    assert (env._w_correctness, env._w_retrieval_hit, env._w_length) == (-1, math.inf, "x")
    assert (env._w_citation_recall, env._w_citation_grounding) == (0.3, 0.2)
    default = made()
    assert (default._w_correctness, default._w_retrieval_hit, default._w_length) == (1.0, 0.3, 0.2)


def test_dependents_find_their_attributes() -> None:
    corpus = Corpus(modes=["vector"])
    env: Any = RagEnv(corpus, **JUDGE, judge_auth=StaticBearerAuth("t"), judge_timeout=7, max_search_calls=4)
    assert env._search is corpus
    assert env._judge == Judge("m", "http://x", StaticBearerAuth("t"), timeout=7)
    assert (env._system_prompt, env._default_mode, env._max_search_calls) == (None, "vector", 4)
    assert list(env._tools) == ["search"]
    assert RagEnv.PRIMARY_REWARD_KEY == "answer_correctness"


def test_the_judges_time_out_is_thirty_seconds() -> None:
    assert made()._judge.timeout == 30.0
    assert made(judge_timeout=None)._judge.timeout is None


def test_modes_are_read_when_constructed_and_after_all_checks() -> None:
    class Unread:
        @property
        def available_modes(self) -> list[str]:
            raise ConnectionError("no credentials while bundling")

    with pytest.raises(ConnectionError):
        RagEnv(Unread(), **JUDGE)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_search_calls"):
        RagEnv(Unread(), **JUDGE, max_search_calls=0)  # type: ignore[arg-type]


def test_an_environment_survives_pickling() -> None:
    env: Any = pickle.loads(pickle.dumps(made(max_search_calls=2, system_prompt="s")))
    assert (env.max_turns, env._system_prompt, env._judge.auth) == (3, "s", InjectedAuth("judge"))
    assert env._tools["search"][1].__self__ is env


# --- the system prompt


class Told(RagEnv):
    system_prompt = "of the class"


@pytest.mark.parametrize(
    ("kind", "given", "used"),
    [
        (RagEnv, None, None),
        (RagEnv, "mine", "mine"),
        (Told, None, "of the class"),
        (Told, "mine", "mine"),
        (Told, "", ""),
    ],
)
def test_any_string_wins_over_the_class(kind: Any, given: str | None, used: str | None) -> None:
    env = kind(Corpus(), **JUDGE, system_prompt=given)
    assert env._system_prompt == used
    roles = [message["role"] for message in env._example_from_row({"question": "q"}).payload["prompt_messages"]]
    assert roles == (["system", "user"] if used else ["user"])


@pytest.mark.parametrize("budget", [1, 10, 25])
def test_the_default_template_says_all_that_it_has_to(budget: int) -> None:
    text = RagEnv.render_system_prompt(corpus_description="Letters of 1848.", max_search_calls=budget)
    assert RagEnv.SYSTEM_PROMPT_TEMPLATE.count("{corpus_description}") == 1
    for needed in ("Letters of 1848.", "<think>", "search tool", f"{budget} times", "sub-queries", "broaden"):
        assert needed in text
    for needed in ("<answer>", "</answer>", "[Source: <id>]", "retrieved text"):
        assert needed in text
    assert "{" not in text


def test_only_words_in_braces_are_placeholders_as_recorded() -> None:
    recorded = RECORDED["prompt"]

    class Other(RagEnv):
        SYSTEM_PROMPT_TEMPLATE = recorded["template"]

    rendered = Other.render_system_prompt(
        corpus_description=recorded["corpus_description"], max_search_calls=recorded["max_search_calls"]
    )
    assert rendered == recorded["rendered"]


# --- the dataset


@pytest.mark.parametrize(("row", "prompt", "expected"), RECORDED["examples"])
def test_a_row_becomes_an_example_as_recorded(row: dict[str, Any], prompt: str | None, expected: Any) -> None:
    example = env_at(system_prompt=prompt)._example_from_row(row)
    assert [example.id, example.payload] == expected
    assert list(example.payload) == ["prompt_messages", "question", "ground_truth", "reference_chunks"]


@pytest.mark.parametrize("question", [None, 1, ["q"]])
def test_a_question_that_is_no_string_is_a_type_error(question: Any) -> None:
    with pytest.raises(TypeError, match="question"):
        env_at()._example_from_row({"question": question})


async def test_the_dataset_is_the_file_of_the_split(tmp_path: Path) -> None:
    rows = [{"question": f"q{n}", "answer": n, "reference_chunks": chunks("a"), "note": "dropped"} for n in range(3)]
    (tmp_path / "eval.jsonl").write_text("\n\n".join(map(json.dumps, rows)))
    env = RagEnv(Corpus(), judge_base_url=NOWHERE, judge_model="m")
    dataset = await env.create_dataset("eval", tmp_path, max_examples=2)
    assert [example.payload["question"] for example in dataset] == ["q0", "q1"]
    assert dataset[0].id == canonical_example_id(dataset[0].payload)
    assert dataset[0].payload["reference_chunks"] == chunks("a")
    with pytest.raises(FileNotFoundError):
        await env.create_dataset("train", tmp_path)


async def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"question": "q"}\n{"question": 2}\n')
    with pytest.raises(TypeError) as caught:
        await env_at().create_dataset("train", tmp_path)
    assert "train.jsonl:2" in "".join(caught.value.__notes__)


def test_the_system_prompt_is_part_of_an_examples_identity() -> None:
    ids = {env_at(system_prompt=prompt)._example_from_row({"question": "q"}).id for prompt in ("a", "b", "")}
    assert len(ids) == 3


async def test_the_documented_client_and_environment_work() -> None:
    text = (Path(__file__).parents[2] / "docs" / "rag.md").read_text("utf-8")
    constructing, writing = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(writing, namespace)
    client = namespace["my_search_client"] = namespace["Letters"]()
    exec(constructing, namespace)
    assert isinstance(client, SearchClient)
    shown = await namespace["env"].run_tool("r", "search", query="John")
    assert "[source: letters/12.md] (score: 3.20)" in shown
    assert "{'year': 1848}" in shown
    (row,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    example = namespace["env"]._example_from_row(json.loads(row))
    assert "at most 6 times" in example.payload["prompt_messages"][0]["content"]

"""How one rollout is scored, with a judge that says what the test wants to hear."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import benchmax.rag.env as env_module
from benchmax.rag import RagEnv
from benchmax.rag.env import ANSWER_LENGTH_CAP, CORRECTNESS_RUBRIC, judge_answer_quality
from benchmax.rewards import Judge, JudgeError, Rubric
from tests.contract.rag_lab import RECORDED, Corpus, answered, chunks, env_at, rollout, tool_message

KEYS = ["answer_correctness", "retrieval_hit", "citation_recall", "citation_grounding", "answer_length"]
WEIGHTS = [1.0, 0.3, 0.3, 0.2, 0.2]
ZEROS = dict.fromkeys(KEYS, 0.0)

Verdict = Callable[[Any], list[dict[str, Any]]]


@pytest.fixture
def verdict(monkeypatch: pytest.MonkeyPatch) -> Verdict:
    """Replace the judge's verdict by a score, or an error to raise; return the list of what it will be asked."""

    def replace(score: Any) -> list[dict[str, Any]]:
        asked: list[dict[str, Any]] = []

        async def evaluate(rubric: Rubric, **arguments: Any) -> Any:
            asked.append({"rubric": rubric, **arguments})
            if isinstance(score, BaseException):
                raise score
            return SimpleNamespace(score=score)

        monkeypatch.setattr(env_module, "evaluate_single_rubric", evaluate)
        return asked

    return replace


# --- recorded facts


@pytest.mark.parametrize("name", RECORDED["rewards"])
async def test_rewards_and_the_judges_question_are_as_recorded(verdict: Verdict, name: str) -> None:
    case = RECORDED["rewards"][name]
    asked = verdict(case["verdict"])
    rewards = await env_at().compute_reward(rollout(case["messages"], **case["example_args"]))
    assert rewards == pytest.approx(case["rewards"], abs=1e-9)
    assert list(rewards) == KEYS
    assert [{name: question[name] for name in ("question", "response", "ground_truth")} for question in asked] == case[
        "asked"
    ]


# --- gates


@pytest.mark.parametrize("answer", ["", "  ", "\n"])
async def test_a_blank_answer_scores_zero_unasked(verdict: Verdict, answer: str) -> None:
    asked = verdict(1)
    assert await env_at().compute_reward(answered(answer, "a.md")) == ZEROS
    assert asked == []


async def test_only_the_last_message_answers_and_only_if_it_is_the_assistants(verdict: Verdict) -> None:
    verdict(1)
    finished = answered("x [Source: a]", "a.md")
    for extra in (tool_message("[source: a]"), {"role": "user", "content": "<answer>x</answer>"}):
        messages: Any = [*finished.messages, extra]
        assert await env_at().compute_reward(rollout(messages, **finished.example_args)) == ZEROS


async def test_an_answer_from_memory_scores_zero_unasked_even_if_right_and_cited(verdict: Verdict) -> None:
    asked = verdict(1)
    env = env_at()
    assert await env.compute_reward(answered("x [Source: a]")) == ZEROS
    assert await env.compute_reward(answered("x [Source: a]", "unrelated.md")) == ZEROS
    assert await env.compute_reward(answered("x [Source: a]", "a.md", references=())) == ZEROS
    assert asked == []


async def test_an_example_without_a_list_of_chunks_is_an_error_unless_there_is_no_answer(verdict: Verdict) -> None:
    verdict(1)
    with pytest.raises(TypeError):
        await env_at().compute_reward(answered("x", "a.md", reference_chunks=None))
    assert await env_at().compute_reward(answered("", "a.md", reference_chunks=None)) == ZEROS


async def test_a_judge_that_fails_is_raised_and_never_a_zero(verdict: Verdict) -> None:
    verdict(JudgeError("no verdict"))
    with pytest.raises(JudgeError, match="no verdict"):
        await env_at().compute_reward(answered("x", "a.md"))


# --- components


async def test_the_judge_is_asked_once_by_the_correctness_rubric(verdict: Verdict) -> None:
    asked = verdict(1)
    env: Any = env_at()
    await env.compute_reward(answered("x", "a.md", question="why?", ground_truth="because"))
    assert asked == [
        {
            "rubric": CORRECTNESS_RUBRIC,
            "question": "why?",
            "ground_truth": "because",
            "response": "x",
            "judge": env._judge,
        }
    ]


@pytest.mark.parametrize(
    ("example", "question", "truth"),
    [
        ({"question": "", "prompt": "p", "ground_truth": 0}, "p", ""),
        ({"question": "", "ground_truth": None}, "", ""),
        ({"question": "q", "ground_truth": ["a", 1]}, "q", "['a', 1]"),
        ({"question": "q", "ground_truth": 42}, "q", "42"),
    ],
)
async def test_question_and_reference_answer_reach_the_judge_as_text(
    verdict: Verdict, example: dict[str, Any], question: str, truth: str
) -> None:
    asked = verdict(1)
    await env_at().compute_reward(answered("x", "a.md", **example))
    assert (asked[0]["question"], asked[0]["ground_truth"]) == (question, truth)


async def test_each_component_is_its_score_times_its_weight(verdict: Verdict) -> None:
    verdict(1)
    env = env_at(w_correctness=2, w_retrieval_hit=10, w_citation_recall=20, w_citation_grounding=30, w_length=40)
    text = "y" * 126 + " [Source: a] [Source: x]"
    assert len(text) == 150
    # half of the references found and cited, half of the citations found, a quarter of the length
    rewards = await env.compute_reward(answered(text, "a.md", references=("a.md", "b.md")))
    assert rewards == pytest.approx(
        {
            "answer_correctness": 2.0,
            "retrieval_hit": 5.0,
            "citation_recall": 10.0,
            "citation_grounding": 15.0,
            "answer_length": 30.0,
        }
    )


async def test_a_wrong_answer_keeps_what_it_found_and_nothing_else(verdict: Verdict) -> None:
    verdict(0)
    rewards = await env_at().compute_reward(answered("x [Source: a]", "a.md"))
    assert rewards == {**ZEROS, "retrieval_hit": 0.3}


@pytest.mark.parametrize(("score", "correctness"), [(0.5, 0.5), (7, 1.0), (-1, 0.0), (float("nan"), 0.0)])
async def test_a_verdict_is_clipped(verdict: Verdict, score: float, correctness: float) -> None:
    verdict(score)
    rewards = await env_at().compute_reward(answered("x [Source: a]", "a.md"))
    assert rewards["answer_correctness"] == correctness
    assert rewards["citation_recall"] == pytest.approx(0.3 * correctness)


@given(
    length=st.integers(1, 2 * ANSWER_LENGTH_CAP),
    score=st.floats(0, 1),
    references=st.lists(st.sampled_from("abc"), min_size=1, max_size=3),
    retrieved=st.lists(st.sampled_from("abcx"), max_size=4),
    cited=st.lists(st.sampled_from("abcx"), max_size=4),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
async def test_rewards_are_bounded_by_their_weights(
    verdict: Verdict, length: int, score: float, references: list[str], retrieved: list[str], cited: list[str]
) -> None:
    asked = verdict(score)
    env = env_at()
    text = "y" * length + "".join(f"[Source: {source}]" for source in cited)
    rewards = await env.compute_reward(answered(text, *retrieved, references=tuple(references)))
    assert list(rewards) == KEYS
    for reward, weight in zip(rewards.values(), WEIGHTS, strict=True):
        assert 0 <= reward <= weight
    hit = bool(set(references) & set(retrieved))
    assert len(asked) == hit
    assert hit or rewards == ZEROS


async def test_a_longer_answer_never_gets_more_for_its_length(verdict: Verdict) -> None:
    verdict(1)
    lengths = [1, 2, 300, ANSWER_LENGTH_CAP - 1, ANSWER_LENGTH_CAP, ANSWER_LENGTH_CAP + 1, 5000]
    rewards = [(await env_at().compute_reward(answered("y" * n, "a.md")))["answer_length"] for n in lengths]
    assert rewards == sorted(rewards, reverse=True)
    assert rewards[0] == pytest.approx(0.2 * (1 - 1 / 600))
    assert rewards[-3:] == [0.0] * 3


# --- ids


async def test_sources_are_compared_as_file_names(verdict: Verdict) -> None:
    verdict(1)
    result = answered("x [Source: RIVERS]", "data/rivers.txt", references=("Rivers.md",))
    rewards = await env_at().compute_reward(result)
    assert (rewards["retrieval_hit"], rewards["citation_recall"], rewards["citation_grounding"]) == (0.3, 0.3, 0.2)


async def test_a_subclass_decides_how_ids_are_compared(verdict: Verdict) -> None:
    verdict(1)

    class ByPage(RagEnv):
        def _canonicalize_id(self, source_id: str) -> str:
            return source_id.partition("#")[0]

    env = ByPage(Corpus(), judge_base_url="http://x", judge_model="m")
    rewards = await env.compute_reward(answered("x [Source: a#1]", "a#2", references=("a#3",)))
    assert (rewards["retrieval_hit"], rewards["citation_recall"], rewards["citation_grounding"]) == (0.3, 0.3, 0.2)
    assert env._parse_citations("[Source: a#1]") == env._parse_source_ids("[source: a#2]") == {"a"}
    assert env._extract_reference_ids(chunks("a#3", "b#1")) == {"a", "b"}
    assert env._score_citations("[Source: a#1]", chunks("a#3", "b#1")) == (0.5, 1.0)
    assert env._score_retrieval("[source: b#9]", chunks("a#3", "b#1")) == 0.5
    assert env._score_citation_grounding("[Source: a#1]", "[source: a#2]") == 1.0


async def test_a_subclass_may_replace_the_source_scores(verdict: Verdict) -> None:
    verdict(1)

    class Generous(RagEnv):
        def _score_rag_sources(self, answer_text: str, tool_text: str, reference_chunks: Any) -> Any:
            return {"retrieval_hit": 1.0, "citation_recall": 0.5, "citation_grounding": 0.0}

    env = Generous(Corpus(), judge_base_url="http://x", judge_model="m")
    rewards = await env.compute_reward(answered("x"))
    assert (rewards["retrieval_hit"], rewards["citation_recall"], rewards["citation_grounding"]) == (0.3, 0.15, 0.0)


async def test_tool_contents_of_every_shape_are_read(verdict: Verdict) -> None:
    verdict(1)
    messages = [
        tool_message(None),
        tool_message(""),
        tool_message([{"type": "text", "text": "1. — [source: a.md]"}]),
        {"role": "assistant", "content": "<answer>x</answer>"},
    ]
    rewards = await env_at().compute_reward(rollout(messages, reference_chunks=chunks("a.md")))
    assert rewards["retrieval_hit"] == 0.3


# --- log


@pytest.mark.parametrize("result", [answered("", "a.md"), answered("x"), answered("x", "a.md")])
async def test_every_scoring_logs_one_line_for_its_rollout(
    verdict: Verdict, caplog: pytest.LogCaptureFixture, result: Any
) -> None:
    verdict(1)
    caplog.set_level(logging.INFO, "benchmax.rag.env")
    await env_at().compute_reward(result)
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage().startswith("[RagEnv] rollout_id=r ")


# --- the forgiving judge


async def quality(response: str = "x", **options: Any) -> tuple[float, float]:
    env: Any = env_at()
    judge: Judge = env._judge
    return await judge_answer_quality(question="q", ground_truth="g", response=response, judge=judge, **options)


async def test_quality_asks_both_rubrics_and_clips_their_scores(verdict: Verdict) -> None:
    asked = verdict(7)
    assert await quality() == (1.0, 1.0)
    assert sorted(question["rubric"].title for question in asked) == ["Answer conciseness", "Answer correctness"]
    env: Any = env_at()
    assert await env._judge_answer_quality("q", "g", "x") == (1.0, 1.0)
    other = Rubric("Other", "something else")
    asked = verdict(0.5)
    assert await quality(correctness_rubric=other, conciseness_rubric=other) == (0.5, 0.5)
    assert [question["rubric"] for question in asked] == [other, other]


async def test_quality_of_a_blank_response_is_zero_unasked(verdict: Verdict) -> None:
    asked = verdict(1)
    assert await quality("  ") == (0.0, 0.0)
    assert asked == []


@pytest.mark.parametrize("failure", [JudgeError("no verdict"), RuntimeError("defect")])
async def test_quality_forgives_any_failure(
    verdict: Verdict, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    verdict(failure)
    assert await quality() == (0.0, 0.0)
    assert "[RagEnv]" in caplog.text

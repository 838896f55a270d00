"""examples/rag, isolated: real BM25, real embeddings or the mock's, and judges that are scripted, real or away."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmax.auth import StaticBearerAuth
from benchmax.envs import RolloutOutcome, RolloutRequest
from runner import Binding, IsolatedEnvironment, RecordEvent, isolate
from runner.limits import Limits
from runner.models import SampleAuth, mock_command, parse_model
from runner.models.server import serving, serving_embeddings
from runner.packing import PackRequest, pack
from runner.provision import Cache
from tests.contract.loopback import completion, error, running_server
from tests.integration.command_line import CommandLine
from tests.integration.example_environment import EXAMPLES, run_groups
from tests.integration.model_process import RunningModel, running

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

FOLDER = EXAMPLES / "rag"
REQUIREMENTS = ["bm25s"]
HYBRID, LEXICAL, VECTOR, FROM_MEMORY, ENDLESS = range(5)
"""What the scripted model does as which sibling."""


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture
def model(tmp_path: Path) -> Iterator[RunningModel]:
    """The scripted mock: the model, its judge, and vectors of shared words."""
    with running(mock_command(FOLDER / "mock.json"), tmp_path / "mock") as model:
        yield model


@pytest.fixture
def command_line(shared_cache: Path, tmp_path: Path) -> CommandLine:
    """Runs the `benchmax` command."""
    return CommandLine(shared_cache, tmp_path)


@asynccontextmanager
async def isolated(
    shared_cache: Path,
    folder: Path,
    *,
    judge: str,
    embeddings: str,
    judge_model: str = "mock",
    on_event: Any = None,
) -> AsyncIterator[IsolatedEnvironment]:
    cache = Cache(shared_cache)
    arguments = {"judge_base_url": judge, "judge_model": judge_model, "embedding_base_url": embeddings}
    target = f"{FOLDER / 'rag.py'}:Moons"
    artifact = await pack(
        PackRequest(target=target, requirements=REQUIREMENTS, arguments=arguments), folder / "artifact", cache=cache
    )
    auth = {
        "judge": Binding(StaticBearerAuth("judge-key"), urls=[judge]),
        "embedding": Binding(StaticBearerAuth("embedding-key"), urls=[embeddings]),
    }
    async with isolate(artifact, cache=cache, auth=auth, on_event=on_event) as env:
        yield env


def right(outcome: RolloutOutcome) -> bool:
    return outcome.rewards["answer_correctness"] == 1


# --- the data


def test_every_question_refers_to_passages_of_the_corpus() -> None:
    ids = [passage["id"] for passage in rows("corpus")]
    assert len(ids) == len(set(ids)) == 52
    for split in ("train", "eval"):
        for row in rows(split):
            assert {chunk["metadata"]["file"] for chunk in row["reference_chunks"]} <= set(ids)
            assert row["reference_chunks"]
            assert row["answer"]
    questions = [row["question"] for split in ("train", "eval") for row in rows(split)]
    assert len(questions) == len(set(questions))


def test_an_answer_to_a_question_about_one_passage_is_in_that_passage() -> None:
    texts = {passage["id"]: passage["text"] for passage in rows("corpus")}
    for row in (*rows("train"), *rows("eval")):
        sources = [chunk["metadata"]["file"] for chunk in row["reference_chunks"]]
        if len(sources) == 1 and sources != ["roemer"]:
            assert row["answer"] in texts[sources[0]]


# --- rollouts


async def test_siblings_search_in_three_ways_and_are_scored_for_what_they_found(
    shared_cache: Path, tmp_path: Path, model: RunningModel
) -> None:
    url = model.base_url
    records: list[Any] = []

    def on_event(event: Any) -> None:
        if isinstance(event, RecordEvent):
            records.append(event.record)

    async with isolated(shared_cache, tmp_path, judge=url, embeddings=url, on_event=on_event) as env:
        groups = await run_groups(env, model, FOLDER, split="eval", examples=2, group_size=5)
        audit = env.audit
    for group in groups:
        outcomes = list(group.values())
        for way in (HYBRID, LEXICAL, VECTOR):
            assert outcomes[way].termination_reason == "finished", outcomes[way].error
        for way in (HYBRID, LEXICAL):
            assert right(outcomes[way])
            rewards = dict(outcomes[way].rewards)
            assert 0 < rewards.pop("answer_length") < 0.2
            assert rewards == {
                "answer_correctness": 1.0,
                "retrieval_hit": 0.3,
                "citation_recall": 0.3,
                "citation_grounding": 0.2,
            }
        assert set(outcomes[FROM_MEMORY].rewards.values()) == {0.0}
        assert outcomes[ENDLESS].termination_reason == "tool_budget_exceeded"
        assert set(outcomes[ENDLESS].rewards.values()) == {0.0}
    asked = [str(record.transcript[2]["tool_calls"][0]["function"]["arguments"]) for record in records[:3]]
    assert ["lexical" in arguments for arguments in asked].count(True) == 1
    # the judge is asked for answers that have something to go on, and for no others
    judged = [entry for entry in audit if entry.binding == "judge"]
    assert 4 <= len(judged) <= 6
    assert all(entry.answered for entry in audit)


async def test_an_outage_of_the_judge_for_one_sibling_leaves_the_others_scored(
    shared_cache: Path, tmp_path: Path, model: RunningModel
) -> None:
    with running_server() as judge:
        replies = iter([completion('{"score": 1}'), error(401, None)])
        judge.answer = lambda received: next(replies, error(401, None))
        async with isolated(shared_cache, tmp_path, judge=judge.url, embeddings=model.base_url) as env:
            (group,) = await run_groups(env, model, FOLDER, split="eval", examples=1, group_size=2)
    assert sorted(outcome.termination_reason for outcome in group.values()) == ["finished", "judge_error"]
    for outcome in group.values():
        if outcome.termination_reason == "finished":
            assert right(outcome)
        else:
            assert outcome.rewards == {}
            assert "authentication failed" in (outcome.error or "")
    assert {request.headers["authorization"] for request in judge.requests} == {"Bearer judge-key"}


async def test_the_real_embedding_model_finds_passages_by_meaning(
    shared_cache: Path, tmp_path: Path, model: RunningModel
) -> None:
    async with (
        serving_embeddings(cache=Cache(shared_cache), limits=Limits()) as embeddings,
        isolated(shared_cache, tmp_path, judge=model.base_url, embeddings=embeddings.base_url) as env,
    ):
        (group,) = await run_groups(env, model, FOLDER, split="eval", examples=1, group_size=3)
        found = await asyncio.to_thread(searched, env, embeddings.base_url)
    assert all(right(outcome) for outcome in group.values())
    for query, source in MEANINGS.items():
        assert source in found[query]["vector"][:3]
        assert source not in found[query]["lexical"][:3]
        assert source in found[query]["hybrid"]


MEANINGS = {
    # no word of them is in the passage that they are about
    "rivers and ponds of hydrocarbons": "titan-lakes",
    "astronauts walking around": "apollo-11",
    "deliberately crashing into a space rock": "dart",
    "measuring how fast rays go": "roemer",
}

SEARCH = """
import asyncio, json, pathlib, sys
sys.path.insert(0, sys.argv[1])
import rag
from benchmax.auth import StaticBearerAuth
from benchmax.rag import OpenAIEmbedder, SearchClient

async def main(folder, base_url, queries):
    passages = rag.Passages(OpenAIEmbedder("e", base_url, StaticBearerAuth("t")))
    assert isinstance(passages, SearchClient)
    passages.load(pathlib.Path(folder) / "corpus.jsonl")
    found = {}
    for query in json.loads(queries):
        found[query] = {
            mode: [result["source"] for result in await passages.search(query, mode=mode)]
            for mode in passages.available_modes
        }
    found["limits"] = [len(await passages.search("moon", mode="vector", top_k=top_k)) for top_k in (3, 0, "many", 99)]
    print(json.dumps(found))

asyncio.run(main(*sys.argv[1:]))
"""


def searched(env: IsolatedEnvironment, base_url: str) -> Mapping[str, Any]:
    """Search in the bundle's own venv, since this one does not have its packages."""
    command = [str(env.venv.python), "-P", "-c", SEARCH, str(FOLDER), base_url, json.dumps([*MEANINGS])]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(finished.stdout)
    assert found["limits"] == [3, 10, 10, 52]
    return found


async def test_a_real_small_judge_gives_a_verdict_or_an_outage_that_quotes_it(
    shared_cache: Path, tmp_path: Path, model: RunningModel
) -> None:
    choice = parse_model("local", base_url=None)
    async with (
        serving(choice, cache=Cache(shared_cache), limits=Limits()) as judge,
        isolated(
            shared_cache, tmp_path, judge=judge.base_url, embeddings=model.base_url, judge_model=choice.model
        ) as env,
    ):
        example = (await env.create_dataset("eval", FOLDER, max_examples=1))[0]
        outcomes = await env.run_group(
            [
                RolloutRequest(f"r-{sibling}", example, "mock", model.base_url, SampleAuth(), "eval")
                for sibling in (LEXICAL, FROM_MEMORY)
            ]
        )
    judged, from_memory = outcomes.values()
    if judged.termination_reason == "judge_error":
        # a model this small mostly answers in prose
        assert judged.rewards == {}
        assert "Answer correctness" in (judged.error or "")
    else:
        assert judged.termination_reason == "finished"
        assert judged.rewards["answer_correctness"] in (0.0, 1.0)
    # it is not asked about an answer from memory, so whatever it does leaves that one scored
    assert from_memory.termination_reason == "finished"
    assert set(from_memory.rewards.values()) == {0.0}


def test_the_commands_of_the_readme_run(command_line: CommandLine, model: RunningModel) -> None:
    readme = (FOLDER / "README.md").read_text("utf-8").replace("examples/rag", str(FOLDER))
    bundle, run = re.findall(r"^\$ benchmax (.*)$", readme, re.MULTILINE)[:2]
    # one server instead of two, at whatever port is free
    run = re.sub(r"http://127\.0\.0\.1:880[12]/v1", model.base_url, run)
    servers = [f'{name}="{model.base_url}"' for name in ("judge_base_url", "embedding_base_url")]
    command_line(*shlex.split(bundle), "--arg", servers[0], "--arg", servers[1], makes="out").good()
    done = command_line(*shlex.split(run), "--max-examples", "2", env={"ANY_KEY": "none", "COLUMNS": "200"})
    assert "10 ok · 0 failed · 0 missing of 10 rollouts" in done.good()
    assert "finished 8, tool_budget_exceeded 2" in done.out

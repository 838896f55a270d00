"""examples/maze, run with the mock model in this process and isolated."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmax.auth import StaticBearerAuth
from benchmax.envs import BaseEnv, RolloutRequest
from runner import RecordEvent, isolate
from runner.models import mock_command
from runner.packing import PackRequest, pack
from runner.provision import Cache
from tests.contract.loopback import Received, Reply, call, completion, running_server
from tests.integration.example_environment import EXAMPLES, load_example, run_groups
from tests.integration.model_process import running

FOLDER = EXAMPLES / "maze"
MOCK = mock_command(FOLDER / "mock.json")
RED = bytes([200, 60, 50])


@pytest.fixture(scope="module")
def maze() -> ModuleType:
    return load_example("maze")


@pytest.fixture
def env(maze: ModuleType) -> BaseEnv:
    env: BaseEnv = maze.Maze()
    return env


def pixels_of(png: bytes) -> tuple[int, int, list[bytes]]:
    """Decode a PNG of 8-bit palette colours without filters, checking every checksum: width, height, colours."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    chunks: dict[bytes, bytes] = {}
    place = 8
    while place < len(png):
        (length,) = struct.unpack_from(">I", png, place)
        kind, data = png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        assert struct.unpack_from(">I", png, place + 8 + length) == (zlib.crc32(kind + data),)
        chunks[kind] = data
        place += 12 + length
    assert list(chunks) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    width, height, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert rest == [8, 3, 0, 0, 0]
    lines = zlib.decompress(chunks[b"IDAT"])
    assert len(lines) == height * (width + 1)
    assert not any(lines[:: width + 1])
    palette = [chunks[b"PLTE"][start : start + 3] for start in range(0, len(chunks[b"PLTE"]), 3)]
    indices = [lines[y * (width + 1) + 1 + x] for y in range(height) for x in range(width)]
    return width, height, [palette[index] for index in indices]


def walker_in(content: Any) -> tuple[int, int]:
    """Find the red square in content parts: its row and column."""
    (url,) = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
    prefix, _, data = url.partition(",")
    assert prefix == "data:image/png;base64"
    width, _, pixels = pixels_of(base64.b64decode(data, validate=True))
    red = [index for index, color in enumerate(pixels) if color == RED]
    assert len(red) == 16 * 16
    return red[0] // width // 16, red[0] % width // 16


def test_a_picture_shows_walls_floor_goal_and_walker(maze: ModuleType) -> None:
    width, height, pixels = pixels_of(maze.picture(["#####", "#S.G#", "#####"], (1, 2)))
    assert (width, height) == (80, 48)
    row = [pixels[24 * width + 8 + 16 * column] for column in range(5)]
    assert row == [bytes(maze.COLORS[mark]) for mark in "#.@G#"]
    assert set(pixels[: 16 * width]) == {bytes(maze.COLORS["#"])}


@pytest.mark.parametrize("split", ["train", "eval"])
def test_every_maze_is_walled_and_has_a_way(maze: ModuleType, split: str) -> None:
    for row in map(json.loads, (FOLDER / f"{split}.jsonl").read_text().splitlines()):
        lines = row["maze"]
        assert len({len(line) for line in lines}) == 1
        border = lines[0] + lines[-1] + "".join(line[0] + line[-1] for line in lines)
        assert set(border) == {"#"}
        assert sorted("".join(lines).replace("#", "").replace(".", "")) == ["G", "S"]
        assert maze.shortest(lines) > 0


async def test_the_model_is_shown_where_it_is_before_and_after_every_move(env: BaseEnv) -> None:
    moves = iter([{"way": "right", "steps": 2}, {"way": "up"}, {"way": "down", "steps": 2}])

    def answer(received: Received) -> Reply:
        move = next(moves, None)
        return completion("done") if move is None else completion(None, calls=[call("walk", json.dumps(move))])

    with running_server() as server:
        server.answer = answer
        example = (await env.create_dataset("eval", FOLDER))[0]
        request = RolloutRequest("r", example, "m", server.url, StaticBearerAuth("t"), "eval")
        (outcome,) = (await env.run_group([request])).values()
        messages = server.requests[-1].body["messages"]
    shown = [message["content"] for message in messages if message["role"] != "assistant"]
    assert [walker_in(content) for content in shown] == [(1, 1), (1, 3), (1, 3), (3, 3)]
    assert [content[0]["text"] for content in shown[1:]] == [
        "You walked 2 steps right.", "You walked 0 of 1 steps up. There is a wall.", "You walked 2 steps down.",
    ]  # fmt: skip
    assert outcome.rewards == {"arrived": 0.0, "economy": 0.0}


@pytest.mark.parametrize(
    "arguments",
    [{}, {"way": "north"}, {"way": ["up"]}, {"way": "up", "steps": 0}, {"way": "up", "steps": 10},
     {"way": "up", "steps": "2"}, {"way": "up", "steps": True}],
)  # fmt: skip
async def test_a_move_that_there_is_not_is_told_and_changes_nothing(env: BaseEnv, arguments: dict[str, Any]) -> None:
    example = (await env.create_dataset("eval", FOLDER))[0]
    async with env.rollout_context("r", example):
        told = await env.run_tool("r", "walk", **arguments)
        assert "error" in told
        assert walker_in(await env.run_tool("r", "walk", way="up")) == (1, 1)


async def test_nothing_of_a_rollout_stays(env: BaseEnv, tmp_path: Path) -> None:
    with running(MOCK, tmp_path / "stderr") as model:
        await run_groups(env, model, FOLDER, split="eval", examples=2, group_size=4)
    assert not vars(env)["walks"]


async def test_the_mock_knows_the_ways_and_its_siblings_lose_some(env: BaseEnv, tmp_path: Path) -> None:
    with running(MOCK, tmp_path / "stderr") as model:
        groups = await run_groups(env, model, FOLDER, split="eval", examples=4, group_size=4)
    for group in groups:
        assert {outcome.termination_reason for outcome in group.values()} == {"finished"}
        straight, *_, gives_up = group.values()
        assert straight.rewards == {"arrived": 1.0, "economy": 1.0}
        assert gives_up.rewards == {"arrived": 0.0, "economy": 0.0}
    _, into_a_wall, lost, _ = groups[0].values()
    assert into_a_wall.rewards == {"arrived": 1.0, "economy": 0.75}
    assert lost.rewards == {"arrived": 1.0, "economy": 1.0}


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_it_gives_equal_outcomes_packed_and_isolated_and_its_pictures_are_on_record(
    env: BaseEnv, shared_cache: Path, tmp_path: Path
) -> None:
    cache = Cache(shared_cache)
    artifact = await pack(PackRequest(target=f"{FOLDER / 'maze.py'}:Maze"), tmp_path / "artifact", cache=cache)
    records: list[Any] = []

    def on_event(event: object) -> None:
        if isinstance(event, RecordEvent):
            records.append(event.record)

    with running(MOCK, tmp_path / "stderr") as model:
        here = await run_groups(env, model, FOLDER, split="eval", examples=2, group_size=4)
        async with isolate(artifact, cache=cache, on_event=on_event) as isolated:
            there = await run_groups(isolated, model, FOLDER, split="eval", examples=2, group_size=4)
    assert there == here
    (walk,) = [
        record.transcript for record in records if record.rollout_id.startswith("0-") and record.rollout_id[-1] == "0"
    ]
    shown = [message["content"] for message in walk if message["role"] != "assistant"]
    assert [walker_in(content) for content in shown] == [(1, 1), (1, 3), (3, 3), (3, 1)]

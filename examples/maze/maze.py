"""A maze that the model sees as pictures and walks through with a tool, over several turns.

It shows images in prompts and in tool results (a PNG drawn by a few lines of code), and state that belongs to one
rollout and ends with it. The model has to take images.

    benchmax bundle examples/maze/maze.py:Maze --out out/maze
    benchmax run out/maze --data examples/maze --model mock:examples/maze/mock.json --group-size 4
    benchmax run out/maze --data examples/maze --base-url URL --model NAME --api-key-env VARIABLE
"""

import base64
import struct
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmax.envs import (
    BaseEnv,
    BaseRollout,
    Dataset,
    DatasetSplit,
    Example,
    JsonlDataset,
    JsonRow,
    RewardMap,
    Tool,
    canonical_example_id,
)

WAYS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
PIXELS = 16
COLORS = {"#": (40, 40, 48), ".": (240, 240, 235), "G": (60, 160, 75), "@": (200, 60, 50)}

Place = tuple[int, int]


@dataclass
class Walk:
    """Where one rollout has got to."""

    maze: Sequence[str]
    at: Place
    steps: int = 0


def find(maze: Sequence[str], mark: str) -> Place:
    """Where a mark stands: row and column."""
    return next((r, line.index(mark)) for r, line in enumerate(maze) if mark in line)


def is_free(maze: Sequence[str], place: Place) -> bool:
    """Whether one can stand there; the border of a maze is all walls."""
    return maze[place[0]][place[1]] != "#"


def shortest(maze: Sequence[str]) -> int:
    """The fewest steps from start to goal."""
    start, goal = find(maze, "S"), find(maze, "G")
    reached, edge, steps = {start}, [start], 0
    while goal not in reached:
        ahead = {(r + dr, c + dc) for r, c in edge for dr, dc in WAYS.values()} - reached
        edge = [place for place in ahead if is_free(maze, place)]
        reached.update(edge)
        steps += 1
    return steps


def picture(maze: Sequence[str], at: Place) -> bytes:
    """A PNG of the maze: walls dark, the goal green, the walker red."""
    kinds = list(COLORS)
    rows = []
    for r, line in enumerate(maze):
        marks = ["@" if (r, c) == at else mark for c, mark in enumerate(line.replace("S", "."))]
        # each row of pixels begins with its filter, 0 for none; then an index into the palette per pixel
        rows.append(b"\0" + b"".join(bytes([kinds.index(mark)]) * PIXELS for mark in marks))
    size = struct.pack(">IIBBBBB", len(maze[0]) * PIXELS, len(maze) * PIXELS, 8, 3, 0, 0, 0)
    pixels = zlib.compress(b"".join(row * PIXELS for row in rows))
    palette = b"".join(map(bytes, COLORS.values()))
    chunks = [(b"IHDR", size), (b"PLTE", palette), (b"IDAT", pixels), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def shown(text: str, maze: Sequence[str], at: Place) -> list[dict[str, Any]]:
    """Content parts: a text and the picture."""
    url = f"data:image/png;base64,{base64.b64encode(picture(maze, at)).decode()}"
    return [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}]


def to_example(row: JsonRow) -> Example[JsonRow]:
    """Make an example of one line of the data: `{"name": ..., "maze": [row, ...]}`."""
    task = f"{row['name']}: you are the red square. Walk to the green one with the tool, then say that you are done."
    prompt = [{"role": "user", "content": shown(task, row["maze"], find(row["maze"], "S"))}]
    return Example(canonical_example_id(row), {**row, "prompt_messages": prompt})


class Maze(BaseEnv):
    """Each move answers with a new picture. Moves into a wall are told and cost their steps."""

    max_turns = 24

    def __init__(self) -> None:
        super().__init__()
        self.walks: dict[str, Walk] = {}

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[JsonRow]:
        return JsonlDataset(base_dir / f"{split}.jsonl", row_to_example=to_example, max_examples=max_examples)

    @asynccontextmanager
    async def rollout_context(self, rollout_id: str, example: Example[JsonRow]) -> AsyncIterator[None]:
        # siblings walk at the same time, each its own way; nothing of a rollout stays when it has ended
        maze = example.payload["maze"]
        self.walks[rollout_id] = Walk(maze, find(maze, "S"))
        try:
            yield
        finally:
            del self.walks[rollout_id]

    async def list_tools(self) -> list[Tool]:
        parameters: dict[str, object] = {
            "type": "object",
            "properties": {
                "way": {"type": "string", "enum": list(WAYS)},
                "steps": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["way"],
        }
        description = "Walk straight on; the answer is a picture of where you are then."
        return [
            {"type": "function", "function": {"name": "walk", "description": description, "parameters": parameters}}
        ]

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> Any:
        way, steps = tool_args.get("way"), tool_args.get("steps", 1)
        if way not in list(WAYS) or type(steps) is not int or not 1 <= steps <= 9:
            return {"error": f"walk needs a way ({', '.join(WAYS)}) and 1 to 9 steps"}
        walk, (down, right) = self.walks[rollout_id], WAYS[way]
        walk.steps += steps
        for walked in range(steps):
            ahead = (walk.at[0] + down, walk.at[1] + right)
            if not is_free(walk.maze, ahead):
                return shown(f"You walked {walked} of {steps} steps {way}. There is a wall.", walk.maze, walk.at)
            walk.at = ahead
        return shown(f"You walked {steps} steps {way}.", walk.maze, walk.at)

    async def compute_reward(self, rollout: BaseRollout) -> RewardMap:
        # asked while the rollout's context is still open
        walk = self.walks[rollout.rollout_id]
        arrived = walk.at == find(walk.maze, "G")
        return {"arrived": float(arrived), "economy": shortest(walk.maze) / walk.steps if arrived else 0.0}

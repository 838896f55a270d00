"""Copy a table: the expected text is made by whatever release of tabulate the bundle pins."""

from pathlib import Path

import tabulate  # in the packages of the bundle: --pip tabulate==...

from benchmax.envs import BaseEnv, BaseRollout, Dataset, DatasetSplit, Example, JsonRow, RewardMap, canonical_example_id

ROWS = [("apple", 3, 0.5), ("banana", 12, 0.25), ("cherry", 7, 1.75), ("date", 1, 2.0)]


class Tables(BaseEnv):
    """One turn: the model is shown a table and asked to repeat it exactly."""

    max_turns = 1

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[JsonRow]:
        rows = [self.row(ROWS[: number + 1]) for number in range(len(ROWS))]
        return Dataset([Example(canonical_example_id(row), row) for row in rows[:max_examples]])

    def row(self, rows: list[tuple[str, int, float]]) -> JsonRow:
        text = tabulate.tabulate(rows, headers=["fruit", "count", "price"], tablefmt="rst")
        question = f"tabulate {tabulate.__version__} made this table. Repeat it exactly.\n\n{text}"
        return {"prompt_messages": [{"role": "user", "content": question}], "answer": text}

    async def compute_reward(self, rollout: BaseRollout) -> RewardMap:
        answer = str(rollout.messages[-1].get("content"))
        return {"exact": float(answer.strip() == rollout.example_args["answer"].strip())}

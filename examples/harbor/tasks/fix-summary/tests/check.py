"""Grades /app/summary.py: one criterion for each function, met if it is right in every case."""

import json
import subprocess
import sys

CASES = {
    "median": [([9, 1, 5], 5), ([4, 1, 3, 2], 2.5), ([7], 7), ([2, 2, 9, 1], 2), ([], None)],
    "spread": [([5, -2, 3], 7), ([1, 2, 9], 8), ([4], 0), ([9, 2, 1], 8), ([], 0)],
    "most_common": [([3, 1, 3, 1], 1), ([2, 2, 5], 2), ([8], 8), ([6, 4, 6, 4, 9], 4), ([], None)],
}
CALL = "import json, sys, summary; print(json.dumps(getattr(summary, sys.argv[1])(json.loads(sys.argv[2]))))"


def result(name, values):
    """What a function returns, in a process of its own: what it does there cannot touch the grade."""
    call = [sys.executable, "-c", CALL, name, json.dumps(values)]
    done = subprocess.run(call, cwd="/app", capture_output=True, text=True, timeout=10)
    return json.loads(done.stdout) if done.returncode == 0 else (done.stderr.strip().splitlines() or ["?"])[-1]


criteria = []
for name, cases in CASES.items():
    results = [(values, expected, result(name, values)) for values, expected in cases]
    wrong = [f"{name}({values}) is {got}, not {expected}" for values, expected, got in results if got != expected]
    criteria.append(
        {
            "name": name,
            "value": 0 if wrong else 1,
            "description": f"{name} is right in all of {len(cases)} cases",
            "reasoning": "; ".join(wrong),
        }
    )
    print(f"{name}: {'wrong, ' + wrong[0] if wrong else 'right'}")

rewards = {criterion["name"]: criterion["value"] for criterion in criteria}
rewards["reward"] = sum(rewards.values()) / len(rewards)
with open("/logs/verifier/reward.json", "w") as file:
    json.dump(rewards, file)
with open("/logs/verifier/reward-details.json", "w") as file:
    json.dump({"criteria": criteria}, file)

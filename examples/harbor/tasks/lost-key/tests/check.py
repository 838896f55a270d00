"""Grades /app/key.txt: one criterion for each word of the key that is in its place."""

import json

KEY = {"largest_file": "lantern", "hidden_file": "willow", "twice": "meadow"}
try:
    with open("/app/key.txt") as file:
        words = file.read().strip().split("-")
except (OSError, UnicodeDecodeError) as error:
    words = []
    print(error)

criteria = []
for place, (name, word) in enumerate(KEY.items()):
    found = words[place] if len(words) == len(KEY) else None
    criteria.append(
        {
            "name": name,
            "value": int(found == word),
            "description": f"word {place + 1} of the key",
            "reasoning": f"found {found!r}",
        }
    )
    print(f"{name}: {'right' if found == word else f'{found!r} is wrong'}")
rewards = {criterion["name"]: criterion["value"] for criterion in criteria}
rewards["reward"] = sum(rewards.values()) / len(rewards)
with open("/logs/verifier/reward.json", "w") as file:
    json.dump(rewards, file)
with open("/logs/verifier/reward-details.json", "w") as file:
    json.dump({"criteria": criteria}, file)

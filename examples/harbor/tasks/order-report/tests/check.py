"""Grades /app/report.json: its form, how many customers are right, and their order."""

import json

EXPECTED = [
    {"customer": "Bram", "orders": 2, "cents": 2029},
    {"customer": "Chidi", "orders": 2, "cents": 2000},
    {"customer": "Noor", "orders": 2, "cents": 2000},
    {"customer": "Ada", "orders": 2, "cents": 725},
]
try:
    with open("/app/report.json") as file:
        report = json.load(file)
    problem = ""
except (OSError, ValueError) as error:
    report, problem = [], str(error)

KEYS = {*EXPECTED[0]}
form = isinstance(report, list) and bool(report) and all(isinstance(row, dict) and {*row} == KEYS for row in report)
rows = report if form else []
right = [row for row in EXPECTED if row in rows]
surplus = [row for row in rows if row not in EXPECTED]
customers = max(0, len(right) - len(surplus)) / len(EXPECTED)
order = [row["customer"] for row in rows] == [row["customer"] for row in EXPECTED]
found = f"{len(right)} of {len(EXPECTED)} are right, and {len(surplus)} others are there"
criteria = [
    {
        "name": "form",
        "value": int(form),
        "weight": 1,
        "description": "an array of objects with the three keys",
        "reasoning": problem,
    },
    {
        "name": "customers",
        "value": customers,
        "weight": 2,
        "description": "customers whose figures are right",
        "reasoning": found,
    },
    {
        "name": "order",
        "value": int(order),
        "weight": 1,
        "description": "the right customers in the right order",
        "reasoning": "",
    },
]
for criterion in criteria:
    print(f"{criterion['name']}: {criterion['value']} ({criterion['reasoning'] or criterion['description']})")
rewards = {criterion["name"]: criterion["value"] for criterion in criteria}
rewards["reward"] = sum(c["value"] * c["weight"] for c in criteria) / sum(c["weight"] for c in criteria)
with open("/logs/verifier/reward.json", "w") as file:
    json.dump(rewards, file)
with open("/logs/verifier/reward-details.json", "w") as file:
    json.dump({"criteria": criteria}, file)

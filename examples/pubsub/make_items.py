"""Writes ``items.jsonl``: 300 texts with stable keys."""

import json

with open("items.jsonl", "w") as file:
    for number in range(300):
        file.write(json.dumps({"key": f"text-{number:04d}", "text": "stay fast " * (number % 9 + 1)}) + "\n")

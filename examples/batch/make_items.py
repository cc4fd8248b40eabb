"""Writes ``items.jsonl``: 400 texts with stable ids."""

import json

with open("items.jsonl", "w") as file:
    for number in range(400):
        file.write(json.dumps({"id": f"text-{number:04d}", "text": f"number {number} " * (number % 9 + 1)}) + "\n")

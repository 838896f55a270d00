#!/bin/bash
# prints each criterion, and writes /logs/verifier/reward.json
python3 /tests/check.py

#!/bin/bash
cd /app/house
largest=$(find . -type f -printf '%s %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2-)
first=$(grep -oE '\b[A-Z]{2,}\b' "$largest")
hidden=$(basename "$(find . -type f -name '.*')")
hidden=${hidden#.}
twice=$(sort attic/words.txt | uniq -d)
echo "$first-${hidden%.*}-$twice" | tr '[:upper:]' '[:lower:]' > /app/key.txt

"""What a model is told before its question, and the placeholders in it. Private."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["SYSTEM_PROMPT_TEMPLATE", "with_values"]

SYSTEM_PROMPT_TEMPLATE: Final = """\
Answer the user's question from a corpus that you search with a tool. The corpus: {corpus_description}

How to work:
- Before you act, reason inside <think> and </think>: what you know already, what is missing, and what to search next.
- Call the search tool to find passages. You may search at most {max_search_calls} times; after that you have to answer.
- Split a question that asks for several things into sub-queries, one search each.
- If a search finds nothing that helps, broaden it: fewer words, more general ones, or other names for the same thing.
- Use what you find. Names, numbers and terms in the retrieved text make better queries for the next search.
- Rely on the retrieved text, not on memory. What the corpus does not say, do not claim.

How to answer:
- When you know enough, write the final answer inside <answer> and </answer>, and nothing after it.
- Give every claim its source directly behind it, as [Source: <id>], with an id exactly as the search results show it.
- Keep it short: what was asked, and nothing else.

The form of a final answer:
<answer>The first claim [Source: <id>]. The second claim [Source: <id>].</answer>"""

_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")


def with_values(template: str, **values: object) -> str:
    """Replace each `{name}` that has a value. All other braces stay, and values are not searched for placeholders."""
    return _PLACEHOLDER.sub(lambda match: str(values.get(match[1], match[0])), template)

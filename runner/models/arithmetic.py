"""Arithmetic in a text: the first expression or linear equation, its exact value, and the steps to it.

Only numbers, `+ - * / % **` and brackets are understood, also written as `×`, `times`, `plus` and the like. Nothing is
evaluated by Python itself; sizes are bounded, so that a hostile text costs nothing.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

Operation = Literal["add", "subtract", "multiply", "divide", "modulo", "power"]

MAX_QUESTION_CHARS: Final = 4000
"""Only the end of a longer text is searched; that is where the question is."""

MAX_EXPRESSION_CHARS: Final = 200
"""Longer runs of digits and operators are tables, not questions."""

MAX_EXPONENT: Final = 64
"""Enough for schoolbook powers."""

MAX_DIGITS: Final = 60
"""Numbers beyond this are refused before they can grow."""

_OPERATIONS: Final[dict[type[ast.operator], Operation]] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.Mod: "modulo",
    ast.Pow: "power",
}
_SPELLINGS: Final = (
    (r"[×·]", "*"),
    (r"÷", "/"),
    (r"[−–]", "-"),
    (r"\^", "**"),
    (r"(?<=\d)\s+(?:plus|added to)\s+(?=[\d(-])", " + "),
    (r"(?<=\d)\s+minus\s+(?=[\d(-])", " - "),
    (r"(?<=\d)\s+(?:times|multiplied by|x)\s+(?=[\d(-])", " * "),
    (r"(?<=\d)\s+(?:divided by|over)\s+(?=[\d(-])", " / "),
    (r"(?<=\d)\s+(?:modulo|mod)\s+(?=[\d(-])", " % "),
    (r"(?<=\d),(?=\d{3}\b)", ""),
)
_EXPRESSION: Final = re.compile(r"(?<![\w.])[(\s-]*\d[\d\s.()+*/%-]*[\d)]")
_EQUATION: Final = re.compile(
    r"(?P<left>[-+*/().\d\s]*(?<![A-Za-z])(?P<name>[A-Za-z])(?![A-Za-z])[-+*/().\d\s]*)=\s*(?P<right>-?\d+)"
)
_NUMBER: Final = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Step:
    """One operation with its operands already worked out."""

    operation: Operation
    left: Fraction
    right: Fraction


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with a number as its answer; `steps` lead there in order and are empty for an equation."""

    text: str
    value: Fraction
    steps: tuple[Step, ...]


def find_problem(text: str) -> Problem | None:
    """Return the first linear equation in the text, else its first expression with an operation, else nothing."""
    plain = _normalised(text)
    for match in _EQUATION.finditer(plain):
        value = _root(match["left"], match["name"], match["right"])
        if value is not None:
            return Problem(match[0].strip(), value, ())
    for match in _EXPRESSION.finditer(plain):
        steps: list[Step] = []
        source = match[0].strip()
        value = _value(source, steps)
        if value is not None and steps:
            return Problem(source, value, tuple(steps))
    return None


def find_numbers(text: str) -> list[int | float]:
    """Return the numbers in the text, in order."""
    found = (match[0] for match in _NUMBER.finditer(_normalised(text)))
    return [float(n) if "." in n else int(n) for n in found if len(n) <= MAX_DIGITS]


def number(value: Fraction) -> int | float:
    """Return the value as JSON has it: an integer where it is one."""
    return int(value) if value.denominator == 1 else float(value)


def spelled(value: Fraction) -> str:
    """Return the value as a person writes it: an integer, or up to ten significant digits."""
    return str(int(value)) if value.denominator == 1 else f"{float(value):.10g}"


def _normalised(text: str) -> str:
    text = text[-MAX_QUESTION_CHARS:]
    for pattern, spelling in _SPELLINGS:
        text = re.sub(pattern, spelling, text)
    return text


def _root(left: str, name: str, right: str) -> Fraction | None:
    # for a linear side f(x) = a*x + b: b = f(0), a = f(1) - f(0)
    product = re.sub(rf"([\d)])\s*{name}\b", rf"\1*{name}", left).strip()
    zero, one, two = (_value(re.sub(rf"\b{name}\b", at, product), []) for at in ("(0)", "(1)", "(2)"))
    goal = _value(right, [])
    if zero is None or one is None or two is None or goal is None or one == zero:
        return None
    if two - one != one - zero:
        return None
    return (goal - zero) / (one - zero)


def _value(source: str, steps: list[Step]) -> Fraction | None:
    if len(source) > MAX_EXPRESSION_CHARS:
        return None
    try:
        tree = ast.parse(source, mode="eval")
        return _walk(tree.body, steps)
    except (ArithmeticError, SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _walk(node: ast.expr, steps: list[Step]) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as constant):
            return _bounded(Fraction(repr(constant)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_walk(operand, steps)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _walk(operand, steps)
        case ast.BinOp(left=left_node, op=op, right=right_node) if type(op) in _OPERATIONS:
            operation = _OPERATIONS[type(op)]
            left, right = _walk(left_node, steps), _walk(right_node, steps)
            result = _bounded(_apply(operation, left, right))
            steps.append(Step(operation, left, right))
            return result
    raise ValueError("not arithmetic")


def _apply(operation: Operation, left: Fraction, right: Fraction) -> Fraction:
    match operation:
        case "add":
            return left + right
        case "subtract":
            return left - right
        case "multiply":
            return left * right
        case "divide":
            return left / right
        case "modulo":
            return left % right
        case "power":
            if right.denominator != 1 or abs(right) > MAX_EXPONENT:
                raise ValueError("exponent out of bounds")
            return left ** int(right)


def _bounded(value: Fraction) -> Fraction:
    if max(abs(value.numerator), value.denominator) >= 10**MAX_DIGITS:
        raise ValueError("number out of bounds")
    return value

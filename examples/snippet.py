"""What `run_tool.py` runs in a process tree of its own: a snippet, and its value."""

import ast
import json
from typing import Any


def evaluate(code: str) -> Any:
    """Run *code*; the value of its last expression, or None.  What JSON cannot say, as text."""
    tree = ast.parse(code, "<snippet>")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(tree, "<snippet>", "exec"), names)  # noqa: S102 - what this file is for
    if not isinstance(last, ast.Expr):
        return None
    value = eval(compile(ast.Expression(last.value), "<snippet>", "eval"), names)  # noqa: S307
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return repr(value)
    return value

"""An agent that asks for the calls that it is given, one after the other, and tells the answers.

``input``: ``[[kind, name, args], ...]``.  Its value is ``["ok" or the reason, ...]``.
"""

from agentctl_child import CallRefused, run


def main() -> list[str]:
    """Ask for each."""
    answers = []
    for kind, name, args in run.input:
        call = run.model_call if kind == "model" else run.tool_call
        try:
            with call(name, args):
                answers.append("ok")
        except CallRefused as refused:
            answers.append(refused.why)
    return answers

"""Asks for thousands of calls that wait for a person."""

import itertools
import time

from _wire import hello, say, up

SPEC = {"approve": ["*"]}

hello()
for number in itertools.count():
    say(type="ask", call=f"c{number}", kind="tool", name="x", args={"text": "x" * 200})
    if number == 2000:
        up()
    if number == 20_000:
        time.sleep(1000)

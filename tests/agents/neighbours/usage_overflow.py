"""Usage whose sum no msgpack integer holds, three legal events; then a stop has to report it."""

import time

from _wire import hello, say, up

MOST = 2**63 - 1
USAGE = {"type": "usage", "prompt_tokens": MOST, "completion_tokens": MOST}

hello()
say(type="events", first=1, events=[USAGE] * 3)
up()
time.sleep(1000)

"""Never reads its standard input, into which its caller writes."""

import time

from _wire import up

SPEC = {"stdin": True}
FEED = "stdin"

up()
time.sleep(1000)

"""Says when it is imported and when its function begins; then stays until it is stopped.

``AGENTCTL_TEST_IMPORT_S``: how long its import takes.
"""

import asyncio
import os
import time

from membership import arm, report

arm()
report("importing")
time.sleep(float(os.environ.get("AGENTCTL_TEST_IMPORT_S", "0")))


def main() -> None:
    """The first line is a report."""
    report("first line")
    while True:
        time.sleep(60)


async def main_async() -> None:
    """The first line is a report."""
    report("first line")
    await asyncio.sleep(3600)

"""Works without end, and tells the roll call what the supervisor has promised to keep.

``acked N``: events up to number N are on the disk.  ``granted CALL``: this call may be
made.  ``cancelled``: the run is being stopped.  Whatever becomes of the supervisor, its
log must know all of that.
"""

import itertools
import time

from agentctl_child import RunCancelled, run
from agentctl_child.sdk.supervision import supervision
from membership import arm, report


def main() -> None:
    """Report, ask, and tell, until killed or stopped."""
    arm()
    report("up worker 0")
    acknowledged = 0
    try:
        for number in itertools.count(1):
            run.emit_text(f"{number} ")
            with run.tool_call("step", {"number": number}) as call:
                report(f"granted {call.id}")
            connection = supervision.connection()
            assert connection is not None
            if connection.acknowledged > acknowledged:
                acknowledged = connection.acknowledged
                report(f"acked {acknowledged}")
            time.sleep(0.002)
    except RunCancelled:
        report("cancelled")
        raise

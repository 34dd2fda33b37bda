"""``python -P -m agentctl_supervisor`` is ``agentctl``."""

import sys

from agentctl_supervisor.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""The program text that starts an agent in another interpreter: ``python -I -c BOOTSTRAP``.

That interpreter needs only msgspec. If it has no copy of this package, it uses the copy beside the
supervisor. It reports over the channel what it lacks. Those frames are made here, because the
other interpreter may have no msgspec to make them.
"""

import os
from typing import Final

import agentctl_child
import agentctl_protocol
from agentctl_protocol.channel import agent_end
from agentctl_protocol.messages import PROTOCOL_VERSION, Bye, ErrorMessage, Hello
from agentctl_protocol.spawning import CHANNEL_FD_VARIABLE

_TEMPLATE: Final = """\
import os, sys
reads, writes = map(int, os.environ[{variable!r}].split(","))
def refuse(frames):
    os.write(writes, frames)
    os._exit(1)
if sys.version_info < (3, 11):
    refuse({too_old!r})
try:
    import msgspec
except ImportError:
    refuse({no_msgspec!r})
except Exception:
    sys.excepthook(*sys.exc_info())
    refuse({broken!r})
try:
    from agentctl_child.agent import main
except Exception:
    # In front only while we import: these folders may hold another interpreter's packages.
    own = sys.path[:]
    sys.path[:0] = {roots!r}
    try:
        from agentctl_child.agent import main
    except Exception:
        sys.excepthook(*sys.exc_info())
        refuse({broken!r})
    sys.path[:] = own
main((reads, writes))
"""


def _refusal(text: str) -> bytes:
    channel = agent_end()
    error = ErrorMessage(kind="ImportError", text=text, loading=True)
    return channel.send(Hello(version=PROTOCOL_VERSION, sdk="bootstrap"), error, Bye())


def _root_of(package_file: str | None) -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(package_file or "")))


BOOTSTRAP: Final = _TEMPLATE.format(
    variable=CHANNEL_FD_VARIABLE,
    too_old=_refusal("this interpreter is older than Python 3.11"),
    no_msgspec=_refusal(
        "this interpreter has no msgspec; install agentctl-child in its environment"
    ),
    broken=_refusal(
        "this interpreter cannot import what agentctl needs in it: its stderr says why"
    ),
    roots=[_root_of(agentctl_child.__file__), _root_of(agentctl_protocol.__file__)],
)

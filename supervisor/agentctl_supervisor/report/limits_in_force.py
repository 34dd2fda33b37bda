"""Lists the limits of a run for its report, and the origin of each."""

from agentctl_protocol.report import Limit
from agentctl_protocol.spec import DEFAULT_OUTPUT_BYTES, RunSpec


def limits_of(spec: RunSpec) -> tuple[Limit, ...]:
    """Return the limits that *spec* sets."""
    limits = []
    if spec.time_s is not None:
        limits.append(Limit("time", spec.time_s, spec.origins.get("time", "spec")))
    if spec.output_bytes is not None:
        default = "default" if spec.output_bytes == DEFAULT_OUTPUT_BYTES else "spec"
        limits.append(
            Limit("output", float(spec.output_bytes), spec.origins.get("output", default))
        )
    limits += [
        Limit(name, float(most), spec.origins.get(name, "spec"))
        for name, most in (("calls", spec.calls), ("tokens", spec.tokens))
        if most is not None
    ]
    return tuple(limits)

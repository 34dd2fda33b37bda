"""Makes the dependencies of agentctl-child, one of which is this very version of the protocol."""

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Dependencies(MetadataHookInterface):
    """Called by hatchling while it builds, after it has read the version."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the dependencies in the ``[project]`` table *metadata*."""
        metadata["dependencies"] = [f"agentctl-protocol=={metadata['version']}", "msgspec>=0.19"]

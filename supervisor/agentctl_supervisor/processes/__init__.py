"""Processes as /proc and cgroups show them: identity, membership, orphans."""

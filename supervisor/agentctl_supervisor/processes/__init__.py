"""Reads processes from /proc and cgroups; manages limits, uids and signals of our own process."""

"""Access to paths and files: state directories, path checks, reads that follow no link."""

"""What is kept of runs on disk: directories, logs, and the reports that are made of them."""

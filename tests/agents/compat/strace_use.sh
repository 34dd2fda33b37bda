# strace of the run's own processes.
set -euo pipefail
strace -f -o trace sh -c 'true; /bin/true'
grep -q execve trace
echo all of it works

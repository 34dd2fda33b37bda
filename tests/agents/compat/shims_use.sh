# A script that calls python3, which on PATH is a shim, as pyenv has them: for Python in $1.
set -euo pipefail
test "$(python3 -c 'import json, sys; print(sys.prefix)')" = "$1"
echo all of it works

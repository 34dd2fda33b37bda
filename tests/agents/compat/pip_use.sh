# A virtual environment made in the run, and a wheel ($2) installed into it, without a network.
set -euo pipefail
"$1" -m venv env
env/bin/pip install -q --no-index --no-cache-dir --disable-pip-version-check "$2"
test "$(env/bin/say words)" = "said words"
. env/bin/activate
test "$(say more)" = "said more"
python -m pip --disable-pip-version-check list | grep sayer > /dev/null
python -m sayer > /dev/null
deactivate
echo all of it works

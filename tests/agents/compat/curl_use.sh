# curl to a server of the run's own; and to the network, which is off: an error, at once.
set -euo pipefail
echo page > page.txt
"$1" -u -m http.server --bind 127.0.0.1 0 > server.log 2>&1 &
until port=$(grep -o 'port [0-9]*' server.log); do kill -0 $!; sleep 0.02; done
test "$(curl -sS "http://127.0.0.1:${port#port }/page.txt")" = page
test "$(curl -sS "http://localhost:${port#port }/page.txt")" = page
kill %1
code=0; timeout 5 curl -sS http://example.com/ 2> /dev/null || code=$?
test $code = 6
code=0; timeout 5 curl -sS http://93.184.216.34/ 2> /dev/null || code=$?
test $code = 7
echo all of it works

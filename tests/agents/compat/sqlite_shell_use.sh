# The SQLite shell.
set -euo pipefail
sqlite3 work.db "pragma journal_mode=wal; create table t (n); insert into t values (1), (2);"
test "$(sqlite3 work.db 'select sum(n) from t')" = 3
sqlite3 work.db .dump | sqlite3 other.db
test "$(sqlite3 :memory: 'select 6 * 7')" = 42
echo all of it works

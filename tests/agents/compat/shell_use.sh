# Shell scripts: pipelines, here-documents, process substitution, jobs, traps, many tools.
set -euo pipefail
seq 1 1000 | grep 7 | sort -rn | head -n 3 | { read -r first; test "$first" = 997; cat > /dev/null; }
test "$(cat <<< "a string")" = "a string"
test "$(cat <<'END' | tr a-z A-Z
a document
END
)" = "A DOCUMENT"
diff <(echo same) <(echo same)
echo to a process > >(cat > substituted); wait $!
test "$(cat substituted)" = "to a process"
test "$(echo by descriptor | cat /dev/stdin)" = "by descriptor"
exec 5> descriptor; echo five >&5; exec 5>&-; test "$(cat descriptor)" = five
sleep 60 & kill %1; wait %1 || test $? = 143
set -m; sleep 0.01 & fg %1 > /dev/null; set +m
coproc { read -r line; echo "heard $line"; }
echo word >&"${COPROC[1]}"; read -r heard <&"${COPROC[0]}"; test "$heard" = "heard word"
trap 'echo trapped > trapped' USR1; kill -USR1 $$; trap - USR1; test -s trapped
mapfile -t lines < <(seq 5); test ${#lines[@]} = 5
directory=$(mktemp -d); touch "$directory/file"; rm -r "$directory"
( cd /tmp && pwd > /dev/null ); ( ulimit -n 64; true )
seq 100 | xargs -P 4 -n 10 echo > /dev/null
find . -name 'sub*' -exec cat {} + > /dev/null
timeout 0.05 sleep 60 || test $? = 124
nice true; nohup true 2> /dev/null; setsid -w true; flock lock true; env -i /bin/true
pipes=$(mktemp -d -p /dev/shm); mkfifo "$pipes/fifo"
cat "$pipes/fifo" > through & echo through > "$pipes/fifo"; wait $!; test -s through; rm -r "$pipes"
script -qec 'test -t 1' /dev/null > /dev/null
head -c 6000000 /dev/urandom | base64 > large
sort -S 1M large | sha256sum > /dev/null
split -b 2M large part.; cat part.* | cmp - large
tar czf all.tar.gz part.*; mkdir out; tar xzf all.tar.gz -C out; cmp part.aa out/part.aa
gzip -k part.aa; zcat part.aa.gz | cmp - part.aa
dd if=/dev/zero of=zeros bs=1M count=8 status=none; truncate -s 1G sparse; cp --sparse=always sparse sparser
sed -i s/same/other/ substituted; awk '{ n += NF } END { exit n != 3 }' substituted
ls -laR / > /dev/null 2>&1 || true
bash -ic true < /dev/null > /dev/null 2>&1
echo all of it works

# What people and scripts ask a machine: processes, memory, disks, who and where they are.
set -euo pipefail
ps aux | grep "[p]s aux" > /dev/null
ps -ef > /dev/null
free > /dev/null; uptime > /dev/null; top -b -n1 | grep Tasks > /dev/null
pgrep -f system_use > /dev/null
df . /tmp > /dev/null
df > /dev/null
du -s . > /dev/null
test "$(whoami)" = "$USER"; id > /dev/null; groups > /dev/null
test "$(nproc)" -ge 1; uname -a > /dev/null; hostname > /dev/null; date > /dev/null
stat -f . > /dev/null; mount > /dev/null; cat /proc/cpuinfo /proc/meminfo /proc/self/status > /dev/null
getent passwd "$USER" > /dev/null; getent hosts localhost > /dev/null
tty > /dev/null || test $? = 1
cat /etc/os-release > /dev/null; locale > /dev/null; printenv PATH > /dev/null
lscpu | grep Architecture > /dev/null
echo all of it works

# Zip archives.
set -euo pipefail
mkdir directory; echo text > directory/file
zip -qr all.zip directory
rm -r directory
unzip -q all.zip
test "$(cat directory/file)" = text
echo all of it works

# git in a repository that was there before, whose hooks and config are read-only.
set -euo pipefail
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com
test -z "$(git status --porcelain)"
echo more >> file; git add file; git commit -qm more
test "$(cat hook-ran)" = "the hook"
git switch -qc topic; git commit -q --allow-empty -m topic; git switch -q main
git merge -q topic; git branch -d topic > /dev/null 2>&1 || git branch -D topic > /dev/null 2>&1 || true
git tag v1; git stash list; git reset -q --hard HEAD~1; git clean -qfd -e hook-ran
test "$(git log --oneline | wc -l)" = 2
git fetch -q . HEAD; git gc -q; git fsck 2> /dev/null
if git config user.name other 2> /dev/null; then exit 1; fi
echo all of it works

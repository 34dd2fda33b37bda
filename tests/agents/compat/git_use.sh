# git from nothing: a repository in a new directory, branches, a clone, a working tree.
set -euo pipefail
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com
git config --global init.defaultBranch main
mkdir project; cd project
git init -q
echo one > file; git add file; git commit -qm one
git branch topic; git switch -q topic
echo two >> file; git commit -qam two
git switch -q main; git merge -q topic; git rebase -q topic
test "$(git log --format=%s | head -n 1)" = two
git diff HEAD~1 --stat | grep file > /dev/null
git tag -a -m v1 v1; test "$(git describe)" = v1
echo more >> file; git stash -q; git stash pop -q; git restore file
git worktree add -q ../tree topic
git -C ../tree status --short
git gc -q
git clone -q "file://$PWD" ../clone
test "$(git -C ../clone log --oneline | wc -l)" = 2
git -C ../clone commit -q --allow-empty -m three
git push -q ../clone main:pushed
cd ..; git clone -q project local; git -C local fsck 2> /dev/null
git init -q --bare bare.git; git -C project push -q ../bare.git main
echo all of it works

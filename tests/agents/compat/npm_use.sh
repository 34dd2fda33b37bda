# npm: scripts with a local binary, a package installed from a directory.
set -euo pipefail
mkdir -p dependency app; cd dependency
echo '{"name": "dependency", "version": "1.0.0", "bin": {"say": "say.js"}}' > package.json
printf '#!/usr/bin/env node\nconsole.log("said");\n' > say.js; chmod +x say.js
cd ../app
echo '{"name": "app", "version": "1.0.0", "scripts": {"test": "say"}}' > package.json
npm install --offline --no-audit --no-fund --silent ../dependency
npm test --silent | grep said > /dev/null
echo all of it works
